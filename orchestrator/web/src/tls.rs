//! TLS for browsers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::TlsAcceptor;

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or does not hold what it should.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what is expected.
        problem: String,
    },
    /// The two do not belong together.
    #[error("{} is not the private key of the first certificate in {}: give the two that belong together", key.display(), certificate.display())]
    Mismatch {
        /// The certificates.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// TLS 1.2 and 1.3 with ring, showing what `certificates` gives.
///
/// # Errors
/// Where the cryptography does not support them.
pub fn acceptor(certificates: Arc<dyn ResolvesServerCert>) -> Result<TlsAcceptor, TlsError> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A certificate with its chain, and its private key, from PEM files.
///
/// # Errors
/// [`TlsError`] names the file.
pub fn certificate_files(certificate: &Path, key: &Path) -> Result<Arc<dyn ResolvesServerCert>, TlsError> {
    let file = |path: &Path, problem: String| TlsError::File { path: path.to_owned(), problem };
    let read = |path: &Path| std::fs::read(path).map_err(|error| file(path, format!("cannot read it: {error}")));
    let (chain_pem, key_pem) = (read(certificate)?, read(key)?);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain_pem).collect();
    let chain = chain.map_err(|error| file(certificate, format!("no certificates in PEM form: {error}")))?;
    if chain.is_empty() {
        return Err(file(
            certificate,
            "there is no certificate in it; PEM is expected, the server's own first".to_owned(),
        ));
    }
    let private = PrivateKeyDer::from_pem_slice(&key_pem)
        .map_err(|error| file(key, format!("no private key in PEM form (not encrypted): {error}")))?;
    let signing = ring::sign::any_supported_type(&private)
        .map_err(|error| file(key, format!("its kind of key is not supported: {error}; RSA, ECDSA and Ed25519 are")))?;
    let certified = CertifiedKey::new(chain, signing);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(Arc::new(SingleCertAndKey::from(certified)))
        }
        Err(_) => Err(TlsError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate of its own key, and the key.
    fn self_signed() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn refused(certificate: &str, key: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let (certificate_file, key_file) = (directory.path().join("c.pem"), directory.path().join("c.key"));
        std::fs::write(&certificate_file, certificate).unwrap();
        std::fs::write(&key_file, key).unwrap();
        match certificate_files(&certificate_file, &key_file) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn files_that_belong_together_are_taken_and_others_named() {
        let ((certificate, key), (_, other_key)) = (self_signed(), self_signed());
        assert_eq!(refused(&certificate, &key), "");
        let mismatch = refused(&certificate, &other_key);
        assert!(mismatch.contains("is not the private key of"), "{mismatch}");
        assert!(refused("", &key).contains("c.pem: there is no certificate in it"));
        assert!(refused(&key, &certificate).contains("c.pem: there is no certificate in it"));
        assert!(refused(&certificate, &certificate).contains("c.key: no private key"));
        let missing = certificate_files(Path::new("/nowhere/c.pem"), Path::new("/nowhere/c.key")).err().unwrap();
        assert!(missing.to_string().starts_with("/nowhere/c.pem: cannot read it"), "{missing}");
    }
}

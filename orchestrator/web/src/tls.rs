//! TLS for browsers.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
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

/// A certificate with its chain, and its private key, from PEM files. A renewed pair is shown to whoever connects a few seconds later;
/// one that cannot be used is told to the log, and the one before goes on.
///
/// # Errors
/// [`TlsError`] names the file, where there is no pair to begin with.
pub fn certificate_files(certificate: &Path, key: &Path) -> Result<Arc<dyn ResolvesServerCert>, TlsError> {
    Ok(Arc::new(Renewed::open(certificate, key, LOOK_EVERY)?))
}

/// Between two looks at whether the files are others.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// A certificate and its key, read again when the files are others.
#[derive(Debug)]
struct Renewed {
    certificate: PathBuf,
    key: PathBuf,
    look_every: Duration,
    last: Mutex<Last>,
}

/// What the last look found.
#[derive(Debug)]
struct Last {
    /// The last pair that could be used.
    pair: Arc<CertifiedKey>,
    /// Of the files that were read last, also where they could not be used: nothing is said of them twice.
    marks: [Option<Mark>; 2],
    looked: Instant,
}

/// Tells a file from the one that was there before; none where there is no file.
type Mark = (u64, u64, i64, i64);

impl Renewed {
    fn open(certificate: &Path, key: &Path, look_every: Duration) -> Result<Self, TlsError> {
        // Before the reading: what is written meanwhile is read at the next look.
        let marks = [certificate, key].map(mark);
        let last = Mutex::new(Last { pair: read(certificate, key)?, marks, looked: Instant::now() });
        Ok(Self { certificate: certificate.to_owned(), key: key.to_owned(), look_every, last })
    }

    /// The pair for a connection that begins now.
    fn now(&self) -> Arc<CertifiedKey> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.looked.elapsed() >= self.look_every {
            last.looked = Instant::now();
            let marks = [&self.certificate, &self.key].map(|path| mark(path));
            if marks != last.marks {
                last.marks = marks;
                match read(&self.certificate, &self.key) {
                    Ok(pair) => {
                        tracing::info!(certificate = %self.certificate.display(), "the web interface shows the renewed certificate");
                        last.pair = pair;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the web interface keeps its certificate: the new one cannot be used")
                    }
                }
            }
        }
        Arc::clone(&last.pair)
    }
}

impl ResolvesServerCert for Renewed {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now())
    }
}

fn mark(path: &Path) -> Option<Mark> {
    let file = std::fs::metadata(path).ok()?;
    // The time of change, which a rename and new rights set, too.
    Some((file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>, TlsError> {
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
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(Arc::new(certified)),
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

    #[test]
    fn a_renewed_pair_is_taken_and_one_that_cannot_be_used_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("c.pem"), directory.path().join("c.key"));
        let write = |(certificate_pem, key_pem): (&str, &str)| {
            std::fs::write(&certificate, certificate_pem).unwrap();
            std::fs::write(&key, key_pem).unwrap();
        };
        let [first, second] = [self_signed(), self_signed()];
        write((&first.0, &first.1));
        let shown = |renewed: &Renewed| renewed.now().cert[0].clone();
        let renewed = Renewed::open(&certificate, &key, Duration::ZERO).unwrap();
        let lazy = Renewed::open(&certificate, &key, Duration::from_secs(3600)).unwrap();
        let one = shown(&renewed);
        // One file of the new pair before the other, as what renews them writes them; nonsense; nothing.
        for (certificate_pem, key_pem) in [(&second.0, &first.1), (&String::new(), &second.1)] {
            write((certificate_pem, key_pem));
            assert_eq!(shown(&renewed), one);
        }
        std::fs::remove_file(&key).unwrap();
        assert_eq!(shown(&renewed), one);
        write((&second.0, &second.1));
        let other = shown(&renewed);
        assert_eq!(other, CertificateDer::from_pem_slice(second.0.as_bytes()).unwrap());
        assert_ne!(other, one);
        assert_eq!(shown(&lazy), one, "it looks every now and then");
    }
}

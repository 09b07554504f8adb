//! Trust in the cluster's certificate: the system's authorities, a CA file, or one pinned fingerprint.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::HypervisorError;

/// How the cluster's certificate is judged: by the system's authorities where neither field is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trust {
    /// PEM file with the authorities to trust instead of the system's (on a node: `/etc/pve/pve-root-ca.pem`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// SHA-256 of the one certificate to accept, whatever its names and dates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
}

/// SHA-256 of a certificate in DER form, written as in PVE: `AB:CD:…`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate.as_ref()).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(formatter, "{separator}{byte:02X}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits: String = text.chars().filter(|character| !matches!(character, ':' | ' ')).collect();
        let malformed = || format!("found {text:?}, expected the 32 bytes of a SHA-256 as AB:CD:… or abcd…");
        if digits.len() != 64 || !digits.is_ascii() {
            return Err(malformed());
        }
        let mut bytes = [0_u8; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).map_err(|_| malformed())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

/// The TLS configuration for this trust.
pub(super) fn config(trust: &Trust) -> Result<ClientConfig, HypervisorError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    match (&trust.ca_file, trust.fingerprint) {
        (Some(_), Some(_)) => {
            Err(HypervisorError::Unexpected("tls: ca_file and fingerprint are both set; keep one of them".into()))
        }
        (Some(path), None) => with_authorities(provider, path),
        (None, Some(pinned)) => with_verifier(provider.clone(), Arc::new(Pinned::new(&provider, Some(pinned)))),
        (None, None) => {
            let verifier = rustls_platform_verifier::Verifier::new(provider.clone()).map_err(tls_error)?;
            with_verifier(provider, Arc::new(verifier))
        }
    }
}

/// A configuration that accepts any certificate and tells which it was; for showing it, never for sending a secret.
pub(super) fn recording() -> Result<(ClientConfig, impl Fn() -> Option<Fingerprint>), HypervisorError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Pinned::new(&provider, None));
    let seen = verifier.clone();
    Ok((with_verifier(provider, verifier)?, move || *seen.seen.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn with_authorities(provider: Arc<CryptoProvider>, path: &Path) -> Result<ClientConfig, HypervisorError> {
    let unreadable = |error: &dyn fmt::Display| {
        HypervisorError::Unexpected(format!(
            "tls.ca_file {}: cannot be read as PEM certificates: {error}",
            path.display()
        ))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))? {
        roots.add(certificate.map_err(|error| unreadable(&error))?).map_err(|error| unreadable(&error))?;
    }
    if roots.is_empty() {
        return Err(unreadable(&"it holds none"));
    }
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(tls_error)?.with_root_certificates(roots).with_no_client_auth())
}

fn with_verifier(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<ClientConfig, HypervisorError> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(tls_error)?.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn tls_error(error: rustls::Error) -> HypervisorError {
    HypervisorError::Unexpected(format!("TLS cannot be set up: {error}"))
}

/// Accepts the one pinned certificate, or any where none is pinned; records what it saw. Handshake signatures are always checked,
/// else a copy of the certificate without its key would pass.
#[derive(Debug)]
struct Pinned {
    pinned: Option<Fingerprint>,
    seen: Mutex<Option<Fingerprint>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn new(provider: &CryptoProvider, pinned: Option<Fingerprint>) -> Self {
        Self { pinned, seen: Mutex::new(None), algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of(end_entity);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        match self.pinned {
            Some(pinned) if pinned != found => Err(rustls::Error::General(format!(
                "the certificate presented has the fingerprint {found}, but {pinned} is pinned"
            ))),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_reads_back_as_written() {
        let text = (0..32).map(|byte| format!("{:02X}", byte * 7)).collect::<Vec<_>>().join(":");
        let fingerprint: Fingerprint = text.parse().unwrap();
        assert_eq!(fingerprint.to_string(), text);
        assert_eq!(text.replace(':', "").to_lowercase().parse(), Ok(fingerprint));
        for malformed in ["", "AB:CD", &text[1..], &text.replace("07", "0x"), &"é".repeat(32)] {
            assert!(malformed.parse::<Fingerprint>().unwrap_err().contains("SHA-256"), "{malformed}");
        }
    }

    #[test]
    fn two_kinds_of_trust_at_once_are_refused() {
        let trust = Trust { ca_file: Some("/x".into()), fingerprint: Some(Fingerprint([0; 32])) };
        assert!(config(&trust).unwrap_err().to_string().contains("both set"));
    }

    #[test]
    fn an_unreadable_authority_names_its_file() {
        let trust = Trust { ca_file: Some("/nonexistent/ca.pem".into()), fingerprint: None };
        assert!(config(&trust).unwrap_err().to_string().contains("/nonexistent/ca.pem"));
    }
}

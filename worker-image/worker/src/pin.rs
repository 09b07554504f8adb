//! Trust in the orchestrator: one certificate authority, known by its SHA-256, and nothing else.

use std::{io, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
    version::TLS13,
};
use worker_protocol::Fingerprint;

/// Why the orchestrator is not the one that this worker was made for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Distrust {
    /// Another CA.
    #[error(
        "certificate mismatch: this worker was given the CA with SHA-256 {pinned}, but the other end shows {shown}: it is another \
         orchestrator, its CA was made anew, or somebody stands in between"
    )]
    OtherAuthority {
        /// What was given at bootstrap.
        pinned: Fingerprint,
        /// The CA shown, or the certificate itself where it came alone.
        shown: Fingerprint,
    },
    /// Our CA is shown, but did not issue the certificate.
    #[error(
        "certificate mismatch: the other end shows the CA with SHA-256 {pinned}, as given, but its own certificate {shown} is not \
         issued by it ({why}): somebody stands in between"
    )]
    NotIssued {
        /// What was given at bootstrap.
        pinned: Fingerprint,
        /// The certificate shown.
        shown: Fingerprint,
        /// The verifier's words.
        why: String,
    },
}

/// TLS 1.3 with ring, trusting what `pinned` issued.
pub(crate) fn client_config(pinned: Fingerprint) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = PinnedAuthority { pinned, algorithms: provider.signature_verification_algorithms };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// The distrust that ended a handshake, if it was that.
pub(crate) fn distrust(error: &io::Error) -> Option<Distrust> {
    let tls = error.get_ref()?.downcast_ref::<Error>()?;
    let Error::InvalidCertificate(CertificateError::Other(OtherError(other))) = tls else { return None };
    other.downcast_ref::<Distrust>().cloned()
}

/// Accepts what the pinned CA issued, under any name and at any time.
///
/// The name does not matter: this CA issues for one orchestrator alone, which may be reached at addresses that it does not know of
/// (translated, forwarded, moved); who has the CA's key is the orchestrator. Dates do not matter: a new VM's clock may be wrong.
#[derive(Debug)]
struct PinnedAuthority {
    pinned: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinnedAuthority {
    fn judge(&self, leaf: &CertificateDer<'_>, others: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Distrust> {
        let pinned = self.pinned;
        let Some(authority) = others.iter().find(|other| Fingerprint::of(other) == pinned) else {
            return Err(Distrust::OtherAuthority { pinned, shown: Fingerprint::of(others.last().unwrap_or(leaf)) });
        };
        let issued = self.issued_by(authority, leaf, now);
        issued.map_err(|error| Distrust::NotIssued { pinned, shown: Fingerprint::of(leaf), why: error.to_string() })
    }

    fn issued_by(&self, authority: &CertificateDer<'_>, leaf: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let parsed = ParsedCertificate::try_from(leaf)?;
        let at = |now| verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, self.algorithms.all);
        match at(now) {
            // At a time that the certificate itself calls right.
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => at(not_after),
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) => at(not_before),
            judged => judged,
        }
    }
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.judge(leaf, others, now) {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(distrust) => Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(distrust))))),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, leaf, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

//! TLS of the workers' listener: the certificate in use, and what goes wrong in handshakes.

use std::{
    io,
    net::IpAddr,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use rustls::{
    AlertDescription, ServerConfig,
    crypto::ring,
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert},
    sign::CertifiedKey,
    version::TLS13,
};
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;

use super::{
    addresses,
    authority::{Authority, AuthorityError},
};

/// Between two looks at the machine's addresses.
const ADDRESS_INTERVAL: Duration = Duration::from_secs(30);
/// A certificate is replaced after this time, long before it ends.
const RENEWAL: Duration = Duration::from_secs(30 * 24 * 3600);

/// The certificate that a listener shows, issued anew when the machine's addresses or name change.
pub struct Leaf {
    authority: Arc<Authority>,
    listening: IpAddr,
    more_names: Vec<String>,
    current: RwLock<Issued>,
}

struct Issued {
    names: Vec<String>,
    at: Instant,
    certificate: Arc<CertifiedKey>,
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaf").field("listening", &self.listening).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Leaf {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).certificate))
    }
}

impl Leaf {
    /// For a listener on `listening` of this machine, that is also reached by `more_names`.
    ///
    /// # Errors
    /// Where the system does not tell its addresses, or a name is none that a certificate can carry.
    pub fn for_listener(authority: Arc<Authority>, listening: IpAddr, more_names: &[String]) -> io::Result<Arc<Self>> {
        let own = addresses::of_this_machine()?;
        Self::issue(authority, listening, &own, more_names).map_err(io::Error::other)
    }

    /// For a listener on `listening` of a machine with the addresses `own`.
    pub(super) fn issue(
        authority: Arc<Authority>,
        listening: IpAddr,
        own: &[IpAddr],
        more_names: &[String],
    ) -> Result<Arc<Self>, AuthorityError> {
        let names = names(listening, own, more_names);
        let current = RwLock::new(Issued { certificate: authority.issue(&names)?, at: Instant::now(), names });
        Ok(Arc::new(Self { authority, listening, more_names: more_names.to_vec(), current }))
    }

    /// Issues another certificate where the names are no longer those of the current one, or it is old; answers whether it did.
    fn refresh(&self, own: &[IpAddr]) -> Result<bool, AuthorityError> {
        let names = names(self.listening, own, &self.more_names);
        let is_true = |current: &Issued| names == current.names && current.at.elapsed() < RENEWAL;
        if is_true(&self.current.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(false);
        }
        let certificate = self.authority.issue(&names)?;
        tracing::info!(names = names.join(", "), "a listener has a new certificate");
        *self.current.write().unwrap_or_else(PoisonError::into_inner) =
            Issued { names, at: Instant::now(), certificate };
        Ok(true)
    }

    /// Keeps the certificate true to the machine's addresses; never ends.
    pub async fn follow_addresses(&self) {
        let mut every = tokio::time::interval(ADDRESS_INTERVAL);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            let refreshed = addresses::of_this_machine()
                .map_err(|error| error.to_string())
                .and_then(|own| self.refresh(&own).map_err(|error| error.to_string()));
            if let Err(error) = refreshed {
                tracing::warn!(error, "the certificate of a listener stays as it is");
            }
        }
    }
}

fn names(listening: IpAddr, own: &[IpAddr], more: &[String]) -> Vec<String> {
    let mut names = addresses::names(listening, own, &node_name());
    let new: Vec<String> = more.iter().filter(|name| !names.contains(name)).cloned().collect();
    names.extend(new);
    names
}

/// The machine's name.
pub fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// TLS 1.3 with ring and nothing else; no session is resumed, since a worker dials rarely.
pub(super) fn acceptor(leaf: Arc<Leaf>) -> Result<TlsAcceptor, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(leaf);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Why a handshake failed, for a person.
pub(super) fn reason(error: &io::Error) -> String {
    use rustls::Error;
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match tls {
        Some(Error::InvalidMessage(what)) => format!("it does not speak TLS ({what:?})"),
        Some(Error::AlertReceived(
            AlertDescription::BadCertificate | AlertDescription::CertificateUnknown | AlertDescription::UnknownCA,
        )) => "it does not trust this orchestrator's CA: it was given another fingerprint".to_owned(),
        Some(error) => format!("the TLS handshake failed: {error}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "it closed in the TLS handshake".to_owned(),
        None => format!("the connection broke off in the TLS handshake: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn another_address_means_another_certificate() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Arc::new(Authority::open(&directory.path().join("tls")).unwrap());
        let own = [address("127.0.0.1"), address("192.0.2.7")];
        let leaf = Leaf::issue(authority, address("0.0.0.0"), &own, &[]).unwrap();
        let shown = || leaf.current.read().unwrap().certificate.cert.clone();
        let first = shown();
        assert!(!leaf.refresh(&own).unwrap());
        assert_eq!(shown(), first);
        assert!(leaf.refresh(&[address("127.0.0.1"), address("192.0.2.8")]).unwrap());
        let second = shown();
        assert_ne!(second[0], first[0]);
        assert_eq!(second[1], first[1], "by the same CA");
        let carries =
            |der: &[u8], octets: [u8; 4]| der.windows(6).any(|part| part[..2] == [0x87, 4] && part[2..] == octets);
        assert!(carries(&first[0], [192, 0, 2, 7]) && !carries(&first[0], [192, 0, 2, 8]));
        assert!(carries(&second[0], [192, 0, 2, 8]) && carries(&second[0], [127, 0, 0, 1]));
    }
}

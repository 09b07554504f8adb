//! TLS of the tests: the fleet's CA, a strict client, and orchestrators with certificates of any kind.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use run::fleet::{Authority, CERTIFICATE_FILE};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};
use worker_protocol::Fingerprint;

struct Fleets {
    authority: Arc<Authority>,
    client: TlsConnector,
}

/// One CA for all fleets of this process, as one data directory has.
fn fleets() -> &'static Fleets {
    static FLEETS: OnceLock<Fleets> = OnceLock::new();
    FLEETS.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("tls");
        let authority = Arc::new(Authority::open(&place).unwrap());
        let certificate = CertificateDer::from_pem_file(place.join(CERTIFICATE_FILE)).unwrap();
        Fleets { authority, client: TlsConnector::from(Arc::new(client_config(certificate))) }
    })
}

/// Checks chain, name and dates, as any client does that knows nothing of fingerprints.
fn client_config(ca: CertificateDer<'static>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(ca).unwrap();
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

pub(crate) fn authority() -> Arc<Authority> {
    Arc::clone(&fleets().authority)
}

/// A TLS connection to a fleet.
pub(crate) async fn connect(address: SocketAddr) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    fleets().client.connect(ServerName::from(address.ip()), stream).await.unwrap()
}

/// A CA made by a test.
pub(crate) struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// When a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Valid {
    Now,
    NoLonger,
    NotYet,
}

impl Valid {
    fn set(self, parameters: &mut CertificateParams) {
        let (from, to) = match self {
            Self::Now => (2000, 4000),
            Self::NoLonger => (2000, 2001),
            Self::NotYet => (3999, 4000),
        };
        parameters.not_before = date_time_ymd(from, 1, 1);
        parameters.not_after = date_time_ymd(to, 1, 1);
    }
}

impl TestCa {
    pub(crate) fn new(valid: Valid) -> Self {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "test CA");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        valid.set(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(parameters, key), certificate }
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// A server with a certificate of this CA, for a name that nobody dials, that shows `shown` behind it.
    pub(crate) fn acceptor(&self, valid: Valid, shown: &[&TestCa]) -> TlsAcceptor {
        let mut parameters = CertificateParams::new(["elsewhere.example".to_owned()]).unwrap();
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        valid.set(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let leaf = parameters.signed_by(&key, &self.issuer).unwrap().der().clone();
        let chain = [leaf].into_iter().chain(shown.iter().map(|ca| ca.certificate.clone())).collect();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

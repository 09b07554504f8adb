//! The listener against clients that want it harm, and over TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::header;
use store::Role;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use web::{AllowedHosts, App, HEADER_PATIENCE, Parts};

use crate::samples;
use crate::source::{PASSWORD, Runs, add_user, new_store};

/// Far above every limit under test, on a busy machine.
const BOUND: Duration = Duration::from_secs(90);

/// A server that goes on until it is told.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) app: App,
    pub(crate) store: store::Store,
    _directory: tempfile::TempDir,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start(runs: Runs, tls: Option<tokio_rustls::TlsAcceptor>) -> Self {
        Self::with_hub(runs, tls, Arc::default()).await
    }

    /// With a run under way that somebody else feeds.
    pub(crate) async fn with_hub(runs: Runs, tls: Option<tokio_rustls::TlsAcceptor>, hub: Arc<web::Hub>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (directory, store) = new_store().await;
        let (hosts, secure) = (AllowedHosts::listening_on(address), tls.is_some());
        let parts = Parts {
            runs: Arc::new(runs),
            workshop: Arc::new(web::Onlooker::new(hub)),
            store: store.clone(),
            hosts,
            listening: address,
            secure,
        };
        let app = App::new(parts).unwrap();
        let (stop, stopped) = oneshot::channel();
        let serve = web::serve(listener, tls, app.clone(), async move { stopped.await.unwrap_or_default() });
        Self { address, app, store, _directory: directory, stop, task: tokio::spawn(serve) }
    }

    /// Asks it to end, and waits.
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        timeout(BOUND, self.task).await.unwrap().unwrap();
    }
}

fn client() -> reqwest::ClientBuilder {
    // The first to install a provider has it installed; any is ring's. A client without one cannot be made, whatever it asks for.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(BOUND)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_finish_its_request_is_dropped() {
    let served = Served::start(Runs::new(Vec::new(), None), None).await;
    let started = Instant::now();
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    let mut trickling = TcpStream::connect(served.address).await.unwrap();
    let trickle = async {
        trickling.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ").await.unwrap();
        while trickling.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let mut rest = Vec::new();
    timeout(BOUND, silent.read_to_end(&mut rest)).await.unwrap().unwrap_or_default();
    timeout(BOUND, trickle).await.unwrap();
    assert!(started.elapsed() >= HEADER_PATIENCE / 2, "dropped after {:?}", started.elapsed());
    let alive = client().build().unwrap().get(format!("http://{}/healthz", served.address)).send().await.unwrap();
    assert_eq!(alive.text().await.unwrap(), "ok\n");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_megabytes_are_refused_before_they_are_there() {
    let served = Served::start(Runs::new(Vec::new(), None), None).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let head = format!(
        "POST /login HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\nSec-Fetch-Site: same-origin\r\n\r\n",
        served.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut read, mut write) = stream.split();
    let send = async {
        let piece = vec![b'x'; 64 << 10];
        for sent in 0..1600_u32 {
            let chunk = async {
                write.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
                write.write_all(&piece).await?;
                write.write_all(b"\r\n").await
            };
            if chunk.await.is_err() {
                return sent;
            }
        }
        1600
    };
    let mut answer = vec![0; 64];
    let (sent, heard) = timeout(BOUND, async { tokio::join!(send, read.read_exact(&mut answer)) }).await.unwrap();
    assert!(sent < 400, "{sent} pieces of 64 KiB were taken");
    // A reset may overtake the answer; where it came, it is the refusal.
    if heard.is_ok() {
        assert!(answer.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer));
    }
    let alive = client().build().unwrap().get(format!("http://{}/healthz", served.address)).send().await.unwrap();
    assert_eq!(alive.status(), 200);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_the_cookie_is_secure_and_plain_http_is_not_answered() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("c.pem"), directory.path().join("c.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let acceptor = web::acceptor(web::certificate_files(&certificate, &key).unwrap()).unwrap();
    let served = Served::start(Runs::new(vec![samples::demo()], None), Some(acceptor)).await;
    add_user(&served.store, "viewer", Role::Viewer).await;

    let root = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    let https = client().tls_certs_only([root]).build().unwrap();
    let base = format!("https://{}", served.address);
    let login = https.post(format!("{base}/login")).header(header::ORIGIN, &base);
    let answer = login.form(&[("name", "viewer"), ("password", PASSWORD)]).send().await.unwrap();
    assert_eq!(answer.status(), 303);
    let cookie = answer.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
    let port = served.address.port();
    assert!(cookie.starts_with(&format!("__Host-fourcorners-{port}=")) && cookie.contains("; Secure"), "{cookie}");
    let session = cookie.split(';').next().unwrap();
    let list =
        https.get(format!("{base}/")).header(header::COOKIE, session).send().await.unwrap().text().await.unwrap();
    assert!(list.contains(">demo</a>"), "{list}");
    let plain = client().build().unwrap().get(format!("http://{}/", served.address)).send().await;
    assert!(plain.is_err(), "{plain:?}");
    served.stop().await;
}

/// What `certbot` and the like do every other month, without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_shown_to_whoever_connects_next() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("c.pem"), directory.path().join("c.key"));
    // Writes another pair; gives a client that trusts this one alone.
    let renew = || {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let root = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
        client().tls_certs_only([root]).build().unwrap()
    };
    let before = renew();
    let acceptor = web::acceptor(web::certificate_files(&certificate, &key).unwrap()).unwrap();
    let served = Served::start(Runs::new(Vec::new(), None), Some(acceptor)).await;
    let url = format!("https://{}/healthz", served.address);
    assert_eq!(before.get(&url).send().await.unwrap().status(), 200);
    let after = renew();
    let deadline = Instant::now() + BOUND;
    while after.get(&url).send().await.is_err() {
        assert!(Instant::now() < deadline, "the old certificate is still shown");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_though_a_client_stays_connected() {
    let served = Served::start(Runs::new(Vec::new(), None), None).await;
    let mut idle = TcpStream::connect(served.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut heard = [0; 12];
    idle.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"HTTP/1.1 200");
    served.stop().await;
}

//! The listener: bounded connections, TLS where it is asked for, HTTP/1.1 (HTTP/2 would have a client open a hundred requests in
//! one packet), and a time for everything that a client could keep for itself.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::app::App;
use crate::guard::network;
use crate::server::router;

/// Connections at a time. More wait in the kernel's backlog.
pub const CONNECTION_LIMIT: usize = 512;

/// Connections of one address (of IPv6: of one /64) at a time; a browser has six a host. More are closed.
const ADDRESS_LIMIT: usize = 128;

/// The time for a TLS handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// The time for a request's head, from the connection's start or the end of the request before.
pub const HEADER_PATIENCE: Duration = Duration::from_secs(15);

/// The time for which a client may take nothing of what is sent to it: it holds a place meanwhile.
const SEND_PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a request's head.
const MAX_HEAD_BYTES: usize = 32 << 10;

/// Time that answers under way have to end after a shutdown was asked for.
const DRAIN: Duration = Duration::from_secs(5);

/// After a failed accept (no file descriptors left, say) the listener waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the pages until `shutdown` ends, then for at most five seconds what is under way. TLS where there is an acceptor.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    app: App,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    Server::new(router(app), tls, SEND_PATIENCE).run(listener, shutdown).await;
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, place))
}

/// What each connection is given.
struct Server {
    router: Router,
    tls: Option<TlsAcceptor>,
    send_patience: Duration,
    stopping: CancellationToken,
    crowd: Arc<Crowd>,
}

impl Server {
    /// A connection whose client takes nothing for `send_patience` is closed.
    fn new(router: Router, tls: Option<TlsAcceptor>, send_patience: Duration) -> Self {
        Self { router, tls, send_patience, stopping: CancellationToken::new(), crowd: Arc::default() }
    }

    /// Accepts connections until `shutdown`, then waits a little for what is under way.
    async fn run(self, listener: TcpListener, shutdown: impl Future<Output = ()> + Send + 'static) {
        let places = Arc::new(Semaphore::new(CONNECTION_LIMIT));
        tokio::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &places) => accepted,
                () = &mut shutdown => break,
            };
            match accepted {
                Ok((stream, peer, place)) => self.begin(stream, peer, place),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a browser's connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        // What goes on for longer, a page that follows a run, is broken off.
        self.stopping.cancel();
        let all = u32::try_from(CONNECTION_LIMIT).unwrap_or(u32::MAX);
        let _ = timeout(DRAIN, places.acquire_many(all)).await;
    }

    /// Answers a connection in the background.
    fn begin(&self, stream: TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit) {
        let Some(presence) = Crowd::enter(&self.crowd, peer.ip()) else {
            tracing::debug!(%peer, "too many connections of one address");
            return;
        };
        // Small answers should not wait to fill a segment.
        let _ = stream.set_nodelay(true);
        // Below TLS, so that what its client does not take counts, too.
        let stream = Impatient::new(stream, self.send_patience);
        let (router, tls, stopping) = (self.router.clone(), self.tls.clone(), self.stopping.clone());
        tokio::spawn(async move {
            let _kept = (place, presence);
            match tls {
                None => answer(stream, peer, router, stopping).await,
                Some(tls) => match timeout(HANDSHAKE_PATIENCE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => answer(stream, peer, router, stopping).await,
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "the TLS handshake failed"),
                    Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
                },
            }
        });
    }
}

/// Answers the requests of a connection until it ends.
async fn answer<S>(stream: S, peer: SocketAddr, router: Router, stopping: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = router.map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request.map(axum::body::Body::new)
    });
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a browser's connection broke");
    }
}

/// A connection that fails where its other side takes nothing for too long. To have nothing to send costs no patience.
struct Impatient<S> {
    stream: S,
    patience: Duration,
    /// Until when what waits must have been taken, at least in part; none while nothing waits.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> Impatient<S> {
    fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, until: None }
    }

    /// Sends something, or fails where nothing went for too long.
    fn send<T>(
        &mut self,
        context: &mut Context<'_>,
        send: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let sent = send(Pin::new(&mut self.stream), context);
        if sent.is_ready() {
            self.until = None;
            return sent;
        }
        let patience = self.patience;
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(patience)));
        until.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.send(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.send(context, |stream, context| stream.poll_write_vectored(context, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send(context, |stream, context| stream.poll_shutdown(context))
    }
}

/// Connections by the network of their address.
#[derive(Debug, Default)]
struct Crowd {
    by_network: Mutex<HashMap<[u8; 8], usize>>,
}

impl Crowd {
    /// Counts a connection, unless its address has too many.
    fn enter(crowd: &Arc<Self>, address: IpAddr) -> Option<Presence> {
        let network = network(address);
        let mut all = crowd.by_network.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(network).or_default();
        if *count >= ADDRESS_LIMIT {
            return None;
        }
        *count += 1;
        drop(all);
        Some(Presence { crowd: Arc::clone(crowd), network })
    }
}

/// A connection that is counted.
#[derive(Debug)]
struct Presence {
    crowd: Arc<Crowd>,
    network: [u8; 8],
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut all = self.crowd.by_network.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use futures_util::stream;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::mpsc;
    use tokio_rustls::TlsConnector;

    use super::*;

    /// Far above every limit under test, on a busy machine.
    const BOUND: Duration = Duration::from_secs(60);
    /// Instead of a minute.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// Whatever can be read and written.
    trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
    impl<S: AsyncRead + AsyncWrite + Unpin + Send> Wire for S {}

    /// Says when it is dropped.
    struct Held(mpsc::UnboundedSender<()>);

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }

    /// A server of an answer without an end, `/endless`, and of one with long silences, `/slow`; with TLS, and how to connect to it.
    struct Door {
        address: SocketAddr,
        connector: Option<TlsConnector>,
        /// Hears of each endless answer that has ended.
        ended: mpsc::UnboundedReceiver<()>,
    }

    impl Door {
        async fn open(tls: bool) -> Self {
            let (dropped, ended) = mpsc::unbounded_channel();
            let endless = move || {
                let held = Held(dropped.clone());
                let pieces = stream::repeat_with(move || {
                    let _kept = &held;
                    Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 64 << 10]))
                });
                std::future::ready(Body::from_stream(pieces))
            };
            let slow = || {
                let pieces = stream::unfold(0_u32, |number| async move {
                    if number == 3 {
                        return None;
                    }
                    // Longer than the patience: nothing waits to be sent meanwhile.
                    sleep(PATIENCE + PATIENCE / 2).await;
                    Some((Ok::<_, Infallible>(Bytes::from(format!("{number};"))), number + 1))
                });
                std::future::ready(Body::from_stream(pieces))
            };
            let router = Router::new().route("/endless", get(endless)).route("/slow", get(slow));
            let (acceptor, connector) = if tls { Some(own_tls()) } else { None }.unzip();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(Server::new(router, acceptor, PATIENCE).run(listener, std::future::pending()));
            Self { address, connector, ended }
        }

        /// A connection that has asked for a path.
        async fn ask(&self, path: &str) -> Box<dyn Wire> {
            let stream = TcpStream::connect(self.address).await.unwrap();
            let mut stream: Box<dyn Wire> = match &self.connector {
                None => Box::new(stream),
                Some(tls) => Box::new(tls.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()),
            };
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            stream
        }
    }

    fn own_tls() -> (TlsAcceptor, TlsConnector) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (directory.path().join("c.pem"), directory.path().join("c.key"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let acceptor = crate::acceptor(crate::certificate_files(&certificate, &key).unwrap()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        (acceptor, TlsConnector::from(Arc::new(client)))
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_dropped() {
        for tls in [false, true] {
            let mut door = Door::open(tls).await;
            let silent = door.ask("/endless").await;
            timeout(BOUND, door.ended.recv()).await.expect("its answer goes on for nobody").unwrap();
            drop(silent);
        }
    }

    #[tokio::test]
    async fn who_reads_keeps_an_answer_for_as_long_as_it_goes_on() {
        let read = async |tls| {
            let mut door = Door::open(tls).await;
            // Much, taken bit by bit for longer than the patience.
            let mut reading = door.ask("/endless").await;
            let mut piece = vec![0; 64 << 10];
            let began = std::time::Instant::now();
            while began.elapsed() < 3 * PATIENCE {
                reading.read_exact(&mut piece).await.unwrap();
                sleep(Duration::from_millis(1)).await;
            }
            assert!(door.ended.try_recv().is_err(), "it was broken off");
            // Little, with silences that are longer than the patience.
            let mut text = String::new();
            let mut slow = door.ask("/slow").await;
            timeout(BOUND, slow.read_to_string(&mut text)).await.unwrap().unwrap();
            for part in ["0;", "1;", "2;"] {
                assert!(text.contains(part), "{text}");
            }
        };
        tokio::join!(read(false), read(true));
    }

    #[test]
    fn one_address_cannot_have_all_places() {
        let crowd = Arc::new(Crowd::default());
        for (many, same, other) in [
            ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
            // A host of IPv6 has as many addresses as it likes, in one network.
            ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:db8:0:2::1"),
        ] {
            let [many, same, other] = [many, same, other].map(|address| address.parse().unwrap());
            let mut present: Vec<_> = (0..ADDRESS_LIMIT).map(|_| Crowd::enter(&crowd, many).unwrap()).collect();
            assert!(Crowd::enter(&crowd, many).is_none() && Crowd::enter(&crowd, same).is_none());
            assert!(Crowd::enter(&crowd, other).is_some());
            present.pop();
            assert!(Crowd::enter(&crowd, same).is_some());
            drop(present);
            assert!(crowd.by_network.lock().unwrap().is_empty(), "who has left takes no memory");
        }
    }
}

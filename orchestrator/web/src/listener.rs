//! The listener: bounded connections, TLS where it is asked for, HTTP/1.1 (HTTP/2 would have a client open a hundred requests in
//! one packet), and a time for everything that a client could keep for itself.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::app::App;
use crate::server::router;

/// Connections at a time. More wait in the kernel's backlog.
pub const CONNECTION_LIMIT: usize = 512;

/// Connections of one address at a time; a browser has six a host. More are closed.
const ADDRESS_LIMIT: usize = 128;

/// The time for a TLS handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// The time for a request's head, from the connection's start or the end of the request before.
pub const HEADER_PATIENCE: Duration = Duration::from_secs(15);

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
    let server = Server { router: router(app), tls, stopping: CancellationToken::new(), crowd: Arc::default() };
    let places = Arc::new(Semaphore::new(CONNECTION_LIMIT));
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = &mut shutdown => break,
        };
        match accepted {
            Ok((stream, peer, place)) => server.begin(stream, peer, place),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a browser's connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    // What goes on for longer, a page that follows a run, is broken off.
    server.stopping.cancel();
    let all = u32::try_from(CONNECTION_LIMIT).unwrap_or(u32::MAX);
    let _ = timeout(DRAIN, places.acquire_many(all)).await;
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
    stopping: CancellationToken,
    crowd: Arc<Crowd>,
}

impl Server {
    /// Answers a connection in the background.
    fn begin(&self, stream: TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit) {
        let Some(presence) = Crowd::enter(&self.crowd, peer.ip()) else {
            tracing::debug!(%peer, "too many connections of one address");
            return;
        };
        // Small answers should not wait to fill a segment.
        let _ = stream.set_nodelay(true);
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

/// Connections by address.
#[derive(Debug, Default)]
struct Crowd {
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

impl Crowd {
    /// Counts a connection, unless its address has too many.
    fn enter(crowd: &Arc<Self>, address: IpAddr) -> Option<Presence> {
        let mut all = crowd.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(address).or_default();
        if *count >= ADDRESS_LIMIT {
            return None;
        }
        *count += 1;
        drop(all);
        Some(Presence { crowd: Arc::clone(crowd), address })
    }
}

/// A connection that is counted.
#[derive(Debug)]
struct Presence {
    crowd: Arc<Crowd>,
    address: IpAddr,
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut all = self.crowd.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_have_all_places() {
        let crowd = Arc::new(Crowd::default());
        let (many, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let mut present: Vec<_> = (0..ADDRESS_LIMIT).map(|_| Crowd::enter(&crowd, many).unwrap()).collect();
        assert!(Crowd::enter(&crowd, many).is_none());
        assert!(Crowd::enter(&crowd, other).is_some());
        present.pop();
        assert!(Crowd::enter(&crowd, many).is_some());
        drop(present);
        assert!(crowd.by_address.lock().unwrap().is_empty(), "who has left takes no memory");
    }
}

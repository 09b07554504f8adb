//! The listener: bounded connections, the handshakes of TLS and WebSocket and the Hello, or a Reject with its reason.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use futures_util::{SinkExt, StreamExt};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async_with_config,
    tungstenite::{
        Message,
        handshake::server::{Callback, ErrorResponse, Request, Response},
        http::StatusCode,
        protocol::WebSocketConfig,
    },
};
use worker_protocol::{
    Hello, MAX_MESSAGE_BYTES, OrchestratorMessage, PROTOCOL_VERSION, Reject, SESSION_PATH, WorkerMessage,
    decode_from_worker, encode, hello_version,
};

use super::{
    metered::Metered,
    roster::{Shared, reject},
    session, tls,
};

/// After a failed accept (no file descriptors left, say) the listener waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The read buffer of a session: most messages are smaller, and idle connections cost no more.
const READ_BUFFER_BYTES: usize = 16 << 10;
/// How long a refused peer may take to hear its refusal.
const REJECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a connection that takes long looks whether others wait.
const CROWD_POLL: Duration = Duration::from_millis(100);

/// A connection before its worker is enrolled, and after.
type Socket = WebSocketStream<Metered<TlsStream<TcpStream>>>;

/// Accepts for ever. At most [`super::FleetLimits::max_unenrolled`] connections have not enrolled yet; more wait in the kernel's
/// backlog until one of those has or is dropped by its timeout.
pub(super) async fn accept_workers(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(shared.settings.limits.max_unenrolled));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let connection = Connection { acceptor: acceptor.clone(), places: Arc::clone(&places), place };
                let serve = connection.serve(stream, peer, Arc::clone(&shared));
                tokio::spawn(shared.cancel.clone().run_until_cancelled_owned(serve));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a worker's connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// What a new connection comes with.
struct Connection {
    acceptor: TlsAcceptor,
    /// All places, to see whether others wait.
    places: Arc<Semaphore>,
    /// Its own, until it has enrolled or is refused.
    place: OwnedSemaphorePermit,
}

impl Connection {
    /// From its first byte to its end.
    async fn serve(self, stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
        // Small messages both ways: waiting to fill a segment would add to the clock's round trip.
        let _ = stream.set_nodelay(true);
        let peer = peer.to_string();
        let greeted = tokio::select! {
            greeted = greet(stream, &self.acceptor) => greeted,
            slow = self.out_of_patience(&shared) => Err(slow),
        };
        match greeted {
            Ok((socket, hello)) => judge(socket, hello, peer, self.place, shared).await,
            Err(reason) => shared.refuse(&peer, &reason),
        }
    }

    /// Ends when the connection has had its time, which is short where all places are taken.
    async fn out_of_patience(&self, shared: &Shared) -> String {
        let limits = &shared.settings.limits;
        let shortest = limits.crowded_timeout.min(limits.hello_timeout);
        sleep(shortest).await;
        let rest = async {
            while self.places.available_permits() > 0 {
                sleep(CROWD_POLL).await;
            }
        };
        let crowded = timeout(limits.hello_timeout.saturating_sub(shortest), rest).await.is_ok();
        if crowded && shortest < limits.hello_timeout {
            return format!("no valid Hello within {} s, while others waited", shortest.as_secs_f64());
        }
        format!("no valid Hello within {} s", limits.hello_timeout.as_secs_f64())
    }
}

/// Takes a worker in, or tells it why not.
async fn judge(
    mut socket: Socket,
    hello: Result<Hello, Reject>,
    peer: String,
    place: OwnedSemaphorePermit,
    shared: Arc<Shared>,
) {
    let verdict = match hello.and_then(|hello| check(hello, &shared.settings.token)) {
        Ok(hello) => shared.admit(hello).await,
        Err(refusal) => Err(refusal),
    };
    match verdict {
        Ok(admitted) => {
            drop(place);
            socket.get_mut().lift();
            tracing::info!(worker = admitted.worker, peer, "worker enrolled");
            session::run(socket, admitted, shared).await;
        }
        Err(refusal) => {
            shared.refuse(&peer, &refusal.reason);
            // Whether it hears of it is the peer's loss.
            let _ = timeout(REJECT_TIMEOUT, send_reject(&mut socket, refusal)).await;
        }
    }
}

/// Handshakes and Hello. The outer error is of a peer that cannot be answered, the inner one is its answer.
async fn greet(stream: TcpStream, acceptor: &TlsAcceptor) -> Result<(Socket, Result<Hello, Reject>), String> {
    let stream = acceptor.accept(stream).await.map_err(|error| tls::reason(&error))?;
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let socket = accept_hdr_async_with_config(Metered::new(stream), OnlyTheSession, Some(config)).await;
    let mut socket = socket.map_err(|error| format!("not a worker's WebSocket: {error}"))?;
    let hello = read_hello(&mut socket).await?;
    Ok((socket, hello))
}

/// The first message.
async fn read_hello<S>(socket: &mut WebSocketStream<S>) -> Result<Result<Hello, Reject>, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let bytes = match socket.next().await {
        Some(Ok(Message::Binary(bytes))) => bytes,
        Some(Ok(other)) => return Err(format!("expected a Hello; got {}", kind(&other))),
        Some(Err(error)) => return Err(format!("before its Hello: {error}")),
        None => return Err("it closed before its Hello".to_owned()),
    };
    let version = hello_version(&bytes).map_err(|error| format!("expected a Hello: {error}"))?;
    if version != PROTOCOL_VERSION {
        let reason =
            format!("the worker speaks protocol version {version}, this orchestrator version {PROTOCOL_VERSION}");
        return Ok(Err(reject(reason, true)));
    }
    match decode_from_worker(&bytes) {
        Ok(WorkerMessage::Hello(hello)) => Ok(Ok(hello)),
        Ok(_) => Err("its first message is no Hello".to_owned()),
        Err(error) => Err(format!("expected a Hello: {error}")),
    }
}

/// The Hello without its token, where that is right.
fn check(hello: Hello, token: &str) -> Result<Hello, Reject> {
    // Digests, so that the time of the comparison says nothing about the token.
    if Sha256::digest(&hello.token) != Sha256::digest(token) {
        return Err(reject("wrong enrolment token".to_owned(), true));
    }
    Ok(Hello { token: String::new(), ..hello })
}

async fn send_reject<S>(socket: &mut WebSocketStream<S>, refusal: Reject) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let bytes = encode(&OrchestratorMessage::Reject(refusal)).map_err(io::Error::other)?;
    socket.send(Message::binary(bytes)).await.map_err(io::Error::other)?;
    socket.close(None).await.map_err(io::Error::other)?;
    // The peer closes in turn; leaving first could discard the message with a reset.
    while let Some(Ok(_)) = socket.next().await {}
    Ok(())
}

pub(super) fn kind(message: &Message) -> &'static str {
    match message {
        Message::Text(_) => "a text message",
        Message::Binary(_) => "a binary message",
        Message::Ping(_) | Message::Pong(_) => "a ping",
        Message::Close(_) => "a close",
        Message::Frame(_) => "a bare frame",
    }
}

/// Refuses every path but the session's.
struct OnlyTheSession;

impl Callback for OnlyTheSession {
    fn on_request(self, request: &Request, response: Response) -> Result<Response, ErrorResponse> {
        if request.uri().path() == SESSION_PATH {
            return Ok(response);
        }
        let mut refusal = ErrorResponse::new(Some(format!("workers dial {SESSION_PATH}\n")));
        *refusal.status_mut() = StatusCode::NOT_FOUND;
        Err(refusal)
    }
}

//! The listener: bounded connections, the WebSocket handshake and the Hello, or a Reject with its reason.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use futures_util::{SinkExt, StreamExt};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
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
    roster::{Shared, reject},
    session,
    settings::SEND_TIMEOUT,
};

/// After a failed accept (no file descriptors left, say) the listener waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The read buffer of a session: most messages are smaller, and idle connections cost no more.
const READ_BUFFER_BYTES: usize = 16 << 10;

/// Accepts until the fleet ends. At most [`super::FleetLimits::max_unenrolled`] connections are in their handshake; more
/// wait in the kernel's backlog until one of those has enrolled or is dropped by its timeout.
pub(super) async fn accept_workers(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(shared.settings.limits.max_unenrolled));
    let cancel = shared.cancel.clone();
    let accept = async {
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, peer)) => spawn_connection(stream, peer, place, &shared),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a worker's connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept => (),
        () = cancel.cancelled() => (),
    }
}

fn spawn_connection(stream: TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let cancel = shared.cancel.clone();
        // Small messages both ways: waiting to fill a segment would add to the clock's round trip.
        let _ = stream.set_nodelay(true);
        tokio::select! {
            () = serve(stream, peer.to_string(), place, shared) => (),
            () = cancel.cancelled() => (),
        }
    });
}

/// One connection from its first byte to its end.
async fn serve<S>(stream: S, peer: String, place: OwnedSemaphorePermit, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limit = shared.settings.limits.hello_timeout;
    let (mut socket, hello) = match timeout(limit, greet(stream)).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(reason)) => return shared.refuse(&peer, &reason),
        Err(_) => return shared.refuse(&peer, &format!("no valid Hello within {} s", limit.as_secs_f64())),
    };
    let verdict = match hello.and_then(|hello| check(hello, &shared.settings.token)) {
        Ok(hello) => shared.admit(hello).await,
        Err(refusal) => Err(refusal),
    };
    match verdict {
        Ok(admitted) => {
            drop(place);
            tracing::info!(worker = admitted.worker, peer, "worker enrolled");
            session::run(socket, admitted, shared).await;
        }
        Err(refusal) => {
            shared.refuse(&peer, &refusal.reason);
            // Whether it hears of it is the peer's loss.
            let _ = timeout(SEND_TIMEOUT, send_reject(&mut socket, refusal)).await;
        }
    }
}

/// Handshake and Hello. The outer error is of a peer that cannot be answered, the inner one is its answer.
async fn greet<S>(stream: S) -> Result<(WebSocketStream<S>, Result<Hello, Reject>), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let socket = accept_hdr_async_with_config(stream, OnlyTheSession, Some(config)).await;
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

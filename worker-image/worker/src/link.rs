//! Dialling: TCP, the WebSocket handshake, Hello, and Welcome or Reject.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Message, client::IntoClientRequest, http::Uri, protocol::WebSocketConfig},
};
use worker_protocol::{
    Hello, MAX_MESSAGE_BYTES, OrchestratorMessage, PROTOCOL_VERSION, Welcome, WorkerMessage, decode_from_orchestrator,
    encode,
};

use crate::{AgentError, DIAL_TIMEOUT, MAX_BACKOFF, MIN_BACKOFF};

/// The session's socket.
pub(crate) type Socket = WebSocketStream<TcpStream>;

/// Why there is no session.
#[derive(Debug)]
pub(crate) enum DialError {
    /// Trying again may help.
    Later(String),
    /// It cannot.
    Final(String),
}

/// Where the orchestrator is.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    url: String,
    host: String,
    port: u16,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, AgentError> {
        let bad = |problem: String| AgentError::Option { option: "--url", problem };
        let uri: Uri = url.parse().map_err(|error| bad(format!("{url:?}: {error}")))?;
        if uri.scheme_str() != Some("ws") {
            return Err(bad(format!("{url:?}: expected ws://HOST:PORT/PATH")));
        }
        let host = uri.host().ok_or_else(|| bad(format!("{url:?}: it has no host")))?;
        let port = uri.port_u16().unwrap_or(80);
        // An IPv6 literal stands in brackets in a URL, and without them elsewhere.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { url: url.to_owned(), host, port })
    }
}

/// Opens a session, or says why not, within [`DIAL_TIMEOUT`].
pub(crate) async fn dial(address: &Address, hello: Hello) -> Result<(Socket, Welcome), DialError> {
    match timeout(DIAL_TIMEOUT, open(address, hello)).await {
        Ok(opened) => opened,
        Err(_) => Err(DialError::Later(format!("{}: no answer within {} s", address.url, DIAL_TIMEOUT.as_secs()))),
    }
}

async fn open(address: &Address, hello: Hello) -> Result<(Socket, Welcome), DialError> {
    let later = |error: &dyn std::fmt::Display| DialError::Later(format!("{}: {error}", address.url));
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(|error| later(&error))?;
    // Clock replies must not wait for a segment to fill.
    stream.set_nodelay(true).map_err(|error| later(&error))?;
    let config = WebSocketConfig::default()
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let request = address.url.as_str().into_client_request().map_err(|error| DialError::Final(error.to_string()))?;
    let (mut socket, _) =
        client_async_with_config(request, stream, Some(config)).await.map_err(|error| later(&error))?;
    let hello = encode(&WorkerMessage::Hello(hello)).map_err(|error| DialError::Final(error.to_string()))?;
    socket.send(Message::binary(hello)).await.map_err(|error| later(&error))?;
    let answer = answer(&mut socket).await.map_err(|why| later(&why))?;
    match answer {
        OrchestratorMessage::Welcome(welcome) if welcome.protocol_version == PROTOCOL_VERSION => Ok((socket, welcome)),
        OrchestratorMessage::Welcome(welcome) => Err(DialError::Final(format!(
            "the orchestrator speaks protocol version {}, this worker version {PROTOCOL_VERSION}",
            welcome.protocol_version
        ))),
        OrchestratorMessage::Reject(reject) => {
            // Answers the orchestrator's close; whatever comes of it changes nothing.
            let _ = socket.close(None).await;
            Err(if reject.permanent { DialError::Final(reject.reason) } else { DialError::Later(reject.reason) })
        }
        _ => Err(later(&"neither welcomed nor rejected")),
    }
}

async fn answer(socket: &mut Socket) -> Result<OrchestratorMessage, String> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Binary(bytes))) => {
                return decode_from_orchestrator(&bytes).map_err(|error| error.to_string());
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => (),
            Some(Ok(_)) | None => return Err("closed before its answer to Hello".to_owned()),
            Some(Err(error)) => return Err(error.to_string()),
        }
    }
}

/// Pauses between attempts.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: MIN_BACKOFF }
    }

    /// The next pause: a random half to whole of what doubled each time, so that a fleet does not come back in step.
    pub(crate) fn pause(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(MAX_BACKOFF);
        let [random, ..] = *uuid::Uuid::new_v4().as_bytes();
        whole / 2 + whole * u32::from(random) / 512
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_web_socket_urls() {
        let address = Address::parse("ws://[::1]:8080/api").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("::1", 8080));
        assert_eq!(Address::parse("ws://10.0.0.1/api").unwrap().port, 80);
        for bad in ["http://a/b", "wss://a/b", "ws://", "a b", "/api", ""] {
            let error = Address::parse(bad).unwrap_err().to_string();
            assert!(error.contains("--url"), "{error}");
        }
    }

    #[test]
    fn pauses_double_within_bounds() {
        let mut backoff = Backoff::new();
        let mut whole = MIN_BACKOFF;
        for _ in 0..20 {
            let pause = backoff.pause();
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
            whole = (whole * 2).min(MAX_BACKOFF);
        }
        assert_eq!(whole, MAX_BACKOFF);
    }
}

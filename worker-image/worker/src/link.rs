//! Dialling: the orchestrator's addresses side by side, each a moment after the one before, by TCP, TLS, the WebSocket handshake, Hello,
//! and Welcome or Reject.

use std::{io, sync::Arc, time::Duration};

use futures_util::{SinkExt, StreamExt, stream::FuturesUnordered};
use nix::sys::socket::{getsockopt, sockopt::IpMtu};
use rustls::pki_types::ServerName;
use tokio::{
    net::TcpStream,
    sync::Mutex,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Error as WsError, Message, client::IntoClientRequest, http::Uri, protocol::WebSocketConfig},
};
use worker_protocol::{
    Fingerprint, Hello, MAX_MESSAGE_BYTES, OrchestratorMessage, PROTOCOL_VERSION, Welcome, WorkerMessage,
    decode_from_orchestrator, encode_first,
};

use crate::{
    AgentError, CONNECT_TIMEOUT, DIAL_STAGGER, HANDSHAKE_TIMEOUT, MAX_BACKOFF, MAX_URLS, MIN_BACKOFF,
    pin::{Distrust, client_config, distrust},
};

/// The session's socket.
pub(crate) type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// Why there is no session.
#[derive(Debug)]
pub(crate) enum DialError {
    /// Trying again may help. What stands in the way at each address.
    Later(Vec<String>),
    /// It cannot.
    Final(String),
}

/// What stands between this worker and one address of its orchestrator, so that a person at its console knows where to look.
#[derive(Debug, thiserror::Error)]
enum Obstacle {
    #[error("connection refused: the machine is there, but nothing listens on this port (is the orchestrator up?)")]
    Refused,
    #[error("no route: {0}")]
    NoRoute(io::Error),
    #[error("no answer within {} s: nobody has this address, or a firewall drops the packets", CONNECT_TIMEOUT.as_secs())]
    Silent,
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error(transparent)]
    Distrust(Distrust),
    #[error("the TLS handshake failed: {0}")]
    Tls(io::Error),
    #[error(
        "connected, but {waiting_for} did not come within {} s: large packets may get lost on the way (MTU), or the orchestrator is \
         overloaded",
        HANDSHAKE_TIMEOUT.as_secs()
    )]
    Stuck { waiting_for: &'static str },
    #[error("{0}")]
    Session(String),
}

impl Obstacle {
    fn of_connect(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown => {
                Self::NoRoute(error)
            }
            io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Connect(error),
        }
    }

    fn of_tls(error: io::Error) -> Self {
        distrust(&error).map_or_else(|| Self::Tls(error), Self::Distrust)
    }
}

/// Why an attempt at one address failed.
#[derive(Debug)]
enum Attempt {
    Obstacle(Obstacle),
    Rejected { reason: String, permanent: bool },
}

impl From<Obstacle> for Attempt {
    fn from(obstacle: Obstacle) -> Self {
        Self::Obstacle(obstacle)
    }
}

/// Where the orchestrator is, and how to know it.
#[derive(Clone)]
pub(crate) struct Dialler {
    addresses: Vec<Address>,
    tls: TlsConnector,
}

/// One address of the orchestrator.
#[derive(Debug, Clone)]
struct Address {
    url: String,
    host: String,
    port: u16,
    name: ServerName<'static>,
}

impl Address {
    fn parse(url: &str) -> Result<Self, AgentError> {
        let bad = |problem: String| AgentError::Option { option: "--url", problem };
        let uri: Uri = url.parse().map_err(|error| bad(format!("{url:?}: {error}")))?;
        if uri.scheme_str() != Some("wss") {
            return Err(bad(format!("{url:?}: expected wss://HOST:PORT/PATH")));
        }
        let host = uri.host().ok_or_else(|| bad(format!("{url:?}: it has no host")))?;
        let port = uri.port_u16().unwrap_or(443);
        // An IPv6 literal stands in brackets in a URL, and without them elsewhere.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|error| bad(format!("{url:?}: its host: {error}")))?;
        Ok(Self { url: url.to_owned(), host, port, name })
    }
}

impl Dialler {
    /// For an orchestrator at `urls`, each `wss://`, whose CA is `pinned`.
    pub(crate) fn new(urls: &[String], pinned: Fingerprint) -> Result<Self, AgentError> {
        let bad = |problem: String| AgentError::Option { option: "--url", problem };
        if urls.is_empty() || urls.len() > MAX_URLS {
            return Err(bad(format!("{} URLs; 1 to {MAX_URLS} are allowed", urls.len())));
        }
        let addresses = urls.iter().map(|url| Address::parse(url)).collect::<Result<_, _>>()?;
        let tls = client_config(pinned)
            .map_err(|error| AgentError::Option { option: "--ca-sha256", problem: error.to_string() })?;
        Ok(Self { addresses, tls: TlsConnector::from(Arc::new(tls)) })
    }

    /// Opens a session at the first address that has one to give, beginning with number `first`, or says what stands in the way at each.
    /// An address that keeps silent holds no other up: the next is dialled [`DIAL_STAGGER`] later, or when one has failed. `meet` is told
    /// each obstacle when it is met, with its address. Answers the address's number, too. No proxy is asked, whatever the environment says.
    pub(crate) async fn dial(
        &self,
        first: usize,
        hello: &Hello,
        mut meet: impl FnMut(&str, &str),
    ) -> Result<(Socket, Welcome, usize), DialError> {
        // The addresses are of one orchestrator: it is to hear one Hello at a time.
        let turn = Mutex::new(());
        let mut others = (first..self.addresses.len()).chain(0..first).peekable();
        let mut attempts = FuturesUnordered::new();
        let mut next_at = Instant::now();
        let mut obstacles = vec![None; self.addresses.len()];
        loop {
            let (number, attempt) = tokio::select! {
                biased;
                Some(ended) = attempts.next() => ended,
                () = sleep_until(next_at), if others.peek().is_some() => {
                    let turn = &turn;
                    attempts.extend(others.next().map(|number| async move {
                        (number, self.open(&self.addresses[number], hello, turn).await)
                    }));
                    next_at = Instant::now() + DIAL_STAGGER;
                    continue;
                }
                else => return Err(DialError::Later(obstacles.into_iter().flatten().collect())),
            };
            let url = &self.addresses[number].url;
            match attempt {
                Ok((socket, welcome)) => return Ok((socket, welcome, number)),
                Err(Attempt::Rejected { reason, permanent: true }) => return Err(DialError::Final(reason)),
                Err(Attempt::Rejected { reason, permanent: false }) => {
                    let reason = format!("refused: {reason}");
                    meet(url, &reason);
                    return Err(DialError::Later(vec![format!("{url}: {reason}")]));
                }
                Err(Attempt::Obstacle(obstacle)) => {
                    meet(url, &obstacle.to_string());
                    obstacles[number] = Some(format!("{url}: {obstacle}"));
                    next_at = Instant::now();
                }
            }
        }
    }

    /// The address of this number.
    pub(crate) fn url(&self, number: usize) -> &str {
        self.addresses.get(number).map_or("", |address| &address.url)
    }

    /// Connects, and says Hello when it has its turn.
    async fn open(&self, address: &Address, hello: &Hello, turn: &Mutex<()>) -> Result<(Socket, Welcome), Attempt> {
        let connecting = TcpStream::connect((address.host.as_str(), address.port));
        let stream = timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| Obstacle::Silent)?;
        let stream = stream.map_err(Obstacle::of_connect)?;
        // Clock replies must not wait for a segment to fill.
        stream.set_nodelay(true).map_err(Obstacle::Connect)?;
        let until = Instant::now() + HANDSHAKE_TIMEOUT;
        let securing = timeout_at(until, self.tls.connect(address.name.clone(), stream)).await;
        let secured = securing.map_err(|_| Obstacle::Stuck { waiting_for: "the TLS handshake" })?;
        let secured = secured.map_err(Obstacle::of_tls)?;
        let before = Instant::now();
        let _turn = turn.lock().await;
        let greeting = timeout_at(until + before.elapsed(), greet(address, secured, hello)).await;
        greeting.map_err(|_| Obstacle::Stuck { waiting_for: "an answer to Hello" })?
    }
}

async fn greet(address: &Address, stream: TlsStream<TcpStream>, hello: &Hello) -> Result<(Socket, Welcome), Attempt> {
    let session = |error: &dyn std::fmt::Display| Obstacle::Session(error.to_string());
    let config = WebSocketConfig::default()
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let request = address.url.as_str().into_client_request().map_err(|error| session(&error))?;
    let opened = client_async_with_config(request, stream, Some(config)).await;
    let (mut socket, _) = opened.map_err(|error| Obstacle::Session(broke_off(&error)))?;
    let hello = encode_first(&WorkerMessage::Hello(hello.clone())).map_err(|error| session(&error))?;
    socket.send(Message::binary(hello)).await.map_err(|error| Obstacle::Session(broke_off(&error)))?;
    match answer(&mut socket).await.map_err(Obstacle::Session)? {
        OrchestratorMessage::Welcome(welcome) if welcome.protocol_version == PROTOCOL_VERSION => Ok((socket, welcome)),
        OrchestratorMessage::Welcome(welcome) => {
            let version = welcome.protocol_version;
            let reason =
                format!("the orchestrator speaks protocol version {version}, this worker version {PROTOCOL_VERSION}");
            Err(Attempt::Rejected { reason, permanent: true })
        }
        OrchestratorMessage::Reject(reject) => {
            // Answers the orchestrator's close; whatever comes of it changes nothing.
            let _ = socket.close(None).await;
            Err(Attempt::Rejected { reason: reject.reason, permanent: reject.permanent })
        }
        _ => Err(Obstacle::Session("neither welcomed nor rejected".to_owned()).into()),
    }
}

/// MTU of the way to the orchestrator, bytes: that of the interface, or what a router on the way said that it can pass on. None where the
/// kernel does not tell.
pub(crate) fn path_mtu(socket: &Socket) -> Option<u32> {
    let (stream, _) = socket.get_ref().get_ref();
    // The option of IPv4 answers for a connection by IPv6, too.
    getsockopt(stream, IpMtu).ok().and_then(|bytes| u32::try_from(bytes).ok()).filter(|bytes| *bytes > 0)
}

async fn answer(socket: &mut Socket) -> Result<OrchestratorMessage, String> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Binary(bytes))) => {
                return decode_from_orchestrator(&bytes).map_err(|error| error.to_string());
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => (),
            Some(Ok(_)) | None => return Err("closed before its answer to Hello".to_owned()),
            Some(Err(error)) => return Err(broke_off(&error)),
        }
    }
}

/// Why a connection ended, for a person. TLS calls it an error where the other process ended without a word.
pub(crate) fn broke_off(error: &WsError) -> String {
    match error {
        WsError::Io(io) if io.kind() == io::ErrorKind::UnexpectedEof => "the connection was cut".to_owned(),
        other => other.to_string(),
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
    use crate::{
        Machine,
        disks::Claims,
        facts::{self, Identity},
    };

    #[test]
    fn addresses_are_web_socket_urls_over_tls() {
        let address = Address::parse("wss://[::1]:8080/api").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("::1", 8080));
        assert_eq!(Address::parse("wss://10.0.0.1/api").unwrap().port, 443);
        for bad in ["http://a/b", "ws://a/b", "wss://", "wss://a b", "/api", ""] {
            let error = Address::parse(bad).unwrap_err().to_string();
            assert!(error.contains("--url"), "{error}");
        }
        assert!(Address::parse("ws://a/b").unwrap_err().to_string().contains("expected wss://"));
    }

    #[test]
    fn there_is_at_least_one_address_and_not_too_many() {
        let pinned = Fingerprint::of(b"");
        for count in [0, MAX_URLS + 1] {
            let error = Dialler::new(&vec!["wss://10.0.0.1/".to_owned(); count], pinned).err().unwrap().to_string();
            assert!(error.contains(&format!("{count} URLs; 1 to 32")), "{error}");
        }
        assert_eq!(
            Dialler::new(&vec!["wss://10.0.0.1/".to_owned(); MAX_URLS], pinned).unwrap().addresses.len(),
            MAX_URLS
        );
    }

    #[test]
    fn obstacles_to_a_connection_are_told_apart() {
        let told = |kind| Obstacle::of_connect(io::Error::from(kind)).to_string();
        let kinds = [
            (io::ErrorKind::ConnectionRefused, "connection refused"),
            (io::ErrorKind::HostUnreachable, "no route"),
            (io::ErrorKind::NetworkUnreachable, "no route"),
            (io::ErrorKind::TimedOut, "no answer within 5 s"),
            (io::ErrorKind::PermissionDenied, "cannot connect"),
        ];
        for (kind, part) in kinds {
            assert!(told(kind).starts_with(part), "{}", told(kind));
        }
    }

    #[tokio::test]
    async fn an_obstacle_is_told_when_it_is_met_and_not_when_all_addresses_have_failed() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let urls = [silent.local_addr().unwrap(), closed].map(|address| format!("wss://{address}/"));
        let dialler = Dialler::new(&urls, Fingerprint::of(b"")).unwrap();
        let (met_in, mut met) = tokio::sync::mpsc::unbounded_channel();
        let machine = Machine::at("/nowhere".into(), "/nowhere".into());
        let identity = Identity::of(Some("u".to_owned()), &machine).unwrap();
        let hello = facts::hello(identity, String::new(), &Claims::given(&[]).unwrap());
        let dialling = dialler.dial(0, &hello, |url, obstacle| {
            let _ = met_in.send((url.to_owned(), obstacle.to_owned()));
        });
        tokio::select! {
            biased;
            _ = dialling => panic!("the first address is still waited for"),
            first = met.recv() => {
                let (url, obstacle) = first.unwrap();
                assert!(url == urls[1] && obstacle.starts_with("connection refused"), "{url}: {obstacle}");
            }
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

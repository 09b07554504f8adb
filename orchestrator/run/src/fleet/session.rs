//! One enrolled worker's session: what it says, what it is told, and its clock.

use std::sync::Arc;

use futures_util::{Sink, SinkExt, Stream, StreamExt};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Bytes, Error as WsError, Message},
};
use worker_protocol::{
    ClockProbe, ClockReply, OrchestratorMessage, PROTOCOL_VERSION, Welcome, WorkerMessage, decode_from_worker, encode,
    encode_first,
};

use super::{
    clock::ClockOffset,
    listen::kind,
    refusals::short,
    roster::{Admitted, Outbound, SessionError, SessionId, Shared},
    settings::{BURST_TIMEOUT, PROBE_BURST, PROBE_TIMEOUT, SEND_TIMEOUT},
};

/// A clock reply with the time of its arrival.
struct Reply {
    reply: ClockReply,
    received_ns: u64,
}

/// Serves the session to its end, then starts the worker's grace.
pub(super) async fn run<S>(socket: WebSocketStream<S>, admitted: Admitted, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (id, worker, cancel) = (admitted.id, admitted.worker.clone(), admitted.cancel.clone());
    let why = tokio::select! {
        why = talk(socket, admitted, &shared) => why,
        () = cancel.cancelled() => "ended by the orchestrator".to_owned(),
    };
    tracing::info!(worker, why, "worker session ended");
    if shared.end_session(id, &why).await {
        let grace = shared.settings.limits.grace;
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(grace) => {
                    let why = format!("away for more than {} s; {why}", grace.as_secs_f64());
                    shared.lose_if_away(id, why).await;
                }
                () = shared.cancel.cancelled() => (),
            }
        });
    }
}

/// Reads, writes and probes until one of them ends; answers why.
async fn talk<S>(socket: WebSocketStream<S>, admitted: Admitted, shared: &Arc<Shared>) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (sink, stream) = socket.split();
    let (replies_in, replies) = mpsc::channel(2);
    let Admitted { id, worker, outbound, to_self, probes, .. } = admitted;
    tokio::select! {
        why = read(stream, id, replies_in, shared) => why,
        why = write(sink, worker, outbound, shared) => why,
        why = measure(id, to_self, probes, replies, shared) => why,
    }
}

async fn read<S>(mut stream: S, id: SessionId, replies: mpsc::Sender<Reply>, shared: &Shared) -> String
where
    S: Stream<Item = Result<Message, WsError>> + Unpin,
{
    let keepalive = shared.settings.limits.keepalive_timeout;
    loop {
        let Ok(frame) = timeout(keepalive, stream.next()).await else {
            return format!("nothing heard for {} s", keepalive.as_secs_f64());
        };
        let received_ns = shared.settings.clock.now_ns();
        let bytes = match frame {
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Close(_))) | None => return "the worker closed the session".to_owned(),
            Some(Ok(other)) => return format!("the worker sent {}", kind(&other)),
            Some(Err(error)) => return broke_off(&error),
        };
        let heard = match decode_from_worker(&bytes) {
            Err(error) => return short(&format!("the worker sent what is {error}")),
            Ok(WorkerMessage::ClockReply(reply)) => {
                if let Some(bytes) = reply.path_mtu_bytes {
                    shared.record_path_mtu(id, bytes);
                }
                // A reply that nobody waits for is dropped.
                let _ = replies.try_send(Reply { reply, received_ns });
                Ok(())
            }
            Ok(message) => shared.receive(id, message).await,
        };
        match heard {
            Ok(()) => (),
            Err(SessionError::Slow) => return "events are not taken fast enough".to_owned(),
            Err(SessionError::Replaced) => return "another session of the worker took over".to_owned(),
            Err(SessionError::Violation(what)) => return format!("the worker sent {what}"),
        }
    }
}

async fn write<S>(mut sink: S, worker: String, mut outbound: mpsc::Receiver<Outbound>, shared: &Shared) -> String
where
    S: Sink<Message, Error = WsError> + Unpin,
{
    let welcome = Welcome { protocol_version: PROTOCOL_VERSION, worker };
    let welcome = match encode_first(&OrchestratorMessage::Welcome(welcome)) {
        Ok(bytes) => Message::binary(bytes),
        Err(error) => return error.to_string(),
    };
    if let Err(why) = within(sink.send(welcome)).await {
        return why;
    }
    let mut ping = tokio::time::interval(shared.settings.limits.keepalive_timeout / 3);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let sent = tokio::select! {
            next = outbound.recv() => match next {
                Some(Outbound::Message(message)) => send(&mut sink, &message).await,
                Some(Outbound::Probe(probe, departure)) => {
                    let message = OrchestratorMessage::ClockProbe(ClockProbe { probe });
                    let _ = departure.send(shared.settings.clock.now_ns());
                    send(&mut sink, &message).await
                }
                None => return "the fleet ended".to_owned(),
            },
            _ = ping.tick() => within(sink.send(Message::Ping(Bytes::new()))).await,
        };
        if let Err(why) = sent {
            return why;
        }
    }
}

async fn send<S>(sink: &mut S, message: &OrchestratorMessage) -> Result<(), String>
where
    S: Sink<Message, Error = WsError> + Unpin,
{
    let bytes = encode(message).map_err(|error| error.to_string())?;
    within(sink.send(Message::binary(bytes))).await
}

async fn within(sending: impl Future<Output = Result<(), WsError>>) -> Result<(), String> {
    match timeout(SEND_TIMEOUT, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(broke_off(&error)),
        Err(_) => Err(format!("the worker takes no messages for {} s", SEND_TIMEOUT.as_secs())),
    }
}

/// Why a connection ended, for a person. TLS calls it an error where the peer's process ended without a word.
fn broke_off(error: &WsError) -> String {
    match error {
        WsError::Io(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => "its connection was cut".to_owned(),
        other => other.to_string(),
    }
}

/// Measures the clock at once, then at the interval and when asked.
async fn measure(
    id: SessionId,
    outbound: mpsc::Sender<Outbound>,
    mut asked: mpsc::Receiver<oneshot::Sender<ClockOffset>>,
    mut replies: mpsc::Receiver<Reply>,
    shared: &Shared,
) -> String {
    let mut probe = 0;
    let mut every = tokio::time::interval(shared.settings.limits.probe_interval);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let asker = tokio::select! {
            _ = every.tick() => None,
            asker = asked.recv() => match asker {
                Some(asker) => Some(asker),
                None => return "the fleet ended".to_owned(),
            },
        };
        let Some(offset) = burst(&mut probe, &outbound, &mut replies).await else {
            tracing::warn!("a worker does not answer clock probes");
            continue;
        };
        shared.record_offset(id, offset);
        if let Some(asker) = asker {
            let _ = asker.send(offset);
        }
    }
}

/// The fastest of [`PROBE_BURST`] probes; none where not one was answered.
async fn burst(
    probe: &mut u64,
    outbound: &mpsc::Sender<Outbound>,
    replies: &mut mpsc::Receiver<Reply>,
) -> Option<ClockOffset> {
    let until = Instant::now() + BURST_TIMEOUT - PROBE_TIMEOUT;
    let mut best: Option<ClockOffset> = None;
    for _ in 0..PROBE_BURST {
        if Instant::now() >= until {
            break;
        }
        *probe += 1;
        let one = timeout(PROBE_TIMEOUT, probe_once(*probe, outbound, replies)).await.ok().flatten();
        best = match (best, one) {
            (Some(best), Some(one)) if best.rtt_ns <= one.rtt_ns => Some(best),
            (best, one) => one.or(best),
        };
    }
    best
}

async fn probe_once(
    probe: u64,
    outbound: &mpsc::Sender<Outbound>,
    replies: &mut mpsc::Receiver<Reply>,
) -> Option<ClockOffset> {
    let (departure, departed) = oneshot::channel();
    outbound.send(Outbound::Probe(probe, departure)).await.ok()?;
    let sent_ns = departed.await.ok()?;
    loop {
        let Reply { reply, received_ns } = replies.recv().await?;
        if reply.probe == probe {
            return Some(ClockOffset::from_probe(sent_ns, received_ns, reply.worker_ns));
        }
    }
}

//! A fleet under test, and a peer that speaks the worker protocol by hand.

use std::{net::SocketAddr, time::Duration};

use futures_util::{SinkExt, StreamExt};
use run::fleet::{Expected, ExpectedDisk, Fleet, FleetEvent, FleetLimits, FleetSettings, OrchestratorClock};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};
use worker_protocol::{
    Activity, ClockReply, DiskAssignment, DiskInfo, DiskKind, EngineReport, Fill, Finished, Hello, Ops,
    OrchestratorMessage, PROTOCOL_VERSION, Phase, Prepare, Ready, SESSION_PATH, Sample, Work, WorkerMessage,
    decode_from_orchestrator, encode,
};

use crate::tls;

pub(crate) const TOKEN: &str = "a token";
/// Beyond it a condition that a test waits for has not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The peers' clock runs this far ahead of the orchestrator's, ns.
pub(crate) const AHEAD_NS: u64 = 5_000_000_000;
/// MTU that a peer says its way has.
pub(crate) const PATH_MTU_BYTES: u32 = 1_400;
pub(crate) const DISK_BYTES: u64 = 1 << 30;

/// A fleet and its events.
pub(crate) struct Bench {
    pub(crate) fleet: Fleet,
    pub(crate) events: mpsc::Receiver<FleetEvent>,
    pub(crate) clock: OrchestratorClock,
}

/// Workers `w0`, `w1` … with UUIDs `uuid-0` … and one disk `d0` each.
pub(crate) async fn bench(workers: usize, limits: FleetLimits) -> Bench {
    let expected = (0..workers).map(|index| Expected {
        name: format!("w{index}"),
        uuid: format!("uuid-{index}"),
        macs: Vec::new(),
        disks: vec![ExpectedDisk { serial: "d0".into(), size_bytes: DISK_BYTES, scsi_address: None }],
    });
    bench_of(expected.collect(), limits).await
}

pub(crate) async fn bench_of(expected: Vec<Expected>, limits: FleetLimits) -> Bench {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let clock = OrchestratorClock::start();
    let settings = FleetSettings { token: TOKEN.into(), authority: tls::authority(), expected, clock, limits };
    let (fleet, events) = Fleet::start(listener, settings).unwrap();
    Bench { fleet, events, clock }
}

impl Bench {
    pub(crate) fn address(&self) -> SocketAddr {
        self.fleet.address()
    }

    pub(crate) async fn event(&mut self) -> FleetEvent {
        timeout(PATIENCE, self.events.recv()).await.expect("an event in time").expect("the fleet lives")
    }

    /// The first event that `pick` takes; all before it are dropped.
    pub(crate) async fn event_where<T>(&mut self, mut pick: impl FnMut(&FleetEvent) -> Option<T>) -> T {
        let mut others = Vec::new();
        loop {
            match timeout(PATIENCE, self.events.recv()).await {
                Ok(Some(event)) => match pick(&event) {
                    Some(picked) => return picked,
                    None => others.push(event),
                },
                _ => panic!("the event did not come; instead: {others:#?}"),
            }
        }
    }

    pub(crate) async fn disconnected(&mut self) -> String {
        self.event_where(|event| match event {
            FleetEvent::Disconnected { why, .. } => Some(why.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn lost(&mut self) -> (Option<u64>, String) {
        self.event_where(|event| match event {
            FleetEvent::Lost { job, why, .. } => Some((*job, why.clone())),
            _ => None,
        })
        .await
    }

    pub(crate) async fn refused(&mut self) -> String {
        self.event_where(|event| match event {
            FleetEvent::Refused { reason, .. } => Some(reason.clone()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn enrolled(&mut self) -> (String, bool) {
        self.event_where(|event| match event {
            FleetEvent::Enrolled { worker, resumed, .. } => Some((worker.clone(), *resumed)),
            _ => None,
        })
        .await
    }

    /// Dials as worker `index` in its process `boot`.
    pub(crate) async fn peer(&self, index: usize, boot: &str) -> Peer {
        let mut peer = Peer::dial(self.address(), self.clock).await;
        peer.send(&WorkerMessage::Hello(hello(index, boot))).await;
        let welcome = peer.next().await;
        assert!(matches!(welcome, Some(OrchestratorMessage::Welcome(_))), "{welcome:?}");
        peer
    }
}

pub(crate) fn hello(index: usize, boot: &str) -> Hello {
    let disk = DiskInfo {
        serial: "d0".into(),
        scsi_address: None,
        path: "/dev/d0".into(),
        size_bytes: DISK_BYTES,
        logical_block_bytes: 512,
        direct: true,
        kind: DiskKind::Block,
        in_use: None,
    };
    Hello {
        protocol_version: PROTOCOL_VERSION,
        token: TOKEN.into(),
        uuid: format!("UUID-{index}"),
        macs: Vec::new(),
        boot_id: boot.into(),
        agent_version: "test".into(),
        kernel: "test".into(),
        cpus: 1,
        memory_bytes: 1,
        disks: vec![disk],
        every_disk: false,
        activity: None,
    }
}

pub(crate) fn holding(index: usize, boot: &str, job: u64, next_unacknowledged: u64) -> Hello {
    let activity = Some(Activity { job, finished: false, next_unacknowledged });
    Hello { activity, ..hello(index, boot) }
}

pub(crate) fn fill(job: u64) -> Prepare {
    let disk = DiskAssignment {
        serial: "d0".into(),
        scsi_address: None,
        size_bytes: DISK_BYTES,
        region_start: 0,
        region_bytes: 1 << 20,
        data_seed: 1,
    };
    let work = Work::Fill(Fill { block_bytes: 1 << 20, outstanding_per_disk: 1, zero: false });
    Prepare { job, disks: vec![disk], work, seed: 1 }
}

pub(crate) fn ready(job: u64) -> WorkerMessage {
    WorkerMessage::Ready(Ready { job, engine: EngineReport::default() })
}

pub(crate) fn sample(job: u64, number: u64) -> WorkerMessage {
    let second = u32::try_from(number).unwrap();
    let (ops, disks) = (Ops::default(), Vec::new());
    WorkerMessage::Sample(Sample { job, number, phase: Phase::Sample, second, whole: true, ops, disks })
}

pub(crate) fn finished(job: u64) -> WorkerMessage {
    WorkerMessage::Finished(Finished {
        job,
        started_worker_ns: 1,
        ended_worker_ns: 2,
        complete: true,
        reason: None,
        disks: Vec::new(),
        thread_cpu: Vec::new(),
        steal: None,
        io_wq_cpu: 0.0,
        warnings: Vec::new(),
    })
}

/// A worker played by the test.
pub(crate) struct Peer {
    pub(crate) socket: WebSocketStream<TlsStream<TcpStream>>,
    clock: OrchestratorClock,
}

impl Peer {
    pub(crate) async fn dial(address: SocketAddr, clock: OrchestratorClock) -> Self {
        let url = format!("wss://{address}{SESSION_PATH}");
        let (socket, _) = client_async(url, tls::connect(address).await).await.unwrap();
        Self { socket, clock }
    }

    pub(crate) async fn send(&mut self, message: &WorkerMessage) {
        self.socket.send(Message::binary(encode(message).unwrap())).await.unwrap();
    }

    /// The next message but for clock probes, which it answers; none where the session has ended.
    pub(crate) async fn next(&mut self) -> Option<OrchestratorMessage> {
        loop {
            match timeout(PATIENCE, self.socket.next()).await.expect("a message in time")? {
                Ok(Message::Binary(bytes)) => match decode_from_orchestrator(&bytes).unwrap() {
                    OrchestratorMessage::ClockProbe(probe) => {
                        let worker_ns = self.clock.now_ns() + AHEAD_NS;
                        let reply = WorkerMessage::ClockReply(ClockReply {
                            probe: probe.probe,
                            worker_ns,
                            path_mtu_bytes: Some(PATH_MTU_BYTES),
                        });
                        self.socket.send(Message::binary(encode(&reply).unwrap())).await.ok()?;
                    }
                    message => return Some(message),
                },
                Ok(Message::Ping(_) | Message::Pong(_)) => (),
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// Serves clock probes and pings in the background; the messages come out of the channel.
    pub(crate) fn serve(mut self) -> mpsc::UnboundedReceiver<OrchestratorMessage> {
        let (messages_in, messages) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(message) = self.next().await {
                let _ = messages_in.send(message);
            }
        });
        messages
    }
}

/// Quick times, for tests of what happens beyond them.
pub(crate) fn quick() -> FleetLimits {
    FleetLimits {
        grace: Duration::from_millis(300),
        hello_timeout: Duration::from_secs(1),
        keepalive_timeout: Duration::from_secs(1),
        event_timeout: Duration::from_millis(500),
        probe_interval: Duration::from_millis(200),
        ..FleetLimits::default()
    }
}

//! A worker that keeps to the protocol and delivers numbers that contradict themselves.

use futures_util::{SinkExt, StreamExt};
use hypervisor::{Bootstrap, CreatedWorker};
use tokio::net::TcpStream;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite::Message};
use worker_protocol::{
    ClockReply, DiskInfo, DiskKind, EngineReport, Hello, OpTotals, Ops, OrchestratorMessage, PROTOCOL_VERSION, Phase,
    Ready, Sample, WorkerMessage, decode_from_orchestrator, encode,
};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Serves one session until it is told to end.
pub(crate) async fn lie(worker: CreatedWorker, bootstrap: Bootstrap) -> String {
    let (mut socket, _) = connect_async(&bootstrap.url).await.unwrap();
    say(&mut socket, WorkerMessage::Hello(hello(&worker, bootstrap.token))).await;
    while let Some(Ok(message)) = socket.next().await {
        let Message::Binary(bytes) = message else { continue };
        match decode_from_orchestrator(&bytes).unwrap() {
            OrchestratorMessage::ClockProbe(probe) => {
                let reply = ClockReply { probe: probe.probe, worker_ns: 1_000_000_000 };
                say(&mut socket, WorkerMessage::ClockReply(reply)).await;
            }
            OrchestratorMessage::Prepare(prepare) => {
                let ready = Ready { job: prepare.job, engine: EngineReport::default() };
                say(&mut socket, WorkerMessage::Ready(ready)).await;
            }
            OrchestratorMessage::StartAt(start) => {
                let sound = [(0, Phase::Precondition, 0), (1, Phase::Sample, 0)];
                for (number, phase, second) in sound {
                    say(&mut socket, sample(start.job, number, phase, second, 4096)).await;
                }
                say(&mut socket, sample(start.job, 2, Phase::Sample, 1, 4095)).await;
            }
            OrchestratorMessage::Shutdown => return "told to end".to_owned(),
            _ => (),
        }
    }
    "its session ended".to_owned()
}

async fn say(socket: &mut Socket, message: WorkerMessage) {
    // The orchestrator may be gone already.
    let _ = socket.send(Message::binary(encode(&message).unwrap())).await;
}

fn hello(worker: &CreatedWorker, token: String) -> Hello {
    let disk = |disk: &hypervisor::CreatedDisk| DiskInfo {
        serial: disk.serial.clone(),
        path: "/dev/null".into(),
        size_bytes: disk.size_bytes,
        logical_block_bytes: 512,
        direct: true,
        kind: DiskKind::File,
        in_use: None,
    };
    Hello {
        protocol_version: PROTOCOL_VERSION,
        token,
        uuid: worker.spec.uuid.clone(),
        macs: Vec::new(),
        boot_id: "liar".into(),
        agent_version: "test".into(),
        kernel: "test".into(),
        cpus: 1,
        memory_bytes: 1,
        disks: worker.disks.iter().map(disk).collect(),
        activity: None,
    }
}

/// A second with one write of 4096 bytes that is said to have moved `bytes`.
fn sample(job: u64, number: u64, phase: Phase, second: u32, bytes: u64) -> WorkerMessage {
    let mut latencies = latency_histogram::Latencies::new();
    latencies.record(50_000);
    let (sum_ns, min_ns, max_ns) = (50_000, 50_000, 50_000);
    let write =
        OpTotals { count: 1, bytes, errors: 0, sum_ns, min_ns, max_ns, over_range: 0, histogram: latencies.encode() };
    let ops = Ops { write, ..Ops::default() };
    WorkerMessage::Sample(Sample { job, number, phase, second, whole: true, ops, disks: Vec::new() })
}

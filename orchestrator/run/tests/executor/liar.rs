//! A worker that keeps to the protocol and goes wrong at one point.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use hypervisor::{Bootstrap, CreatedWorker};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};
use worker_protocol::{
    ClockReply, DiskAssignment, DiskFinished, DiskInfo, DiskKind, EngineReport, Failed, Finished, Hello, OpTotals, Ops,
    OrchestratorMessage, PROTOCOL_VERSION, Phase, Prepare, Ready, Sample, Work, WorkerMessage,
    decode_from_orchestrator, encode,
};

type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// Where it goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Its samples contradict themselves.
    Sample,
    /// Its disk takes no writes.
    Fill,
    /// Its disk gives back something else than was written.
    Verify,
}

/// Serves one session until it is told to end.
pub(crate) async fn lie(worker: CreatedWorker, bootstrap: Bootstrap, certificate: PathBuf, wrong: Wrong) -> String {
    let url = bootstrap.urls.first().unwrap();
    let (mut socket, _) = client_async(url, connect(url, &certificate).await).await.unwrap();
    say(&mut socket, WorkerMessage::Hello(hello(&worker, bootstrap.token))).await;
    let mut prepared = None;
    while let Some(Ok(message)) = socket.next().await {
        let Message::Binary(bytes) = message else { continue };
        match decode_from_orchestrator(&bytes).unwrap() {
            OrchestratorMessage::ClockProbe(probe) => {
                let reply = ClockReply { probe: probe.probe, worker_ns: 1_000_000_000, path_mtu_bytes: None };
                say(&mut socket, WorkerMessage::ClockReply(reply)).await;
            }
            OrchestratorMessage::Prepare(prepare) => {
                let answer = match failure(&prepare, wrong) {
                    Some(failed) => WorkerMessage::Failed(failed),
                    None => WorkerMessage::Ready(Ready { job: prepare.job, engine: EngineReport::default() }),
                };
                say(&mut socket, answer).await;
                prepared = Some(prepare);
            }
            OrchestratorMessage::StartAt(_) if wrong != Wrong::Sample => {
                say(&mut socket, WorkerMessage::Finished(done(prepared.as_ref().unwrap()))).await;
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

fn failure(prepare: &Prepare, wrong: Wrong) -> Option<Failed> {
    let error = match (&prepare.work, wrong) {
        (Work::Fill(_), Wrong::Fill) => "write: Input/output error",
        (Work::Verify(_), Wrong::Verify) => "block 7 is not as it was written",
        _ => return None,
    };
    Some(Failed { job: prepare.job, disk: Some(prepare.disks[0].serial.clone()), error: error.into() })
}

/// A fill or a read-back that went well.
fn done(prepare: &Prepare) -> Finished {
    let disk = |disk: &DiskAssignment| DiskFinished {
        serial: disk.serial.clone(),
        bytes: disk.region_bytes,
        elapsed_ns: 1_000_000,
        ..DiskFinished::default()
    };
    Finished {
        job: prepare.job,
        started_worker_ns: 1_000_000_000,
        ended_worker_ns: 1_001_000_000,
        complete: true,
        reason: None,
        disks: prepare.disks.iter().map(disk).collect(),
        thread_cpu: Vec::new(),
        steal: None,
        io_wq_cpu: 0.0,
        warnings: Vec::new(),
    }
}

async fn connect(url: &str, certificate: &Path) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address: std::net::SocketAddr = url.split('/').nth(2).unwrap().parse().unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect(ServerName::from(address.ip()), stream).await.unwrap()
}

async fn say(socket: &mut Socket, message: WorkerMessage) {
    // The orchestrator may be gone already.
    let _ = socket.send(Message::binary(encode(&message).unwrap())).await;
}

fn hello(worker: &CreatedWorker, token: String) -> Hello {
    let disk = |disk: &hypervisor::CreatedDisk| DiskInfo {
        serial: disk.serial.clone(),
        scsi_address: None,
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
        every_disk: false,
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

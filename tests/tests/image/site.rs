//! The image with its real agent, and a real fleet for it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use run::fleet::{
    Authority, Enrolled, Expected, ExpectedDisk, Fleet, FleetEvent, FleetLimits, FleetSettings, OrchestratorClock,
};
use tokio::net::{TcpListener, TcpSocket};
use worker_image::{BOOTSTRAP_VERSION, Bootstrap, personalise};
use worker_protocol::{
    DiskAssignment, EngineReport, Load, OnError, Pattern, Prepare, SESSION_PATH, Work, WorkloadSpec,
};

use crate::machine::{BOUND, disk_bytes, serial};

pub(crate) const TOKEN: &str = "s3cret-of-the-fleet";
pub(crate) const MAC: &str = "52:54:00:00:00:01";
pub(crate) const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

/// Why these tests cannot run here, if so; `more` are files that a test needs.
pub(crate) fn lacking(more: &[&str]) -> Option<String> {
    if let Some(reason) = end_to_end::vm::lacking() {
        return Some(reason);
    }
    more.iter().find(|path| !Path::new(path).exists()).map(|path| format!("no {path} (Debian package ovmf)"))
}

/// The image with the agent. Tests ask what is lacking before they want it.
pub(crate) fn image() -> &'static Path {
    &end_to_end::vm::image().unwrap().path
}

/// A CA of its own, in `dir`.
pub(crate) fn authority(dir: &Path) -> Arc<Authority> {
    Arc::new(Authority::open(dir).unwrap())
}

/// A port of this machine on which nobody listens yet.
pub(crate) fn held_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// A listener's port as a VM sees it.
pub(crate) fn url(port: u16) -> String {
    format!("wss://10.0.2.2:{port}{SESSION_PATH}")
}

/// What a VM is told that dials these ports and trusts `authority`.
pub(crate) fn bootstrap(ports: &[u16], authority: &Authority) -> Bootstrap {
    Bootstrap {
        version: BOOTSTRAP_VERSION,
        orchestrator_urls: ports.iter().map(|port| url(*port)).collect(),
        ca_sha256: authority.fingerprint().to_string(),
        token: TOKEN.into(),
        mtu: None,
        static_addressing: None,
    }
}

/// An image of its own for a VM.
pub(crate) fn personal(dir: &Path, bootstrap: &Bootstrap) -> PathBuf {
    let path = dir.join("personal.iso");
    personalise(image(), &path, bootstrap).unwrap();
    path
}

/// A fleet of one worker, and what happened in it.
pub(crate) struct Orchestrator {
    pub(crate) fleet: Fleet,
    events: Arc<Mutex<Vec<FleetEvent>>>,
}

impl Orchestrator {
    /// Listens from now on for a VM with this many of [`crate::machine::disks`].
    pub(crate) fn start(listener: TcpListener, authority: &Arc<Authority>, disks: u32) -> Self {
        let disk = |disk| ExpectedDisk { serial: serial(disk), size_bytes: disk_bytes(disk), scsi_address: None };
        let worker = Expected {
            name: "w1".into(),
            uuid: UUID.into(),
            macs: vec![MAC.into()],
            disks: (0..disks).map(disk).collect(),
        };
        let settings = FleetSettings {
            token: TOKEN.into(),
            authority: Arc::clone(authority),
            expected: vec![worker],
            clock: OrchestratorClock::start(),
            limits: FleetLimits::default(),
        };
        let (fleet, mut coming) = Fleet::start(listener, settings).unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn({
            let events = Arc::clone(&events);
            async move {
                while let Some(event) = coming.recv().await {
                    events.lock().unwrap().push(event);
                }
            }
        });
        Self { fleet, events }
    }

    /// Waits until the worker is here.
    pub(crate) async fn enrolled(&self, console: impl Fn() -> String) -> Enrolled {
        match self.fleet.wait_enrolled(BOUND).await {
            Ok(mut enrolled) => enrolled.remove(0),
            Err(error) => panic!("{error}; console:\n{}", console()),
        }
    }

    /// Waits for an event.
    pub(crate) async fn event<T>(&self, what: &str, pick: impl Fn(&FleetEvent) -> Option<T>) -> T {
        let until = Instant::now() + BOUND;
        loop {
            if let Some(picked) = self.events.lock().unwrap().iter().find_map(&pick) {
                return picked;
            }
            assert!(
                Instant::now() < until,
                "{what}: not within {BOUND:?}; instead: {:#?}",
                self.events.lock().unwrap()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the worker enrols with another process than `before`.
    pub(crate) async fn enrols_again(&self, before: &str) -> String {
        self.event("another enrolment", |event| match event {
            FleetEvent::Enrolled { hello, resumed: false, .. } if hello.boot_id != before => {
                Some(hello.boot_id.clone())
            }
            _ => None,
        })
        .await
    }

    /// Prepares random reads on all disks, and answers what the worker's kernel granted.
    pub(crate) async fn prepare(&self, disks: u32) -> EngineReport {
        let assignment = |disk| DiskAssignment {
            serial: serial(disk),
            scsi_address: None,
            size_bytes: disk_bytes(disk),
            region_start: 0,
            region_bytes: disk_bytes(disk),
            data_seed: 7,
        };
        let workload = WorkloadSpec {
            block_bytes: 4096,
            pattern: Pattern::Random,
            sub_range: None,
            align_bytes: None,
            read_percent: 100,
            outstanding_per_disk: 4,
            rate: None,
            compression_ratio: 1.0,
            duplication_ratio: 1.0,
            flush_every_writes: None,
            on_error: OnError::Stop,
            stall_threshold_ms: None,
        };
        let work = Work::Load(Load { workload, precondition_seconds: 0, sample_seconds: 5 });
        let prepare = Prepare { job: 1, disks: (0..disks).map(assignment).collect(), work, seed: 1 };
        self.fleet.prepare("w1", prepare).unwrap();
        let answer = self.event("the answer to Prepare", |event| match event {
            FleetEvent::Ready { ready, .. } => Some(Ok(ready.engine.clone())),
            FleetEvent::Failed { failed, .. } => Some(Err(failed.clone())),
            _ => None,
        });
        answer.await.unwrap()
    }
}

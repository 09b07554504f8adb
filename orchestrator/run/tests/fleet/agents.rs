//! Real agents on real files, a real fleet, and a way between them that can be cut.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use run::fleet::{Expected, ExpectedDisk, Fleet, FleetEvent, FleetLimits, FleetSettings, OrchestratorClock};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};
use worker::{Agent, AgentError, Config, DiskArg, Machine};
use worker_protocol::{
    DiskAssignment, Failed, Fill, Finished, Load, OnError, Pattern, Prepare, SESSION_PATH, Sample, Verify, Work,
    WorkloadSpec,
};

use crate::tls;

pub(crate) const TOKEN: &str = "a token";
/// Beyond it a condition that a test waits for has not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const DISK_BYTES: u64 = 32 << 20;
pub(crate) const LEAD: Duration = Duration::from_millis(500);

/// A fleet, the files of its workers, and its events.
pub(crate) struct Site {
    pub(crate) fleet: Fleet,
    pub(crate) events: mpsc::Receiver<FleetEvent>,
    pub(crate) directory: tempfile::TempDir,
    disks: usize,
}

/// Workers `w0` … with files `d0` … each; nobody has dialled yet.
pub(crate) async fn site(workers: usize, disks: usize, limits: FleetLimits) -> Site {
    let expected = (0..workers).map(|worker| Expected {
        name: format!("w{worker}"),
        uuid: format!("uuid-{worker}"),
        macs: Vec::new(),
        disks: (0..disks).map(expected_disk).collect(),
    });
    site_of(expected.collect(), disks, limits).await
}

fn expected_disk(disk: usize) -> ExpectedDisk {
    ExpectedDisk { serial: format!("d{disk}"), size_bytes: DISK_BYTES, scsi_address: None }
}

/// The same for any workers, with `disks` files each.
pub(crate) async fn site_of(expected: Vec<Expected>, disks: usize, limits: FleetLimits) -> Site {
    let directory = tempfile::tempdir().unwrap();
    let workers = expected.len();
    let settings = FleetSettings {
        token: TOKEN.into(),
        authority: tls::authority(),
        expected,
        clock: OrchestratorClock::start(),
        limits,
    };
    for worker in 0..workers {
        for disk in 0..disks {
            let file = std::fs::File::create(directory.path().join(format!("w{worker}-d{disk}"))).unwrap();
            file.set_len(DISK_BYTES).unwrap();
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (fleet, events) = Fleet::start(listener, settings).unwrap();
    Site { fleet, events, directory, disks }
}

impl Site {
    pub(crate) fn file(&self, worker: usize, disk: usize) -> PathBuf {
        self.directory.path().join(format!("w{worker}-d{disk}"))
    }

    pub(crate) fn config(&self, worker: usize, dials: SocketAddr) -> Config {
        let disk = |disk| DiskArg { serial: format!("d{disk}"), path: self.file(worker, disk) };
        Config {
            urls: vec![url(dials)],
            ca_sha256: self.fleet.ca_fingerprint(),
            uuid: Some(format!("uuid-{worker}")),
            token: TOKEN.into(),
            disks: Some((0..self.disks).map(disk).collect()),
            machine: Machine::this(),
            threads: 1,
            own_kernel: false,
            give_up_after: PATIENCE,
            keepalive_timeout: worker::KEEPALIVE_TIMEOUT,
        }
    }

    /// Starts workers in this process and waits for them.
    pub(crate) async fn enrol(&mut self, workers: usize) -> Vec<JoinHandle<Result<(), AgentError>>> {
        let dial = self.fleet.address();
        let agents = (0..workers).map(|worker| start(self.config(worker, dial))).collect();
        self.fleet.wait_enrolled(PATIENCE).await.unwrap();
        agents
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

    pub(crate) async fn failed(&mut self) -> Failed {
        self.event_where(|event| match event {
            FleetEvent::Failed { failed, .. } => Some(failed.clone()),
            _ => None,
        })
        .await
    }

    /// Prepares a job on workers and waits until all are ready.
    pub(crate) async fn prepare(&mut self, workers: &[&str], prepare: &Prepare) {
        for worker in workers {
            self.fleet.prepare(worker, prepare.clone()).unwrap();
        }
        for _ in workers {
            let ready = self.event_where(|event| match event {
                FleetEvent::Ready { ready, .. } => Some(Ok(ready.job)),
                FleetEvent::Failed { failed, .. } => Some(Err(failed.clone())),
                _ => None,
            });
            assert_eq!(ready.await, Ok(prepare.job));
        }
    }

    /// Takes the job's events until all `workers` have finished; acknowledges each sample as it comes, and the end.
    pub(crate) async fn collect(&mut self, job: u64, workers: usize) -> BTreeMap<String, Report> {
        let mut reports = BTreeMap::<String, Report>::new();
        let mut ended = 0;
        while ended < workers {
            match timeout(PATIENCE, self.events.recv()).await.expect("events in time").expect("the fleet lives") {
                FleetEvent::Sample { worker, sample } => {
                    assert_eq!(sample.job, job);
                    self.fleet.ack_samples(&worker, job, sample.number).unwrap();
                    reports.entry(worker).or_default().samples.push(sample);
                }
                FleetEvent::Finished { worker, finished } => {
                    self.fleet.ack_job(&worker, job).unwrap();
                    reports.entry(worker).or_default().finished = Some(*finished);
                    ended += 1;
                }
                FleetEvent::Progress { worker, progress } => {
                    reports.entry(worker).or_default().progress.push((progress.bytes_done, progress.bytes_total));
                }
                FleetEvent::Disconnected { worker, .. } => reports.entry(worker).or_default().cuts += 1,
                event @ (FleetEvent::Failed { .. } | FleetEvent::Lost { .. }) => panic!("{event:?}"),
                _ => (),
            }
        }
        reports
    }

    /// Prepares, starts and collects a job.
    pub(crate) async fn run(&mut self, workers: &[&str], prepare: &Prepare) -> BTreeMap<String, Report> {
        self.prepare(workers, prepare).await;
        self.fleet.start_all(prepare.job, workers, LEAD).await.unwrap();
        self.collect(prepare.job, workers.len()).await
    }
}

/// What came of a job on one worker.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) samples: Vec<Sample>,
    pub(crate) progress: Vec<(u64, u64)>,
    pub(crate) finished: Option<Finished>,
    pub(crate) cuts: usize,
}

pub(crate) fn url(address: SocketAddr) -> String {
    format!("wss://{address}{SESSION_PATH}")
}

pub(crate) fn start(config: Config) -> JoinHandle<Result<(), AgentError>> {
    tokio::spawn(Agent::new(config).unwrap().run(std::future::pending()))
}

pub(crate) fn job(number: u64, disks: usize, work: Work) -> Prepare {
    let disk = |disk| DiskAssignment {
        serial: format!("d{disk}"),
        scsi_address: None,
        size_bytes: DISK_BYTES,
        region_start: 0,
        region_bytes: DISK_BYTES,
        data_seed: 7,
    };
    Prepare { job: number, disks: (0..disks).map(disk).collect(), work, seed: number }
}

pub(crate) fn fill() -> Work {
    Work::Fill(Fill { block_bytes: 1 << 20, outstanding_per_disk: 8, zero: false })
}

pub(crate) fn verify(blocks_per_disk: u32) -> Work {
    Work::Verify(Verify { blocks_per_disk, block_bytes: 4096, zero: false })
}

/// 4K random, 70 % reads.
pub(crate) fn load(precondition_seconds: u32, sample_seconds: u32) -> Work {
    let workload = WorkloadSpec {
        block_bytes: 4096,
        pattern: Pattern::Random,
        sub_range: None,
        align_bytes: None,
        read_percent: 70,
        outstanding_per_disk: 2,
        rate: None,
        compression_ratio: 1.0,
        duplication_ratio: 1.0,
        flush_every_writes: None,
        on_error: OnError::Stop,
        stall_threshold_ms: None,
    };
    Work::Load(Load { workload, precondition_seconds, sample_seconds })
}

/// What a file holds, to see that nothing was written.
pub(crate) fn contents(path: &Path) -> (Vec<u8>, std::time::SystemTime) {
    (std::fs::read(path).unwrap(), std::fs::metadata(path).unwrap().modified().unwrap())
}

/// A TCP proxy between agent and fleet.
pub(crate) struct Way {
    pub(crate) address: SocketAddr,
    state: watch::Sender<State>,
}

/// What a [`Way`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Carries both ways.
    Open,
    /// Swallows what the agent says.
    Deaf,
    /// Cuts all connections, and each new one at once.
    Closed,
}

impl Way {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, seen) = watch::channel(State::Open);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if *seen.borrow() != State::Closed {
                    tokio::spawn(carry(near, target, seen.clone()));
                }
            }
        });
        Self { address, state }
    }

    pub(crate) fn set(&self, state: State) {
        self.state.send_replace(state);
    }
}

async fn carry(near: TcpStream, target: SocketAddr, mut state: watch::Receiver<State>) {
    let Ok(far) = TcpStream::connect(target).await else { return };
    let (mut from_near, mut to_near) = near.into_split();
    let (mut from_far, mut to_far) = far.into_split();
    let heard = state.clone();
    let up = async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from_near.read(&mut buffer).await {
            if *heard.borrow() == State::Open && to_far.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = up => (),
        _ = tokio::io::copy(&mut from_far, &mut to_near) => (),
        _ = state.wait_for(|state| *state == State::Closed) => (),
    }
}

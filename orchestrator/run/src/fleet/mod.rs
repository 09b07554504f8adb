//! The fleet: enrolment, sessions, clock offsets, the barrier start, and what workers report.
//!
//! [`Fleet::start`] takes a listener and answers workers in the background; what happens comes out of one bounded
//! channel of [`FleetEvent`]s. A command ([`Fleet::prepare`], [`Fleet::start_at`] …) records what the worker is to do and
//! tells it; where its session breaks, the fleet says again what the worker missed when the same process is back, so a caller need
//! not know of reconnections. Samples come out once each, in order, and are acknowledged by the caller once stored.

mod addresses;
mod authority;
mod barrier;
mod clock;
mod disks;
mod error;
mod identity;
mod listen;
mod member;
mod metered;
mod refusals;
mod roster;
mod session;
mod settings;
mod tls;

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{net::TcpListener, sync::mpsc};
use worker_protocol::{Fingerprint, Hello, Prepare, StartAt};

use member::Link;
use roster::Shared;

pub use addresses::{MAX_URLS, reached_at};
pub use authority::{Authority, AuthorityError, CERTIFICATE_FILE, KEY_FILE};
pub use barrier::{PlannedStart, StartPlan, StartSkew};
pub use clock::{ClockOffset, MAX_CLOCK_HISTORY, OrchestratorClock, drift_ppm};
pub use error::{CommandError, EnrolError, Missing};
pub use refusals::{MAX_REFUSALS_KEPT, REFUSAL_BURST, REFUSAL_INTERVAL};
pub use settings::*;
pub use tls::{Leaf, node_name};

/// The most workers of a fleet.
pub const MAX_WORKERS: usize = 4_096;

/// The workers of a run. Dropping it ends all sessions and closes the listener.
pub struct Fleet {
    shared: Arc<Shared>,
    address: SocketAddr,
    urls: Vec<String>,
}

/// Stops a fleet's jobs. It does not keep the fleet alive.
pub(crate) struct Stopper(Arc<Shared>);

impl Stopper {
    /// Stops a job on these workers. One that cannot be told is found missing by whoever drives the job.
    pub(crate) fn stop(&self, workers: &[String], job: u64) {
        for worker in workers {
            let _ = self.0.command(worker, |member| member.stop(job));
        }
    }
}

/// A worker that is here.
#[derive(Debug, Clone, PartialEq)]
pub struct Enrolled {
    /// Name in the run.
    pub worker: String,
    /// What it said of itself; the token is blanked.
    pub hello: Hello,
    /// Its clock.
    pub offset: ClockOffset,
    /// MTU of its way to us as its kernel knows it, bytes; none where that does not tell.
    pub path_mtu_bytes: Option<u32>,
    /// When its process enrolled first.
    pub at: Instant,
}

impl Fleet {
    /// Accepts workers on `listener` from now on, within the current Tokio runtime and over TLS alone. The caller takes events from
    /// the receiver for as long as the fleet lives: without one, sessions end.
    ///
    /// # Errors
    /// Where the listener has no address, no certificate can be issued for it, or more than [`MAX_WORKERS`] are expected.
    pub fn start(listener: TcpListener, settings: FleetSettings) -> io::Result<(Self, mpsc::Receiver<FleetEvent>)> {
        let workers = settings.expected.len();
        if workers > MAX_WORKERS {
            return Err(io::Error::other(format!("{workers} workers; at most {MAX_WORKERS} are allowed")));
        }
        let address = listener.local_addr()?;
        let own = addresses::of_this_machine()?;
        let leaf = Leaf::issue(Arc::clone(&settings.authority), address.ip(), &own, &[]).map_err(io::Error::other)?;
        let acceptor = tls::acceptor(Arc::clone(&leaf)).map_err(io::Error::other)?;
        let (events_in, events) = mpsc::channel(EVENTS_PER_WORKER * workers.max(1));
        let shared = Arc::new(Shared::new(settings, events_in));
        let listen = listen::accept_workers(listener, acceptor, Arc::clone(&shared));
        tokio::spawn(shared.cancel.clone().run_until_cancelled_owned(async move {
            tokio::select! {
                () = listen => (),
                () = leaf.follow_addresses() => (),
            }
        }));
        Ok((Self { shared, address, urls: addresses::urls(address, &own) }, events))
    }

    /// What workers of a fleet on `listener` will dial, known before there is a fleet: as [`urls`](Self::urls), or the addresses in `told`
    /// where there are any.
    ///
    /// # Errors
    /// Where the listener has no address, or the system does not tell this machine's.
    pub fn urls_of(listener: &TcpListener, told: &[SocketAddr]) -> io::Result<Vec<String>> {
        let listening = listener.local_addr()?;
        match told {
            [] => Ok(addresses::urls(listening, &addresses::of_this_machine()?)),
            told => Ok(addresses::told_urls(listening, told)),
        }
    }

    /// Where workers dial.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What workers dial, in turn: each address of this machine at which the listener answers, at most [`MAX_URLS`].
    #[must_use]
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// What workers pin.
    #[must_use]
    pub fn ca_fingerprint(&self) -> Fingerprint {
        self.shared.settings.authority.fingerprint()
    }

    /// Waits until every expected worker has a session and its clock is measured.
    ///
    /// # Errors
    /// [`EnrolError`] names who is missing and why: after `timeout`, or as soon as one is lost or refused for good.
    pub async fn wait_enrolled(&self, timeout: Duration) -> Result<Vec<Enrolled>, EnrolError> {
        let since = Instant::now();
        let mut changes = self.shared.changes();
        loop {
            let Some((error, hopeless)) = self.shared.missing(since.elapsed().as_secs_f64()) else {
                return Ok(self.enrolled());
            };
            let left = timeout.saturating_sub(since.elapsed());
            if hopeless || left.is_zero() {
                return Err(error);
            }
            // A change, or the end of the wait: both are judged above.
            let _ = tokio::time::timeout(left, changes.changed()).await;
        }
    }

    /// The workers that have a session now, in the order expected.
    #[must_use]
    pub fn enrolled(&self) -> Vec<Enrolled> {
        let look = |member: &member::Member| {
            let (hello, offset, at) = (member.hello.clone()?, member.clock.latest()?, member.enrolled_at?);
            let (worker, path_mtu_bytes) = (member.name().to_owned(), member.path_mtu_bytes);
            (member.link == Link::Up).then_some(Enrolled { worker, hello, offset, path_mtu_bytes, at })
        };
        self.shared.look_at_all(look).into_iter().flatten().collect()
    }

    /// Gives a worker a job. It answers with [`FleetEvent::Ready`] or [`FleetEvent::Failed`].
    ///
    /// # Errors
    /// [`CommandError`] where the worker is not here or holds another job. A worker that is only away is told when it is back.
    pub fn prepare(&self, worker: &str, prepare: Prepare) -> Result<(), CommandError> {
        self.shared.command(worker, |member| member.prepare(prepare))
    }

    /// Starts a ready job of one worker at `worker_ns` on its own clock.
    ///
    /// # Errors
    /// [`CommandError`] where the job is not ready, or has its start already.
    pub fn start_at(&self, worker: &str, job: u64, worker_ns: u64) -> Result<(), CommandError> {
        self.shared.command(worker, |member| member.start_at(StartAt { job, worker_ns }))
    }

    /// Starts a ready job on all `workers` at one moment, `lead` after their clocks have been measured once more. The lead must
    /// cover the way to the farthest worker; one that gets its start too late fails the job and says how late.
    ///
    /// # Errors
    /// [`CommandError`] of the first worker that cannot be started; none of them is started then.
    pub async fn start_all(&self, job: u64, workers: &[&str], lead: Duration) -> Result<StartPlan, CommandError> {
        for worker in workers {
            self.shared.command_check(worker, |member| member.check_startable(job))?;
        }
        let offsets = futures_util::future::try_join_all(workers.iter().map(|worker| self.probe(worker))).await?;
        let start_ns = self.shared.settings.clock.now_ns().saturating_add(clock::duration_ns(lead));
        let planned = workers.iter().zip(offsets).map(|(worker, offset)| PlannedStart {
            worker: (*worker).to_owned(),
            worker_ns: offset.to_worker_ns(start_ns),
            offset,
        });
        let plan = StartPlan { job, start_ns, workers: planned.collect() };
        self.shared.start_together(&plan)?;
        Ok(plan)
    }

    /// Ends a job early; what was measured comes as [`FleetEvent::Finished`].
    ///
    /// # Errors
    /// [`CommandError`] where the worker does not hold the job.
    pub fn stop(&self, worker: &str, job: u64) -> Result<(), CommandError> {
        self.shared.command(worker, |member| member.stop(job))
    }

    /// Stops jobs beside whoever drives them.
    pub(crate) fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Drops a job; nothing more of it comes.
    ///
    /// # Errors
    /// [`CommandError`] where the worker does not hold the job.
    pub fn abort(&self, worker: &str, job: u64) -> Result<(), CommandError> {
        self.shared.command(worker, |member| member.abort(job))
    }

    /// Samples up to and with number `up_to` are stored; the worker forgets them.
    ///
    /// # Errors
    /// [`CommandError`] where the worker does not hold the job or the sample was never delivered.
    pub fn ack_samples(&self, worker: &str, job: u64, up_to: u64) -> Result<(), CommandError> {
        self.shared.command(worker, |member| member.ack_samples(job, up_to))
    }

    /// The end of a job ([`FleetEvent::Finished`] or [`FleetEvent::Failed`]) is stored; the worker may have another.
    ///
    /// # Errors
    /// [`CommandError`] where the worker does not hold the job or it has not ended.
    pub fn ack_job(&self, worker: &str, job: u64) -> Result<(), CommandError> {
        self.shared.command(worker, |member| member.ack_job(job))
    }

    /// The worker's clock as last measured.
    ///
    /// # Errors
    /// [`CommandError`] where it was never measured.
    pub fn offset(&self, worker: &str) -> Result<ClockOffset, CommandError> {
        let why = "no measurement yet";
        let latest = self.shared.look(worker, |member| member.clock.latest())?;
        latest.ok_or_else(|| CommandError::NoClock { worker: worker.to_owned(), why })
    }

    /// All measurements of the worker's clock since its process enrolled, oldest first, at most [`MAX_CLOCK_HISTORY`].
    ///
    /// # Errors
    /// [`CommandError`] for a name that is not of this fleet.
    pub fn clock_history(&self, worker: &str) -> Result<Vec<ClockOffset>, CommandError> {
        self.shared.look(worker, |member| member.clock.history())
    }

    /// A moment in `orchestrator_ns` on the worker's clock, by its last measurement.
    ///
    /// # Errors
    /// [`CommandError`] where its clock was never measured.
    pub fn to_worker_ns(&self, worker: &str, orchestrator_ns: u64) -> Result<u64, CommandError> {
        Ok(self.offset(worker)?.to_worker_ns(orchestrator_ns))
    }

    /// Measures the worker's clock now.
    ///
    /// # Errors
    /// [`CommandError`] where it is away or does not answer within [`BURST_TIMEOUT`].
    pub async fn probe(&self, worker: &str) -> Result<ClockOffset, CommandError> {
        let measured = tokio::time::timeout(BURST_TIMEOUT, self.shared.ask_probe(worker)?).await;
        let no_clock = |why| CommandError::NoClock { worker: worker.to_owned(), why };
        measured.map_err(|_| no_clock("no answer in time"))?.map_err(|_| no_clock("its session broke off"))
    }

    /// The provider knows that the worker's process or machine is gone: it is lost at once.
    ///
    /// # Errors
    /// [`CommandError`] for a name that is not of this fleet.
    pub async fn worker_exited(&self, worker: &str, why: impl Into<String>) -> Result<(), CommandError> {
        self.shared.lose(worker, why.into()).await
    }

    /// Tells every worker to end, and waits for their sessions to. Answers who still has one after `timeout`. From here on no worker
    /// counts as lost, and one that comes back is told to end.
    pub async fn shutdown_all(&self, timeout: Duration) -> Vec<String> {
        let mut changes = self.shared.changes();
        self.shared.shut_down();
        let up = || -> Vec<String> {
            let up = |member: &member::Member| (member.link == Link::Up).then(|| member.name().to_owned());
            self.shared.look_at_all(up).into_iter().flatten().collect()
        };
        let none_up = async { while !up().is_empty() && changes.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(timeout, none_up).await;
        up()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.shared.cancel.cancel();
    }
}

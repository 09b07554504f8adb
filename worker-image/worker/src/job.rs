//! The thread that drives the engine through one job.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use load_engine::{Event, Outcome, Report, Running, Second};
use tokio::sync::mpsc;
use worker_protocol::Prepare;

use crate::{convert, disks::Claims};

/// How late a Stop is noticed.
const COMMAND_INTERVAL: Duration = Duration::from_millis(50);

/// News of jobs that may wait for the agent's task; more than come while it sends one message.
pub(crate) const NEWS_QUEUE: usize = 256;

/// What a job's thread says.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) job: u64,
    pub(crate) what: What,
}

/// See [`News`].
#[derive(Debug)]
pub(crate) enum What {
    Ready(Report),
    Failed { disk: Option<String>, error: String },
    Second(Box<Second>),
    Progress { bytes_done: u64, bytes_total: u64 },
    Ended(Box<Outcome>),
}

enum Command {
    Start(Instant),
    Stop,
}

/// A job's thread. Dropping it drops the job: the thread stops the engine and ends by itself.
#[derive(Debug)]
pub(crate) struct JobThread {
    commands: Sender<Command>,
    thread: JoinHandle<()>,
}

/// How the engine is to be set for every job.
#[derive(Debug, Clone)]
pub(crate) struct EngineSettings {
    pub(crate) claims: Claims,
    pub(crate) threads: u32,
    pub(crate) own_kernel: bool,
}

impl JobThread {
    /// Prepares a job once the thread of an earlier, dropped one has released its disks.
    pub(crate) fn spawn(
        prepare: Prepare,
        settings: EngineSettings,
        earlier: Option<JoinHandle<()>>,
        news: mpsc::Sender<News>,
    ) -> std::io::Result<Self> {
        let (commands_in, commands) = channel();
        let thread = std::thread::Builder::new().name(format!("job-{}", prepare.job)).spawn(move || {
            // Its own panic, if any, was reported by its own thread.
            drop(earlier.map(JoinHandle::join));
            let mut teller = Teller { job: prepare.job, news, ended: false };
            drive(&prepare, &settings, &commands, &mut teller);
            teller.ended = true;
        })?;
        Ok(Self { commands: commands_in, thread })
    }

    pub(crate) fn start(&self, at: Instant) {
        // A thread that is gone has told why.
        let _ = self.commands.send(Command::Start(at));
    }

    pub(crate) fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }

    /// Drops the job; the handle ends when the disks are released.
    pub(crate) fn abandon(self) -> JoinHandle<()> {
        self.thread
    }
}

/// Tells the agent; also that the thread panicked, so that nobody waits for it.
struct Teller {
    job: u64,
    news: mpsc::Sender<News>,
    ended: bool,
}

impl Teller {
    /// False where nobody listens any more.
    fn tell(&self, what: What) -> bool {
        self.news.blocking_send(News { job: self.job, what }).is_ok()
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if !self.ended {
            let error = "a defect of the worker: the job's thread panicked".to_owned();
            self.tell(What::Failed { disk: None, error });
        }
    }
}

fn drive(prepare: &Prepare, settings: &EngineSettings, commands: &Receiver<Command>, teller: &mut Teller) {
    let disks = match settings.claims.resolve(&prepare.disks) {
        Ok(disks) => disks,
        Err(refusal) => {
            let error = format!("disk {}: {}", refusal.serial, refusal.problem);
            teller.tell(What::Failed { disk: Some(refusal.serial), error });
            return;
        }
    };
    let job = convert::job(&prepare.work, prepare.seed, disks, settings.threads, settings.own_kernel);
    let prepared = match load_engine::prepare(job) {
        Ok(prepared) => prepared,
        Err(error) => {
            let disk = error.disk().map(str::to_owned);
            teller.tell(What::Failed { disk, error: error.to_string() });
            return;
        }
    };
    teller.tell(What::Ready(prepared.report().clone()));
    match commands.recv() {
        Ok(Command::Start(at)) => {
            let (events_in, events) = channel();
            run(prepared.start(at, events_in), &events, commands, teller);
        }
        Ok(Command::Stop) => {
            let error = "it was stopped before its start".to_owned();
            teller.tell(What::Failed { disk: None, error });
        }
        Err(_) => (),
    }
}

/// Hands the engine's events on until it has ended. The engine is joined on a thread of its own, since its channel may stay open until then.
fn run(running: Running, events: &Receiver<Event>, commands: &Receiver<Command>, teller: &mut Teller) {
    let stopper = running.stopper();
    let (ended_in, ended) = channel();
    std::thread::scope(|scope| {
        let joiner = scope.spawn(move || {
            let outcome = running.join();
            let _ = ended_in.send(());
            outcome
        });
        loop {
            match events.recv_timeout(COMMAND_INTERVAL) {
                Ok(event) => {
                    if !teller.tell(news_of(event)) {
                        stopper.stop();
                    }
                }
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = ended.recv_timeout(COMMAND_INTERVAL);
                }
            }
            match commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => stopper.stop(),
                Ok(Command::Start(_)) | Err(TryRecvError::Empty) => (),
            }
            if joiner.is_finished() {
                break;
            }
        }
        for event in events.try_iter() {
            teller.tell(news_of(event));
        }
        match joiner.join() {
            Ok(outcome) => teller.tell(What::Ended(Box::new(outcome))),
            Err(_) => {
                let error = "a defect of the worker: the engine panicked".to_owned();
                teller.tell(What::Failed { disk: None, error })
            }
        };
    });
}

fn news_of(event: Event) -> What {
    match event {
        Event::Second(second) => What::Second(second),
        Event::Progress { bytes_done, bytes_total } => What::Progress { bytes_done, bytes_total },
    }
}

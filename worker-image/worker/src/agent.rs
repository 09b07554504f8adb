//! The agent: sessions come and go, the job stays.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use futures_util::{SinkExt, StreamExt};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, timeout},
};
use tokio_tungstenite::tungstenite::{Bytes, Message};
use worker_protocol::{
    ClockReply, Failed, Fingerprint, Hello, OrchestratorMessage, Prepare, Progress, Ready, StartAt, WorkerMessage,
    decode_from_orchestrator, encode,
};

use crate::{
    DiskArg, Ending, MAX_START_AHEAD, MAX_START_LATENESS, SEND_TIMEOUT, STOP_LIMIT,
    book::{Book, Standing},
    convert,
    disks::Claims,
    facts::{self, Identity, WorkerClock},
    job::{EngineSettings, JobThread, NEWS_QUEUE, News, What},
    link::{Backoff, DialError, Dialler, Socket, broke_off, path_mtu},
    machine::Machine,
};

/// What stands in the way of a session is said again after this long.
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How often an ending agent looks whether the engine has stopped.
const STOP_POLL: Duration = Duration::from_millis(20);

/// What an agent needs to know.
#[derive(Clone)]
pub struct Config {
    /// The orchestrator's addresses, `wss://…`, in the order to try; at most [`crate::MAX_URLS`].
    pub urls: Vec<String>,
    /// SHA-256 of the orchestrator's CA certificate.
    pub ca_sha256: Fingerprint,
    /// Identity under which it is expected; none is that of the machine: its SMBIOS UUID and MAC addresses.
    pub uuid: Option<String>,
    /// The enrolment token.
    pub token: String,
    /// Disks that may be used; none are all disks of the machine.
    pub disks: Option<Vec<DiskArg>>,
    /// The machine.
    pub machine: Machine,
    /// Engine threads.
    pub threads: u32,
    /// The kernel is the worker's own.
    pub own_kernel: bool,
    /// Without a session and without news from a job for this long, the agent gives up.
    pub give_up_after: Duration,
    /// Silence that ends a session.
    pub keepalive_timeout: Duration,
}

/// Why an agent ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// An option is missing or wrong.
    #[error("{option}: {problem}")]
    Option {
        /// The option of the command line.
        option: &'static str,
        /// What was found and what is allowed.
        problem: String,
    },
    /// Trying again cannot help.
    #[error("the orchestrator refuses this worker: {0}")]
    Refused(String),
    /// Nobody to talk to.
    #[error("no session with the orchestrator for {seconds} s; the last attempt: {last}")]
    GaveUp {
        /// How long it was tried.
        seconds: u64,
        /// What became of the last attempt.
        last: String,
    },
    /// Told to by the system.
    #[error("{0}")]
    Ended(Ending),
}

/// A worker.
pub struct Agent {
    dialler: Dialler,
    /// Number of the address to dial first: the one that answered last.
    first_address: usize,
    hello: Hello,
    clock: WorkerClock,
    engine: EngineSettings,
    give_up_after: Duration,
    keepalive_timeout: Duration,
    book: Book,
    thread: Option<JobThread>,
    /// The thread of a dropped job that may still release its disks.
    leaving: Option<JoinHandle<()>>,
    news: mpsc::Receiver<News>,
    news_in: mpsc::Sender<News>,
    last_news: Instant,
    /// Of the session's way, once the padded first messages got through.
    path_mtu_bytes: Option<u32>,
}

/// How a session ends.
enum Parting {
    /// Told to by the orchestrator.
    Shutdown,
    /// It broke; the agent dials again.
    Broken(String),
}

type EndingFuture<'a> = Pin<&'a mut (dyn Future<Output = Ending> + Send)>;

impl Agent {
    /// Examines the disks; dials nobody yet.
    ///
    /// # Errors
    /// [`AgentError::Option`] for a URL or disk that cannot be used.
    pub fn new(config: Config) -> Result<Self, AgentError> {
        let dialler = Dialler::new(&config.urls, config.ca_sha256)?;
        let identity = Identity::of(config.uuid, &config.machine)?;
        let claims = match &config.disks {
            Some(disks) => Claims::given(disks)?,
            None => Claims::of_machine(&config.machine)?,
        };
        let (news_in, news) = mpsc::channel(NEWS_QUEUE);
        Ok(Self {
            dialler,
            first_address: 0,
            hello: facts::hello(identity, config.token, &claims),
            clock: WorkerClock::start(),
            engine: EngineSettings { claims, threads: config.threads, own_kernel: config.own_kernel },
            give_up_after: config.give_up_after,
            keepalive_timeout: config.keepalive_timeout,
            book: Book::default(),
            thread: None,
            leaving: None,
            news,
            news_in,
            last_news: Instant::now(),
            path_mtu_bytes: None,
        })
    }

    /// Serves the orchestrator until it says Shutdown or `ending` comes. Either way the engine is stopped first.
    ///
    /// # Errors
    /// [`AgentError`] for every other end.
    pub async fn run(mut self, ending: impl Future<Output = Ending> + Send) -> Result<(), AgentError> {
        let mut ending = std::pin::pin!(ending);
        let end = self.serve(ending.as_mut()).await;
        self.drop_job();
        if !self.released().await {
            tracing::warn!("the engine did not stop within {} s", STOP_LIMIT.as_secs());
        }
        end
    }

    /// Waits for a dropped job's thread. Not by joining it: a thread that hangs in the kernel must not keep the process.
    async fn released(&self) -> bool {
        let over = async {
            while self.leaving.as_ref().is_some_and(|leaving| !leaving.is_finished()) {
                tokio::time::sleep(STOP_POLL).await;
            }
        };
        timeout(STOP_LIMIT, over).await.is_ok()
    }

    async fn serve(&mut self, mut ending: EndingFuture<'_>) -> Result<(), AgentError> {
        loop {
            let socket = self.connect(ending.as_mut()).await?;
            self.book.begin_session();
            self.path_mtu_bytes = path_mtu(&socket);
            match self.talk(socket, ending.as_mut()).await? {
                Parting::Shutdown => return Ok(()),
                Parting::Broken(why) => tracing::warn!(why, "the session with the orchestrator broke off"),
            }
        }
    }

    /// Dials until there is a session.
    async fn connect(&mut self, mut ending: EndingFuture<'_>) -> Result<Socket, AgentError> {
        let since = Instant::now();
        let mut backoff = Backoff::new();
        let mut complaints = Complaints::default();
        loop {
            let hello = Hello { activity: self.book.activity(), ..self.hello.clone() };
            let dialler = self.dialler.clone();
            let dialling = dialler.dial(self.first_address, &hello, |url, obstacle| {
                complaints.hear(url, obstacle, Instant::now()).iter().for_each(|line| tracing::warn!("{line}"));
            });
            let obstacles = match self.meanwhile(dialling, ending.as_mut()).await? {
                Ok((socket, welcome, number)) => {
                    self.first_address = number;
                    tracing::info!("enrolled as {} at {}", welcome.worker, dialler.url(number));
                    return Ok(socket);
                }
                Err(DialError::Final(reason)) => return Err(AgentError::Refused(reason)),
                Err(DialError::Later(why)) => why,
            };
            let idle = since.max(self.last_news).elapsed();
            if idle >= self.give_up_after {
                return Err(AgentError::GaveUp { seconds: idle.as_secs(), last: obstacles.join("; ") });
            }
            let pause = backoff.pause().min(self.give_up_after - idle);
            self.meanwhile(tokio::time::sleep(pause), ending.as_mut()).await?;
        }
    }

    /// Awaits `work` while news of the job is taken in.
    async fn meanwhile<W: Future>(&mut self, work: W, mut ending: EndingFuture<'_>) -> Result<W::Output, AgentError> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                end = ending.as_mut() => return Err(AgentError::Ended(end)),
                Some(news) = self.news.recv() => self.note(news),
            }
        }
    }

    /// One session. What comes in goes first, so that clock probes do not wait behind samples.
    async fn talk(&mut self, mut socket: Socket, mut ending: EndingFuture<'_>) -> Result<Parting, AgentError> {
        let mut ping = tokio::time::interval(self.keepalive_timeout / 3);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let silence = tokio::time::sleep(self.keepalive_timeout);
        tokio::pin!(silence);
        loop {
            let sending = tokio::select! {
                biased;
                end = ending.as_mut() => return Err(AgentError::Ended(end)),
                frame = socket.next() => {
                    silence.as_mut().reset(tokio::time::Instant::now() + self.keepalive_timeout);
                    match self.hear(frame) {
                        Heard::Nothing => continue,
                        Heard::Answer(answer) => answer,
                        Heard::Parting(parting) => {
                            let _ = timeout(SEND_TIMEOUT, socket.close(None)).await;
                            return Ok(parting);
                        }
                    }
                }
                () = &mut silence => {
                    let seconds = self.keepalive_timeout.as_secs_f64();
                    return Ok(Parting::Broken(format!("nothing heard for {seconds} s")));
                }
                _ = ping.tick() => Message::Ping(Bytes::new()),
                Some(news) = self.news.recv() => {
                    self.note(news);
                    continue;
                }
                () = std::future::ready(()), if self.book.has_next() => match self.next_frame() {
                    Some(frame) => frame,
                    None => continue,
                },
            };
            match timeout(SEND_TIMEOUT, socket.send(sending)).await {
                Ok(Ok(())) => (),
                Ok(Err(error)) => return Ok(Parting::Broken(broke_off(&error))),
                Err(_) => return Ok(Parting::Broken("the orchestrator takes no messages".to_owned())),
            }
        }
    }

    /// The next thing to tell. A job's end too large for the protocol becomes a failure that says so.
    fn next_frame(&mut self) -> Option<Message> {
        let message = self.book.next_message()?;
        match encode(&message) {
            Ok(bytes) => Some(Message::binary(bytes)),
            Err(error) => {
                tracing::error!(%error, "a message cannot be sent");
                let job = self.book.held()?;
                self.book.forget(job);
                self.book.refuse(failed(job, format!("its report cannot be sent: {error}")));
                None
            }
        }
    }

    fn hear(&mut self, frame: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>) -> Heard {
        let bytes = match frame {
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => return Heard::Nothing,
            Some(Ok(Message::Close(_))) | None => return Heard::broken("the orchestrator closed the session"),
            Some(Ok(_)) => return Heard::broken("the orchestrator sent a text message"),
            Some(Err(error)) => return Heard::broken(broke_off(&error)),
        };
        match decode_from_orchestrator(&bytes) {
            Ok(OrchestratorMessage::ClockProbe(probe)) => {
                let worker_ns = self.clock.now_ns();
                let reply = ClockReply { probe: probe.probe, worker_ns, path_mtu_bytes: self.path_mtu_bytes };
                match encode(&WorkerMessage::ClockReply(reply)) {
                    Ok(bytes) => Heard::Answer(Message::binary(bytes)),
                    Err(error) => Heard::broken(error),
                }
            }
            Ok(OrchestratorMessage::Shutdown) => Heard::Parting(Parting::Shutdown),
            Ok(message) => {
                self.obey(message);
                Heard::Nothing
            }
            Err(error) => Heard::broken(error),
        }
    }

    fn obey(&mut self, message: OrchestratorMessage) {
        match message {
            OrchestratorMessage::Prepare(prepare) => self.prepare(prepare),
            OrchestratorMessage::StartAt(start) => self.start_at(&start),
            OrchestratorMessage::SampleAck(ack) => self.book.acknowledge_samples(ack.job, ack.up_to),
            OrchestratorMessage::JobAck(ack) => self.book.acknowledge_job(ack.job),
            OrchestratorMessage::Stop(job) => self.stop(job.job),
            OrchestratorMessage::Abort(job) => {
                if self.book.held() == Some(job.job) {
                    self.drop_job();
                }
                self.book.forget(job.job);
            }
            OrchestratorMessage::Welcome(_)
            | OrchestratorMessage::Reject(_)
            | OrchestratorMessage::ClockProbe(_)
            | OrchestratorMessage::Shutdown => tracing::debug!("a message that has no place within a session"),
        }
    }

    fn prepare(&mut self, prepare: Prepare) {
        let job = prepare.job;
        match self.book.held() {
            Some(held) if held == job => return,
            Some(held) => return self.book.refuse(failed(job, format!("this worker still holds job {held}"))),
            None => self.drop_job(),
        }
        self.book.take(job);
        match JobThread::spawn(prepare, self.engine.clone(), self.leaving.take(), self.news_in.clone()) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => self.end_failed(job, format!("cannot start its thread: {error}")),
        }
    }

    fn start_at(&mut self, start: &StartAt) {
        let job = start.job;
        match self.book.standing(job) {
            // Said again after a broken session.
            Standing::Started | Standing::Ended => (),
            Standing::NotHeld => self.book.refuse(failed(job, "it was never prepared here".to_owned())),
            Standing::Preparing => {
                self.end_failed(job, "its start came before it was ready".to_owned());
                self.drop_job();
            }
            Standing::Ready => match self.start_instant(start.worker_ns) {
                Ok(at) => {
                    self.book.started(job);
                    self.thread.iter().for_each(|thread| thread.start(at));
                }
                Err(error) => {
                    self.end_failed(job, error);
                    self.drop_job();
                }
            },
        }
    }

    fn start_instant(&self, worker_ns: u64) -> Result<Instant, String> {
        let now_ns = self.clock.now_ns();
        let late = Duration::from_nanos(now_ns.saturating_sub(worker_ns));
        let ahead = Duration::from_nanos(worker_ns.saturating_sub(now_ns));
        if late > MAX_START_LATENESS {
            return Err(format!("its start was {late:?} ago; at most {MAX_START_LATENESS:?} are allowed"));
        }
        if ahead > MAX_START_AHEAD {
            return Err(format!("its start is {ahead:?} ahead; at most {MAX_START_AHEAD:?} are allowed"));
        }
        Ok(self.clock.instant_of(worker_ns))
    }

    fn stop(&mut self, job: u64) {
        match self.book.standing(job) {
            Standing::NotHeld | Standing::Ended => (),
            Standing::Preparing | Standing::Ready | Standing::Started => {
                self.thread.iter().for_each(JobThread::stop);
            }
        }
    }

    /// Takes a job thread's news in. That of a job no longer held changes nothing.
    fn note(&mut self, News { job, what }: News) {
        self.last_news = Instant::now();
        match what {
            What::Ready(report) => self.book.ready(Ready { job, engine: convert::report(&report) }),
            What::Failed { disk, error } => {
                self.book.end(job, WorkerMessage::Failed(Failed { job, disk, error }));
            }
            What::Second(second) => self.book.second(job, |number| convert::sample(job, number, &second)),
            What::Progress { bytes_done, bytes_total } => {
                self.book.progress(Progress { job, bytes_done, bytes_total });
            }
            What::Ended(outcome) => self.book.end(job, convert::outcome(job, &outcome, &self.clock)),
        }
    }

    fn end_failed(&mut self, job: u64, error: String) {
        self.book.end(job, WorkerMessage::Failed(failed(job, error)));
    }

    /// Lets the job's thread go; the engine stops.
    fn drop_job(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.leaving = Some(thread.abandon());
        }
    }
}

/// What stands between the agent and its orchestrator at each of its addresses, said when it is new and then once in [`SAY_AGAIN_AFTER`]:
/// a machine's console must not scroll away what the machine is.
#[derive(Debug, Default)]
struct Complaints {
    /// By address, and when it was said.
    known: BTreeMap<String, (String, Instant)>,
}

impl Complaints {
    /// The line to say now, if any.
    fn hear(&mut self, url: &str, obstacle: &str, now: Instant) -> Option<String> {
        let known = self.known.get(url).filter(|(known, _)| known == obstacle);
        if known.is_some_and(|(_, said)| now.saturating_duration_since(*said) < SAY_AGAIN_AFTER) {
            return None;
        }
        self.known.insert(url.to_owned(), (obstacle.to_owned(), now));
        Some(format!("no session yet, tries on: {url}: {obstacle}"))
    }
}

/// What a frame from the orchestrator calls for.
enum Heard {
    Nothing,
    Answer(Message),
    Parting(Parting),
}

impl Heard {
    fn broken(why: impl ToString) -> Self {
        Self::Parting(Parting::Broken(why.to_string()))
    }
}

fn failed(job: u64, error: String) -> Failed {
    Failed { job, disk: None, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_obstacle_is_said_when_it_is_new_and_then_now_and_again() {
        let start = Instant::now();
        let mut complaints = Complaints::default();
        let mut says =
            |url: &str, obstacle: &str, after: u64| complaints.hear(url, obstacle, start + Duration::from_secs(after));
        assert_eq!(says("wss://a", "refused", 0).unwrap(), "no session yet, tries on: wss://a: refused");
        assert_eq!(says("wss://b", "refused", 0).unwrap(), "no session yet, tries on: wss://b: refused");
        assert_eq!(says("wss://a", "refused", 59), None);
        assert!(says("wss://a", "silent", 59).is_some(), "another one");
        assert_eq!(says("wss://a", "silent", 118), None);
        assert!(says("wss://a", "silent", 119).is_some(), "a minute later");
        assert!(says("wss://b", "refused", 119).is_some());
    }
}

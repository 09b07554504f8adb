//! One worker as the fleet knows it: pure state, no I/O.
//!
//! What the worker is to do is kept here until it is over, so that a session is only a way to say it: whatever a broken
//! session swallowed is said again by [`Member::catch_up`].

use std::time::Instant;

use worker_protocol::{
    Activity, Failed, Hello, JobAck, JobRef, OrchestratorMessage, Prepare, SampleAck, StartAt, WorkerMessage,
};

use super::{
    clock::ClockTrack,
    error::CommandError,
    settings::{Expected, FleetEvent},
};

/// A worker of the fleet.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) expected: Expected,
    pub(super) link: Link,
    /// The last Hello, its token blanked.
    pub(super) hello: Option<Hello>,
    pub(super) clock: ClockTrack,
    /// MTU of its way to us as it knows it, bytes.
    pub(super) path_mtu_bytes: Option<u32>,
    /// When its process enrolled first.
    pub(super) enrolled_at: Option<Instant>,
    /// Why it was last refused, and whether trying again cannot help.
    pub(super) refusal: Option<(String, bool)>,
    job: Option<Job>,
    /// The job before: its end may have to be said again.
    closed: Option<Closed>,
}

/// Whether a session with the worker is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Link {
    /// It never enrolled.
    Never,
    /// It is connected.
    Up,
    /// Its session ended; it may come back.
    Away,
    /// It will not be waited for.
    Lost(String),
}

/// The job a worker was given.
#[derive(Debug)]
struct Job {
    prepare: Prepare,
    ready: bool,
    start: Option<StartAt>,
    stopping: bool,
    ended: bool,
    /// The next sample number to hand to the caller.
    next_sample: u64,
    acked: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closed {
    Acknowledged(u64),
    Aborted(u64),
}

/// What becomes of a worker's message.
#[derive(Debug, PartialEq)]
pub(super) enum Received {
    /// News for the caller.
    Event(FleetEvent),
    /// Nothing new; the worker missed this.
    Answer(OrchestratorMessage),
    /// Nothing new.
    Known,
    /// It has no place here; the session ends.
    Violation(&'static str),
}

/// What a returning worker has to be told, and what its return revealed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CatchUp {
    pub(super) messages: Vec<OrchestratorMessage>,
    pub(super) event: Option<FleetEvent>,
}

impl Member {
    pub(super) fn new(expected: Expected) -> Self {
        Self {
            expected,
            link: Link::Never,
            hello: None,
            clock: ClockTrack::default(),
            path_mtu_bytes: None,
            enrolled_at: None,
            refusal: None,
            job: None,
            closed: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.expected.name
    }

    /// Whether `hello` comes from the process that was here before.
    pub(super) fn is_same_process(&self, hello: &Hello) -> bool {
        self.hello.as_ref().is_some_and(|known| known.boot_id == hello.boot_id)
    }

    /// Takes the worker in (again); the link is up afterwards.
    pub(super) fn enrol(&mut self, hello: Hello, now: Instant) -> CatchUp {
        if !self.is_same_process(&hello) {
            self.clock.clear();
            self.enrolled_at = Some(now);
        }
        let activity = hello.activity.clone();
        self.hello = Some(hello);
        self.link = Link::Up;
        self.refusal = None;
        self.catch_up(activity)
    }

    /// Gives the worker and its job up.
    pub(super) fn lose(&mut self, why: String) -> FleetEvent {
        let job = self.job.take().filter(|job| !job.ended).map(|job| job.prepare.job);
        self.closed = None;
        self.link = Link::Lost(why.clone());
        FleetEvent::Lost { worker: self.name().to_owned(), job, why }
    }

    fn catch_up(&mut self, activity: Option<Activity>) -> CatchUp {
        let mut told = CatchUp::default();
        let held = activity.map(|activity| activity.job);
        let ours = self.job.as_ref().map(|job| job.prepare.job);
        if let Some(held) = held.filter(|_| held != ours) {
            told.messages.push(match self.closed {
                Some(Closed::Acknowledged(job)) if job == held => OrchestratorMessage::JobAck(JobAck { job }),
                _ => OrchestratorMessage::Abort(JobRef { job: held }),
            });
        }
        let worker = self.name().to_owned();
        let Some(job) = &mut self.job else { return told };
        if held == ours {
            job.repeat(&mut told.messages);
        } else if job.ready && !job.ended {
            job.ended = true;
            let error = "the worker came back without the job that it had prepared".to_owned();
            let failed = Failed { job: job.prepare.job, disk: None, error };
            told.event = Some(FleetEvent::Failed { worker, failed });
        } else if !job.ended {
            told.messages.push(OrchestratorMessage::Prepare(job.prepare.clone()));
        }
        told
    }

    /// Judges a message; clock replies and Hello are not for here.
    pub(super) fn receive(&mut self, message: WorkerMessage) -> Received {
        let worker = self.name().to_owned();
        let about = match &message {
            WorkerMessage::Ready(ready) => ready.job,
            WorkerMessage::Failed(failed) => failed.job,
            WorkerMessage::Progress(progress) => progress.job,
            WorkerMessage::Sample(sample) => sample.job,
            WorkerMessage::Finished(finished) => finished.job,
            WorkerMessage::Hello(_) => return Received::Violation("a second Hello in one session"),
            WorkerMessage::ClockReply(_) => return Received::Known,
        };
        let Some(job) = self.job.as_mut().filter(|job| job.prepare.job == about) else {
            let ended = matches!(message, WorkerMessage::Failed(_) | WorkerMessage::Finished(_));
            let acknowledged = ended && self.closed == Some(Closed::Acknowledged(about));
            return if acknowledged {
                Received::Answer(OrchestratorMessage::JobAck(JobAck { job: about }))
            } else {
                Received::Known
            };
        };
        job.receive(worker, message)
    }

    /// Records a job and says how to give it to the worker.
    pub(super) fn prepare(&mut self, prepare: Prepare) -> Result<OrchestratorMessage, CommandError> {
        self.reachable()?;
        if let Some(job) = &self.job {
            return Err(CommandError::Busy { worker: self.name().to_owned(), held: job.prepare.job });
        }
        self.job = Some(Job::new(prepare.clone()));
        Ok(OrchestratorMessage::Prepare(prepare))
    }

    pub(super) fn check_startable(&mut self, job: u64) -> Result<(), CommandError> {
        let worker = self.name().to_owned();
        let wrong = |why| Err(CommandError::WrongState { worker, job, why });
        match self.held(job)? {
            held if held.ended => wrong("has ended"),
            held if held.start.is_some() => wrong("has its start already"),
            held if !held.ready => wrong("is not ready"),
            _ => Ok(()),
        }
    }

    pub(super) fn start_at(&mut self, start: StartAt) -> Result<OrchestratorMessage, CommandError> {
        self.check_startable(start.job)?;
        self.held(start.job)?.start = Some(start.clone());
        Ok(OrchestratorMessage::StartAt(start))
    }

    pub(super) fn stop(&mut self, job: u64) -> Result<OrchestratorMessage, CommandError> {
        self.held(job)?.stopping = true;
        Ok(OrchestratorMessage::Stop(JobRef { job }))
    }

    pub(super) fn abort(&mut self, job: u64) -> Result<OrchestratorMessage, CommandError> {
        self.held(job)?;
        self.job = None;
        self.closed = Some(Closed::Aborted(job));
        Ok(OrchestratorMessage::Abort(JobRef { job }))
    }

    pub(super) fn ack_samples(&mut self, job: u64, up_to: u64) -> Result<OrchestratorMessage, CommandError> {
        let worker = self.name().to_owned();
        let held = self.held(job)?;
        if up_to >= held.next_sample {
            return Err(CommandError::NotDelivered { worker, job, up_to });
        }
        let up_to = held.acked.map_or(up_to, |acked| acked.max(up_to));
        held.acked = Some(up_to);
        Ok(OrchestratorMessage::SampleAck(SampleAck { job, up_to }))
    }

    pub(super) fn ack_job(&mut self, job: u64) -> Result<OrchestratorMessage, CommandError> {
        let worker = self.name().to_owned();
        if !self.held(job)?.ended {
            return Err(CommandError::WrongState { worker, job, why: "has not ended" });
        }
        self.job = None;
        self.closed = Some(Closed::Acknowledged(job));
        Ok(OrchestratorMessage::JobAck(JobAck { job }))
    }

    /// Whether commands can reach the worker, now or when it comes back.
    pub(super) fn reachable(&self) -> Result<(), CommandError> {
        let worker = self.name().to_owned();
        match &self.link {
            Link::Up | Link::Away => Ok(()),
            Link::Never => Err(CommandError::NotEnrolled(worker)),
            Link::Lost(why) => Err(CommandError::Lost { worker, why: why.clone() }),
        }
    }

    fn held(&mut self, job: u64) -> Result<&mut Job, CommandError> {
        self.reachable()?;
        let not_held = CommandError::NotHeld { worker: self.name().to_owned(), job };
        self.job.as_mut().filter(|held| held.prepare.job == job).ok_or(not_held)
    }
}

impl Job {
    fn new(prepare: Prepare) -> Self {
        Self { prepare, ready: false, start: None, stopping: false, ended: false, next_sample: 0, acked: None }
    }

    /// What the worker may have missed of a job that it holds.
    fn repeat(&self, messages: &mut Vec<OrchestratorMessage>) {
        let job = self.prepare.job;
        if let Some(up_to) = self.acked {
            messages.push(OrchestratorMessage::SampleAck(SampleAck { job, up_to }));
        }
        if self.ended {
            return;
        }
        messages.extend(self.start.clone().map(OrchestratorMessage::StartAt));
        if self.stopping {
            messages.push(OrchestratorMessage::Stop(JobRef { job }));
        }
    }

    fn receive(&mut self, worker: String, message: WorkerMessage) -> Received {
        match message {
            WorkerMessage::Ready(ready) if !self.ready && !self.ended => {
                self.ready = true;
                Received::Event(FleetEvent::Ready { worker, ready })
            }
            WorkerMessage::Progress(progress) if !self.ended => {
                Received::Event(FleetEvent::Progress { worker, progress })
            }
            WorkerMessage::Sample(sample) if sample.number >= self.next_sample => {
                let Some(next) = sample.number.checked_add(1) else {
                    return Received::Violation("a sample number beyond all bounds");
                };
                self.next_sample = next;
                Received::Event(FleetEvent::Sample { worker, sample })
            }
            WorkerMessage::Sample(sample) => match self.acked.filter(|&acked| sample.number <= acked) {
                Some(up_to) => Received::Answer(OrchestratorMessage::SampleAck(SampleAck { job: sample.job, up_to })),
                None => Received::Known,
            },
            WorkerMessage::Failed(failed) if !self.ended => {
                self.ended = true;
                Received::Event(FleetEvent::Failed { worker, failed })
            }
            WorkerMessage::Finished(finished) if !self.ended => {
                self.ended = true;
                Received::Event(FleetEvent::Finished { worker, finished: Box::new(finished) })
            }
            _ => Received::Known,
        }
    }
}

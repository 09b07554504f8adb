//! What the worker holds of its job and has to tell: pure state, no I/O.

use std::collections::VecDeque;

use worker_protocol::{
    Activity, Failed, MAX_SAMPLES_IN_FLIGHT, MAX_UNACKNOWLEDGED_SAMPLES, Progress, Ready, Sample, WorkerMessage,
};

use crate::MAX_REFUSED_JOBS;

/// The job held, and refusals of others.
#[derive(Debug, Default)]
pub(crate) struct Book {
    held: Option<Held>,
    refused: VecDeque<(Failed, Told)>,
}

#[derive(Debug)]
struct Held {
    job: u64,
    stage: Stage,
    /// Not acknowledged, oldest first.
    samples: VecDeque<Sample>,
    /// How many of `samples` this session has sent.
    sent: usize,
    /// Number of the next sample of the engine.
    next_number: u64,
    progress: Option<Progress>,
}

/// How far the job is.
#[derive(Debug)]
enum Stage {
    Preparing,
    Ready(Ready, Told),
    Started,
    Ended(Box<WorkerMessage>, Told),
}

/// Whether this session has said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    No,
    Yes,
}

/// What a StartAt or Stop finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Another job, or none, is held.
    NotHeld,
    Preparing,
    Ready,
    Started,
    Ended,
}

impl Book {
    pub(crate) fn held(&self) -> Option<u64> {
        self.held.as_ref().map(|held| held.job)
    }

    pub(crate) fn standing(&self, job: u64) -> Standing {
        match self.held.as_ref().filter(|held| held.job == job).map(|held| &held.stage) {
            None => Standing::NotHeld,
            Some(Stage::Preparing) => Standing::Preparing,
            Some(Stage::Ready(..)) => Standing::Ready,
            Some(Stage::Started) => Standing::Started,
            Some(Stage::Ended(..)) => Standing::Ended,
        }
    }

    /// Takes a job; there must be none.
    pub(crate) fn take(&mut self, job: u64) {
        let samples = VecDeque::new();
        self.held = Some(Held { job, stage: Stage::Preparing, samples, sent: 0, next_number: 0, progress: None });
    }

    pub(crate) fn ready(&mut self, ready: Ready) {
        if let Some(held) = self.held_as(ready.job)
            && matches!(held.stage, Stage::Preparing)
        {
            held.stage = Stage::Ready(ready, Told::No);
        }
    }

    pub(crate) fn started(&mut self, job: u64) {
        if let Some(held) = self.held_as(job) {
            held.stage = Stage::Started;
        }
    }

    /// Keeps a second under the next number. Beyond the limit the oldest is dropped: a gap that the numbers show.
    pub(crate) fn second(&mut self, job: u64, sample: impl FnOnce(u64) -> Sample) {
        let Some(held) = self.held_as(job) else { return };
        if held.samples.len() == MAX_UNACKNOWLEDGED_SAMPLES {
            held.samples.pop_front();
            held.sent = held.sent.saturating_sub(1);
        }
        held.samples.push_back(sample(held.next_number));
        held.next_number += 1;
    }

    /// Only the newest progress counts.
    pub(crate) fn progress(&mut self, progress: Progress) {
        if let Some(held) = self.held_as(progress.job) {
            held.progress = Some(progress);
        }
    }

    /// Ends the job with a Finished or Failed, unless it has ended.
    pub(crate) fn end(&mut self, job: u64, end: WorkerMessage) {
        if let Some(held) = self.held_as(job)
            && !matches!(held.stage, Stage::Ended(..))
        {
            held.stage = Stage::Ended(Box::new(end), Told::No);
        }
    }

    /// Keeps the refusal of a job that is not held.
    pub(crate) fn refuse(&mut self, failed: Failed) {
        self.refused.retain(|(kept, _)| kept.job != failed.job);
        if self.refused.len() == MAX_REFUSED_JOBS {
            self.refused.pop_front();
        }
        self.refused.push_back((failed, Told::No));
    }

    pub(crate) fn acknowledge_samples(&mut self, job: u64, up_to: u64) {
        let Some(held) = self.held_as(job) else { return };
        while held.samples.front().is_some_and(|sample| sample.number <= up_to) {
            held.samples.pop_front();
            held.sent = held.sent.saturating_sub(1);
        }
    }

    pub(crate) fn acknowledge_job(&mut self, job: u64) {
        self.refused.retain(|(failed, _)| failed.job != job);
        if self.standing(job) == Standing::Ended {
            self.held = None;
        }
    }

    /// Drops the job without a word.
    pub(crate) fn forget(&mut self, job: u64) {
        self.refused.retain(|(failed, _)| failed.job != job);
        if self.held() == Some(job) {
            self.held = None;
        }
    }

    pub(crate) fn activity(&self) -> Option<Activity> {
        self.held.as_ref().map(|held| Activity {
            job: held.job,
            finished: matches!(held.stage, Stage::Ended(..)),
            next_unacknowledged: held.samples.front().map_or(held.next_number, |sample| sample.number),
        })
    }

    /// A new session knows nothing of what an earlier one sent.
    pub(crate) fn begin_session(&mut self) {
        self.refused.iter_mut().for_each(|(_, told)| *told = Told::No);
        if let Some(held) = &mut self.held {
            held.sent = 0;
            if let Stage::Ready(_, told) | Stage::Ended(_, told) = &mut held.stage {
                *told = Told::No;
            }
        }
    }

    /// Whether [`Book::next_message`] has one.
    pub(crate) fn has_next(&self) -> bool {
        self.refused.iter().any(|(_, told)| *told == Told::No) || self.held.as_ref().is_some_and(Held::has_next)
    }

    /// The next message of this session, marked as sent: a session that fails to send it is over. A job's end comes after its samples.
    pub(crate) fn next_message(&mut self) -> Option<WorkerMessage> {
        if let Some((failed, told)) = self.refused.iter_mut().find(|(_, told)| *told == Told::No) {
            *told = Told::Yes;
            return Some(WorkerMessage::Failed(failed.clone()));
        }
        self.held.as_mut()?.next_message()
    }

    fn held_as(&mut self, job: u64) -> Option<&mut Held> {
        self.held.as_mut().filter(|held| held.job == job)
    }
}

impl Held {
    fn may_send_sample(&self) -> bool {
        self.sent < self.samples.len().min(MAX_SAMPLES_IN_FLIGHT)
    }

    fn has_next(&self) -> bool {
        let stage = match &self.stage {
            Stage::Preparing | Stage::Started => false,
            Stage::Ready(_, told) => *told == Told::No,
            Stage::Ended(_, told) => *told == Told::No && self.sent == self.samples.len(),
        };
        stage || self.may_send_sample() || self.progress.is_some()
    }

    fn next_message(&mut self) -> Option<WorkerMessage> {
        if let Stage::Ready(ready, told @ Told::No) = &mut self.stage {
            *told = Told::Yes;
            return Some(WorkerMessage::Ready(ready.clone()));
        }
        if self.may_send_sample() {
            let sample = self.samples[self.sent].clone();
            self.sent += 1;
            return Some(WorkerMessage::Sample(sample));
        }
        if let Some(progress) = self.progress.take() {
            return Some(WorkerMessage::Progress(progress));
        }
        match &mut self.stage {
            Stage::Ended(end, told @ Told::No) if self.sent == self.samples.len() => {
                *told = Told::Yes;
                Some((**end).clone())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use worker_protocol::{EngineReport, Finished, Ops, Phase};

    use super::*;

    fn sample(number: u64) -> Sample {
        let second = u32::try_from(number).unwrap();
        Sample { job: 1, number, phase: Phase::Sample, second, whole: true, ops: Ops::default(), disks: Vec::new() }
    }

    fn finished() -> WorkerMessage {
        WorkerMessage::Finished(Finished {
            job: 1,
            started_worker_ns: 0,
            ended_worker_ns: 1,
            complete: true,
            reason: None,
            disks: Vec::new(),
            thread_cpu: Vec::new(),
            steal: None,
            io_wq_cpu: 0.0,
            warnings: Vec::new(),
        })
    }

    fn running(samples: u64) -> Book {
        let mut book = Book::default();
        book.take(1);
        book.ready(Ready { job: 1, engine: EngineReport::default() });
        assert!(matches!(book.next_message(), Some(WorkerMessage::Ready(_))));
        book.started(1);
        (0..samples).for_each(|_| book.second(1, sample));
        book
    }

    /// Everything that may be sent now: sample numbers, and whether the end was among it.
    fn drain(book: &mut Book) -> (Vec<u64>, bool) {
        let (mut numbers, mut ended) = (Vec::new(), false);
        while book.has_next() {
            match book.next_message().unwrap() {
                WorkerMessage::Sample(sample) => numbers.push(sample.number),
                WorkerMessage::Finished(_) => ended = true,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(book.next_message(), None);
        (numbers, ended)
    }

    #[test]
    fn what_is_not_acknowledged_is_sent_again_in_the_next_session() {
        let mut book = running(3);
        book.end(1, finished());
        assert_eq!(drain(&mut book), (vec![0, 1, 2], true));
        book.acknowledge_samples(1, 0);
        assert_eq!(drain(&mut book), (vec![], false));
        book.begin_session();
        assert_eq!(book.activity(), Some(Activity { job: 1, finished: true, next_unacknowledged: 1 }));
        assert_eq!(drain(&mut book), (vec![1, 2], true));
        book.acknowledge_job(1);
        assert_eq!(book.activity(), None);
        book.begin_session();
        assert!(!book.has_next());
    }

    #[test]
    fn samples_go_out_ahead_of_acknowledgements_within_a_window_and_before_the_end() {
        let window = MAX_SAMPLES_IN_FLIGHT as u64;
        let mut book = running(window + 2);
        book.end(1, finished());
        assert_eq!(drain(&mut book), ((0..window).collect(), false));
        book.acknowledge_samples(1, 0);
        assert_eq!(drain(&mut book), (vec![window], false));
        book.acknowledge_samples(1, window);
        assert_eq!(drain(&mut book), (vec![window + 1], true));
    }

    #[test]
    fn beyond_the_limit_the_oldest_sample_goes_and_leaves_a_gap() {
        let mut book = running(MAX_UNACKNOWLEDGED_SAMPLES as u64 + 2);
        assert_eq!(book.activity().unwrap().next_unacknowledged, 2);
        assert_eq!(drain(&mut book).0[0], 2);
    }

    #[test]
    fn a_job_under_way_is_not_acknowledged_away() {
        let mut book = running(1);
        book.acknowledge_job(1);
        assert_eq!(book.standing(1), Standing::Started);
        book.forget(2);
        assert_eq!(book.held(), Some(1));
        book.forget(1);
        assert_eq!(book.held(), None);
        book.second(1, sample);
        assert!(!book.has_next(), "news of a forgotten job is nothing");
    }

    #[test]
    fn refusals_are_bounded_and_kept_until_acknowledged() {
        let mut book = Book::default();
        let refusal = |job| Failed { job, disk: None, error: "busy".into() };
        (0..=MAX_REFUSED_JOBS as u64).for_each(|job| book.refuse(refusal(job)));
        let mut told = Vec::new();
        while let Some(WorkerMessage::Failed(failed)) = book.next_message() {
            told.push(failed.job);
        }
        assert_eq!(told, (1..=MAX_REFUSED_JOBS as u64).collect::<Vec<_>>());
        book.acknowledge_job(1);
        book.begin_session();
        assert_eq!(book.next_message(), Some(WorkerMessage::Failed(refusal(2))));
    }
}

//! What is put into the store and what comes out of it, the export apart.

use std::fmt;
use std::str::FromStr;

use analysis::export::{HostLoad, StorageHealth};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;
use worker_protocol::{EngineReport, Finished, Hello, Sample};

use crate::error::Fault;

/// Identity of a run: a UUID of version 7, so that ids sort by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub Uuid);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for RunId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

/// Identity of a case in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaseId(pub i64);

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identity of a journal entry in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalId(pub i64);

impl fmt::Display for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the design's")]
pub enum RunState {
    Planned,
    Provisioning,
    Enrolling,
    Filling,
    Preconditioning,
    Sampling,
    TearingDown,
    Done,
    Failed,
    Cancelled,
    Stopped,
}

/// Each state with the word for it in database and export.
const RUN_STATES: [(RunState, &str); 11] = [
    (RunState::Planned, "planned"),
    (RunState::Provisioning, "provisioning"),
    (RunState::Enrolling, "enrolling"),
    (RunState::Filling, "filling"),
    (RunState::Preconditioning, "preconditioning"),
    (RunState::Sampling, "sampling"),
    (RunState::TearingDown, "tearing-down"),
    (RunState::Done, "done"),
    (RunState::Failed, "failed"),
    (RunState::Cancelled, "cancelled"),
    (RunState::Stopped, "stopped"),
];

impl RunState {
    /// The word for it in database and export.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        RUN_STATES.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }

    /// No state follows.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled | Self::Stopped)
    }

    /// Whether a run may go from this state to that one. `failed`, `cancelled` and `stopped` are reachable from all that are not final; so
    /// is `tearing-down`. A state may follow itself (the next case without preconditioning). The phases of a case may go back to
    /// `enrolling` (workers taken back after a restart), and `tearing-down` to `provisioning` (deployed anew for each footprint).
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        use RunState::{
            Cancelled, Done, Enrolling, Failed, Filling, Planned, Preconditioning, Provisioning, Sampling, Stopped,
            TearingDown,
        };
        if self.is_final() {
            return false;
        }
        match next {
            Failed | Cancelled | Stopped | TearingDown => true,
            Planned => false,
            Provisioning => matches!(self, Planned | Provisioning | TearingDown),
            Enrolling => matches!(self, Provisioning | Enrolling | Filling | Preconditioning | Sampling),
            Filling | Preconditioning | Sampling => {
                matches!(self, Enrolling | Filling | Preconditioning | Sampling)
            }
            Done => self == TearingDown,
        }
    }

    pub(crate) fn parse(word: &str) -> Result<Self, Fault> {
        RUN_STATES
            .iter()
            .find(|(_, known)| *known == word)
            .map(|(state, _)| *state)
            .ok_or_else(|| Fault::unreadable("runs.state", format!("{word:?} is no state")))
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A run to be created.
#[derive(Debug, Clone, Copy)]
pub struct NewRun<'a> {
    /// The plan as validated.
    pub plan: &'a plan::TestPlan,
    /// The plan as written.
    pub plan_yaml: &'a str,
    /// Versions, host, flags: whatever reproduces the run, by name. An object.
    pub environment: &'a Value,
    /// The seed in force (the plan's, or the one drawn).
    pub seed: u64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// A final state.
    pub state: RunState,
    /// Why it failed or is incomplete.
    pub reason: Option<String>,
    /// Cases that the plan asked for: the run is complete where it is done and all of these are complete.
    pub planned_cases: u32,
}

/// Weight of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Level {
    Info,
    Warning,
    Error,
}

impl Level {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What a journalled call does to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The object exists afterwards.
    Create,
    /// The object is changed.
    Change,
    /// The object is gone afterwards.
    Destroy,
}

impl Effect {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Destroy => "destroy",
        }
    }

    pub(crate) fn parse(word: &str) -> Result<Self, Fault> {
        [Self::Create, Self::Change, Self::Destroy]
            .into_iter()
            .find(|effect| effect.as_str() == word)
            .ok_or_else(|| Fault::unreadable("journal.effect", format!("{word:?} is no effect")))
    }
}

/// A call that is about to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Intent<'a> {
    /// Name of the call.
    pub kind: &'a str,
    /// What it does to its object.
    pub effect: Effect,
    /// Recorded id of the object, where it is known before the call.
    pub object: Option<&'a str>,
    /// Everything needed to recognise the call's effect: parameters, ownership mark.
    pub details: &'a Value,
}

/// How a journalled call ended.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// The call had its effect.
    pub succeeded: bool,
    /// Recorded id of the object, where it is known only now.
    pub object: Option<&'a str>,
    /// Answer or error.
    pub details: &'a Value,
}

/// A row of the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalEntry {
    /// Id.
    pub id: JournalId,
    /// Run.
    pub run: RunId,
    /// Name of the call.
    pub kind: String,
    /// What it does to its object.
    pub effect: Effect,
    /// Recorded id of the object.
    pub object: Option<String>,
    /// As given with the intent.
    pub intent: Value,
    /// When the intent was committed.
    pub created_at: Timestamp,
    /// The hypervisor's task, where one was recorded.
    pub task: Option<Value>,
    /// Whether it had its effect; none while that is not known.
    pub succeeded: Option<bool>,
    /// Answer or error.
    pub outcome: Option<Value>,
}

/// The bytes that a footprint adds, written.
#[derive(Debug, Clone, PartialEq)]
pub struct NewFill {
    /// The footprint as asked, bytes.
    pub footprint_bytes: u64,
    /// From the first write to the last flush, all workers.
    pub seconds: f64,
    /// Its disks.
    pub disks: Vec<DiskFill>,
}

/// One disk's part of a fill.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskFill {
    /// Name of the worker.
    pub worker: String,
    /// Serial of the disk.
    pub disk: String,
    /// Bytes written and flushed.
    pub bytes: u64,
    /// Time that this disk took, seconds.
    pub seconds: f64,
    /// Blocks read back and found as written.
    pub verified_blocks: u64,
}

/// A case that is about to be prepared.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCase<'a> {
    /// Place in the plan's order, from 0.
    pub ordinal: u32,
    /// The footprint as asked.
    pub footprint: &'a plan::Footprint,
    /// The part of each data disk, bytes.
    pub region_bytes: u64,
    /// region × the workers and disks that the case is given to, bytes.
    pub effective_bytes: u64,
    /// The workload.
    pub workload: &'a plan::Workload,
    /// Preconditioning, whole seconds.
    pub precondition_seconds: u32,
    /// Window, whole seconds.
    pub sample_seconds: u32,
    /// Workers that the plan asked for.
    pub expected_workers: u32,
    /// The workload reads bytes that were never written, as the plan allows.
    pub reads_unwritten: bool,
    /// Workers that the case is given to, each with the serials of its disks in the order of Prepare.
    pub workers: Vec<CaseWorker>,
}

/// A worker that a case is given to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseWorker {
    /// Name of the worker.
    pub worker: String,
    /// Serials of its disks in the order of Prepare.
    pub disks: Vec<String>,
}

/// The window of a case, fixed before its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseWindow {
    /// Start of preconditioning.
    pub started: Timestamp,
    /// Start of the window.
    pub t0: Timestamp,
    /// End of the window.
    pub t1: Timestamp,
    /// Start on each worker's clock.
    pub workers: Vec<WorkerStart>,
}

/// One worker's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStart {
    /// Name of the worker.
    pub worker: String,
    /// `StartAt.worker_ns`.
    pub start_at_worker_ns: u64,
    /// Orchestrator's clock minus worker's clock, ns.
    pub offset_ns: i64,
}

/// A sample with the worker it came from.
#[derive(Debug, Clone, Copy)]
pub struct WorkerSample<'a> {
    /// Name of the worker.
    pub worker: &'a str,
    /// The sample.
    pub sample: &'a Sample,
}

/// Hosts and storage as they were during a case.
#[derive(Debug, Clone, PartialEq)]
pub struct NewHostSample {
    /// When.
    pub at: Timestamp,
    /// Hosts in use, by name.
    pub hosts: Vec<HostLoad>,
    /// Health of the storage cluster, where there is one that answers.
    pub storage: Option<StorageHealth>,
}

/// A worker as it enrolled.
#[derive(Debug, Clone, Copy)]
pub struct NewWorker<'a> {
    /// Name in the run.
    pub name: &'a str,
    /// Its first message; the token in it is not stored.
    pub hello: &'a Hello,
    /// Host that it was put on; none where the place has one host.
    pub host: Option<&'a str>,
}

/// A worker's end of a case.
#[derive(Debug, Clone, Copy)]
pub struct WorkerResult<'a> {
    /// Name of the worker.
    pub worker: &'a str,
    /// Its last message of the job.
    pub finished: &'a Finished,
    /// Orchestrator's clock minus worker's clock at the end, ns, if it was probed.
    pub offset_ns: Option<i64>,
}

/// What a worker's engine was granted for a case.
#[derive(Debug, Clone, Copy)]
pub struct WorkerReady<'a> {
    /// Name of the worker.
    pub worker: &'a str,
    /// The report in its Ready.
    pub engine: &'a EngineReport,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// Id.
    pub id: RunId,
    /// Name of the plan.
    pub name: String,
    /// State.
    pub state: RunState,
    /// Everything that the plan asked for was measured.
    pub complete: bool,
    /// Why not.
    pub reason: Option<String>,
    /// When it was created.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Option<Timestamp>,
    /// What the engineer says of it.
    pub note: String,
    /// Its plan was tried at its smallest: what was measured is no result.
    pub rehearsal: bool,
    /// Cases that were started.
    pub cases: u32,
    /// Cases that are complete.
    pub complete_cases: u32,
    /// Cases that the plan asks for.
    pub planned_cases: u32,
}

/// A case in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseSummary {
    /// Id.
    pub id: CaseId,
    /// Place in the plan's order, from 0.
    pub ordinal: u32,
    /// The footprint as asked, bytes.
    pub footprint_bytes: u64,
    /// Name of the workload.
    pub workload: String,
    /// `running`, `complete`, `incomplete`, `failed` or `cancelled`.
    pub state: String,
}

/// Which runs a list has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFilter {
    /// How they ended, or that they did not.
    pub state: Option<RunGroup>,
    /// A part of the name or of the note; letters' case does not matter.
    pub text: Option<String>,
    /// Runs created before this one.
    pub before: Option<RunId>,
    /// The most runs.
    pub limit: u32,
}

impl RunFilter {
    /// The latest `limit` runs.
    #[must_use]
    pub fn all(limit: u32) -> Self {
        Self { state: None, text: None, before: None, limit }
    }
}

/// Runs told apart by what a reader looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum RunGroup {
    GoingOn,
    Complete,
    Incomplete,
    Failed,
    Cancelled,
    Stopped,
}

impl RunGroup {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::GoingOn, Self::Complete, Self::Incomplete, Self::Failed, Self::Cancelled, Self::Stopped];

    /// The word for it: `going-on`, `complete` …
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GoingOn => "going-on",
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Stopped => "stopped",
        }
    }

    /// The group of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.as_str() == word)
    }
}

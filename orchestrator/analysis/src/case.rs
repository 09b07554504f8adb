//! A case: what its workers delivered, turned into figures and a verdict.

use serde::{Deserialize, Serialize};
use worker_protocol::{DiskFinished, EngineReport, Ops as WireOps, Phase, Rate};

use crate::export;

/// What is known of a case when it is evaluated. The seconds' histograms follow one by one through
/// [`crate::Evaluation::add_second`].
#[derive(Debug, Clone, PartialEq)]
pub struct CaseInput {
    /// Bytes an I/O.
    pub block_bytes: u64,
    /// Preconditioning, whole seconds.
    pub precondition_seconds: u32,
    /// Window, whole seconds.
    pub sample_seconds: u32,
    /// Workers that the plan asked for.
    pub expected_workers: u32,
    /// The workload reads bytes that were never written, as the plan allows.
    pub reads_unwritten: bool,
    /// Open loop; none is a closed loop.
    pub rate: Option<Rate>,
    /// How the case came to its end.
    pub ending: Ending,
    /// The workers that the case was given to; workers lost before it are not among them.
    pub workers: Vec<WorkerInput>,
}

/// How a case came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It goes on: the figures are those so far.
    Running,
    /// It ran until every worker had finished or was given up.
    Ran,
    /// The run was cancelled.
    Cancelled,
    /// The run was stopped before the window began.
    Stopped,
    /// The orchestrator ended it, for this reason.
    Failed(String),
}

/// One worker's part of a case.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkerInput {
    /// Name of the worker.
    pub worker: String,
    /// Serials of its disks in the order of Prepare.
    pub disks: Vec<String>,
    /// Start on the worker's clock as it was told, and its clock's offsets.
    pub clock: Option<WorkerClock>,
    /// Its Finished, if it came.
    pub finished: Option<WorkerFinished>,
    /// Why the worker failed or was lost during the case, if so.
    pub failure: Option<String>,
    /// What its engine reported when it prepared.
    pub engine: Option<EngineReport>,
    /// Host that it was put on; none where the place has one host.
    pub host: Option<String>,
    /// The samples that are stored.
    pub seconds: Vec<SecondMark>,
}

/// A worker's start and clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerClock {
    /// `StartAt.worker_ns`; the window starts `precondition_seconds` later.
    pub start_at_worker_ns: u64,
    /// Orchestrator's clock minus worker's clock at the start, ns.
    pub offset_start_ns: i64,
    /// The same at the end of the case, if it was probed.
    pub offset_end_ns: Option<i64>,
}

/// A worker's Finished.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkerFinished {
    /// First I/O, on the worker's clock.
    pub started_worker_ns: u64,
    /// Last completion, on the worker's clock.
    pub ended_worker_ns: u64,
    /// The job came to its planned end.
    pub complete: bool,
    /// Why not, if so.
    pub reason: Option<String>,
    /// CPU time of each engine thread, share of one CPU.
    pub thread_cpu: Vec<f64>,
    /// Share of the window that the hypervisor took.
    pub steal: Option<f64>,
    /// CPU time of the kernel's io-wq workers, CPUs.
    pub io_wq_cpu: f64,
    /// The worker's own warnings.
    pub warnings: Vec<String>,
    /// Its disks.
    pub disks: Vec<DiskFinished>,
}

/// One stored sample, without its histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecondMark {
    /// Phase.
    pub phase: Phase,
    /// Second of the phase.
    pub second: u32,
    /// The worker was loading for the whole second.
    pub whole: bool,
    /// Reads completed.
    pub read_count: u64,
    /// Writes completed.
    pub write_count: u64,
}

/// One worker's sample of a second.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerSecond {
    /// Name of the worker.
    pub worker: String,
    /// Number of the sample; names it in an error.
    pub number: u64,
    /// The worker was loading for the whole second.
    pub whole: bool,
    /// Reads and writes with histograms.
    pub ops: WireOps,
}

/// State of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaseState {
    /// It goes on.
    Running,
    /// All that the plan asked for was measured over the window.
    Complete,
    /// Something is missing; the reason says what the figures cover.
    Incomplete,
    /// Nothing was measured.
    Failed,
    /// The run was cancelled before the window ended, or stopped before it began.
    Cancelled,
}

impl CaseState {
    /// The export's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A case's figures and verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseResult {
    /// State.
    pub state: CaseState,
    /// Why it is not complete.
    pub reason: Option<String>,
    /// What the reader of the figures must know.
    pub warnings: Vec<String>,
    /// Figures.
    pub figures: CaseFigures,
    /// The cluster's merged totals with histograms, over what the figures cover.
    pub cluster: WireOps,
    /// Open loop: the same I/Os timed from their submission; none where the figures do not cover the window.
    pub cluster_service: Option<WireOps>,
    /// The cluster by second of the window.
    pub seconds: Vec<export::Second>,
    /// The cluster by second of preconditioning.
    pub precondition_seconds: Vec<export::Second>,
}

/// The figures of a case that are kept in one piece.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseFigures {
    /// Workers.
    pub workers: export::WorkerCount,
    /// Seconds that the cluster's figures cover.
    pub window_seconds: f64,
    /// Latest first I/O minus earliest, µs.
    pub start_skew_us: Option<f64>,
    /// Largest change of a clock offset, µs.
    pub clock_drift_us: Option<f64>,
    /// I/Os in flight when the window ended.
    pub unfinished: export::Unfinished,
    /// Cluster figures.
    pub ops: export::Ops,
    /// The same I/Os timed from their submission (open loop).
    #[serde(default)]
    pub service: Option<export::Ops>,
    /// How well the rate was kept (open loop).
    #[serde(default)]
    pub pacing: Option<export::Pacing>,
    /// Whether the load generator may have limited the figures.
    #[serde(default)]
    pub generator: Option<export::Generator>,
    /// Each worker.
    pub per_worker: Vec<export::PerWorker>,
    /// Each data disk.
    pub per_disk: Vec<export::PerDisk>,
    /// Each host, by name.
    #[serde(default)]
    pub per_host: Vec<export::PerHost>,
    /// Verdict on preconditioning.
    pub steady_state: Option<export::SteadyState>,
}

impl CaseFigures {
    /// Of a case of which nothing is known yet.
    #[must_use]
    pub fn none(expected_workers: u32) -> Self {
        Self {
            workers: export::WorkerCount { expected: expected_workers, measured: 0 },
            window_seconds: 0.0,
            start_skew_us: None,
            clock_drift_us: None,
            unfinished: export::Unfinished::default(),
            ops: export::Ops::default(),
            service: None,
            pacing: None,
            generator: None,
            per_worker: Vec::new(),
            per_disk: Vec::new(),
            per_host: Vec::new(),
            steady_state: None,
        }
    }
}

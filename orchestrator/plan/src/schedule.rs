//! What a plan does, in order, how many bytes its fill writes and how long it takes.

use std::time::Duration;

use serde::Serialize;

use crate::model::{Deploy, Initialise, TestPlan};

/// Fill throughput that is assumed before anything is measured, bytes a second over all data disks: about what one
/// SATA SSD takes, or one 10 Gbit/s link that carries every byte twice. Clusters of a proof of concept are faster, so
/// the estimate errs towards too long.
pub const ASSUMED_FILL_BYTES_PER_SECOND: u64 = 500_000_000;

/// Assumed time to start local workers until all have called, seconds.
const DEPLOY_SECONDS: u64 = 2;

/// Assumed time to read back random blocks of each disk, seconds.
const VERIFY_SECONDS: u64 = 1;

/// Assumed time around each case (clock probes, agreement on a start, collection), seconds.
const CASE_OVERHEAD_SECONDS: u64 = 2;

/// Assumed time to stop local workers and remove their disks, seconds.
const TEAR_DOWN_SECONDS: u64 = 2;

/// Throughput of the fill over all data disks together, and where the figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FillRate {
    /// Bytes a second, at least 1.
    bytes_per_second: u64,
    /// Where it comes from.
    source: FillRateSource,
}

/// Where a fill throughput comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FillRateSource {
    /// [`ASSUMED_FILL_BYTES_PER_SECOND`].
    Assumed,
    /// Named by the user.
    Given,
    /// Measured in this run.
    Measured,
}

impl FillRate {
    /// [`ASSUMED_FILL_BYTES_PER_SECOND`].
    #[must_use]
    pub const fn assumed() -> Self {
        Self { bytes_per_second: ASSUMED_FILL_BYTES_PER_SECOND, source: FillRateSource::Assumed }
    }

    /// A throughput that the user names; None if it is 0.
    #[must_use]
    pub fn given(bytes_per_second: u64) -> Option<Self> {
        (bytes_per_second > 0).then_some(Self { bytes_per_second, source: FillRateSource::Given })
    }

    /// `bytes` were filled in `elapsed`; None while that is less than a byte a second, or no time.
    #[must_use]
    pub fn measured(bytes: u64, elapsed: Duration) -> Option<Self> {
        let nanoseconds = elapsed.as_nanos();
        let rate = (u128::from(bytes) * 1_000_000_000).checked_div(nanoseconds)?;
        let bytes_per_second = u64::try_from(rate).ok().filter(|rate| *rate > 0)?;
        Some(Self { bytes_per_second, source: FillRateSource::Measured })
    }

    /// Bytes a second, at least 1.
    #[must_use]
    pub fn bytes_per_second(self) -> u64 {
        self.bytes_per_second
    }

    /// Where the figure comes from.
    #[must_use]
    pub fn source(self) -> FillRateSource {
        self.source
    }

    /// Seconds that `bytes` take, rounded up.
    fn seconds(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes_per_second)
    }
}

/// One step of a run. `footprint` and `workload` are positions in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum StepKind {
    /// Start the workers with their data disks.
    Deploy,
    /// Write the bytes that the footprint adds.
    Fill {
        /// Footprint.
        footprint: usize,
        /// First byte of each disk that is written.
        from_byte: u64,
        /// Bytes written on each disk.
        bytes_per_disk: u64,
        /// Bytes written on all disks together.
        bytes: u64,
    },
    /// Read random blocks of each disk back.
    Verify {
        /// Footprint.
        footprint: usize,
    },
    /// Leave the storage idle.
    Settle {
        /// Footprint.
        footprint: usize,
    },
    /// Run a workload: precondition, then the timed sample.
    Case {
        /// Footprint.
        footprint: usize,
        /// Workload.
        workload: usize,
        /// Precondition, seconds.
        precondition_seconds: u32,
        /// Sample, seconds.
        sample_seconds: u32,
    },
    /// Stop the workers and remove their data disks.
    TearDown,
}

/// A step and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What is done.
    #[serde(flatten)]
    pub kind: StepKind,
    /// How long it takes, seconds: an estimate, but for settling.
    pub seconds: u64,
}

/// What one footprint costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FootprintSchedule {
    /// As the plan spells it.
    pub label: String,
    /// Bytes as asked, all disks together.
    pub footprint_bytes: u64,
    /// Bytes of each data disk that it uses.
    pub region_bytes: u64,
    /// Bytes that are really measured: region × disks.
    pub effective_bytes: u64,
    /// Bytes that its fill writes on each disk.
    pub fill_bytes_per_disk: u64,
    /// Bytes that its fill writes on all disks together.
    pub fill_bytes: u64,
    /// Estimated time of its fill, seconds.
    pub fill_seconds: u64,
    /// Time of its cases, seconds: exact.
    pub case_seconds: u64,
}

/// The whole run in order, with its bytes and its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Schedule {
    /// The footprints in the order of the run.
    pub footprints: Vec<FootprintSchedule>,
    /// Cases in all.
    pub cases: usize,
    /// Bytes that the fill writes in all. What write workloads write is not known in advance.
    pub fill_bytes: u64,
    /// What the time of the fill is computed from.
    pub fill_rate: FillRate,
    /// Estimated time of the fill, seconds.
    pub fill_seconds: u64,
    /// Time of all cases (precondition and sample), seconds: exact.
    pub case_seconds: u64,
    /// Time of settling, seconds: exact.
    pub settle_seconds: u64,
    /// Assumed time of everything else, seconds.
    pub overhead_seconds: u64,
    /// Estimated time in all, seconds.
    pub total_seconds: u64,
    /// Every step in order.
    pub steps: Vec<Step>,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Steps of [`Schedule::steps`] that are done.
    pub steps_done: usize,
    /// Time that the step under way has run.
    pub step_elapsed: Duration,
    /// Bytes that a fill under way has written.
    pub fill_bytes_done: u64,
    /// Fill throughput as measured so far in this run.
    pub measured: Option<FillRate>,
}

/// Lays out the steps of `plan`. The same plan and rate give the same schedule.
#[must_use]
pub fn schedule(plan: &TestPlan, fill_rate: FillRate) -> Schedule {
    let footprints: Vec<FootprintSchedule> =
        (0..plan.footprints.len()).map(|index| footprint_schedule(plan, index, fill_rate)).collect();
    let steps = steps(plan, &footprints);
    let sum = |part: fn(&FootprintSchedule) -> u64| footprints.iter().map(part).sum::<u64>();
    let fill_seconds = sum(|footprint| footprint.fill_seconds);
    let case_seconds = sum(|footprint| footprint.case_seconds);
    let settle_seconds =
        steps.iter().filter(|step| matches!(step.kind, StepKind::Settle { .. })).map(|step| step.seconds).sum();
    let total_seconds = steps.iter().map(|step| step.seconds).sum();
    Schedule {
        cases: footprints.len() * plan.workloads.len(),
        fill_bytes: sum(|footprint| footprint.fill_bytes),
        fill_rate,
        fill_seconds,
        case_seconds,
        settle_seconds,
        overhead_seconds: total_seconds - fill_seconds - case_seconds - settle_seconds,
        total_seconds,
        steps,
        footprints,
    }
}

fn footprint_schedule(plan: &TestPlan, index: usize, fill_rate: FillRate) -> FootprintSchedule {
    let footprint = &plan.footprints[index];
    let region_bytes = plan.region_bytes(footprint);
    let fill_bytes_per_disk = match plan.initialise {
        Initialise::None => 0,
        Initialise::FullWrite | Initialise::Zero => region_bytes - filled_before(plan, index),
    };
    let fill_bytes = fill_bytes_per_disk * plan.total_disks();
    FootprintSchedule {
        label: footprint.label.clone(),
        footprint_bytes: footprint.bytes,
        region_bytes,
        effective_bytes: plan.effective_bytes(footprint),
        fill_bytes_per_disk,
        fill_bytes,
        fill_seconds: fill_rate.seconds(fill_bytes),
        case_seconds: case_seconds(plan) * (plan.workloads.len() as u64),
    }
}

/// Bytes of each disk that earlier footprints have filled in the same deployment.
fn filled_before(plan: &TestPlan, index: usize) -> u64 {
    match (plan.deploy, index.checked_sub(1)) {
        (Deploy::Once, Some(previous)) => plan.region_bytes(&plan.footprints[previous]),
        (Deploy::Once, None) | (Deploy::PerFootprint, _) => 0,
    }
}

fn case_seconds(plan: &TestPlan) -> u64 {
    u64::from(plan.precondition_seconds) + u64::from(plan.sample_seconds)
}

fn steps(plan: &TestPlan, footprints: &[FootprintSchedule]) -> Vec<Step> {
    let deploy = Step { kind: StepKind::Deploy, seconds: DEPLOY_SECONDS };
    let tear_down = Step { kind: StepKind::TearDown, seconds: TEAR_DOWN_SECONDS };
    let of_footprints = footprints.iter().enumerate().map(|(index, footprint)| footprint_steps(plan, index, footprint));
    match plan.deploy {
        Deploy::Once => std::iter::once(deploy).chain(of_footprints.flatten()).chain([tear_down]).collect(),
        Deploy::PerFootprint => of_footprints
            .flat_map(|steps| std::iter::once(deploy).chain(steps).chain([tear_down]).collect::<Vec<Step>>())
            .collect(),
    }
}

fn footprint_steps(plan: &TestPlan, footprint: usize, costs: &FootprintSchedule) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |kind, seconds| steps.push(Step { kind, seconds });
    if costs.fill_bytes > 0 {
        let bytes_per_disk = costs.fill_bytes_per_disk;
        let from_byte = costs.region_bytes - bytes_per_disk;
        let fill = StepKind::Fill { footprint, from_byte, bytes_per_disk, bytes: costs.fill_bytes };
        add(fill, costs.fill_seconds);
        add(StepKind::Verify { footprint }, VERIFY_SECONDS);
    }
    if plan.settle_seconds > 0 {
        add(StepKind::Settle { footprint }, u64::from(plan.settle_seconds));
    }
    for workload in 0..plan.workloads.len() {
        let (precondition_seconds, sample_seconds) = (plan.precondition_seconds, plan.sample_seconds);
        let case = StepKind::Case { footprint, workload, precondition_seconds, sample_seconds };
        add(case, case_seconds(plan) + CASE_OVERHEAD_SECONDS);
    }
    steps
}

impl Schedule {
    /// Estimated seconds until the run ends. Fills are estimated anew from the measured throughput once there is one;
    /// a step that takes longer than estimated counts as about to end.
    #[must_use]
    pub fn remaining_seconds(&self, progress: &Progress) -> u64 {
        let rate = progress.measured.unwrap_or(self.fill_rate);
        let ahead = self.steps.get(progress.steps_done..).unwrap_or_default();
        let of_step = |step: &Step, bytes_done: u64, elapsed: u64| match step.kind {
            StepKind::Fill { bytes, .. } => rate.seconds(bytes.saturating_sub(bytes_done)),
            _ => step.seconds.saturating_sub(elapsed),
        };
        match ahead {
            [] => 0,
            [current, later @ ..] => {
                let current = of_step(current, progress.fill_bytes_done, progress.step_elapsed.as_secs());
                current + later.iter().map(|step| of_step(step, 0, 0)).sum::<u64>()
            }
        }
    }
}

//! The evaluation of a case: cluster figures from merged histograms, second by second and over the window, and the verdict.

use std::collections::BTreeMap;

use worker_protocol::Phase;

use crate::case::{CaseFigures, CaseInput, CaseResult, CaseState, Ending, WorkerInput, WorkerSecond};
use crate::export::{Ops, PerDisk, PerHost, PerWorker, Second, Unfinished, WorkerCount};
use crate::totals::{Part, ReadWrite, micros};
use crate::worker::WorkerView;
use crate::{clock, generator, open_loop, steady, warnings};

/// Problems that a reason names before it only counts them.
const NAMED_PROBLEMS: usize = 5;

/// Evaluates a case. Give it the case, then each second's samples, then take the result:
///
/// - Where every worker's figures cover exactly the window, the cluster's are merged from the disks' histograms.
/// - Where one's do not (it started late, left early, lacks seconds, contradicts itself), the cluster's are merged from the seconds
///   that all workers measured whole, and the case is incomplete.
///
/// It holds a histogram or two a worker, whatever the length of the case.
pub struct Evaluation {
    input: CaseInput,
    views: Vec<WorkerView>,
    /// The cluster's figures cover the window; else the common seconds.
    over_window: bool,
    cluster: ReadWrite,
    /// Open loop, over the window: the same I/Os timed from their submission.
    cluster_service: Option<ReadWrite>,
    common_seconds: u32,
    /// Workers without a usable Finished: their own whole seconds.
    own: BTreeMap<String, (ReadWrite, u32)>,
    seconds: Vec<Second>,
    precondition_seconds: Vec<Second>,
    problems: Vec<String>,
}

impl Evaluation {
    /// Judges what each worker delivered.
    #[must_use]
    pub fn new(input: CaseInput) -> Self {
        let views: Vec<WorkerView> = input.workers.iter().map(|worker| WorkerView::of(worker, &input)).collect();
        let over_window = !views.is_empty() && views.iter().all(WorkerView::covers_window);
        let mut cluster = ReadWrite::default();
        if over_window {
            views.iter().filter_map(|view| view.disks.as_ref()).for_each(|disks| cluster.merge(&disks.merged));
        }
        let cluster_service = merged_service(&views).filter(|_| over_window);
        let problems = views.iter().flat_map(|view| view.problems.clone()).collect();
        Self {
            input,
            views,
            over_window,
            cluster,
            cluster_service,
            common_seconds: 0,
            own: BTreeMap::new(),
            seconds: Vec::new(),
            precondition_seconds: Vec::new(),
            problems,
        }
    }

    /// Merges the samples of one second. Each second is given once, with all its samples, in ascending order within its phase; a
    /// second that a worker is missing from makes no cluster second.
    pub fn add_second(&mut self, phase: Phase, second: u32, samples: &[WorkerSecond]) {
        let mut merged = ReadWrite::default();
        let mut common = true;
        for index in 0..self.views.len() {
            match self.decode(index, phase, second, samples) {
                Some(totals) => {
                    merged.merge(&totals);
                    self.add_own(index, phase, &totals);
                }
                None => common = false,
            }
        }
        if common && !self.views.is_empty() {
            self.add_common(phase, second, &merged);
        }
    }

    /// One worker's whole sample of the second, decoded.
    fn decode(&mut self, index: usize, phase: Phase, second: u32, samples: &[WorkerSecond]) -> Option<ReadWrite> {
        let worker = &self.input.workers[index].worker;
        let sample = samples.iter().find(|sample| sample.worker == *worker && sample.whole)?;
        if phase == Phase::Sample && !self.views[index].whole.contains(&second) {
            return None;
        }
        let part = Part::Sample(sample.number);
        match ReadWrite::decode(&sample.ops, Some(self.input.block_bytes), worker, &part) {
            Ok(totals) => Some(totals),
            Err(error) => {
                self.problems.push(error.to_string());
                None
            }
        }
    }

    fn add_own(&mut self, index: usize, phase: Phase, totals: &ReadWrite) {
        if phase == Phase::Sample && self.views[index].disks.is_none() {
            let (own, seconds) = self.own.entry(self.input.workers[index].worker.clone()).or_default();
            own.merge(totals);
            *seconds += 1;
        }
    }

    fn add_common(&mut self, phase: Phase, t: u32, merged: &ReadWrite) {
        let second = Second { t, read: merged.read.second(), write: merged.write.second() };
        match phase {
            Phase::Precondition => self.precondition_seconds.push(second),
            Phase::Sample => {
                self.seconds.push(second);
                self.common_seconds += 1;
                if !self.over_window {
                    self.cluster.merge(merged);
                }
            }
        }
    }

    /// Figures and verdict.
    #[must_use]
    pub fn finish(self) -> CaseResult {
        let window_seconds = self.window_seconds();
        let ops = self.cluster.figures(window_seconds);
        let (per_worker, per_disk) = self.parts();
        let measured_anything = per_worker.iter().any(|part| part.ops.all.is_some());
        let state = self.state(measured_anything);
        let pacing = open_loop::of_case(&self.input);
        let mut warnings = warnings::warnings(&self.input);
        if state != CaseState::Running {
            warnings.extend(open_loop::warnings(&self.input, pacing.as_ref(), ops.all.as_ref(), window_seconds));
        }
        if self.over_window && ops.all.is_none() {
            warnings.push("no I/O completed in the window".into());
        }
        CaseResult {
            state,
            reason: self.reason(state),
            warnings,
            figures: CaseFigures {
                workers: WorkerCount { expected: self.input.expected_workers, measured: self.measured() },
                window_seconds,
                start_skew_us: clock::start_skew_us(&self.input.workers),
                clock_drift_us: clock::clock_drift_us(&self.input.workers),
                unfinished: unfinished(&self.input.workers),
                ops,
                service: self.cluster_service.as_ref().map(|service| service.figures(window_seconds)),
                pacing,
                generator: generator::verdict(&self.input.workers),
                per_worker,
                per_disk,
                per_host: self.hosts(),
                steady_state: (state != CaseState::Running)
                    .then(|| steady::evaluate(self.input.precondition_seconds, &self.precondition_seconds)),
            },
            cluster: self.cluster.encode(),
            cluster_service: self.cluster_service.as_ref().map(ReadWrite::encode),
            seconds: self.seconds,
            precondition_seconds: self.precondition_seconds,
        }
    }

    fn window_seconds(&self) -> f64 {
        f64::from(if self.over_window { self.input.sample_seconds } else { self.common_seconds })
    }

    /// Workers that the cluster's figures contain.
    fn measured(&self) -> u32 {
        let workers = u32::try_from(self.views.len()).unwrap_or(u32::MAX);
        if self.over_window || self.common_seconds > 0 { workers } else { 0 }
    }

    fn parts(&self) -> (Vec<PerWorker>, Vec<PerDisk>) {
        let (mut per_worker, mut per_disk) = (Vec::new(), Vec::new());
        for (input, view) in self.input.workers.iter().zip(&self.views) {
            if let Some(disks) = &view.disks {
                let service = disks.service.as_ref().map(|service| service.figures(disks.window_seconds));
                per_worker.push(self.per_worker(input, &disks.merged, service, disks.window_seconds));
                per_disk.extend(disks.per_disk.iter().cloned());
            } else if let Some((own, seconds)) = self.own.get(&input.worker) {
                per_worker.push(self.per_worker(input, own, None, f64::from(*seconds)));
            }
        }
        (per_worker, per_disk)
    }

    /// What each host's workers did. A worker whose figures do not cover the window is counted and not added: seconds of another length
    /// add up to nothing.
    fn hosts(&self) -> Vec<PerHost> {
        let mut hosts: BTreeMap<Option<&str>, (u32, u32, ReadWrite)> = BTreeMap::new();
        for (input, view) in self.input.workers.iter().zip(&self.views) {
            let (placed, measured, merged) = hosts.entry(input.host.as_deref()).or_default();
            *placed += 1;
            if let Some(disks) = view.disks.as_ref().filter(|_| view.covers_window()) {
                *measured += 1;
                merged.merge(&disks.merged);
            }
        }
        let window_seconds = f64::from(self.input.sample_seconds);
        let host = |(host, (placed, measured, merged)): (Option<&str>, (u32, u32, ReadWrite))| PerHost {
            host: host.map(str::to_owned),
            placed,
            measured,
            window_seconds,
            ops: merged.figures(window_seconds),
        };
        hosts.into_iter().map(host).collect()
    }

    fn per_worker(
        &self,
        worker: &WorkerInput,
        totals: &ReadWrite,
        service: Option<Ops>,
        window_seconds: f64,
    ) -> PerWorker {
        PerWorker {
            worker: worker.worker.clone(),
            window_seconds,
            ops: totals.figures(window_seconds),
            service,
            pacing: open_loop::of_worker(&self.input, worker),
            generator: worker.finished.as_ref().map(generator::used),
        }
    }

    fn lost_before(&self) -> u32 {
        self.input.expected_workers.saturating_sub(u32::try_from(self.views.len()).unwrap_or(u32::MAX))
    }

    fn state(&self, measured_anything: bool) -> CaseState {
        match &self.input.ending {
            Ending::Running => CaseState::Running,
            Ending::Cancelled | Ending::Stopped => CaseState::Cancelled,
            Ending::Ran if self.problems.is_empty() && self.over_window && self.lost_before() == 0 => {
                CaseState::Complete
            }
            Ending::Ran | Ending::Failed(_) if measured_anything || self.over_window => CaseState::Incomplete,
            Ending::Ran | Ending::Failed(_) => CaseState::Failed,
        }
    }

    fn reason(&self, state: CaseState) -> Option<String> {
        let mut parts = Vec::new();
        match &self.input.ending {
            Ending::Cancelled => parts.push("the run was cancelled".to_owned()),
            Ending::Stopped => parts.push("the run was stopped before the window of this case began".to_owned()),
            Ending::Failed(reason) => parts.push(reason.clone()),
            Ending::Running | Ending::Ran => {}
        }
        if self.lost_before() > 0 {
            parts.push(format!("{} of {} workers were there", self.views.len(), self.input.expected_workers));
        }
        parts.extend(self.problems.iter().take(NAMED_PROBLEMS).cloned());
        if self.problems.len() > NAMED_PROBLEMS {
            parts.push(format!("{} more such problems", self.problems.len() - NAMED_PROBLEMS));
        }
        if parts.is_empty() {
            return None;
        }
        if !self.over_window && state != CaseState::Running {
            parts.push(self.coverage());
        }
        Some(parts.join("; "))
    }

    /// What the cluster's figures cover where they do not cover the window.
    fn coverage(&self) -> String {
        match self.common_seconds {
            0 => "no whole second of the window is common to all workers, so the cluster has no figures".into(),
            seconds => format!("the cluster's figures cover the {seconds} whole s of the window common to all workers"),
        }
    }
}

/// Service times of all workers together; none where one has none.
fn merged_service(views: &[WorkerView]) -> Option<ReadWrite> {
    views.iter().map(|view| view.disks.as_ref()?.service.as_ref()).try_fold(ReadWrite::default(), |mut sum, service| {
        sum.merge(service?);
        Some(sum)
    })
}

fn unfinished(workers: &[WorkerInput]) -> Unfinished {
    let disks = || workers.iter().filter_map(|worker| worker.finished.as_ref()).flat_map(|finished| &finished.disks);
    let count = disks().fold(0_u64, |sum, disk| sum.saturating_add(disk.unfinished));
    let oldest = disks().filter(|disk| disk.unfinished > 0).map(|disk| disk.oldest_unfinished_ns).max();
    Unfinished { count, oldest_us: oldest.map(micros) }
}

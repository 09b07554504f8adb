//! From a run's progress and what the store has of it to its viewers: about once a second, only what is new.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use analysis::export::Second;
use analysis::totals::{Part, ReadWrite};
use jiff::Timestamp;
use plan::{FillRate, TestPlan};
use run::Progress;
use store::{CaseId, LiveCase, RunId, RunState, Store, StoreError, StoredSecond};
use tokio::sync::watch;
use uuid::Uuid;
use web::{Beat, CaseSecond, DiskBeat, Health, Hub, Layout, LiveEnd, LiveProgress, SoFar};
use worker_protocol::Phase;

/// Between two messages.
const PACE: Duration = Duration::from_secs(1);
/// Without news, a message is sent nevertheless after this long.
const SILENCE: Duration = Duration::from_secs(2);
/// Seconds of a case that are read at a time.
const STRETCH_SECONDS: u32 = 30;
/// A second that some worker has not delivered is passed over once one so much later is there, of whichever phase.
const LATE_SECONDS: u32 = 5;
/// Events that are read at a time.
const MAX_EVENTS: u32 = 200;

/// Follows a run until its progress ends. Answers how it ended; none where it was never recorded.
pub(crate) async fn follow(
    store: Store,
    hub: Arc<Hub>,
    plan: TestPlan,
    mut progress: watch::Receiver<Progress>,
) -> Option<(Uuid, LiveEnd)> {
    let mut feeder: Option<Feeder> = None;
    loop {
        let open = tokio::select! {
            changed = progress.changed() => changed.is_ok(),
            () = tokio::time::sleep(SILENCE) => true,
        };
        let now = progress.borrow_and_update().clone();
        if feeder.is_none() {
            feeder = begin(&store, &hub, &plan, &now).await;
        }
        if let Some(feeder) = &mut feeder {
            feeder.beat(&now, !open).await;
        }
        if !open {
            break;
        }
        tokio::time::sleep(PACE).await;
    }
    let feeder = feeder?;
    Some((feeder.run.0, feeder.end().await))
}

async fn begin(store: &Store, hub: &Arc<Hub>, plan: &TestPlan, progress: &Progress) -> Option<Feeder> {
    let run: RunId = progress.run_id.parse().ok()?;
    let began = store.run_summary(run).await.map_or_else(|_| Timestamp::now(), |run| run.started);
    hub.begin(run.0, began, plan, &plan::schedule(plan, FillRate::assumed()));
    let asked =
        plan.workloads.iter().map(|workload| (workload.read_percent > 0, workload.read_percent < 100)).collect();
    Some(Feeder {
        store: store.clone(),
        hub: Arc::clone(hub),
        run,
        began,
        asked,
        event: 0,
        case: None,
        told: None,
        so_far: Merging::default(),
        sampled: None,
        warnings: Vec::new(),
    })
}

/// Where the reading of a run has got to.
struct Feeder {
    store: Store,
    hub: Arc<Hub>,
    run: RunId,
    began: Timestamp,
    /// Whether each workload reads and writes.
    asked: Vec<(bool, bool)>,
    /// Place of the last event.
    event: i64,
    case: Option<Place>,
    /// The last case of which everything was told.
    told: Option<CaseId>,
    /// The window of the case under way, merged as far as it has come.
    so_far: Merging,
    /// When the hosts were sampled last, as it was told.
    sampled: Option<Timestamp>,
    warnings: Vec<String>,
}

/// The seconds of a window that all workers measured whole, merged.
#[derive(Default)]
struct Merging {
    totals: ReadWrite,
    seconds: u32,
}

/// The next second of a case.
#[derive(Debug, Clone)]
struct Place {
    case: LiveCase,
    phase: Phase,
    second: u32,
}

impl Place {
    fn first(case: LiveCase) -> Self {
        let phase = if case.precondition_seconds > 0 { Phase::Precondition } else { Phase::Sample };
        Self { case, phase, second: 0 }
    }

    /// Seconds of the phase.
    fn length(&self) -> u32 {
        match self.phase {
            Phase::Precondition => self.case.precondition_seconds,
            Phase::Sample => self.case.sample_seconds,
        }
    }

    /// The seconds of the phase are all read.
    fn is_through(&self) -> bool {
        self.second >= self.length()
    }

    fn sampling(&mut self) {
        (self.phase, self.second) = (Phase::Sample, 0);
    }

    /// Seconds of the case before the phase.
    fn before(&self, phase: Phase) -> u32 {
        if phase == Phase::Sample { self.case.precondition_seconds } else { 0 }
    }

    /// The last second of the phase that is not waited for any more: whatever is newer counts, also the next phase's.
    fn late(&self) -> Option<u32> {
        let preconditioned = self.case.newest_precondition;
        let sampled = self.case.newest_sample.map(|second| second.saturating_add(self.before(Phase::Sample)));
        preconditioned.max(sampled)?.checked_sub(LATE_SECONDS)?.checked_sub(self.before(self.phase))
    }

    /// When a second of the phase begins, seconds after the run did.
    fn at(&self, phase: Phase, second: u32, began: Timestamp) -> Option<u32> {
        let start = self.case.started?.duration_since(began).as_secs_f64().max(0.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and a run is shorter than 136 years"
        )]
        let start = start.round() as u32;
        Some(start.saturating_add(self.before(phase)).saturating_add(second))
    }
}

impl Feeder {
    async fn beat(&mut self, progress: &Progress, last: bool) {
        let mut beat = Beat { progress: Some(live_progress(progress)), ..Beat::default() };
        if let (Some(_), Some(mib_per_s)) = (progress.fill_bytes, progress.mib_per_s) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
            let at = Timestamp::now().duration_since(self.began).as_secs_f64().max(0.0) as u32;
            beat.fill = Some((at, mib_per_s));
        }
        // A view that lacks something is better than a run that ends for it.
        if let Err(error) = self.read(&mut beat, last).await {
            tracing::warn!(%error, "the live view could not be fed");
        }
        self.hub.beat(beat);
    }

    async fn read(&mut self, beat: &mut Beat, last: bool) -> Result<(), StoreError> {
        let events = self.store.events_after(self.run, self.event, MAX_EVENTS).await?;
        self.event = events.last().map_or(self.event, |event| event.id);
        beat.events = events.into_iter().map(|event| event.event).collect();
        let warnings = self.store.run_warnings(self.run).await?;
        if warnings != self.warnings {
            beat.warnings = Some(warnings.clone());
            self.warnings = warnings;
        }
        let Some(case) = self.store.live_case(self.run).await? else { return Ok(()) };
        if self.told == Some(case.id) {
            return Ok(());
        }
        let (id, ended) = (case.id, case.ended);
        match &mut self.case {
            Some(place) if place.case.id == id => place.case = case,
            _ => {
                self.rest(beat).await?;
                beat.layout = Some(layout(&case));
                self.case = Some(Place::first(case));
                self.so_far = Merging::default();
            }
        }
        self.seconds(beat).await?;
        self.health(beat).await?;
        if ended || last {
            self.rest(beat).await?;
            self.told = Some(id);
        }
        Ok(())
    }

    /// Hosts and storage, where they were sampled since.
    async fn health(&mut self, beat: &mut Beat) -> Result<(), StoreError> {
        let Some(place) = &self.case else { return Ok(()) };
        let Some(sample) = self.store.latest_host_sample(place.case.id).await? else { return Ok(()) };
        if self.sampled != Some(sample.at) {
            self.sampled = Some(sample.at);
            beat.health = Some(Health { at: sample.at, hosts: sample.hosts, storage: sample.storage });
        }
        Ok(())
    }

    /// Seconds of the case under way that its workers have delivered since.
    async fn seconds(&mut self, beat: &mut Beat) -> Result<(), StoreError> {
        while let Some(place) = &mut self.case {
            if place.case.ended {
                // Its histograms are gone: what they do not tell any more is no gap.
                break;
            }
            if place.is_through() && place.phase == Phase::Precondition {
                place.sampling();
            }
            let range = place.second..place.second.saturating_add(STRETCH_SECONDS);
            let rows = self.store.seconds_of_case(place.case.id, place.phase, range.clone()).await?;
            if rows.is_empty() && self.store.live_case(self.run).await?.is_none_or(|now| now.ended) {
                break;
            }
            let empty = rows.is_empty();
            let at_hand = place.clone();
            // Histograms are many: decoded and merged away from the async tasks.
            let merged = tokio::task::spawn_blocking(move || merge(&at_hand, rows)).await.unwrap_or_default();
            let asked = asked(&self.asked, place.case.ordinal);
            let mut told = Told { seconds: &mut beat.seconds, began: self.began, asked };
            for (second, cluster, disks) in merged {
                if let Some(totals) = cluster.as_ref().filter(|_| place.phase == Phase::Sample) {
                    self.so_far.totals.merge(totals);
                    self.so_far.seconds += 1;
                }
                let figures = cluster.map(|totals| Second {
                    t: second,
                    read: totals.read.second(),
                    write: totals.write.second(),
                });
                told.add(place, second, figures, disks);
            }
            let passed = place.late().map_or(0, |late| late.saturating_add(1));
            told.missing_before(place, passed.min(range.end).min(place.length()));
            beat.so_far = self.so_far.figures(place);
            let moved = place.second > range.start;
            // The sample follows preconditioning without a pause, and nobody waits for seconds that nobody measured; what else is new
            // comes with the next message.
            if !moved || !(empty || place.is_through() && place.phase == Phase::Precondition) {
                break;
            }
        }
        Ok(())
    }

    /// What is left of a case that has ended: its histograms are gone, its merged seconds are there.
    async fn rest(&mut self, beat: &mut Beat) -> Result<(), StoreError> {
        let Some(mut place) = self.case.take() else { return Ok(()) };
        let (precondition, sample) = self.store.cluster_seconds(place.case.id).await?;
        let asked = asked(&self.asked, place.case.ordinal);
        let mut told = Told { seconds: &mut beat.seconds, began: self.began, asked };
        if place.phase == Phase::Precondition {
            told.add_all(&mut place, precondition);
            if !sample.is_empty() {
                let seconds = place.length();
                told.missing_before(&mut place, seconds);
            }
            place.sampling();
        }
        told.add_all(&mut place, sample);
        Ok(())
    }

    async fn end(self) -> LiveEnd {
        match self.store.run_summary(self.run).await {
            Ok(run) if run.state.is_final() => LiveEnd { state: run.state.to_string(), reason: run.reason },
            Ok(_) => LiveEnd {
                state: RunState::Failed.to_string(),
                reason: Some(
                    "what was measured could no longer be kept; the next start of the server ends the run".to_owned(),
                ),
            },
            Err(error) => LiveEnd { state: RunState::Failed.to_string(), reason: Some(error.to_string()) },
        }
    }
}

/// The seconds of a case that a message tells, in order; one that is passed over is told to be missing.
struct Told<'b> {
    seconds: &'b mut Vec<CaseSecond>,
    /// When the run did.
    began: Timestamp,
    /// The workload reads, and it writes.
    asked: (bool, bool),
}

impl Told<'_> {
    fn add(&mut self, place: &mut Place, second: u32, cluster: Option<Second>, disks: BTreeMap<String, Vec<DiskBeat>>) {
        self.missing_before(place, second);
        place.second = second.saturating_add(1);
        let at = place.at(place.phase, second, self.began);
        self.seconds.extend(at.map(|at| CaseSecond { at, second: cluster, asked: self.asked, disks }));
    }

    /// Of the phase that the place is in, what was not told yet.
    fn add_all(&mut self, place: &mut Place, seconds: Vec<Second>) {
        let from = place.second;
        for second in seconds.into_iter().filter(|second| second.t >= from) {
            self.add(place, second.t, Some(second), BTreeMap::new());
        }
    }

    /// The seconds up to this one are missing, but for those that were told.
    fn missing_before(&mut self, place: &mut Place, second: u32) {
        let (before, phase) = (place.second, place.phase);
        let missing = (before..second).filter_map(|missing| place.at(phase, missing, self.began));
        let gap = |at| CaseSecond { at, second: None, asked: self.asked, disks: BTreeMap::new() };
        self.seconds.extend(missing.map(gap));
        place.second = before.max(second);
    }
}

impl Merging {
    /// None before the first second of the window.
    fn figures(&self, place: &Place) -> Option<SoFar> {
        let workers = u32::try_from(place.case.workers.len()).unwrap_or(u32::MAX);
        let ops = self.totals.figures(f64::from(self.seconds));
        (self.seconds > 0).then_some(SoFar { ordinal: place.case.ordinal, workers, seconds: self.seconds, ops })
    }
}

fn asked(workloads: &[(bool, bool)], ordinal: u32) -> (bool, bool) {
    let place = usize::try_from(ordinal).unwrap_or(0) % workloads.len().max(1);
    workloads.get(place).copied().unwrap_or((true, true))
}

fn layout(case: &LiveCase) -> Layout {
    case.workers.iter().map(|(worker, _)| (worker.worker.clone(), worker.disks.clone())).collect()
}

fn live_progress(progress: &Progress) -> LiveProgress {
    #[expect(clippy::cast_precision_loss, reason = "a rate for a person")]
    let bytes_per_s = progress.mib_per_s.map(|mib_per_s| mib_per_s * plan::MIB as f64);
    LiveProgress {
        state: progress.state.clone(),
        step: progress.step.clone(),
        step_index: progress.step_index,
        step_fraction: progress.step_fraction,
        fraction: progress.fraction,
        case: progress.case,
        cases: progress.cases,
        fill: progress.filled_bytes.zip(progress.fill_bytes),
        fill_bytes_per_s: bytes_per_s.filter(|_| progress.fill_bytes.is_some()),
        iops: progress.iops,
        mib_per_s: progress.mib_per_s,
        seconds_left: progress.seconds_left,
    }
}

/// A second, the cluster in it where that is whole, and its disks.
type Merged = (u32, Option<ReadWrite>, BTreeMap<String, Vec<DiskBeat>>);

/// The seconds that can be told, in order: those of which every worker that still loads has delivered its sample, and those that are
/// late. What a worker lacks is a gap of the cluster, not a dip; the others' disks are told.
fn merge(place: &Place, rows: Vec<StoredSecond>) -> Vec<Merged> {
    let mut by_second: BTreeMap<u32, Vec<StoredSecond>> = BTreeMap::new();
    for row in rows {
        by_second.entry(row.second).or_default().push(row);
    }
    let loading: Vec<&str> =
        place.case.workers.iter().filter(|(_, ended)| !ended).map(|(worker, _)| worker.worker.as_str()).collect();
    let (late, mut out) = (place.late(), Vec::new());
    for (second, rows) in by_second {
        let whole = loading.iter().all(|name| rows.iter().any(|row| row.sample.worker == **name && row.sample.whole));
        if !whole && late.is_none_or(|late| second > late) {
            break;
        }
        let disks =
            rows.iter().map(|row| (row.sample.worker.clone(), row.disks.iter().map(disk_beat).collect())).collect();
        let cluster = if whole { cluster(&rows) } else { None };
        out.push((second, cluster, disks));
    }
    out
}

fn cluster(rows: &[StoredSecond]) -> Option<ReadWrite> {
    let mut merged = ReadWrite::default();
    for row in rows {
        let sample = &row.sample;
        merged.merge(&ReadWrite::decode(&sample.ops, None, &sample.worker, &Part::Sample(sample.number)).ok()?);
    }
    Some(merged)
}

fn disk_beat(disk: &worker_protocol::DiskSecond) -> DiskBeat {
    DiskBeat {
        count: disk.read_count + disk.write_count,
        sum_ns: disk.sum_ns,
        max_ns: disk.max_ns,
        errors: disk.errors,
    }
}

#[cfg(test)]
mod tests {
    use analysis::case::{Ending, WorkerSecond};
    use plan::Profiles;
    use store::{CaseWindow, CaseWorker, DataDir, NewCase, NewRun, NewWorker, WorkerSample};
    use worker_protocol::{DiskSecond, Hello, Ops, Sample};

    use super::*;

    const BEGAN: &str = "2026-03-01T10:00:00Z";

    fn place(ended: [bool; 2]) -> Place {
        let worker = |name: &str| CaseWorker { worker: name.into(), disks: vec!["d1".into()] };
        let case = LiveCase {
            id: CaseId(1),
            ordinal: 3,
            started: Some("2026-03-01T10:00:10Z".parse().unwrap()),
            precondition_seconds: 4,
            sample_seconds: 6,
            workers: vec![(worker("w1"), ended[0]), (worker("w2"), ended[1])],
            ended: false,
            newest_precondition: None,
            newest_sample: None,
        };
        Place::first(case)
    }

    fn row(worker: &str, second: u32, whole: bool) -> StoredSecond {
        let sample = WorkerSecond { worker: worker.into(), number: second.into(), whole, ops: Ops::default() };
        StoredSecond { second, sample, disks: Vec::new() }
    }

    fn seconds(mut place: Place, rows: Vec<StoredSecond>) -> Vec<u32> {
        place.case.newest_precondition = rows.iter().map(|row| row.second).max();
        let merged = merge(&place, rows);
        merged.into_iter().filter(|(_, cluster, _)| cluster.is_some()).map(|(second, _, _)| second).collect()
    }

    #[test]
    fn a_second_waits_for_every_worker_that_loads_and_a_lost_one_is_not_waited_for() {
        let both = |second| [row("w1", second, true), row("w2", second, true)];
        let mut rows: Vec<StoredSecond> = both(0).into_iter().chain(both(1)).collect();
        rows.push(row("w1", 2, true));
        assert_eq!(seconds(place([false, false]), rows.clone()), [0, 1]);
        assert_eq!(seconds(place([false, true]), rows.clone()), [0, 1, 2]);
        rows.extend(both(8));
        assert_eq!(seconds(place([false, false]), rows.clone()), [0, 1, 8], "what one lacks is a gap");
        assert_eq!(seconds(place([false, false]), vec![row("w1", 0, true), row("w2", 0, false)]), [0; 0]);
    }

    #[test]
    fn a_second_has_its_place_in_the_run() {
        let mut place = place([false, false]);
        let began = BEGAN.parse().unwrap();
        assert_eq!(place.at(Phase::Precondition, 2, began), Some(12));
        assert_eq!(place.at(Phase::Sample, 2, began), Some(16));
        place.second = 4;
        assert!(place.is_through());
        place.sampling();
        assert!(!place.is_through());
        assert_eq!(asked(&[(true, false), (false, true)], 3), (false, true));
        assert_eq!(asked(&[], 3), (true, true));
    }

    /// A run in a store, with two workers of one disk each.
    struct Bench {
        feeder: Feeder,
        plan: TestPlan,
        _dir: tempfile::TempDir,
    }

    impl Bench {
        async fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(&DataDir::new(dir.path())).await.unwrap();
            let plan = plan::parse("demo", plan::DEMO_PLAN, &Profiles::shipped()).unwrap();
            let environment = serde_json::json!({});
            let new = NewRun { plan: &plan, plan_yaml: "", environment: &environment, seed: 1 };
            let run = store.create_run(&new).await.unwrap();
            let hello = Hello {
                protocol_version: 1,
                token: String::new(),
                uuid: "u".into(),
                macs: Vec::new(),
                boot_id: String::new(),
                agent_version: String::new(),
                kernel: String::new(),
                cpus: 1,
                memory_bytes: 1,
                disks: Vec::new(),
                every_disk: false,
                activity: None,
            };
            for name in ["w1", "w2"] {
                store.add_worker(run, &NewWorker { name, hello: &hello, host: None }).await.unwrap();
            }
            let progress = Progress { run_id: run.to_string(), ..Progress::default() };
            let mut feeder = begin(&store, &Arc::default(), &plan, &progress).await.unwrap();
            feeder.began = BEGAN.parse().unwrap();
            Self { feeder, plan, _dir: dir }
        }

        /// A case that begins with the run.
        async fn start_case(&self, ordinal: u32, (precondition_seconds, sample_seconds): (u32, u32)) -> CaseId {
            let disks = |worker: &str| CaseWorker { worker: worker.into(), disks: vec!["d1".into()] };
            let new = NewCase {
                ordinal,
                footprint: &self.plan.footprints[0],
                region_bytes: 1 << 20,
                effective_bytes: 2 << 20,
                workload: &self.plan.workloads[0],
                precondition_seconds,
                sample_seconds,
                expected_workers: 2,
                reads_unwritten: false,
                workers: ["w1", "w2"].map(disks).into(),
            };
            let case = self.feeder.store.start_case(self.feeder.run, &new).await.unwrap();
            let time: Timestamp = BEGAN.parse().unwrap();
            let window = CaseWindow { started: time, t0: time, t1: time, workers: Vec::new() };
            self.feeder.store.set_case_window(case, &window).await.unwrap();
            case
        }

        /// Seconds, counted from the begin of preconditioning, of some workers.
        async fn deliver(&self, case: CaseId, precondition: u32, workers: &[&str], seconds: std::ops::Range<u32>) {
            for at in seconds {
                let (phase, second) = match at.checked_sub(precondition) {
                    Some(second) => (Phase::Sample, second),
                    None => (Phase::Precondition, at),
                };
                let disks = vec![DiskSecond { read_count: 5, ..DiskSecond::default() }];
                let sample =
                    Sample { job: 1, number: at.into(), phase, second, whole: true, ops: Ops::default(), disks };
                let rows: Vec<_> = workers.iter().map(|worker| WorkerSample { worker, sample: &sample }).collect();
                self.feeder.store.add_samples(case, &rows).await.unwrap();
            }
        }

        async fn finish(&self, case: CaseId) {
            let result = self.feeder.store.evaluate_case(case, Ending::Cancelled).await.unwrap();
            self.feeder.store.finish_case(case, &result).await.unwrap();
        }

        /// The seconds of the next message: of the cluster, and of the workers whose disks are told.
        async fn told(&mut self) -> (Vec<u32>, Vec<(u32, Vec<String>)>) {
            let mut beat = Beat::default();
            self.feeder.read(&mut beat, false).await.unwrap();
            let whole = beat.seconds.iter().filter(|second| second.second.is_some()).map(|second| second.at).collect();
            let disks = beat.seconds.iter().filter(|second| !second.disks.is_empty());
            (whole, disks.map(|second| (second.at, second.disks.keys().cloned().collect())).collect())
        }

        /// What the next messages tell, until there is no more.
        async fn all_told(&mut self) -> Vec<u32> {
            let mut all = Vec::new();
            loop {
                let (whole, disks) = self.told().await;
                if whole.is_empty() && disks.is_empty() {
                    return all;
                }
                all.extend(whole);
            }
        }
    }

    #[tokio::test]
    async fn a_part_that_is_missing_at_the_end_of_preconditioning_is_a_gap_and_the_window_is_told() {
        let both = ["w1", "w2"];
        for alone in [&["w1"][..], &[]] {
            let mut bench = Bench::new().await;
            let case = bench.start_case(0, (3, 9)).await;
            bench.deliver(case, 3, &both, 0..2).await;
            bench.deliver(case, 3, alone, 2..3).await;
            assert_eq!(bench.all_told().await, [0, 1], "the last second of preconditioning may still come");
            bench.deliver(case, 3, &both, 3..9).await;
            let mut beat = Beat::default();
            bench.feeder.read(&mut beat, false).await.unwrap();
            let told: Vec<(u32, bool)> =
                beat.seconds.iter().map(|second| (second.at, second.second.is_some())).collect();
            let window = (3..9).map(|second| (second, true));
            let expected: Vec<(u32, bool)> = std::iter::once((2, false)).chain(window).collect();
            assert_eq!(told, expected, "{alone:?}: the window does not wait for it, and the gap is told");
        }
    }

    #[tokio::test]
    async fn a_stretch_that_nobody_measured_is_stepped_over() {
        let mut bench = Bench::new().await;
        let case = bench.start_case(0, (2, 400)).await;
        bench.deliver(case, 2, &["w1", "w2"], 0..4).await;
        bench.deliver(case, 2, &["w1", "w2"], 300..303).await;
        assert_eq!(bench.all_told().await, [0, 1, 2, 3, 300, 301, 302]);
    }

    #[tokio::test]
    async fn the_disks_of_the_others_are_told_while_a_worker_is_silent() {
        let mut bench = Bench::new().await;
        let case = bench.start_case(0, (2, 20)).await;
        bench.deliver(case, 2, &["w1", "w2"], 0..3).await;
        assert_eq!(bench.told().await.0, [0, 1, 2]);
        bench.deliver(case, 2, &["w1"], 3..10).await;
        let (whole, disks) = bench.told().await;
        assert_eq!(whole, [0; 0], "the cluster has a gap");
        assert_eq!(disks, [(3, vec!["w1".to_owned()]), (4, vec!["w1".to_owned()])], "5 s later they are told");
    }

    #[tokio::test]
    async fn a_case_is_told_to_its_last_second_when_it_ends() {
        let mut bench = Bench::new().await;
        let case = bench.start_case(0, (2, 4)).await;
        bench.deliver(case, 2, &["w1", "w2"], 0..5).await;
        assert_eq!(bench.told().await.0, [0, 1, 2, 3, 4]);
        bench.deliver(case, 2, &["w1", "w2"], 5..6).await;
        bench.finish(case).await;
        assert_eq!(bench.told().await.0, [5], "and not when the next one begins");
        assert_eq!(bench.told().await.0, [0; 0], "once");
        let next = bench.start_case(1, (2, 4)).await;
        bench.deliver(next, 2, &["w1", "w2"], 0..1).await;
        assert_eq!(bench.told().await.0, [0]);
        bench.finish(next).await;
        let (last, _) = bench.told().await;
        assert_eq!(last, [0; 0], "nothing is told twice");
    }
}

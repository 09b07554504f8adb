//! From a run's progress and what the store has of it to its viewers: about once a second, only what is new.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use analysis::export::Second;
use analysis::totals::{Part, ReadWrite};
use jiff::Timestamp;
use plan::{FillRate, TestPlan};
use run::Progress;
use store::{LiveCase, RunId, RunState, Store, StoreError, StoredSecond};
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
/// A second that some worker has not delivered is passed over once one so much later is there.
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

    /// The seconds of the phase are all read.
    fn is_through(&self) -> bool {
        match self.phase {
            Phase::Precondition => self.second >= self.case.precondition_seconds,
            Phase::Sample => self.second >= self.case.sample_seconds,
        }
    }

    fn sampling(&mut self) {
        (self.phase, self.second) = (Phase::Sample, 0);
    }

    /// When a second of the phase begins, seconds after the run did.
    fn at(&self, phase: Phase, second: u32, began: Timestamp) -> Option<u32> {
        let start = self.case.started?.duration_since(began).as_secs_f64().max(0.0);
        let before = if phase == Phase::Sample { self.case.precondition_seconds } else { 0 };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and a run is shorter than 136 years"
        )]
        let start = start.round() as u32;
        Some(start.saturating_add(before).saturating_add(second))
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
        match &mut self.case {
            Some(place) if place.case.id == case.id => place.case = case,
            _ => {
                self.rest(beat).await?;
                beat.layout = Some(layout(&case));
                self.case = Some(Place::first(case));
                self.so_far = Merging::default();
            }
        }
        self.seconds(beat).await?;
        self.health(beat).await?;
        if last {
            self.rest(beat).await?;
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
            if place.is_through() && place.phase == Phase::Precondition {
                place.sampling();
            }
            let range = place.second..place.second.saturating_add(STRETCH_SECONDS);
            let rows = self.store.seconds_of_case(place.case.id, place.phase, range).await?;
            let newest = rows.last().map(|row| row.second);
            let before = place.second;
            let at_hand = place.clone();
            // Histograms are many: decoded and merged away from the async tasks.
            let merged = tokio::task::spawn_blocking(move || merge(&at_hand, rows, newest)).await.unwrap_or_default();
            let asked = asked(&self.asked, place.case.ordinal);
            for (second, cluster, disks) in merged {
                place.second = second + 1;
                let Some(totals) = cluster else { continue };
                if place.phase == Phase::Sample {
                    self.so_far.totals.merge(&totals);
                    self.so_far.seconds += 1;
                }
                if let Some(at) = place.at(place.phase, second, self.began) {
                    let second = Second { t: second, read: totals.read.second(), write: totals.write.second() };
                    beat.seconds.push(CaseSecond { at, second, asked, disks });
                }
            }
            beat.so_far = self.so_far.figures(place);
            // The sample follows preconditioning without a pause; what else is new comes with the next message.
            if place.second == before || !place.is_through() || place.phase == Phase::Sample {
                break;
            }
        }
        Ok(())
    }

    /// What is left of a case that has ended: its histograms are gone, its merged seconds are there.
    async fn rest(&mut self, beat: &mut Beat) -> Result<(), StoreError> {
        let Some(place) = self.case.take() else { return Ok(()) };
        let (precondition, sample) = self.store.cluster_seconds(place.case.id).await?;
        let asked = asked(&self.asked, place.case.ordinal);
        for (phase, seconds) in [(Phase::Precondition, precondition), (Phase::Sample, sample)] {
            let from = match (place.phase, phase) {
                (Phase::Sample, Phase::Precondition) => continue,
                (mine, phase) if mine == phase => place.second,
                _ => 0,
            };
            for second in seconds.into_iter().filter(|second| second.t >= from) {
                if let Some(at) = place.at(phase, second.t, self.began) {
                    beat.seconds.push(CaseSecond { at, second, asked, disks: BTreeMap::new() });
                }
            }
        }
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

/// The seconds that can be told, in order: those of which every worker that still loads has delivered its sample, and those before
/// one that is [`LATE_SECONDS`] later. What a worker lacks is a gap of the cluster, not a dip.
fn merge(place: &Place, rows: Vec<StoredSecond>, newest: Option<u32>) -> Vec<Merged> {
    let mut by_second: BTreeMap<u32, Vec<StoredSecond>> = BTreeMap::new();
    for row in rows {
        by_second.entry(row.second).or_default().push(row);
    }
    let loading: Vec<&str> =
        place.case.workers.iter().filter(|(_, ended)| !ended).map(|(worker, _)| worker.worker.as_str()).collect();
    let mut out = Vec::new();
    for (second, rows) in by_second {
        let whole = loading.iter().all(|name| rows.iter().any(|row| row.sample.worker == **name && row.sample.whole));
        let late = newest.is_some_and(|newest| newest >= second.saturating_add(LATE_SECONDS));
        if !whole && !late {
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
    use analysis::case::WorkerSecond;
    use store::{CaseId, CaseWorker};
    use worker_protocol::Ops;

    use super::*;

    fn place(ended: [bool; 2]) -> Place {
        let worker = |name: &str| CaseWorker { worker: name.into(), disks: vec!["d1".into()] };
        let case = LiveCase {
            id: CaseId(1),
            ordinal: 3,
            started: Some("2026-03-01T10:00:10Z".parse().unwrap()),
            precondition_seconds: 4,
            sample_seconds: 6,
            workers: vec![(worker("w1"), ended[0]), (worker("w2"), ended[1])],
        };
        Place::first(case)
    }

    fn row(worker: &str, second: u32, whole: bool) -> StoredSecond {
        let sample = WorkerSecond { worker: worker.into(), number: second.into(), whole, ops: Ops::default() };
        StoredSecond { second, sample, disks: Vec::new() }
    }

    fn seconds(place: &Place, rows: Vec<StoredSecond>) -> Vec<u32> {
        let newest = rows.iter().map(|row| row.second).max();
        let merged = merge(place, rows, newest);
        merged.into_iter().filter(|(_, cluster, _)| cluster.is_some()).map(|(second, _, _)| second).collect()
    }

    #[test]
    fn a_second_waits_for_every_worker_that_loads_and_a_lost_one_is_not_waited_for() {
        let both = |second| [row("w1", second, true), row("w2", second, true)];
        let mut rows: Vec<StoredSecond> = both(0).into_iter().chain(both(1)).collect();
        rows.push(row("w1", 2, true));
        assert_eq!(seconds(&place([false, false]), rows.clone()), [0, 1]);
        assert_eq!(seconds(&place([false, true]), rows.clone()), [0, 1, 2]);
        rows.extend(both(8));
        assert_eq!(seconds(&place([false, false]), rows.clone()), [0, 1, 8], "what one lacks is a gap");
        assert_eq!(seconds(&place([false, false]), vec![row("w1", 0, true), row("w2", 0, false)]), [0; 0]);
    }

    #[test]
    fn a_second_has_its_place_in_the_run() {
        let mut place = place([false, false]);
        let began = "2026-03-01T10:00:00Z".parse().unwrap();
        assert_eq!(place.at(Phase::Precondition, 2, began), Some(12));
        assert_eq!(place.at(Phase::Sample, 2, began), Some(16));
        place.second = 4;
        assert!(place.is_through());
        place.sampling();
        assert!(!place.is_through());
        assert_eq!(asked(&[(true, false), (false, true)], 3), (false, true));
        assert_eq!(asked(&[], 3), (true, true));
    }
}

//! The runs of a store, with what is known of the one under way.

use std::path::PathBuf;
use std::sync::Arc;

use analysis::case::CaseState;
use analysis::export::{Case, Export};
use futures_util::future::BoxFuture;
use store::{Refusal, RunFilter, RunId, Store, StoreError};
use uuid::Uuid;

use crate::live::{Hub, SoFar};
use crate::report::INSIDE_DISKS;
use crate::source::{Answer, Measured, Progress, RunSource, RunSummary, SourceError};

/// The store as the pages ask for it.
pub struct StoreSource {
    store: Store,
    hub: Arc<Hub>,
    /// Where `run` and `demo` write their reports.
    reports: PathBuf,
}

impl StoreSource {
    /// Of a store, the hub of the run under way, and the directory of the reports that ended runs left.
    #[must_use]
    pub fn new(store: Store, hub: Arc<Hub>, reports: PathBuf) -> Self {
        Self { store, hub, reports }
    }

    /// The run, and the report of it that was written when it ended.
    async fn remove(&self, id: Uuid, forget_left: bool) -> Result<(), SourceError> {
        self.store.delete_run(RunId(id), forget_left).await?;
        let report = self.reports.join(format!("{id}.html"));
        match tokio::fs::remove_file(&report).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("{}: the run was deleted, but not this report of it: {error}", report.display()).into())
            }
            _ => Ok(()),
        }
    }

    fn progress_of(&self, id: Uuid) -> Option<Progress> {
        let goes_on = self.hub.shows() == Some((id, true));
        let now = self.hub.progress(id).filter(|_| goes_on)?;
        Some(Progress {
            case: (now.case > 0).then(|| format!("case {} of {}", now.case, now.cases)),
            phase: now.step,
            percent: now.fraction * 100.0,
            iops: now.iops,
            mib_per_s: now.mib_per_s,
            seconds_left: now.seconds_left,
            ending: self.hub.ended_by(id).map(|end| end.how.as_str().to_owned()),
        })
    }

    fn with_figures_so_far(&self, id: Uuid, mut export: Export) -> Export {
        let so_far = self.hub.so_far(id);
        export.cases.iter_mut().enumerate().for_each(|(place, case)| add_so_far(so_far.as_ref(), place, case));
        export
    }
}

impl RunSource for StoreSource {
    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> Answer<'a, Vec<RunSummary>> {
        Box::pin(async { Ok(self.store.filter_runs(filter).await?.into_iter().map(summary).collect()) })
    }

    fn load_export(&self, id: Uuid) -> Answer<'_, Option<Measured>> {
        Box::pin(async move {
            let Some(stored) = if_there(self.store.read_ended(RunId(id)).await)? else { return Ok(None) };
            let so_far = self.hub.so_far(id);
            let cases = stored.cases.into_iter().enumerate().map(move |(place, case)| {
                let mut case = case.decode()?;
                add_so_far(so_far.as_ref(), place, &mut case);
                Ok(case)
            });
            Ok(Some(Measured { run: stored.run, cases: Box::new(cases) }))
        })
    }

    fn load_report(&self, id: Uuid) -> Answer<'_, Option<Export>> {
        Box::pin(async move {
            let export = if_there(self.store.load_report(RunId(id), INSIDE_DISKS).await)?;
            Ok(export.map(|export| self.with_figures_so_far(id, export)))
        })
    }

    fn load_case(&self, id: Uuid, place: u32) -> Answer<'_, Option<Export>> {
        Box::pin(async move { Ok(if_there(self.store.load_case(RunId(id), place).await)?) })
    }

    fn load_figures(&self, id: Uuid) -> Answer<'_, Option<Export>> {
        Box::pin(async move {
            let export = if_there(self.store.load_figures(RunId(id)).await)?;
            Ok(export.map(|export| self.with_figures_so_far(id, export)))
        })
    }

    fn plan_yaml(&self, id: Uuid) -> Answer<'_, Option<String>> {
        Box::pin(async move { Ok(if_there(self.store.plan_yaml(RunId(id)).await)?) })
    }

    fn summary(&self, id: Uuid) -> Answer<'_, Option<RunSummary>> {
        Box::pin(async move { Ok(if_there(self.store.run_summary(RunId(id)).await)?.map(summary)) })
    }

    fn set_note<'a>(&'a self, id: Uuid, note: &'a str) -> Answer<'a, ()> {
        Box::pin(async move { Ok(self.store.set_note(RunId(id), note).await?) })
    }

    fn delete_run(&self, id: Uuid, forget_left: bool) -> Answer<'_, ()> {
        Box::pin(self.remove(id, forget_left))
    }

    fn progress(&self, id: Uuid) -> BoxFuture<'_, Option<Progress>> {
        Box::pin(std::future::ready(self.progress_of(id)))
    }
}

/// The figures so far of the case that goes on, as its viewers have them: the store merges a case only when it has ended.
fn add_so_far(so_far: Option<&SoFar>, place: usize, case: &mut Case) {
    let Some(so_far) = so_far else { return };
    if usize::try_from(so_far.ordinal).is_ok_and(|ordinal| ordinal == place)
        && case.state == CaseState::Running.as_str()
    {
        case.window_seconds = f64::from(so_far.seconds);
        case.workers.measured = so_far.workers;
        case.ops = so_far.ops.clone();
    }
}

/// None where it is not there.
fn if_there<T>(found: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(StoreError::Refused { reason, .. }) if matches!(*reason, Refusal::Absent { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn summary(run: store::RunSummary) -> RunSummary {
    RunSummary {
        id: run.id.0,
        name: run.name,
        state: run.state.to_string(),
        complete: run.complete,
        reason: run.reason,
        started: run.started,
        finished: run.finished,
        note: run.note,
        rehearsal: run.rehearsal,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use store::DataDir;
    use utoipa::PartialSchema as _;

    use super::*;
    use crate::live::{Beat, LiveProgress};

    #[tokio::test]
    async fn the_progress_counts_cases_as_its_description_says() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&DataDir::new(dir.path())).await.unwrap();
        let (hub, id) = (Arc::<Hub>::default(), Uuid::now_v7());
        let plan = plan::parse("demo", plan::DEMO_PLAN, &plan::Profiles::shipped()).unwrap();
        hub.begin(id, Timestamp::now(), &plan, &plan::schedule(&plan, plan::FillRate::assumed()));
        let source = StoreSource::new(store, Arc::clone(&hub), dir.path().to_owned());
        let now = async |case| {
            let step = "1GiB: 4k-random-read, sample".to_owned();
            let progress = LiveProgress { case, cases: 10, step, ..LiveProgress::default() };
            hub.beat(Beat { progress: Some(progress), ..Beat::default() });
            source.progress(id).await.unwrap()
        };
        assert_eq!(now(0).await.case, None, "before the first");
        let described = serde_json::to_value(Progress::schema()).unwrap();
        let third = now(3).await;
        assert_eq!(described["properties"]["case"]["example"], serde_json::json!(third.case));
        assert_eq!(described["properties"]["phase"]["example"], third.phase);
    }
}

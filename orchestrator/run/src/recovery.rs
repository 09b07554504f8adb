//! What an orchestrator that was killed left behind.

use analysis::case::{CaseState, Ending};
use hypervisor::{Hypervisor, HypervisorError};
use store::{Level, RunEnd, RunId, RunState, Store};

use crate::executor::{RunError, destroy};
use crate::halt::Halt;
use crate::journal::{self, RunJournal};

/// A run of an earlier orchestrator that was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The run.
    pub run: RunId,
    /// What it left that could not be removed, and why.
    pub left: Vec<String>,
}

/// Ends the unfinished runs of earlier orchestrators as failed and destroys what their journals record, once what was under way when
/// they ended is over; what does not agree with its record is left and answered. Call it once at the start, with
/// the data directory locked. `place_of` answers where a run took place, which need not be where the next one will, or why that place
/// cannot be reached.
///
/// A run is not taken up again; what it measured stays.
///
/// # Errors
/// [`RunError`] where the store or the provider fails; the runs that were not reached stay as they are.
pub async fn recover<P>(store: &Store, place_of: P) -> Result<Vec<Recovered>, RunError>
where
    P: AsyncFn(RunId) -> Result<Box<dyn Hypervisor>, String>,
{
    let mut ended = Vec::new();
    for run in store.unfinished_runs().await? {
        let (run, planned_cases) = (run.id, run.planned_cases);
        let reason = "the orchestrator ended before the run did".to_owned();
        end_running_cases(store, run, &reason).await?;
        let destroyed = match place_of(run).await {
            Ok(place) => tear_down(store, run, &*place).await,
            Err(why) => Err(Halt::Failed(why)),
        };
        let (reason, left) = match destroyed {
            Ok(left) => (reason, left),
            Err(Halt::Store(error)) => return Err(error.into()),
            Err(Halt::Failed(why)) => {
                let left = format!("its workers could not be removed: {why}");
                (format!("{reason}, and {left}"), vec![left])
            }
            Err(Halt::Cancelled) => (reason, Vec::new()),
        };
        store.add_event(run, Level::Error, &reason).await?;
        store.finish_run(run, &RunEnd { state: RunState::Failed, reason: Some(reason), planned_cases }).await?;
        ended.push(Recovered { run, left });
    }
    Ok(ended)
}

/// What was measured up to then becomes the case's result.
async fn end_running_cases(store: &Store, run: RunId, reason: &str) -> Result<(), RunError> {
    for case in store.list_cases(run).await? {
        if case.state == CaseState::Running.as_str() {
            let result = store.evaluate_case(case.id, Ending::Failed(reason.to_owned())).await?;
            store.finish_case(case.id, &result).await?;
        }
    }
    Ok(())
}

/// Waits for what was under way, then removes what is recorded.
async fn tear_down(store: &Store, run: RunId, place: &dyn Hypervisor) -> Result<Vec<String>, Halt> {
    let recorded = journal::entries(store, run).await?;
    let there = match place.recover(&recorded, &RunJournal { store, run }).await {
        Ok(there) => there,
        Err(error @ HypervisorError::Journal(_)) => return Err(error.into()),
        // Who was still there is for the reader: what can be removed goes all the same.
        Err(error) => {
            let text = format!("which workers were still there cannot be told: {error}");
            store.add_event(run, Level::Warning, &text).await?;
            Vec::new()
        }
    };
    if !there.is_empty() {
        let names: Vec<&str> = there.iter().map(|worker| worker.spec.name.as_str()).collect();
        let text = format!("after the orchestrator's end these workers were still there: {}", names.join(", "));
        store.add_event(run, Level::Info, &text).await?;
    }
    destroy(store, run, place).await
}

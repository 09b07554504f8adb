//! What an orchestrator that was killed left behind.

use analysis::case::{CaseState, Ending};
use store::{Level, RunEnd, RunId, RunState, Store};

use crate::executor::{RunError, destroy};
use crate::halt::Halt;

/// Ends the unfinished runs of earlier orchestrators as failed and destroys what their journals record. Call it once at the start, with
/// the data directory locked. Answers the runs it ended.
///
/// Workers of local runs have ended with their orchestrator, so a run cannot be taken up again; what it measured stays.
///
/// # Errors
/// [`RunError`] where the store or the provider fails; the runs that were not reached stay as they are.
pub async fn recover(store: &Store, hypervisor: &dyn hypervisor::Hypervisor) -> Result<Vec<RunId>, RunError> {
    let mut ended = Vec::new();
    for run in store.unfinished_runs().await? {
        let (run, planned_cases) = (run.id, run.cases);
        let reason = "the orchestrator ended before the run did".to_owned();
        end_running_cases(store, run, &reason).await?;
        let reason = match destroy(store, run, hypervisor).await {
            Ok(()) => reason,
            Err(Halt::Store(error)) => return Err(error.into()),
            Err(Halt::Failed(why)) => format!("{reason}, and its workers could not be removed: {why}"),
            Err(Halt::Cancelled) => reason,
        };
        store.add_event(run, Level::Error, &reason).await?;
        store.finish_run(run, &RunEnd { state: RunState::Failed, reason: Some(reason), planned_cases }).await?;
        ended.push(run);
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

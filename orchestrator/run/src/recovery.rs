//! What an orchestrator that was killed left behind.

use analysis::case::{CaseState, Ending};
use analysis::export::{EarlyEnd, How};
use hypervisor::{Hypervisor, HypervisorError};
use store::{Level, RunEnd, RunId, RunState, Store};

use crate::executor::{RunError, destroy, early_state};
use crate::halt::Halt;
use crate::journal::{self, RunJournal};

/// A run of an earlier orchestrator that was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The run.
    pub run: RunId,
    /// As what it counts now: failed, or stopped or cancelled where it was ending so.
    pub state: RunState,
    /// What it left that could not be removed, and why.
    pub left: Vec<String>,
}

/// Ends the unfinished runs of earlier orchestrators as failed and destroys what their journals record, once what was under way when
/// they ended is over; what does not agree with its record is left and answered. Call it once at the start, with
/// the data directory locked. `place_of` answers where a run took place, which need not be where the next one will, or why that place
/// cannot be reached.
///
/// A run is not taken up again; what it measured stays. One that somebody had stopped or cancelled, and of which no case was being measured
/// any more, has ended as it was asked to.
///
/// # Errors
/// [`RunError`] where the store or the provider fails; the runs that were not reached stay as they are.
pub async fn recover<P>(store: &Store, place_of: P) -> Result<Vec<Recovered>, RunError>
where
    P: AsyncFn(RunId) -> Result<Box<dyn Hypervisor>, String>,
{
    let mut ended = Vec::new();
    for run in store.unfinished_runs().await? {
        let (run, planned_cases, was) = (run.id, run.planned_cases, run);
        let asked = store.early_end(run).await?;
        let reason = killed(asked.as_ref());
        let cut = end_running_cases(store, run, &reason).await?;
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
            Err(Halt::Asked(_)) => (reason, Vec::new()),
        };
        // Nothing more would have been measured.
        let as_asked = !cut && left.is_empty() && was.complete_cases < planned_cases;
        let (level, state, reason) = match asked.filter(|_| as_asked) {
            Some(end) => {
                let (state, reason) = early_state(&end, planned_cases.saturating_sub(was.cases));
                (Level::Warning, state, reason)
            }
            None => (Level::Error, RunState::Failed, reason),
        };
        store.add_event(run, level, &reason).await?;
        let reason = Some(reason);
        store.finish_run(run, &RunEnd { state, reason, planned_cases }).await?;
        ended.push(Recovered { run, state, left });
    }
    Ok(ended)
}

/// Why a run ends that nobody carries on.
fn killed(asked: Option<&EarlyEnd>) -> String {
    let asked = asked.map_or_else(String::new, |end| match end.how {
        How::Stop => format!(", which {} had asked to stop", end.by),
        How::Cancel => format!(", which {} had cancelled", end.by),
    });
    format!("the orchestrator ended before the run did{asked}")
}

/// What was measured up to then becomes the case's result. Answers whether a case was cut.
pub(crate) async fn end_running_cases(store: &Store, run: RunId, reason: &str) -> Result<bool, RunError> {
    let mut cut = false;
    for case in store.list_cases(run).await? {
        if case.state == CaseState::Running.as_str() {
            let result = store.evaluate_case(case.id, Ending::Failed(reason.to_owned())).await?;
            store.finish_case(case.id, &result).await?;
            cut = true;
        }
    }
    Ok(cut)
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

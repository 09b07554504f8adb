//! What ended runs left: in their journals, and in the cluster by our marks.

use std::collections::BTreeMap;

use hypervisor::{Found, Hypervisor};
use serde_json::json;
use store::{Effect, Intent, JournalEntry, Outcome, RunId, Store, StoreError};

use crate::executor::{RunError, destroy};
use crate::halt::Halt;
use crate::journal::RunJournal;

/// Kind of the entry that says that an object is gone although nothing here removed it.
const GONE: &str = "cleanup.gone";

/// What a run's journal says may still exist: made and not removed, without an outcome, or what could not be removed after what it was
/// made with was.
///
/// # Errors
/// [`StoreError`] where the journal cannot be read.
pub async fn leftovers(store: &Store, run: RunId) -> Result<Vec<JournalEntry>, StoreError> {
    let mut rows = store.living_objects(run).await?;
    rows.extend(store.open_intents(run).await?);
    let remaining = not_removed(store.journal_entries(run).await?, &rows);
    rows.extend(remaining);
    rows.sort_by_key(|row| row.id);
    Ok(rows)
}

/// The last failed removal of each object that is not among `known`, and that was not removed since.
fn not_removed(all: Vec<JournalEntry>, known: &[JournalEntry]) -> Vec<JournalEntry> {
    let mut failed = BTreeMap::new();
    for row in all.into_iter().filter(|row| row.effect == Effect::Destroy) {
        let Some(object) = row.object.clone() else { continue };
        match row.succeeded {
            Some(true) => _ = failed.remove(&object),
            Some(false) => _ = failed.insert(object, row),
            None => {}
        }
    }
    let is_known = |object: &String| known.iter().any(|row| row.object.as_ref() == Some(object));
    failed.into_iter().filter(|(object, _)| !is_known(object)).map(|(_, row)| row).collect()
}

/// Takes what was `found` and is the run's into its journal, and destroys all that this records; answers what had to be left alone, and
/// why. The caller holds the data directory, and the run has ended.
///
/// # Errors
/// [`RunError`] where the store fails or the place does not answer.
pub async fn clean_up(
    store: &Store,
    run: RunId,
    hypervisor: &dyn Hypervisor,
    found: &[Found],
) -> Result<Vec<String>, RunError> {
    let journal = RunJournal { store, run };
    let recorded = leftovers(store, run).await?;
    let is_recorded = |found: &Found| {
        let same = |row: &JournalEntry| {
            row.object.as_deref() == Some(&*found.record.object) && row.intent["node"] == found.record.details["node"]
        };
        recorded.iter().any(same)
    };
    for found in found.iter().filter(|found| !is_recorded(found)) {
        hypervisor.adopt(found, &journal).await?;
    }
    match destroy(store, run, hypervisor).await {
        Ok(left) => {
            if left.is_empty() {
                close(store, run).await?;
            }
            Ok(left)
        }
        Err(Halt::Store(error)) => Err(error.into()),
        Err(Halt::Failed(why)) => Ok(vec![why]),
        Err(Halt::Asked(_)) => Ok(Vec::new()),
    }
}

/// Closes what a journal still says to be there and the place does not have: somebody else removed it.
async fn close(store: &Store, run: RunId) -> Result<(), StoreError> {
    let found = json!({ "found": false });
    let gone = Outcome { succeeded: true, object: None, details: &found };
    let never = Outcome { succeeded: false, ..gone };
    for row in leftovers(store, run).await? {
        if row.succeeded.is_none() {
            store.journal_outcome(row.id, &never).await?;
            continue;
        }
        let object = row.object.as_deref();
        let intent = Intent { kind: GONE, effect: Effect::Destroy, object, details: &found };
        let entry = store.journal_intent(run, &intent).await?;
        store.journal_outcome(entry, &gone).await?;
    }
    Ok(())
}

/// The run that a fleet was one of, by the fleet's name.
#[must_use]
pub fn run_of_fleet(fleet: &str) -> Option<RunId> {
    let (run, number) = fleet.rsplit_once('-')?;
    number.parse::<u32>().ok()?;
    run.parse().ok().map(RunId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::fleet_name;

    #[test]
    fn a_fleet_s_name_tells_its_run() {
        let run = RunId(uuid::Uuid::now_v7());
        assert_eq!(run_of_fleet(&fleet_name(run, 12)), Some(run));
        for other in ["fleet-7", "", "-1", &run.to_string()] {
            assert_ne!(run_of_fleet(other), Some(run), "{other}");
        }
    }
}

//! What an orchestrator that was killed left: ended and removed before anything else happens in its data directory.

use std::path::Path;

use anyhow::bail;
use hypervisor::Hypervisor;
use store::{RunId, Store};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::{output, place};

/// Ends unfinished runs and says so. The caller holds the data directory's lock, and none of the runs goes on.
///
/// # Errors
/// The store fails, or a run began on another machine, where it may still go on, and is not the one that somebody `asked` for by its id: then
/// nothing is ended.
pub(crate) async fn recover(data_dir: &Path, store: &Store, asked: Option<RunId>) -> anyhow::Result<()> {
    for run in store.unfinished_runs().await?.iter().filter(|run| asked != Some(run.id)) {
        if let Some(host) = run::begun_elsewhere(&store.environment(run.id).await?) {
            bail!(
                "run {id} began on another machine, {host}, and this data directory does not say that it has ended. If it is a copy, the run \
                 may still go on there: use another directory here. If it was moved here for good, end the run and remove what it made: \
                 fourcorners cleanup --run {id}",
                id = run.id
            );
        }
    }
    for ended in run::recover(store, async |run| place_of(data_dir, store, run).await).await? {
        let removed = if ended.left.is_empty() { " and cleaned up" } else { "; not all of it could be removed" };
        let state = ended.state.as_str();
        output::note(format!("Run {} of an earlier, killed orchestrator was ended as {state}{removed}.", ended.run));
        ended.left.iter().for_each(|left| output::note(format!("  {left}")));
    }
    Ok(())
}

/// [`recover`] as a task of its own, which goes on whoever waits for it and holds something until its end.
pub(crate) async fn recover_holding<T: Send + 'static>(data_dir: &Path, store: &Store, held: T) -> anyhow::Result<T> {
    let (data_dir, store, runtime) = (data_dir.to_owned(), store.clone(), Handle::current());
    // What it waits for need not be able to change threads.
    spawn_blocking(move || runtime.block_on(recover(&data_dir, &store, None)).map(|()| held)).await?
}

/// The place as the run recorded it when it began.
async fn place_of(data_dir: &Path, store: &Store, run: RunId) -> Result<Box<dyn Hypervisor>, String> {
    let environment = store.environment(run).await.map_err(|error| error.to_string())?;
    let recorded = &environment["place"];
    place::recorded(data_dir, recorded)
        .map_err(|error| format!("{error:#}"))?
        .ok_or_else(|| format!("this program does not know the place that the run recorded: {recorded}"))
}

#[cfg(test)]
mod tests {
    use plan::Profiles;
    use serde_json::json;
    use store::{DataDir, NewRun};

    use super::*;

    #[tokio::test]
    async fn a_run_of_another_machine_is_ended_only_where_somebody_asks_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&DataDir::new(dir.path())).await.unwrap();
        let yaml = plan::example("demo").unwrap();
        let plan = plan::parse("plan", yaml, &Profiles::shipped()).unwrap();
        let place = json!({ "provider": "local", "isolation": "process", "disk_dir": dir.path().join("disks") });
        let environment = json!({ "machine": "of-another", "host": "poc-1", "place": place });
        if run::begun_elsewhere(&environment).is_none() {
            output::note("skipped: this machine has no /etc/machine-id");
            return;
        }
        let new = NewRun { plan: &plan, plan_yaml: yaml, environment: &environment, seed: 1 };
        let run = store.create_run(&new).await.unwrap();
        let others = store.create_run(&new).await.unwrap();
        for asked in [None, Some(run)] {
            let refused = recover(dir.path(), &store, asked).await.unwrap_err().to_string();
            assert!(refused.contains("another machine, poc-1") && refused.contains("cleanup --run"), "{refused}");
            assert_eq!(store.unfinished_runs().await.unwrap().len(), 2, "asked for {asked:?}");
        }
        store.set_environment(others, &json!({ "place": place })).await.unwrap();
        recover(dir.path(), &store, Some(run)).await.unwrap();
        assert!(store.unfinished_runs().await.unwrap().is_empty());
    }
}

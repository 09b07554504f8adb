//! What an orchestrator that was killed left: ended and removed before anything else happens in its data directory.

use std::path::Path;

use hypervisor::Hypervisor;
use store::{RunId, Store};

use crate::{output, place};

/// Ends unfinished runs and says so. The caller holds the data directory's lock.
pub(crate) async fn recover(data_dir: &Path, store: &Store) -> anyhow::Result<()> {
    for ended in run::recover(store, async |run| place_of(data_dir, store, run).await).await? {
        let removed = if ended.left.is_empty() { " and cleaned up" } else { "; not all of it could be removed" };
        output::note(format!("Run {} of an earlier, killed orchestrator was ended as failed{removed}.", ended.run));
        ended.left.iter().for_each(|left| output::note(format!("  {left}")));
    }
    Ok(())
}

/// The place as the run recorded it when it began.
async fn place_of(data_dir: &Path, store: &Store, run: RunId) -> Result<Box<dyn Hypervisor>, String> {
    let environment = store.environment(run).await.map_err(|error| error.to_string())?;
    let recorded = &environment["place"];
    place::recorded(data_dir, recorded)
        .map_err(|error| format!("{error:#}"))?
        .ok_or_else(|| format!("this program does not know the place that the run recorded: {recorded}"))
}

//! VMIDs for new VMs: from the range, where neither a guest nor a volume of that id is seen.

use std::collections::BTreeSet;
use std::time::Instant;

use tokio::sync::Mutex;

use super::VmidRange;
use super::client::Client;
use super::cluster;
use crate::HypervisorError;

pub(super) struct Vmids {
    range: VmidRange,
    /// Storage that volumes are made on.
    data: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In use in the cluster, and when that was read.
    view: Option<(Instant, BTreeSet<u32>)>,
    /// Given out by us and not given back.
    given: BTreeSet<u32>,
}

impl Vmids {
    pub(super) fn new(range: VmidRange, data: String) -> Self {
        Self { range, data, state: Mutex::default() }
    }

    /// An id that nobody uses as far as can be seen. PVE decides when the VM is created; then another is taken. `ask` for those after that:
    /// there are guests in the range that the token may not see.
    pub(super) async fn take(&self, client: &Client, ask: bool) -> Result<u32, HypervisorError> {
        let mut state = self.state.lock().await;
        let fresh = state.view.as_ref().is_some_and(|(read, _)| read.elapsed() < client.timing().vmid_view);
        if !fresh {
            let nodes = cluster::online_nodes(client).await?;
            state.view = Some((Instant::now(), cluster::ids_in_use(client, &nodes, &self.data).await?));
        }
        loop {
            let used = state.view.as_ref().map(|(_, used)| used);
            let free = (self.range.first..=self.range.last)
                .find(|id| !state.given.contains(id) && !used.is_some_and(|used| used.contains(id)));
            let id = free.ok_or_else(|| HypervisorError::Place {
                words: format!("no VMID from {} to {} is free", self.range.first, self.range.last),
                advice: "widen target.vmids, or remove what earlier runs left: fourcorners cleanup".into(),
            })?;
            state.given.insert(id);
            if !ask || cluster::is_free(client, id).await? {
                return Ok(id);
            }
        }
    }

    /// The id is free again: its VM was destroyed. One that turned out to be taken by others is never given back.
    pub(super) async fn give_back(&self, id: u32) {
        let mut state = self.state.lock().await;
        state.given.remove(&id);
        if let Some((_, used)) = &mut state.view {
            used.remove(&id);
        }
    }
}

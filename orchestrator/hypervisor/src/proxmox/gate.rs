//! How many tasks of ours run at a time: in the cluster, on a node, on a storage.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use plan::proxmox::TaskLimits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) struct Gate {
    limits: TaskLimits,
    cluster: Arc<Semaphore>,
    nodes: Mutex<HashMap<String, Arc<Semaphore>>>,
    storages: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Leave to run one task, until dropped.
pub(super) struct Leave {
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Gate {
    pub(super) fn new(limits: TaskLimits) -> Self {
        let cluster = semaphore(limits.cluster);
        Self { limits, cluster, nodes: Mutex::default(), storages: Mutex::default() }
    }

    /// Waits for leave to run a task on a node that works on a storage. Always taken in the same order, so that nobody waits in a circle.
    pub(super) async fn enter(&self, node: &str, storage: Option<&str>) -> Leave {
        let mut waiting = vec![named(&self.nodes, node, self.limits.node)];
        waiting.extend(storage.map(|storage| named(&self.storages, storage, self.limits.storage)));
        waiting.push(self.cluster.clone());
        let mut permits = Vec::with_capacity(waiting.len());
        for semaphore in waiting {
            // Never closed: an error cannot come.
            permits.extend(semaphore.acquire_owned().await.ok());
        }
        Leave { _permits: permits }
    }
}

fn named(all: &Mutex<HashMap<String, Arc<Semaphore>>>, name: &str, limit: u32) -> Arc<Semaphore> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(name.to_owned()).or_insert_with(|| semaphore(limit)).clone()
}

fn semaphore(limit: u32) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(limit as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(gate: &Gate, node: &str, storage: Option<&str>) -> Option<Leave> {
        futures_util::FutureExt::now_or_never(gate.enter(node, storage))
    }

    #[test]
    fn each_limit_holds_by_itself() {
        let gate = Gate::new(TaskLimits { cluster: 3, node: 2, storage: 1 });
        let first = is_open(&gate, "a", Some("s"));
        assert!(first.is_some());
        assert!(is_open(&gate, "b", Some("s")).is_none(), "the storage is taken");
        let second = is_open(&gate, "a", Some("t"));
        assert!(second.is_some());
        assert!(is_open(&gate, "a", None).is_none(), "the node is taken");
        let third = is_open(&gate, "b", None);
        assert!(third.is_some());
        assert!(is_open(&gate, "c", None).is_none(), "the cluster is taken");
        drop(first);
        assert!(is_open(&gate, "c", Some("s")).is_some(), "leave comes back");
    }
}

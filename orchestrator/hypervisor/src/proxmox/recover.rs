//! After a crash: what was under way is waited for, and its outcome recorded.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use serde_json::json;

use super::change::tasks_of;
use super::client::jittered;
use super::create::{read_back, worker_of};
use super::error::CallError;
use super::ledger::{Creation, Doomed, Ledger, OpenChange, OpenDeletion, Upload, Vm};
use super::step::{self, now};
use super::task::{self, Ended, Upid};
use super::vm::{VmConfig, VmRecord};
use super::{Proxmox, cluster};
use crate::{CreatedWorker, HypervisorError, Journal, JournalEntry, LeftAlone};

/// Entries looked after at a time.
const AT_A_TIME: usize = 32;

impl Proxmox {
    pub(super) async fn recover_workers(
        &self,
        recorded: &[JournalEntry],
        journal: &dyn Journal,
    ) -> Result<Vec<CreatedWorker>, HypervisorError> {
        let (ledger, unsettled) = self.settle(recorded, journal).await?;
        for open in unsettled {
            tracing::warn!(object = open.object, reason = open.reason, "cannot be told after the crash");
        }
        let mut workers = Vec::new();
        for vm in ledger.vms.iter().filter(|vm| !vm.destroyed) {
            let Creation::Made(volumes) = &vm.creation else { continue };
            let read = cluster::config(&self.client, &vm.record.node, vm.record.vmid).await;
            // One that cannot be looked at, such as on a node that is offline, says nothing of the others.
            let config = read.unwrap_or_else(|error| {
                tracing::warn!(%error, vmid = vm.record.vmid, "whether this worker is still there cannot be told");
                None
            });
            if config.is_some_and(|config| read_back(&vm.record, &config).as_ref() == Ok(volumes)) {
                workers.push(worker_of(&vm.record, volumes));
            }
        }
        Ok(workers)
    }

    /// Waits for everything that the entries leave open, and records how it ended. What cannot be told stays open and is answered.
    pub(super) async fn settle(
        &self,
        recorded: &[JournalEntry],
        journal: &dyn Journal,
    ) -> Result<(Ledger, Vec<LeftAlone>), HypervisorError> {
        let mut ledger = Ledger::read(recorded);
        let mut left = Vec::new();
        for upid in &ledger.upids {
            self.known.add(upid);
        }
        let changes = ledger.open.iter().map(|change| self.settle_change(change, journal)).collect();
        for (change, settled) in ledger.open.iter().zip(some_at_a_time(changes).await) {
            unless_journal(settled, || format!("{} of VM {}", change.kind, change.target.vmid), &mut left)?;
        }
        let uploads = ledger.uploads.iter().map(|upload| self.settle_upload(upload, journal)).collect();
        for (upload, settled) in ledger.uploads.iter().zip(some_at_a_time(uploads).await) {
            unless_journal(settled, || format!("upload of {}", upload.record.volid), &mut left)?;
        }
        for deletion in &ledger.open_deletions {
            let settled = self.settle_deletion(deletion, journal).await;
            unless_journal(settled, || format!("deletion of {}", deletion.volume.volid), &mut left)?;
        }
        for entry in &ledger.open_clearings {
            // They are looked for again.
            journal.outcome(*entry, false, json!({ "error": "the orchestrator ended" })).await?;
        }
        let creations = ledger.vms.iter().map(|vm| self.settle_creation(vm, journal)).collect();
        let settled = some_at_a_time(creations).await;
        for (vm, creation) in ledger.vms.iter_mut().zip(settled) {
            let of = || format!("creation of VM {} on {}", vm.record.vmid, vm.record.node);
            if let Some((creation, upid)) = unless_journal(creation, of, &mut left)? {
                (vm.creation, vm.upid) = (creation, upid);
            }
        }
        Ok((ledger, left))
    }

    /// What a creation came to, and its task: its log tells the volumes of one that broke off.
    async fn settle_creation(
        &self,
        vm: &Vm,
        journal: &dyn Journal,
    ) -> Result<(Creation, Option<String>), HypervisorError> {
        if vm.creation != Creation::Open {
            return Ok((vm.creation.clone(), vm.upid.clone()));
        }
        let record = &vm.record;
        let upid = self.task_of(vm.upid.as_deref(), &record.node, &["qmcreate"], record.vmid, record.at).await?;
        let text = upid.as_ref().map(ToString::to_string);
        if let Some(found) = text.as_ref().filter(|found| vm.upid.as_ref() != Some(found)) {
            journal.task(vm.entry, json!({ "upid": found })).await?;
        }
        let ended = match upid {
            Some(upid) => Some(task::wait_of_earlier(&self.client, &upid).await?),
            None => None,
        };
        Ok((self.creation_after(vm, ended, journal).await?, text))
    }

    async fn creation_after(
        &self,
        vm: &Vm,
        ended: Option<Ended>,
        journal: &dyn Journal,
    ) -> Result<Creation, HypervisorError> {
        let record = &vm.record;
        let config = match ended {
            Some(_) => cluster::config(&self.client, &record.node, record.vmid).await?,
            None => self.config_once_created(record).await?,
        };
        // The VM itself tells more than its task: the task's node may have lost its log.
        let read = config.ok_or_else(|| "there is no such VM".to_owned());
        match (read.and_then(|config| read_back(record, &config)), ended) {
            (Ok(volumes), _) => {
                journal.outcome(vm.entry, true, json!({ "volumes": volumes, "recovered": true })).await?;
                Ok(Creation::Made(volumes))
            }
            (Err(problem), None) => {
                let details = json!({ "refused": true, "error": format!("no task of it was found, and {problem}") });
                journal.outcome(vm.entry, false, details).await?;
                Ok(Creation::Refused)
            }
            (Err(problem), Some(ended)) => {
                let how = match ended {
                    Ended::Failed(failure) => failure.to_string(),
                    Ended::Well(_) => problem,
                };
                journal.outcome(vm.entry, false, json!({ "error": how })).await?;
                Ok(Creation::Failed)
            }
        }
    }

    /// A VM's configuration where no task of its creation was found. A creation that goes on all the same is waited for: what was taken for
    /// too old to be ours may be so by the clocks alone. An error where that cannot be told, or where it goes on.
    pub(super) async fn config_once_created(&self, record: &VmRecord) -> Result<Option<VmConfig>, HypervisorError> {
        let (node, vmid, timing) = (&record.node, record.vmid, *self.client.timing());
        let since = Instant::now();
        let mut is_over = false;
        loop {
            let read = cluster::config(&self.client, node, vmid).await;
            match &read {
                Ok(config) if !config.as_ref().is_some_and(VmConfig::is_in_creation) => return Ok(read?),
                // A pool's privileges hold for a VM once it is created.
                Err(error) if !error.is_forbidden() => return Ok(read?),
                _ => {}
            }
            if is_over || since.elapsed() > timing.retry_within {
                read?;
                let words = format!("VM {vmid} on {node} is locked (create): it is being created, or that broke off");
                return Err(HypervisorError::Unexpected(words));
            }
            match step::find_task(&self.client, &self.known, node, &["qmcreate"], vmid, 0, Duration::ZERO).await? {
                Some(upid) => {
                    task::wait_of_earlier(&self.client, &upid).await?;
                    is_over = true;
                }
                None => tokio::time::sleep(jittered(timing.poll_longest)).await,
            }
        }
    }

    async fn settle_change(&self, change: &OpenChange, journal: &dyn Journal) -> Result<(), HypervisorError> {
        let target = &change.target;
        let kinds = tasks_of(&change.kind);
        let upid = self.task_of(change.upid.as_deref(), &target.node, kinds, target.vmid, target.at).await?;
        let (succeeded, details) = match upid {
            None => (false, json!({ "error": "no task of it was found" })),
            Some(upid) => match task::wait_of_earlier(&self.client, &upid).await? {
                Ended::Well(warnings) => (true, json!({ "recovered": true, "warnings": warnings })),
                Ended::Failed(failure) => (false, json!({ "error": failure.to_string() })),
            },
        };
        journal.outcome(change.entry, succeeded, details).await?;
        Ok(())
    }

    async fn settle_upload(&self, upload: &Upload, journal: &dyn Journal) -> Result<(), HypervisorError> {
        if !upload.is_open {
            return Ok(());
        }
        match upload.upid.as_deref().map(str::parse::<Upid>) {
            Some(Ok(upid)) => {
                task::wait_of_earlier(&self.client, &upid).await?;
            }
            // An upload's task names no file, so that all copies of ours are waited for.
            _ => {
                tokio::time::sleep(self.grace(upload.record.at)).await;
                self.settle_tasks(&upload.record.node, "imgcopy").await?;
            }
        }
        let found = self.find_image(&upload.record).await?.is_some();
        journal.outcome(upload.entry, found, json!({ "recovered": true })).await?;
        Ok(())
    }

    async fn settle_deletion(&self, deletion: &OpenDeletion, journal: &dyn Journal) -> Result<(), HypervisorError> {
        let Doomed { volid, node, at } = &deletion.volume;
        match deletion.upid.as_deref().map(str::parse::<Upid>) {
            Some(Ok(upid)) => {
                task::wait_of_earlier(&self.client, &upid).await?;
            }
            // A deletion's task names no volume, so that all deletions of ours are waited for.
            _ => {
                tokio::time::sleep(self.grace(*at)).await;
                self.settle_tasks(node, "imgdel").await?;
            }
        }
        let gone = self.is_gone(node, volid).await?;
        journal.outcome(deletion.entry, gone, json!({ "recovered": true })).await?;
        Ok(())
    }

    /// The task of an entry: the recorded one, else the one that shows within the time that a call may be under way.
    async fn task_of(
        &self,
        recorded: Option<&str>,
        node: &str,
        kinds: &[&str],
        vmid: u32,
        at: u64,
    ) -> Result<Option<Upid>, CallError> {
        match recorded.map(str::parse::<Upid>) {
            Some(Ok(upid)) => Ok(Some(upid)),
            _ => step::find_task(&self.client, &self.known, node, kinds, vmid, at, self.grace(at)).await,
        }
    }

    /// How much longer a call that was sent at `at` (Unix seconds, this machine's clock) may take to show its effect.
    fn grace(&self, at: u64) -> Duration {
        self.client.timing().in_flight.saturating_sub(Duration::from_secs(now().saturating_sub(at)))
    }
}

/// Runs futures, some at a time (how many tasks run at once is the gate's matter); answers in their order.
pub(super) async fn some_at_a_time<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    stream::iter(futures).buffered(AT_A_TIME).collect().await
}

/// A failure to tell becomes a report; a journal that cannot be written ends it all.
fn unless_journal<T>(
    settled: Result<T, HypervisorError>,
    object: impl FnOnce() -> String,
    left: &mut Vec<LeftAlone>,
) -> Result<Option<T>, HypervisorError> {
    match settled {
        Ok(value) => Ok(Some(value)),
        Err(error @ HypervisorError::Journal(_)) => Err(error),
        Err(error) => {
            left.push(LeftAlone { object: object(), reason: format!("how it ended cannot be told now: {error}") });
            Ok(None)
        }
    }
}

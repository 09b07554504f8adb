//! Creating a worker's VM, and its power.

use reqwest::Method;
use serde_json::{Value, json};

use super::change::{Change, Changed, Ours};
use super::client::jittered;
use super::error::is_cluster_lock_timeout;
use super::step::{self, Came, MAX_LOCK_REPEATS, Sending, Step, now};
use super::vm::{self, Mark, VmConfig, VmRecord, VolumeRecord, kinds};
use super::{Proxmox, cluster};
use crate::{CreatedDisk, CreatedWorker, HypervisorError, Intent, Journal, WorkerSpec};

/// How PVE words that a VMID is another guest's. That a volume "already exists" is another matter.
const TAKEN: [&str; 2] = ["already exists on node", "config file already exists"];
/// VMIDs tried for one worker while other clients take those that were free.
const MAX_VMIDS_TRIED: u32 = 32;

impl Proxmox {
    pub(super) async fn create_vm(
        &self,
        spec: &WorkerSpec,
        journal: &dyn Journal,
    ) -> Result<CreatedWorker, HypervisorError> {
        let wrong = |problem: &str| HypervisorError::Unexpected(format!("worker {}: {problem}", spec.name));
        if let Some(problem) = vm::problem(spec) {
            return Err(wrong(&problem));
        }
        let node = spec.host.clone().ok_or_else(|| wrong("no host was chosen for it"))?;
        let iso = spec.image.clone().ok_or_else(|| wrong("no image was uploaded for it"))?;
        let _leave = self.gate.enter(&node, Some(&self.settings.storage)).await;
        let (mut locked, mut pause) = (0, self.client.timing().retry_first);
        for tried in 0..MAX_VMIDS_TRIED {
            let vmid = self.vmids.take(&self.client, tried > 0).await?;
            let record = VmRecord {
                vmid,
                node: node.clone(),
                storage: self.settings.storage.clone(),
                name: vm::name_of(&self.settings.name_prefix, spec),
                mac: vm::mac_of(&spec.uuid),
                spec: spec.clone(),
                at: now(),
            };
            match self.try_create(&record, &iso, journal).await {
                Ok(Some(worker)) => return Ok(worker),
                Ok(None) => tracing::info!(vmid, "another client took this VMID; trying the next"),
                Err(error) if locked < MAX_LOCK_REPEATS && is_cluster_lock_timeout(&error.to_string()) => {
                    tracing::info!(vmid, %error, "trying another VMID");
                    locked += 1;
                    tokio::time::sleep(jittered(pause)).await;
                    pause = (pause * 2).min(self.client.timing().retry_longest);
                }
                Err(error) => return Err(error),
            }
        }
        Err(HypervisorError::Place {
            words: format!(
                "worker {}: each of {MAX_VMIDS_TRIED} VMIDs was taken by others before its VM was created",
                spec.name
            ),
            advice: "set target.vmids to a range that nobody else uses".into(),
        })
    }

    /// None where the VMID is another's.
    async fn try_create(
        &self,
        record: &VmRecord,
        iso: &str,
        journal: &dyn Journal,
    ) -> Result<Option<CreatedWorker>, HypervisorError> {
        let step = Step {
            intent: intent(kinds::CREATE, &record.vmid.to_string(), json!(record)),
            method: Method::POST,
            path: vec!["nodes", &record.node, "qemu"],
            form: vm::create_form(record, &self.settings, iso),
            node: &record.node,
            vmid: record.vmid,
            tasks: &["qmcreate"],
            already: &TAKEN,
            // A VMID that was taken meanwhile is refused: nothing of others can be hurt.
            sending: Sending::UntilTaken,
        };
        let (id, came) = step::perform(&self.client, &self.known, &step, journal).await?;
        match came {
            Came::Well { warnings } => self.made(id, record, warnings, journal).await.map(Some),
            // Ours where an earlier sending of the same call did it and its answer was lost. Without one it is another's, which a token
            // that has its privileges from a pool may not even look at.
            Came::Already { after_loss: true, error } => self.made_before(id, record, error, journal).await,
            Came::Already { error, .. } => {
                journal.outcome(id, false, json!({ "refused": true, "error": error.to_string() })).await?;
                Ok(None)
            }
            Came::Refused(error) => {
                journal.outcome(id, false, json!({ "refused": true, "error": error.to_string() })).await?;
                self.vmids.give_back(record.vmid).await;
                Err(named(&record.spec.name, error.into()))
            }
            Came::Failed(failure) => {
                journal.outcome(id, false, json!({ "error": failure.to_string() })).await?;
                Err(named(&record.spec.name, failure.into()))
            }
            Came::Unknown(error) => Err(named(&record.spec.name, error)),
        }
    }

    /// The VM that an earlier sending of its creation made, whose answer was lost and which may go on; none where it is another's.
    async fn made_before(
        &self,
        id: i64,
        record: &VmRecord,
        error: HypervisorError,
        journal: &dyn Journal,
    ) -> Result<Option<CreatedWorker>, HypervisorError> {
        // A creation that goes on and cannot be followed leaves the entry open: the next teardown tells.
        let config = self.config_once_created(record).await.map_err(|unknown| named(&record.spec.name, unknown))?;
        if config.as_ref().is_some_and(|config| vm::disagreement(&record.mark(), config).is_none()) {
            return self.made(id, record, Vec::new(), journal).await.map(Some);
        }
        // Nobody has its VMID any more: it was ours, and broke off.
        let refused = config.is_some();
        journal.outcome(id, false, json!({ "refused": refused, "error": error.to_string() })).await?;
        Ok(None)
    }

    /// Reads the VM back and records its volumes. What does not read back as asked is an error, and teardown finds it by its mark.
    async fn made(
        &self,
        id: i64,
        record: &VmRecord,
        warnings: Vec<String>,
        journal: &dyn Journal,
    ) -> Result<CreatedWorker, HypervisorError> {
        let config = cluster::config(&self.client, &record.node, record.vmid).await?;
        let read = config.ok_or_else(|| format!("VM {} is gone right after it was created", record.vmid));
        match read.and_then(|config| read_back(record, &config)) {
            Ok(volumes) => {
                journal.outcome(id, true, json!({ "volumes": volumes, "warnings": warnings })).await?;
                Ok(worker_of(record, &volumes))
            }
            Err(problem) => {
                journal.outcome(id, false, json!({ "error": problem })).await?;
                Err(named(&record.spec.name, HypervisorError::Unexpected(problem)))
            }
        }
    }

    pub(super) async fn power(
        &self,
        worker: &CreatedWorker,
        change: Change,
        journal: &dyn Journal,
    ) -> Result<(), HypervisorError> {
        let wrong = |what: &str| HypervisorError::Unexpected(format!("worker {}: {what}", worker.spec.name));
        let vmid: u32 = worker.id.parse().map_err(|_| wrong("its id is not a VMID"))?;
        let put_on = worker.spec.host.as_deref().ok_or_else(|| wrong("it has no host"))?;
        // Somebody may have moved it since it was started.
        let node = match change {
            Change::Start => put_on.to_owned(),
            Change::Stop | Change::Destroy => self.node_of(vmid).await?.unwrap_or_else(|| put_on.to_owned()),
        };
        let mark = Mark { fleet: worker.spec.fleet.clone(), vmid, uuid: worker.spec.uuid.to_lowercase() };
        let ours = Ours { mark, node: &node, forbids: &|_| None };
        let _leave = self.gate.enter(&node, Some(&self.settings.storage)).await;
        let changed = self.change_ours(&ours, change, journal).await;
        match changed.map_err(|error| named(&worker.spec.name, error))? {
            Changed::Done => Ok(()),
            Changed::Gone => Err(wrong(&format!("VM {vmid} is gone from {node}"))),
            Changed::Foreign(why) | Changed::Forbidden(why) => Err(wrong(&format!("VM {vmid} on {node}: {why}"))),
        }
    }

    pub(super) async fn node_of(&self, vmid: u32) -> Result<Option<String>, HypervisorError> {
        let guests = cluster::guests(&self.client).await?;
        Ok(guests.into_iter().find(|guest| guest.guest_id() == Some(vmid)).and_then(|guest| guest.node))
    }
}

pub(super) fn intent(kind: &str, object: &str, details: Value) -> Intent {
    Intent { kind: kind.into(), effect: kinds::effect(kind), object: object.into(), details }
}

/// The recorded volumes of a VM that reads back as it was asked for.
pub(super) fn read_back(record: &VmRecord, config: &VmConfig) -> Result<Vec<VolumeRecord>, String> {
    if let Some(problem) = vm::disagreement(&record.mark(), config) {
        return Err(format!("VM {} on {} is not as it was created: {problem}", record.vmid, record.node));
    }
    vm::made_volumes(record, config)
}

/// A created worker from what was recorded of it.
pub(super) fn worker_of(record: &VmRecord, volumes: &[VolumeRecord]) -> CreatedWorker {
    let disk = |volume: &VolumeRecord| CreatedDisk {
        scsi_address: None,
        serial: volume.serial.clone(),
        size_bytes: volume.size_bytes,
        path: None,
    };
    CreatedWorker {
        spec: record.spec.clone(),
        disks: volumes.iter().map(disk).collect(),
        id: record.vmid.to_string(),
        mac: Some(record.mac.clone()),
    }
}

fn named(worker: &str, error: HypervisorError) -> HypervisorError {
    match error {
        HypervisorError::Place { words, advice } => {
            HypervisorError::Place { words: format!("worker {worker}: {words}"), advice }
        }
        HypervisorError::Unexpected(text) => HypervisorError::Unexpected(format!("worker {worker}: {text}")),
        other => other,
    }
}

//! The worker image: uploaded once per node or once to shared storage, removed with its fleet.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;

use super::create::intent;
use super::error::CallError;
use super::step::{MAX_SENDS, now};
use super::task::{self, Ended, Upid};
use super::types::Volume;
use super::vm::kinds;
use super::{Proxmox, cluster};
use crate::{HypervisorError, Image, Intent, Journal};

/// First part of an image's name.
pub(super) const NAME_PREFIX: &str = "fourcorners-";
/// Digits of the digest in an image's name.
pub(super) const DIGEST_DIGITS: usize = 12;
/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// All that identifies an uploaded image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageRecord {
    /// Node that it was sent to; with shared storage any other would do.
    pub(super) node: String,
    pub(super) storage: String,
    /// All nodes see it.
    #[serde(default)]
    pub(super) shared: bool,
    /// `STORAGE:iso/NAME`.
    pub(super) volid: String,
    pub(super) fleet: String,
    pub(super) size_bytes: u64,
    /// When the intent was written, Unix seconds on the orchestrator's clock.
    pub(super) at: u64,
}

impl ImageRecord {
    /// A volume is the recorded one by name and size.
    pub(super) fn is(&self, volume: &Volume) -> bool {
        // Some storages do not know sizes of ISOs while they are written.
        volume.volid == self.volid && volume.size.is_none_or(|size| size == self.size_bytes || size == 0)
    }
}

/// Name of an image in the journal: storages of two nodes' own have one of the same name each.
pub(super) fn object_of(node: &str, volid: &str) -> String {
    format!("{node}:{volid}")
}

pub(super) fn upload_intent(record: &ImageRecord) -> Intent {
    intent(kinds::UPLOAD, &object_of(&record.node, &record.volid), json!(record))
}

/// `fourcorners-DIGEST-FLEET.iso`.
pub(super) fn file_name(digest: &str, fleet: &str) -> String {
    let digest: String = digest.chars().filter(char::is_ascii_alphanumeric).take(DIGEST_DIGITS).collect();
    format!("{NAME_PREFIX}{digest}-{fleet}.iso")
}

impl Proxmox {
    pub(super) async fn bring_image(
        &self,
        image: &Image,
        hosts: &[String],
        journal: &dyn Journal,
    ) -> Result<String, HypervisorError> {
        let mut nodes: Vec<String> = hosts.to_vec();
        nodes.sort();
        nodes.dedup();
        let first =
            nodes.first().ok_or_else(|| HypervisorError::Unexpected("an image needs a host to go to".into()))?;
        let shared = cluster::storage(&self.client, first, &self.settings.iso_storage).await?.shared;
        if shared {
            nodes.truncate(1);
        }
        let (sha256, size_bytes) = digest_of(&image.path).await?;
        let name = file_name(&image.digest, &image.fleet);
        let storage = self.settings.iso_storage.clone();
        let volid = format!("{storage}:iso/{name}");
        let uploads = nodes.into_iter().map(|node| {
            let (storage, volid, fleet) = (storage.clone(), volid.clone(), image.fleet.clone());
            let record = ImageRecord { node, storage, shared, volid, fleet, size_bytes, at: now() };
            let (name, sha256) = (&name, &sha256);
            async move { self.upload_to(&record, &image.path, name, sha256, journal).await }
        });
        futures_util::future::try_join_all(uploads).await?;
        Ok(volid)
    }

    async fn upload_to(
        &self,
        record: &ImageRecord,
        file: &Path,
        name: &str,
        sha256: &str,
        journal: &dyn Journal,
    ) -> Result<(), HypervisorError> {
        let _leave = self.gate.enter(&record.node, Some(&record.storage)).await;
        // PVE overwrites a file of the same name without a word.
        if self.find_image(record).await?.is_some() {
            return Err(HypervisorError::Place {
                words: format!("{} exists on {} already", record.volid, record.node),
                advice: "another run of this fleet left it: fourcorners cleanup".into(),
            });
        }
        let id = journal.intent(upload_intent(record)).await?;
        let ended = self.send_image(id, record, (file, name, sha256), journal).await?;
        match ended {
            Ok(warnings) => {
                journal.outcome(id, true, json!({ "volid": record.volid, "warnings": warnings })).await?;
                Ok(())
            }
            Err(error) => {
                journal.outcome(id, false, json!({ "error": error.to_string() })).await?;
                Err(error)
            }
        }
    }

    /// Sends the file, and again where neither its answer nor its effect came; answers its task's warnings.
    async fn send_image(
        &self,
        id: i64,
        record: &ImageRecord,
        (file, name, sha256): (&Path, &str, &str),
        journal: &dyn Journal,
    ) -> Result<Result<Vec<String>, HypervisorError>, HypervisorError> {
        let path = ["nodes", &record.node, "storage", &record.storage, "upload"];
        let mut sends = 1;
        loop {
            let error = match self.client.upload(&path, file, name, sha256).await {
                Ok(upid) => {
                    journal.task(id, json!({ "upid": upid })).await?;
                    return Ok(self.await_task(&upid).await);
                }
                Err(error) if error.may_have_happened() => error,
                Err(error) => return Ok(Err(error.into())),
            };
            tracing::warn!(%error, "the answer to an upload was lost; looking for what it did");
            match self.arrived(record).await {
                Ok(true) => return Ok(Ok(Vec::new())),
                Ok(false) if sends < MAX_SENDS => sends += 1,
                Ok(false) => return Ok(Err(error.into())),
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// Waits for a task's end; answers its warnings.
    pub(super) async fn await_task(&self, upid: &str) -> Result<Vec<String>, HypervisorError> {
        let upid: Upid = upid.parse().map_err(HypervisorError::Unexpected)?;
        match task::wait(&self.client, &upid).await? {
            Ended::Well(warnings) => Ok(warnings),
            Ended::Failed(failure) => Err(failure.into()),
        }
    }

    /// Whether the file is there once the call without an answer had time to show its effect.
    async fn arrived(&self, record: &ImageRecord) -> Result<bool, HypervisorError> {
        tokio::time::sleep(self.client.timing().in_flight).await;
        self.settle_tasks(&record.node, "imgcopy").await?;
        Ok(self.find_image(record).await?.is_some_and(|found| record.is(&found)))
    }

    /// Waits for the end of all tasks of ours of one kind on a node: those of storages do not name their file.
    pub(super) async fn settle_tasks(&self, node: &str, kind: &str) -> Result<(), CallError> {
        for upid in task::of_node(&self.client, node, kind).await? {
            task::wait_of_earlier(&self.client, &upid).await?;
        }
        Ok(())
    }

    /// The volume of the image's name.
    pub(super) async fn find_image(&self, record: &ImageRecord) -> Result<Option<Volume>, CallError> {
        let node = self.node_for(&record.node, record.shared).await?;
        let volumes = cluster::volumes(&self.client, &node, &record.storage, "iso").await?;
        Ok(volumes.into_iter().find(|volume| volume.volid == record.volid))
    }

    /// The node to ask about a storage: the recorded one, or where that is offline and the storage is shared any that is online.
    pub(super) async fn node_for(&self, recorded: &str, shared: bool) -> Result<String, CallError> {
        if shared {
            let online = cluster::online_nodes(&self.client).await?;
            if let Some(first) = online.first().filter(|_| !online.iter().any(|node| node == recorded)) {
                return Ok(first.clone());
            }
        }
        Ok(recorded.to_owned())
    }
}

/// SHA-256 (hexadecimal) and size of a file.
async fn digest_of(path: &Path) -> Result<(String, u64), HypervisorError> {
    let fail = || HypervisorError::io(format!("{}: cannot read the image", path.display()));
    let mut file = tokio::fs::File::open(path).await.map_err(fail())?;
    let (mut digest, mut size) = (Sha256::new(), 0_u64);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = file.read(&mut chunk).await.map_err(fail())?;
        if read == 0 {
            break;
        }
        digest.update(&chunk[..read]);
        size += read as u64;
    }
    let digits = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((digits, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_by_digest_and_fleet() {
        assert_eq!(file_name("sha256:0123456789abcdef", "f-7"), "fourcorners-sha256012345-f-7.iso");
        assert_eq!(file_name("0123456789abcdef", "f-7"), "fourcorners-0123456789ab-f-7.iso");
    }
}

//! A case's data disks in brief: their names, and all of the few that something is to be told of. A case has up to thousands, and a page
//! that shows none of their figures need not read them.

use analysis::export::PerDisk;
use serde::{Deserialize, Serialize};

use crate::error::Fault;
use crate::rows::{from_json, json};

#[derive(Serialize, Deserialize)]
struct BriefDisk {
    worker: String,
    disk: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    incident: Option<PerDisk>,
}

impl From<&PerDisk> for BriefDisk {
    fn from(disk: &PerDisk) -> Self {
        let incident = disk.has_incident().then(|| disk.clone());
        Self { worker: disk.worker.clone(), disk: disk.disk.clone(), incident }
    }
}

impl From<BriefDisk> for PerDisk {
    fn from(brief: BriefDisk) -> Self {
        let BriefDisk { worker, disk, incident } = brief;
        incident.unwrap_or_else(|| Self { worker, disk, ..Self::default() })
    }
}

pub(crate) fn encode(disks: &[PerDisk]) -> Result<String, Fault> {
    json(&disks.iter().map(BriefDisk::from).collect::<Vec<_>>(), "the case's disks in brief")
}

/// A disk without incident has no figures.
pub(crate) fn decode(text: &str) -> Result<Vec<PerDisk>, Fault> {
    let disks: Vec<BriefDisk> = from_json(text, "cases.brief_disks_json")?;
    Ok(disks.into_iter().map(PerDisk::from).collect())
}

#[cfg(test)]
mod tests {
    use analysis::export::{Device, Stall};

    use super::*;

    #[test]
    fn a_quiet_disk_is_its_name_and_another_one_is_whole() {
        let disk = |name: &str| PerDisk {
            worker: "w1".into(),
            disk: name.into(),
            window_seconds: 5.0,
            flushes: 7,
            device: Some(Device { reads: 1, read_merges: 0, writes: 0, write_merges: 0, differs: name == "differs" }),
            ..PerDisk::default()
        };
        let stalled = PerDisk { stalls: vec![Stall { start_seconds: 1.0, length_seconds: 2.0 }], ..disk("stalled") };
        let brief = decode(&encode(&[disk("quiet"), stalled.clone(), disk("differs")]).unwrap()).unwrap();
        let quiet = PerDisk { worker: "w1".into(), disk: "quiet".into(), ..PerDisk::default() };
        assert_eq!(brief, [quiet, stalled, disk("differs")]);
    }
}

//! The disks given on the command line, and nothing else: a job may use these by serial and exact size only.

use std::{collections::HashSet, path::PathBuf};

use load_engine::{DiskKind, DiskSpec, probe_disk};
use worker_protocol::{DiskAssignment, DiskInfo, MAX_DISKS};

use crate::{AgentError, DiskArg};

/// The worker's disks as they were at its start.
#[derive(Debug, Clone)]
pub(crate) struct Claims {
    claims: Vec<Claim>,
}

#[derive(Debug, Clone)]
struct Claim {
    path: PathBuf,
    info: DiskInfo,
}

/// A disk that a job may not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) serial: String,
    pub(crate) problem: String,
}

impl Claims {
    /// Examines each disk; changes nothing.
    pub(crate) fn new(disks: &[DiskArg]) -> Result<Self, AgentError> {
        let bad = |problem| AgentError::Option { option: "--disk", problem };
        if disks.len() > MAX_DISKS {
            return Err(bad(format!("{} disks; at most {MAX_DISKS} are allowed", disks.len())));
        }
        let (mut serials, mut paths) = (HashSet::new(), HashSet::new());
        let mut claims = Vec::new();
        for DiskArg { serial, path } in disks {
            let probe = probe_disk(path).map_err(|error| bad(format!("{serial}: {error}")))?;
            let real = path.canonicalize().map_err(|error| bad(format!("{serial}: {}: {error}", path.display())))?;
            if !serials.insert(serial) {
                return Err(bad(format!("serial {serial} is given twice")));
            }
            if !paths.insert(real) {
                return Err(bad(format!("{serial}: {} is another disk's, too", path.display())));
            }
            let info = DiskInfo {
                serial: serial.clone(),
                path: path.display().to_string(),
                size_bytes: probe.size_bytes,
                logical_block_bytes: probe.logical_block_bytes,
                direct: probe.direct,
                kind: match probe.kind {
                    DiskKind::Block => worker_protocol::DiskKind::Block,
                    DiskKind::File => worker_protocol::DiskKind::File,
                },
                in_use: probe.in_use,
            };
            claims.push(Claim { path: path.clone(), info });
        }
        Ok(Self { claims })
    }

    pub(crate) fn infos(&self) -> Vec<DiskInfo> {
        self.claims.iter().map(|claim| claim.info.clone()).collect()
    }

    /// The engine's disks for an assignment, each examined again. Opens for reading only.
    pub(crate) fn resolve(&self, assigned: &[DiskAssignment]) -> Result<Vec<DiskSpec>, Refusal> {
        let mut seen = HashSet::new();
        assigned
            .iter()
            .map(|disk| {
                let refuse = |problem| Refusal { serial: disk.serial.clone(), problem };
                if !seen.insert(&disk.serial) {
                    return Err(refuse("it is assigned twice".to_owned()));
                }
                self.resolve_one(disk).map_err(refuse)
            })
            .collect()
    }

    fn resolve_one(&self, disk: &DiskAssignment) -> Result<DiskSpec, String> {
        let Some(claim) = self.claims.iter().find(|claim| claim.info.serial == disk.serial) else {
            let own: Vec<&str> = self.claims.iter().map(|claim| claim.info.serial.as_str()).collect();
            return Err(format!("this worker has no disk of that serial; it has {}", own.join(", ")));
        };
        let path = claim.path.display();
        let probe = probe_disk(&claim.path).map_err(|error| error.to_string())?;
        if probe.size_bytes != disk.size_bytes {
            return Err(format!("{path} has {} bytes; the orchestrator expects {}", probe.size_bytes, disk.size_bytes));
        }
        if let Some(user) = probe.in_use {
            return Err(format!("{path} is in use: {user}"));
        }
        let end = disk.region_start.checked_add(disk.region_bytes).filter(|&end| end <= disk.size_bytes);
        let Some(end) = end.filter(|_| disk.region_bytes > 0) else {
            return Err(format!(
                "its region of {} bytes from byte {} does not lie inside its {} bytes",
                disk.region_bytes, disk.region_start, disk.size_bytes
            ));
        };
        Ok(DiskSpec {
            id: disk.serial.clone(),
            path: claim.path.clone(),
            size_bytes: disk.size_bytes,
            region: disk.region_start..end,
            data_seed: disk.data_seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 20;

    fn disk(serial: &str) -> (tempfile::NamedTempFile, DiskArg) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(SIZE).unwrap();
        let path = file.path().to_owned();
        (file, DiskArg { serial: serial.into(), path })
    }

    fn assigned(serial: &str) -> DiskAssignment {
        DiskAssignment { serial: serial.into(), size_bytes: SIZE, region_start: 0, region_bytes: SIZE, data_seed: 1 }
    }

    #[test]
    fn only_claimed_disks_of_the_exact_size_resolve() {
        let (file, arg) = disk("d0");
        let claims = Claims::new(&[arg]).unwrap();
        let specs = claims.resolve(&[assigned("d0")]).unwrap();
        assert_eq!((specs[0].region.clone(), specs[0].id.as_str()), (0..SIZE, "d0"));

        let refused = |disk: DiskAssignment, part: &str| {
            let refusal = claims.resolve(&[disk]).unwrap_err();
            assert!(refusal.problem.contains(part), "{refusal:?}");
        };
        refused(assigned("d9"), "it has d0");
        refused(DiskAssignment { size_bytes: SIZE + 1, ..assigned("d0") }, "expects 1048577");
        refused(DiskAssignment { region_start: 1, ..assigned("d0") }, "does not lie inside");
        refused(DiskAssignment { region_start: u64::MAX, ..assigned("d0") }, "does not lie inside");
        refused(DiskAssignment { region_bytes: 0, ..assigned("d0") }, "does not lie inside");
        assert!(claims.resolve(&[assigned("d0"), assigned("d0")]).unwrap_err().problem.contains("twice"));

        file.as_file().set_len(SIZE / 2).unwrap();
        refused(assigned("d0"), "has 524288 bytes");
        let path = file.path().to_owned();
        drop(file);
        refused(assigned("d0"), &path.display().to_string());
    }

    #[test]
    fn ambiguous_disks_are_refused() {
        let ((_a, first), (_b, second)) = (disk("d0"), disk("d0"));
        let same_path = DiskArg { serial: "d1".into(), path: first.path.clone() };
        assert!(Claims::new(&[first.clone(), second]).unwrap_err().to_string().contains("d0 is given twice"));
        assert!(Claims::new(&[first, same_path]).unwrap_err().to_string().contains("another disk's"));
    }
}

//! The disks that a job may use, by serial (or SCSI address) and exact size only: those given on the command line, or those of a
//! machine that is the worker's own.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use load_engine::{DiskKind, DiskSpec, probe_disk};
use worker_protocol::{DiskAssignment, DiskInfo, MAX_DISKS, NoDisk, find_disk};

use crate::{AgentError, DiskArg, Machine, machine::MachineDisk};

/// The worker's disks as they were at its start.
#[derive(Debug, Clone)]
pub(crate) struct Claims {
    /// Beside each other: where a disk is, and what the orchestrator was told of it.
    paths: Vec<PathBuf>,
    infos: Vec<DiskInfo>,
    all: bool,
}

/// A disk that a job may not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) serial: String,
    pub(crate) problem: String,
}

impl Claims {
    /// Examines each disk given; changes nothing.
    pub(crate) fn given(disks: &[DiskArg]) -> Result<Self, AgentError> {
        let bad = |problem| AgentError::Option { option: "--disk", problem };
        if disks.len() > MAX_DISKS {
            return Err(bad(format!("{} disks; at most {MAX_DISKS} are allowed", disks.len())));
        }
        let (mut serials, mut paths) = (HashSet::new(), HashSet::new());
        let mut infos = Vec::new();
        for DiskArg { serial, path } in disks {
            infos.push(examine(serial, path).map_err(|error| bad(format!("{serial}: {error}")))?);
            let real = path.canonicalize().map_err(|error| bad(format!("{serial}: {}: {error}", path.display())))?;
            if !serials.insert(serial) {
                return Err(bad(format!("serial {serial} is given twice")));
            }
            if !paths.insert(real) {
                return Err(bad(format!("{serial}: {} is another disk's, too", path.display())));
            }
        }
        Ok(Self { paths: disks.iter().map(|disk| disk.path.clone()).collect(), infos, all: false })
    }

    /// Finds and examines all disks of a machine; changes nothing. What is wrong with one is for the orchestrator to judge.
    pub(crate) fn of_machine(machine: &Machine) -> Result<Self, AgentError> {
        let disks = machine.disks();
        if disks.len() > MAX_DISKS {
            let problem =
                format!("not given, and this machine has {} disks; at most {MAX_DISKS} are allowed", disks.len());
            return Err(AgentError::Option { option: "--disk", problem });
        }
        let infos = disks.iter().map(info_of_machine).collect();
        Ok(Self { paths: disks.into_iter().map(|disk| disk.path).collect(), infos, all: true })
    }

    /// Whether these are all disks of the machine.
    pub(crate) fn are_all(&self) -> bool {
        self.all
    }

    pub(crate) fn infos(&self) -> Vec<DiskInfo> {
        self.infos.clone()
    }

    /// The engine's disks for an assignment, each examined again. Opens for reading only.
    pub(crate) fn resolve(&self, assigned: &[DiskAssignment]) -> Result<Vec<DiskSpec>, Refusal> {
        let (mut serials, mut places) = (HashSet::new(), HashSet::new());
        assigned
            .iter()
            .map(|disk| {
                let refuse = |problem| Refusal { serial: disk.serial.clone(), problem };
                let place = self.find(disk).map_err(refuse)?;
                if !serials.insert(&disk.serial) || !places.insert(place) {
                    return Err(refuse(format!("{} is assigned twice", self.paths[place].display())));
                }
                self.resolve_one(disk, &self.paths[place]).map_err(refuse)
            })
            .collect()
    }

    fn find(&self, disk: &DiskAssignment) -> Result<usize, String> {
        find_disk(&self.infos, &disk.serial, disk.scsi_address.as_deref()).map_err(|no_disk| match no_disk {
            NoDisk::Missing => {
                let own: Vec<&str> = self.infos.iter().map(|info| info.serial.as_str()).collect();
                format!("this worker has no disk of that serial; it has {}", own.join(", "))
            }
            NoDisk::Ambiguous(places) => {
                let paths: Vec<String> = places.iter().map(|&place| self.paths[place].display().to_string()).collect();
                format!("it could be any of {}", paths.join(", "))
            }
        })
    }

    fn resolve_one(&self, disk: &DiskAssignment, path: &Path) -> Result<DiskSpec, String> {
        let probe = probe_disk(path).map_err(|error| error.to_string())?;
        let shown = path.display();
        if probe.size_bytes != disk.size_bytes {
            return Err(format!(
                "{shown} has {} bytes; the orchestrator expects {}",
                probe.size_bytes, disk.size_bytes
            ));
        }
        if let Some(user) = probe.in_use {
            return Err(format!("{shown} is in use: {user}"));
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
            path: path.to_owned(),
            size_bytes: disk.size_bytes,
            region: disk.region_start..end,
            data_seed: disk.data_seed,
        })
    }
}

fn examine(serial: &str, path: &Path) -> Result<DiskInfo, load_engine::ProbeError> {
    let probe = probe_disk(path)?;
    Ok(DiskInfo {
        serial: serial.to_owned(),
        scsi_address: None,
        path: path.display().to_string(),
        size_bytes: probe.size_bytes,
        logical_block_bytes: probe.logical_block_bytes,
        direct: probe.direct,
        kind: match probe.kind {
            DiskKind::Block => worker_protocol::DiskKind::Block,
            DiskKind::File => worker_protocol::DiskKind::File,
        },
        in_use: probe.in_use,
    })
}

/// A disk that cannot be examined is told like one that is in use: it must not be written.
fn info_of_machine(disk: &MachineDisk) -> DiskInfo {
    let examined = examine(&disk.serial, &disk.path).unwrap_or_else(|error| DiskInfo {
        serial: disk.serial.clone(),
        scsi_address: None,
        path: disk.path.display().to_string(),
        size_bytes: disk.size_bytes,
        logical_block_bytes: 0,
        direct: false,
        kind: worker_protocol::DiskKind::Block,
        in_use: Some(error.to_string()),
    });
    DiskInfo { scsi_address: disk.scsi_address.clone(), ..examined }
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
        DiskAssignment {
            serial: serial.into(),
            scsi_address: None,
            size_bytes: SIZE,
            region_start: 0,
            region_bytes: SIZE,
            data_seed: 1,
        }
    }

    #[test]
    fn only_claimed_disks_of_the_exact_size_resolve() {
        let (file, arg) = disk("d0");
        let claims = Claims::given(&[arg]).unwrap();
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
        assert!(Claims::given(&[first.clone(), second]).unwrap_err().to_string().contains("d0 is given twice"));
        assert!(Claims::given(&[first, same_path]).unwrap_err().to_string().contains("another disk's"));
    }

    #[test]
    fn a_machine_shows_all_its_disks_and_uses_those_assigned() {
        let directory = tempfile::tempdir().unwrap();
        let (sys, dev) = (directory.path().join("sys"), directory.path().join("dev"));
        std::fs::create_dir_all(&dev).unwrap();
        for (name, numbers) in [("sda", "3:0:0:0"), ("sdb", "3:0:1:0"), ("sdc", "3:0:2:0")] {
            let device = sys.join("devices").join(numbers);
            std::fs::create_dir_all(&device).unwrap();
            std::fs::create_dir_all(sys.join("block").join(name)).unwrap();
            std::os::unix::fs::symlink(&device, sys.join("block").join(name).join("device")).unwrap();
            std::fs::write(sys.join("block").join(name).join("size"), "2048\n").unwrap();
        }
        for name in ["sda", "sdb"] {
            std::fs::File::create(dev.join(name)).unwrap().set_len(SIZE).unwrap();
        }
        let claims = Claims::of_machine(&Machine::at(sys, dev.clone())).unwrap();
        let infos = claims.infos();
        assert!(claims.are_all() && infos.len() == 3);
        assert_eq!((infos[1].scsi_address.as_deref(), infos[1].in_use.as_deref()), (Some("0:0:1:0"), None));
        let absent = infos[2].in_use.as_deref().unwrap();
        assert!(infos[2].size_bytes == SIZE && absent.contains("No such file"), "{absent}");

        let at =
            |serial: &str, address: &str| DiskAssignment { scsi_address: Some(address.into()), ..assigned(serial) };
        let specs = claims.resolve(&[at("fleet-1", "0:0:1:0"), at("fleet-0", "0:0:0:0")]).unwrap();
        assert_eq!(
            (specs[0].id.as_str(), &specs[0].path),
            ("fleet-1", &dev.join("sdb")),
            "its name is the orchestrator's"
        );
        assert_eq!(specs[1].path, dev.join("sda"));
        let twice = claims.resolve(&[at("fleet-1", "0:0:1:0"), at("fleet-2", "0:0:1:0")]).unwrap_err();
        assert!(twice.serial == "fleet-2" && twice.problem.contains("twice"), "{twice:?}");
        let larger = DiskAssignment { size_bytes: SIZE + 512, ..at("fleet-1", "0:0:1:0") };
        assert!(claims.resolve(&[larger]).unwrap_err().problem.contains("has 1048576 bytes"));
        assert!(claims.resolve(&[at("fleet-9", "0:0:9:0")]).unwrap_err().problem.contains("it has scsi-0:0:0:0, "));
    }
}

//! Whether a worker's disks are those expected.

use worker_protocol::{DiskInfo, Hello, NoDisk, find_disk};

use super::settings::ExpectedDisk;

/// Disks that are wrong are named up to this many; the others are counted.
const MAX_NAMED: usize = 8;

/// What is wrong with the disks in `hello`, each by its name; none where they are as expected.
pub(super) fn mismatch(expected: &[ExpectedDisk], hello: &Hello) -> Option<String> {
    let mut problems = Vec::new();
    let mut taken: Vec<Option<&str>> = vec![None; hello.disks.len()];
    for wanted in expected {
        problems.extend(check(wanted, &hello.disks, &mut taken).err());
    }
    if hello.every_disk {
        let spare = hello.disks.iter().zip(&taken).filter(|(_, owner)| owner.is_none());
        problems.extend(
            spare.map(|(disk, _)| format!("disk {} of {} bytes is one too many", shown(disk), disk.size_bytes)),
        );
    }
    let more = problems.len().saturating_sub(MAX_NAMED);
    problems.truncate(MAX_NAMED);
    let told = problems.join("; ");
    match (told.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(told),
        (false, more) => Some(format!("{told}; and {more} more")),
    }
}

/// Finds a disk and takes it.
fn check<'a>(wanted: &'a ExpectedDisk, disks: &[DiskInfo], taken: &mut [Option<&'a str>]) -> Result<(), String> {
    let ExpectedDisk { serial, size_bytes, scsi_address } = wanted;
    let at = scsi_address.as_ref().map(|address| format!(" (SCSI address {address})")).unwrap_or_default();
    let place = match find_disk(disks, serial, scsi_address.as_deref()) {
        Ok(place) => place,
        Err(NoDisk::Missing) => return Err(format!("disk {serial}{at} is missing")),
        Err(NoDisk::Ambiguous(places)) => {
            places.iter().for_each(|&place| taken[place] = Some(serial));
            let found: Vec<String> = places.iter().map(|&place| shown(&disks[place])).collect();
            return Err(format!("disk {serial}{at} is ambiguous: {}", found.join(" and ")));
        }
    };
    let disk = &disks[place];
    if let Some(other) = taken[place].replace(serial) {
        return Err(format!("disk {serial}{at} would be {}, which is disk {other}", disk.path));
    }
    if disk.size_bytes != *size_bytes {
        return Err(format!("disk {serial} ({}) has {} bytes; expected {size_bytes}", disk.path, disk.size_bytes));
    }
    disk.in_use.as_ref().map_or(Ok(()), |why| Err(format!("disk {serial} ({}) is in use: {why}", disk.path)))
}

fn shown(disk: &DiskInfo) -> String {
    format!("{} ({})", disk.serial, disk.path)
}

#[cfg(test)]
mod tests {
    use worker_protocol::DiskKind;

    use super::*;

    const SIZE: u64 = 1 << 30;

    fn disk(serial: &str, path: &str, scsi_address: Option<&str>) -> DiskInfo {
        DiskInfo {
            serial: serial.into(),
            scsi_address: scsi_address.map(str::to_owned),
            path: path.into(),
            size_bytes: SIZE,
            logical_block_bytes: 512,
            direct: true,
            kind: DiskKind::Block,
            in_use: None,
        }
    }

    fn wanted(serial: &str, scsi_address: Option<&str>) -> ExpectedDisk {
        ExpectedDisk { serial: serial.into(), size_bytes: SIZE, scsi_address: scsi_address.map(str::to_owned) }
    }

    fn machine(disks: Vec<DiskInfo>) -> Hello {
        Hello {
            protocol_version: 1,
            token: String::new(),
            uuid: String::new(),
            macs: Vec::new(),
            boot_id: String::new(),
            agent_version: String::new(),
            kernel: String::new(),
            cpus: 1,
            memory_bytes: 1,
            disks,
            every_disk: true,
            activity: None,
        }
    }

    #[test]
    fn a_machine_has_the_disks_expected_and_no_other() {
        let disks = vec![disk("d1", "/dev/sdb", None), disk("d0", "/dev/sda", None)];
        let both = [wanted("d0", None), wanted("d1", None)];
        assert_eq!(mismatch(&both, &machine(disks.clone())), None);
        let spare = mismatch(&both[..1], &machine(disks.clone())).unwrap();
        assert_eq!(spare, "disk d1 (/dev/sdb) of 1073741824 bytes is one too many");
        let given = Hello { every_disk: false, ..machine(disks.clone()) };
        assert_eq!(mismatch(&both[..1], &given), None, "what else a process was given is left alone");
        assert_eq!(mismatch(&both, &machine(disks[..1].to_vec())).unwrap(), "disk d0 is missing");
    }

    #[test]
    fn a_disk_without_the_serial_is_found_by_its_address_and_exact_size() {
        let disks = vec![disk("scsi-0:0:0:0", "/dev/sda", Some("0:0:0:0")), disk("own", "/dev/sdb", Some("0:0:1:0"))];
        let both = [wanted("d0", Some("0:0:1:0")), wanted("d1", Some("0:0:0:0"))];
        assert_eq!(mismatch(&both, &machine(disks.clone())), None);
        let mut rounded = disks.clone();
        rounded[1].size_bytes += 512;
        assert_eq!(
            mismatch(&both, &machine(rounded)).unwrap(),
            "disk d0 (/dev/sdb) has 1073742336 bytes; expected 1073741824"
        );
        let elsewhere = [wanted("d0", Some("1:0:1:0")), wanted("d1", Some("0:0:0:0"))];
        assert_eq!(
            mismatch(&elsewhere, &machine(disks.clone())).unwrap(),
            "disk d0 (SCSI address 1:0:1:0) is missing; disk own (/dev/sdb) of 1073741824 bytes is one too many"
        );
        let twice = [wanted("own", None), wanted("d1", Some("0:0:1:0"))];
        let told = mismatch(&twice, &machine(disks)).unwrap();
        assert!(told.starts_with("disk d1 (SCSI address 0:0:1:0) would be /dev/sdb, which is disk own; "), "{told}");
    }

    #[test]
    fn all_that_is_wrong_is_named_within_a_bound() {
        let mut disks = vec![disk("d0", "/dev/sda", None), disk("d0", "/dev/sdb", None), disk("d1", "/dev/sdc", None)];
        disks[2].in_use = Some("partitioned: sdc1".into());
        let told = mismatch(&[wanted("d0", None), wanted("d1", None), wanted("d2", None)], &machine(disks)).unwrap();
        assert_eq!(
            told,
            "disk d0 is ambiguous: d0 (/dev/sda) and d0 (/dev/sdb); disk d1 (/dev/sdc) is in use: partitioned: sdc1; \
             disk d2 is missing"
        );
        let many = (0..31).map(|number| disk(&format!("s{number}"), "/dev/x", None)).collect();
        let told = mismatch(&[], &machine(many)).unwrap();
        assert!(told.contains("disk s7 ") && !told.contains("disk s8 ") && told.ends_with("; and 23 more"), "{told}");
    }
}

use crate::DiskInfo;

/// Why no disk is the one looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoDisk {
    /// None has the serial or, where one is given, the address.
    Missing,
    /// These do, by their place in the list.
    Ambiguous(Vec<usize>),
}

/// The place in `disks` of the one with this serial, else of the one at this SCSI address. Whether its size is right is the caller's to see.
///
/// # Errors
/// [`NoDisk`] where there is none, or more than one.
pub fn find_disk(disks: &[DiskInfo], serial: &str, scsi_address: Option<&str>) -> Result<usize, NoDisk> {
    let by_serial = places(disks, |disk| disk.serial == serial);
    let found = match scsi_address {
        Some(address) if by_serial.is_empty() => places(disks, |disk| disk.scsi_address.as_deref() == Some(address)),
        _ => by_serial,
    };
    match found[..] {
        [] => Err(NoDisk::Missing),
        [place] => Ok(place),
        _ => Err(NoDisk::Ambiguous(found)),
    }
}

fn places(disks: &[DiskInfo], is_it: impl Fn(&DiskInfo) -> bool) -> Vec<usize> {
    disks.iter().enumerate().filter(|(_, disk)| is_it(disk)).map(|(place, _)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiskKind;

    fn disk(serial: &str, scsi_address: Option<&str>) -> DiskInfo {
        DiskInfo {
            serial: serial.into(),
            scsi_address: scsi_address.map(str::to_owned),
            path: String::new(),
            size_bytes: 1,
            logical_block_bytes: 512,
            direct: true,
            kind: DiskKind::Block,
            in_use: None,
        }
    }

    #[test]
    fn the_serial_comes_before_the_address() {
        let disks = [disk("a", Some("0:0:1:0")), disk("b", Some("0:0:0:0")), disk("c", None)];
        assert_eq!(find_disk(&disks, "a", Some("0:0:0:0")), Ok(0));
        assert_eq!(find_disk(&disks, "x", Some("0:0:0:0")), Ok(1));
        assert_eq!(find_disk(&disks, "x", None), Err(NoDisk::Missing));
        assert_eq!(find_disk(&disks, "x", Some("1:0:0:0")), Err(NoDisk::Missing));
    }

    #[test]
    fn two_of_one_serial_are_none() {
        let disks = [disk("a", Some("0:0:1:0")), disk("a", Some("0:0:2:0"))];
        assert_eq!(find_disk(&disks, "a", Some("0:0:1:0")), Err(NoDisk::Ambiguous(vec![0, 1])));
    }
}

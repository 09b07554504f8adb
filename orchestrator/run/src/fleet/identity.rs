//! Who a worker is: by its UUID, else by a MAC address.

use uuid::Uuid;
use worker_protocol::Hello;

use super::settings::Expected;

/// Why a Hello is nobody's.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stranger {
    /// Neither its UUID nor a MAC address belongs to the fleet.
    Unknown,
    /// They belong to different workers, at these places.
    Torn(usize, usize),
    /// Its UUID is that of the worker at this place, but it has none of that one's MAC addresses: a copy of its machine, say.
    Copy(usize),
    /// Its MAC addresses are those of two workers, at these places.
    TwoAtOnce(usize, usize),
}

/// The place of the worker that `hello` comes from.
pub(super) fn recognise<'a>(
    expected: impl Iterator<Item = &'a Expected> + Clone,
    hello: &Hello,
) -> Result<usize, Stranger> {
    let by_uuid = place_by_uuid(expected.clone(), &hello.uuid);
    let has_mac = |worker: &Expected| worker.macs.iter().any(|ours| hello.macs.iter().any(|mac| same_mac(ours, mac)));
    let has_macs = |place: usize| expected.clone().nth(place).is_some_and(|worker| !worker.macs.is_empty());
    let mut by_mac = expected.clone().enumerate().filter(|(_, worker)| has_mac(worker)).map(|(place, _)| place);
    match (by_uuid, by_mac.next(), by_mac.next()) {
        (Some(uuid), Some(mac), _) if uuid != mac => Err(Stranger::Torn(uuid, mac)),
        (Some(uuid), Some(_), Some(mac)) => Err(Stranger::Torn(uuid, mac)),
        (None, Some(one), Some(other)) => Err(Stranger::TwoAtOnce(one, other)),
        (Some(place), None, _) if has_macs(place) && !hello.macs.is_empty() => Err(Stranger::Copy(place)),
        (Some(place), ..) | (None, Some(place), None) => Ok(place),
        (None, None, _) => Err(Stranger::Unknown),
    }
}

/// As it is written before its first three fields swapped: only one of two workers can have it literally.
fn place_by_uuid<'a>(mut expected: impl Iterator<Item = &'a Expected> + Clone, uuid: &str) -> Option<usize> {
    if uuid.is_empty() {
        return None;
    }
    let literally = expected.clone().position(|worker| worker.uuid.eq_ignore_ascii_case(uuid));
    literally.or_else(|| {
        let given = Uuid::parse_str(uuid).ok()?;
        let swapped = Uuid::from_bytes(given.to_bytes_le());
        expected.position(|worker| Uuid::parse_str(&worker.uuid).is_ok_and(|ours| ours == given || ours == swapped))
    })
}

fn same_mac(ours: &str, theirs: &str) -> bool {
    let digits = |mac: &str| {
        mac.bytes().filter(u8::is_ascii_hexdigit).map(|digit| digit.to_ascii_lowercase()).collect::<Vec<_>>()
    };
    let ours = digits(ours);
    ours.len() == 12 && ours == digits(theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
    const OTHER: &str = "00112233-4455-6677-8899-000000000000";
    /// The same as VMware may show it.
    const SWAPPED: &str = "33221100-5544-7766-8899-AABBCCDDEEFF";

    fn worker(uuid: &str, macs: &[&str]) -> Expected {
        let macs = macs.iter().map(|&mac| mac.to_owned()).collect();
        Expected { name: String::new(), uuid: uuid.into(), macs, disks: Vec::new() }
    }

    fn recognised(fleet: &[Expected], uuid: &str, macs: &[&str]) -> Result<usize, Stranger> {
        let hello = Hello { uuid: uuid.into(), macs: macs.iter().map(|&mac| mac.to_owned()).collect(), ..empty() };
        recognise(fleet.iter(), &hello)
    }

    fn empty() -> Hello {
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
            disks: Vec::new(),
            every_disk: true,
            activity: None,
        }
    }

    #[test]
    fn a_uuid_counts_in_either_byte_order() {
        let fleet = [worker("other", &[]), worker(UUID, &[])];
        for uuid in [UUID, SWAPPED, &UUID.to_uppercase(), &UUID.replace('-', "")] {
            assert_eq!(recognised(&fleet, uuid, &[]), Ok(1), "{uuid}");
        }
        let neither = "00112233-5544-6677-8899-aabbccddeeff";
        for uuid in [neither, "", "00000000-0000-0000-0000-000000000000", "Not Settable"] {
            assert_eq!(recognised(&fleet, uuid, &[]), Err(Stranger::Unknown), "{uuid}");
        }
    }

    #[test]
    fn a_known_uuid_with_none_of_its_macs_is_a_copy() {
        let fleet = [worker(UUID, &["02:ab:00:00:00:01", "02:ab:00:00:00:02"]), worker(OTHER, &[])];
        assert_eq!(recognised(&fleet, UUID, &["52:54:00:00:00:09"]), Err(Stranger::Copy(0)));
        assert_eq!(
            recognised(&fleet, UUID, &["52:54:00:00:00:09", "02:ab:00:00:00:02"]),
            Ok(0),
            "one of them is enough"
        );
        assert_eq!(recognised(&fleet, UUID, &[]), Ok(0), "a machine that does not tell");
        assert_eq!(recognised(&fleet, OTHER, &["52:54:00:00:00:09"]), Ok(1), "nobody knows that one's");
    }

    #[test]
    fn of_two_workers_the_literal_one_is_meant() {
        let fleet = [worker(SWAPPED, &[]), worker(UUID, &[])];
        assert_eq!((recognised(&fleet, UUID, &[]), recognised(&fleet, SWAPPED, &[])), (Ok(1), Ok(0)));
    }

    #[test]
    fn a_mac_counts_where_the_uuid_is_nobodys() {
        let fleet = [worker(UUID, &["02:AB:00:00:00:01"]), worker("", &["02-ab-00-00-00-02", "02:ab:00:00:00:03"])];
        assert_eq!(recognised(&fleet, "unknown", &["02:ab:00:00:00:01"]), Ok(0));
        assert_eq!(recognised(&fleet, "", &["52:54:00:00:00:00", "02:ab:00:00:00:03"]), Ok(1));
        assert_eq!(recognised(&fleet, "", &["02:ab:00:00:00:04", "", "zz"]), Err(Stranger::Unknown));
        assert_eq!(recognised(&fleet, SWAPPED, &["02:ab:00:00:00:02"]), Err(Stranger::Torn(0, 1)));
        let both = ["02:ab:00:00:00:01", "02:ab:00:00:00:02"];
        assert_eq!(recognised(&fleet, "", &both), Err(Stranger::TwoAtOnce(0, 1)));
        assert_eq!(recognised(&fleet, UUID, &both), Err(Stranger::Torn(0, 1)));
        assert_eq!(recognised(&[worker("", &[""])], "", &[""]), Err(Stranger::Unknown), "nothing is nobody's identity");
    }
}

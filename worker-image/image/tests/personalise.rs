//! Personalising: the slot is found once, written whole, read back as it was given; what cannot work is refused with figures.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use worker_image::{
    AddressRange, BOOTSTRAP_VERSION, Bootstrap, Mac, PersonaliseError, StaticAddressing, inspect, personalise, slot,
};

fn bootstrap() -> Bootstrap {
    Bootstrap {
        version: BOOTSTRAP_VERSION,
        orchestrator_urls: vec!["wss://192.0.2.7:7443/api/worker/v1/session".into()],
        ca_sha256: "0123456789abcdef".repeat(4),
        token: "s3cret".into(),
        mtu: Some(9000),
        static_addressing: Some(addressing()),
    }
}

fn addressing() -> StaticAddressing {
    let range = |mac: &str, last: u8, count| AddressRange {
        first_mac: mac.parse().unwrap(),
        first_address: Ipv4Addr::new(192, 0, 2, last),
        count,
    };
    StaticAddressing {
        ranges: vec![range("52:54:00:00:10:fe", 50, 16), range("52:54:00:00:20:00", 100, 1)],
        prefix: 24,
        gateway: Some(Ipv4Addr::new(192, 0, 2, 1)),
    }
}

struct Iso {
    dir: tempfile::TempDir,
    path: PathBuf,
}

/// A file with the given parts, in which nothing but a part can be a slot.
fn iso(parts: &[&[u8]]) -> Iso {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.iso");
    fs::write(&path, parts.concat()).unwrap();
    Iso { dir, path }
}

#[test]
fn an_image_and_what_was_made_from_it_have_one_base_digest() {
    let iso = iso(&[&vec![7; 3_000_001], &slot::empty(), b"after"]);
    let out = iso.dir.path().join("out.iso");
    personalise(&iso.path, &out, &bootstrap()).unwrap();
    let sha256sum = |path: &PathBuf| {
        let output = std::process::Command::new("sha256sum").arg(path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()[..64].to_owned()
    };
    let (base, personal) = (inspect(&iso.path).unwrap(), inspect(&out).unwrap());
    assert_eq!((&base.sha256, &base.base_sha256), (&sha256sum(&iso.path), &sha256sum(&iso.path)));
    assert_eq!((&personal.sha256, &personal.base_sha256), (&sha256sum(&out), &base.sha256));
    assert_ne!(personal.sha256, base.sha256);
    assert_eq!((base.bootstrap.unwrap(), personal.bootstrap.unwrap()), (None, Some(bootstrap())));
    assert_eq!(personal.size_bytes, 3_000_001 + slot::BYTES as u64 + 5);

    let mut damaged = fs::read(&out).unwrap();
    damaged[3_000_001 + slot::marker().len()] = b'?';
    fs::write(&out, damaged).unwrap();
    let damaged = inspect(&out).unwrap();
    assert!(
        damaged.bootstrap.is_err() && damaged.base_sha256 == base.sha256,
        "what it says is lost, what it is is not"
    );
    fs::write(&out, "no image").unwrap();
    assert!(matches!(inspect(&out), Err(PersonaliseError::NoSlot { .. })));
}

#[test]
fn only_the_slot_changes_and_reads_back_as_given() {
    let before = vec![7; 3_000_001];
    let iso = iso(&[&before, &slot::empty(), b"after"]);
    let out = iso.dir.path().join("out.iso");
    personalise(&iso.path, &out, &bootstrap()).unwrap();
    let bytes = fs::read(&out).unwrap();
    let (head, rest) = bytes.split_at(before.len());
    assert!(head == before && rest.len() == slot::BYTES + 5 && rest.ends_with(b"after"), "the rest is as it was");
    assert_eq!(slot::decode(&rest[..slot::BYTES]).unwrap(), Some(bootstrap()));
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600, "it holds the token");
    // Again, for another fleet: nothing of the first may stay.
    let other = Bootstrap { token: "x".into(), static_addressing: None, mtu: None, ..bootstrap() };
    personalise(&out, &out, &other).unwrap();
    assert_eq!(slot::decode(&fs::read(&out).unwrap()[before.len()..][..slot::BYTES]).unwrap(), Some(other));
}

#[test]
fn a_slot_on_any_side_of_a_chunk_boundary_is_found() {
    let marker = slot::marker().len();
    for offset in [0, 1, marker - 1, marker, marker + 1] {
        let iso = iso(&[&vec![b'F'; (1 << 20) - offset], &slot::empty()]);
        personalise(&iso.path, &iso.dir.path().join("out"), &bootstrap()).unwrap();
    }
}

#[test]
fn an_image_without_a_slot_with_two_or_with_half_of_one_is_refused_and_nothing_is_left() {
    type Expected = fn(&PersonaliseError) -> bool;
    let cases: [(&[&[u8]], Expected); 3] = [
        (&[b"an installer"], |error| matches!(error, PersonaliseError::NoSlot { .. })),
        (&[&slot::empty(), &slot::empty()], |error| matches!(error, PersonaliseError::ManySlots { count: 2, .. })),
        (&[&slot::empty()[..9000]], |error| matches!(error, PersonaliseError::CutOff { .. })),
    ];
    for (parts, expected) in cases {
        let iso = iso(parts);
        let error = personalise(&iso.path, &iso.dir.path().join("out"), &bootstrap()).unwrap_err();
        assert!(expected(&error) && error.to_string().contains("in.iso"), "{error}");
        assert_eq!(fs::read_dir(iso.dir.path()).unwrap().count(), 1, "no half-written copy");
    }
}

#[test]
fn too_long_says_by_how_much() {
    let room = slot::BYTES - slot::marker().len();
    let short = serde_json::to_vec(&Bootstrap { token: "t".into(), ..bootstrap() }).unwrap().len();
    let with_token = |bytes: usize| Bootstrap { token: "t".repeat(bytes), ..bootstrap() };
    assert!(slot::encode(&with_token(1 + room - short)).is_ok(), "exactly full");
    let error = slot::encode(&with_token(1 + room - short + 123)).unwrap_err().to_string();
    assert!(error.contains("123 bytes too long") && error.contains(&room.to_string()), "{error}");
}

#[test]
fn every_field_that_no_worker_could_use_is_named() {
    let with_addressing = |change: fn(&mut StaticAddressing)| {
        let mut addressing = addressing();
        change(&mut addressing);
        Bootstrap { static_addressing: Some(addressing), ..bootstrap() }
    };
    let with_url = |url: &str| Bootstrap { orchestrator_urls: vec![url.into()], ..bootstrap() };
    let cases = [
        (Bootstrap { version: 2, ..bootstrap() }, "version"),
        (Bootstrap { orchestrator_urls: vec![], ..bootstrap() }, "orchestrator_urls"),
        (with_url("wss://orchestrator.example:7443/"), "orchestrator_urls[0]"),
        (with_url("https://192.0.2.7:7443/"), "orchestrator_urls[0]"),
        (with_url("wss://192.0.2.7/"), "orchestrator_urls[0]"),
        (with_url("wss://192.0.2.7:0/"), "orchestrator_urls[0]"),
        (with_url("wss://192.0.2.7:70000/"), "orchestrator_urls[0]"),
        (with_url("wss://192.0.2.7:7443/a b"), "orchestrator_urls[0]"),
        (with_url("ws://192.0.2.7:7443/a"), "orchestrator_urls[0]"),
        (with_url("wss://192.0.2.7:7443"), "orchestrator_urls[0]"),
        (with_url("wss://0.0.0.0:7443/a"), "orchestrator_urls[0]"),
        (with_url("wss://255.255.255.255:7443/a"), "orchestrator_urls[0]"),
        (with_url("wss://[ff02::1]:7443/a"), "orchestrator_urls[0]"),
        (with_addressing(|a| a.ranges[0].first_address = Ipv4Addr::new(0, 0, 0, 5)), "ranges[0].first_address"),
        (with_addressing(|a| a.ranges[0].first_address = Ipv4Addr::new(127, 0, 0, 5)), "ranges[0].first_address"),
        (with_addressing(|a| a.ranges[0].first_address = Ipv4Addr::new(224, 0, 0, 5)), "ranges[0].first_address"),
        (with_addressing(|a| a.ranges[1].first_mac = "00:00:00:00:00:00".parse().unwrap()), "ranges[1].first_mac"),
        (Bootstrap { ca_sha256: String::new(), ..bootstrap() }, "ca_sha256"),
        (Bootstrap { ca_sha256: "xy".repeat(32), ..bootstrap() }, "ca_sha256"),
        (Bootstrap { token: "two words".into(), ..bootstrap() }, "token"),
        (Bootstrap { mtu: Some(100), ..bootstrap() }, "mtu"),
        (with_addressing(|a| a.prefix = 31), "prefix"),
        (with_addressing(|a| a.ranges.clear()), "ranges"),
        (with_addressing(|a| a.ranges[1].count = 0), "ranges[1].count"),
        (with_addressing(|a| a.ranges[1].first_mac = "01:00:5e:00:00:01".parse().unwrap()), "ranges[1].first_mac"),
        (with_addressing(|a| a.ranges[1].first_mac = a.ranges[0].first_mac.plus(15).unwrap()), "ranges[1].first_mac"),
        (with_addressing(|a| a.ranges[0].count = 206), "ranges[0].first_address"),
        (with_addressing(|a| a.ranges[1].first_address = Ipv4Addr::new(192, 0, 2, 65)), "ranges[1].first_address"),
        (with_addressing(|a| a.ranges[1].first_address = Ipv4Addr::new(192, 0, 3, 9)), "ranges[1].first_address"),
        (with_addressing(|a| a.gateway = Some(Ipv4Addr::new(198, 51, 100, 1))), "gateway"),
        (with_addressing(|a| a.gateway = Some(Ipv4Addr::new(192, 0, 2, 51))), "gateway"),
    ];
    bootstrap().check().unwrap();
    for (bootstrap, field) in cases {
        let error = bootstrap.check().unwrap_err();
        assert!(error.field.ends_with(field), "{error} is not about {field}");
    }
    with_url("wss://[2001:db8::7]:7443/a").check().unwrap();
}

#[test]
fn a_mac_in_a_range_takes_the_address_at_its_place() {
    let addressing = addressing();
    let address = |mac: &str| addressing.for_mac(mac.parse().unwrap()).map(|address| address.address);
    assert_eq!(address("52:54:00:00:10:fe"), Some(Ipv4Addr::new(192, 0, 2, 50)));
    assert_eq!(address("52:54:00:00:11:00"), Some(Ipv4Addr::new(192, 0, 2, 52)), "MACs carry over");
    assert_eq!(address("52-54-00-00-20-00"), Some(Ipv4Addr::new(192, 0, 2, 100)));
    assert_eq!(address("52:54:00:00:11:0e"), None, "one behind the range");
    assert_eq!(address("52:54:00:00:10:fd"), None, "one before it");
    for wrong in ["", "52:54:00:00:10", "52:54:00:00:10:fe:00", "52:54:00:00:10:+e", "5:54:00:00:10:fe"] {
        assert!(wrong.parse::<Mac>().is_err(), "{wrong:?}");
    }
}

#[test]
fn a_debug_print_hides_the_token() {
    assert!(!format!("{:?}", bootstrap()).contains("s3cret"));
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(token in "[!-~]{1,200}", port in 1_u16.., last in 2_u8..200, count in 1_u32..40) {
        let mut bootstrap = bootstrap();
        bootstrap.token = token;
        bootstrap.orchestrator_urls = vec![format!("wss://198.51.100.{last}:{port}/x")];
        if let Some(addressing) = &mut bootstrap.static_addressing {
            addressing.ranges = vec![AddressRange {
                first_mac: [2, 0, 0, 0, 0, last].into(),
                first_address: Ipv4Addr::new(192, 0, 2, last),
                count,
            }];
        }
        let bytes = slot::encode(&bootstrap).unwrap();
        prop_assert_eq!(bytes.len(), slot::BYTES);
        prop_assert_eq!(slot::decode(&bytes).unwrap(), Some(bootstrap));
    }

    #[test]
    fn damaged_slots_are_errors_and_never_panics(at in 0..slot::BYTES, byte: u8, cut in 0..slot::BYTES) {
        let mut bytes = slot::encode(&bootstrap()).unwrap();
        bytes[at] = byte;
        if let Ok(Some(read)) = slot::decode(&bytes) {
            prop_assert!(read.check().is_ok());
        }
        let whole = slot::marker().len() + serde_json::to_vec(&bootstrap()).unwrap().len();
        prop_assert_eq!(slot::decode(&slot::encode(&bootstrap()).unwrap()[..cut]).is_ok(), cut >= whole || cut == slot::marker().len());
    }

    #[test]
    fn macs_read_back_as_they_are_printed(octets: [u8; 6]) {
        let mac = Mac::from(octets);
        prop_assert_eq!(mac.to_string().parse::<Mac>().unwrap(), mac);
        prop_assert_eq!(mac.octets(), octets);
    }
}

/// A file that begins with an ISO 9660 file system of `blocks` blocks and has `bytes` bytes.
fn iso_9660(blocks: u32, bytes: usize) -> Vec<u8> {
    let mut file = vec![0; bytes];
    file[32_768..32_774].copy_from_slice(b"\x01CD001");
    file[32_768 + 80..32_768 + 84].copy_from_slice(&blocks.to_le_bytes());
    file[32_768 + 128..32_768 + 130].copy_from_slice(&2048_u16.to_le_bytes());
    file
}

#[test]
fn a_file_that_is_shorter_than_its_file_system_is_cut_off() {
    let whole = iso(&[&iso_9660(40, 60_000), &slot::empty(), &vec![0; 5_536]]);
    inspect(&whole.path).unwrap();
    let short = iso(&[&iso_9660(40, 60_000), &slot::empty(), &vec![0; 5_535]]);
    let out = short.dir.path().join("out");
    for error in [inspect(&short.path).err(), personalise(&short.path, &out, &bootstrap()).err()] {
        let error = error.unwrap().to_string();
        assert!(error.contains("81919 bytes of 81920") && error.contains("cut off"), "{error}");
    }
}

#[test]
fn what_is_no_regular_file_is_neither_read_nor_replaced() {
    let iso = iso(&[&slot::empty()]);
    for special in ["/dev/zero", "/dev", "/dev/null"] {
        let error = inspect(Path::new(special)).unwrap_err();
        assert!(matches!(error, PersonaliseError::NoFile { .. }), "{special}: {error}");
    }
    let directory = iso.dir.path().join("directory");
    let link = iso.dir.path().join("link");
    fs::create_dir(&directory).unwrap();
    std::os::unix::fs::symlink(&directory, &link).unwrap();
    for taken in [&directory, &link] {
        let error = personalise(&iso.path, taken, &bootstrap()).unwrap_err().to_string();
        assert!(error.contains("something else than a regular file is there"), "{error}");
    }
    let socket = iso.dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let error = personalise(&iso.path, &socket, &bootstrap()).unwrap_err().to_string();
    assert!(error.contains("something else than a regular file is there") && !socket.is_file(), "{error}");
    assert!(matches!(inspect(&socket).unwrap_err(), PersonaliseError::NoFile { .. }));
}

#[test]
fn a_link_stays_and_leads_to_the_personal_image() {
    let iso = iso(&[&slot::empty()]);
    let (target, link) = (iso.dir.path().join("target"), iso.dir.path().join("link"));
    fs::write(&target, "old").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    personalise(&iso.path, &link, &bootstrap()).unwrap();
    assert!(link.is_symlink() && inspect(&target).unwrap().bootstrap.unwrap().is_some());
}

#[test]
fn a_mac_has_one_kind_of_separator() {
    assert!("52-54-00-00-10-00".parse::<Mac>().is_ok());
    for mixed in ["52:54:00-00:10:00", "52-54-00:00-10-00"] {
        assert!(mixed.parse::<Mac>().is_err(), "{mixed}");
    }
}

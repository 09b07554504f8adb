//! Every profile and plan that ships is read, and is in the list that the binary embeds.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use plan::{AccessPattern, MIB, Profiles};

fn folder(name: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles").join(name);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (stem(&path), fs::read_to_string(&path).unwrap())).collect()
}

fn stem(path: &Path) -> String {
    assert_eq!(path.extension().unwrap(), "yaml", "{path:?}");
    path.file_stem().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn every_profile_file_is_embedded_under_its_own_name() {
    let profiles = Profiles::shipped();
    let mut files = BTreeSet::new();
    for set in ["published", "deep"] {
        files.extend(folder(set).into_iter().map(|(name, _)| format!("{set}/{name}")));
    }
    let embedded: BTreeSet<String> = profiles.iter().map(|profile| profile.id.clone()).collect();
    assert_eq!(embedded, files);
    assert_eq!(embedded.len(), 10);
}

#[test]
fn the_sets_differ_in_outstanding_ios_only() {
    let profiles = Profiles::shipped();
    for published in profiles.iter().filter(|profile| profile.id.starts_with("published/")) {
        let deep = profiles.get(&published.id.replace("published/", "deep/")).unwrap();
        let sequential = matches!(deep.workload.pattern, AccessPattern::Sequential { streams: 1 });
        assert_eq!(published.workload.outstanding_per_disk, 2);
        assert_eq!(deep.workload.outstanding_per_disk, if sequential { 8 } else { 16 });
        assert_eq!(deep.description, published.description);
        let mut same = deep.workload.clone();
        same.outstanding_per_disk = 2;
        same.profile.clone_from(&published.workload.profile);
        assert_eq!(same, published.workload);
    }
}

#[test]
fn profiles_are_what_their_names_say() {
    let profiles = Profiles::shipped();
    let expected = [
        ("4k-random-read", 4096, false, 100),
        ("4k-random-write", 4096, false, 0),
        ("8k-random-70-30", 8192, false, 70),
        ("32k-sequential-read", 32768, true, 100),
        ("32k-sequential-write", 32768, true, 0),
    ];
    for (name, block, sequential, read_percent) in expected {
        let workload = &profiles.get(&format!("published/{name}")).unwrap().workload;
        assert_eq!(workload.name, name);
        assert_eq!(workload.block_bytes, block);
        assert_eq!(matches!(workload.pattern, AccessPattern::Sequential { .. }), sequential, "{name}");
        assert_eq!(workload.read_percent, read_percent, "{name}");
    }
}

#[test]
fn every_example_plan_is_embedded_and_valid() {
    let profiles = Profiles::shipped();
    let files: BTreeSet<String> = folder("plans").into_iter().map(|(name, _)| name).collect();
    let embedded: BTreeSet<String> = plan::examples().map(str::to_owned).collect();
    assert_eq!(embedded, files);
    for name in plan::examples() {
        let parsed = plan::parse(name, plan::example(name).unwrap(), &profiles);
        assert!(parsed.is_ok(), "{}", parsed.unwrap_err());
    }
    assert_eq!(plan::example("no-such-plan"), None);
    assert_eq!(plan::example("demo"), Some(plan::DEMO_PLAN));
}

#[test]
fn the_published_plan_has_the_published_test_s_figures() {
    let plan = plan::parse("p", plan::example("published-hci").unwrap(), &Profiles::shipped()).unwrap();
    assert_eq!((plan.workers.count, plan.workers.disks, plan.total_disks()), (16, 10, 160));
    let bytes: Vec<u64> = plan.footprints.iter().map(|footprint| footprint.bytes).collect();
    assert_eq!(bytes, [1_600_000_000_000, 8_000_000_000_000, 16_000_000_000_000]);
    assert_eq!((plan.precondition_seconds, plan.sample_seconds), (1800, 3600));
    // 10 GB, 50 GB and 100 GB a disk, aligned down to 1 MiB.
    let regions: Vec<u64> = plan.footprints.iter().map(|footprint| plan.region_bytes(footprint)).collect();
    assert_eq!(regions, [9536 * MIB, 47683 * MIB, 95367 * MIB]);
    assert_eq!(plan.workloads.len(), 5);
}

#[test]
fn the_reference_plan_uses_every_form() {
    let plan = plan::parse("p", plan::example("reference").unwrap(), &Profiles::shipped()).unwrap();
    let names: Vec<(&str, Option<&str>)> =
        plan.workloads.iter().map(|workload| (&*workload.name, workload.profile.as_deref())).collect();
    assert_eq!(
        names,
        [
            ("4k-random-read", Some("published/4k-random-read")),
            ("4k-random-write", Some("deep/4k-random-write")),
            ("8k-70-30-steady", Some("published/8k-random-70-30")),
            ("64k-streams", None),
            ("8k-hot-spot", None),
            ("16k-each-block-once", None),
        ]
    );
    insta::assert_json_snapshot!(plan);
}

#[test]
fn the_documentation_shows_the_reference_plan() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plan.md");
    let page = fs::read_to_string(page).unwrap();
    let shown = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(shown, plan::example("reference").unwrap());
}

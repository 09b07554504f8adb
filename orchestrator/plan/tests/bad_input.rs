//! What each kind of bad plan is told: the whole text, as the terminal shows it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at what it did not expect")]

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};
use plan::{
    AccessPattern, OnError, PlanErrors, Profiles, Rate, RateIops, RegionRange, Workload, limits, parse, parse_bytes,
};

/// A good plan; each case changes a line of it.
const GOOD: &str = "\
name: Test
target: { provider: local }
workers:
  count: 4
  vcpus: 2
  memory: 2GiB
  disks: 8
footprints: [1GiB, 64GiB]
initialise: full-write
precondition: 1m
sample: 90s
workloads:
  - 4k-random-read
  - name: streams
    block: 64KiB
    pattern: sequential
    read_percent: 50
    outstanding_per_disk: 8
seed: 1
";

fn errors(yaml: &str) -> PlanErrors {
    match parse("plan.yaml", yaml, &Profiles::shipped()) {
        Err(errors) => errors,
        Ok(plan) => panic!("accepted: {plan:?}\n{yaml}"),
    }
}

/// The messages of [`GOOD`] with `from` replaced by `to`, for each case.
fn messages(cases: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (from, to) in cases {
        assert_eq!(GOOD.matches(from).count(), 1, "{from:?} must be in the plan once");
        let bad = errors(&GOOD.replace(from, to));
        text.push_str(&format!("{}\n    {}\n", to.escape_debug(), bad.to_string().replace('\n', "\n    ")));
    }
    text
}

#[test]
fn the_good_plan_is_good() {
    let plan = parse("plan.yaml", GOOD, &Profiles::shipped()).unwrap();
    assert_eq!(plan.workers.count, 4);
    assert_eq!(plan.sample_seconds, 90);
    assert_eq!(plan.workloads.len(), 2);
}

#[test]
fn malformed_yaml() {
    insta::assert_snapshot!(messages(&[
        ("count: 4", "count: 4: 5"),
        ("footprints: [1GiB, 64GiB]", "footprints: [1GiB, 64GiB"),
        ("name: Test", "name: \"Test"),
        ("  disks: 8", " disks: 8"),
        ("name: Test", "\tname: Test"),
        ("name: Test", "? [a]\n: b"),
        ("seed: 1", "seed: 1\n---\nname: Second"),
        ("seed: 1", "seed: *nowhere"),
        ("seed: 1", "seed: &a [*a]"),
        ("seed: 1", "seed: !!int 1"),
        ("name: Test", "%YAML 1.1\n---\nname: Test"),
        ("seed: 1", "seed: [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]"),
    ]));
}

#[test]
fn not_a_plan() {
    let texts =
        ["", "# nothing\n", "plan", "- a\n- b\n", "{}", "null"].map(|yaml| format!("{yaml:?}\n{}\n", errors(yaml)));
    insta::assert_snapshot!(texts.concat());
}

#[test]
fn fields() {
    insta::assert_snapshot!(messages(&[
        ("  disks: 8", "  dsks: 8"),
        ("workers:\n", "worker:\n"),
        ("initialise: full-write", "initialize: full-write"),
        ("seed: 1", "frobnicate: 1"),
        ("    block: 64KiB", "    block_size: 64KiB"),
        ("seed: 1", "seed: 1\nname: Again"),
        ("  vcpus: 2", "  count: 5\n  vcpus: 2"),
        ("sample: 90s\n", ""),
        ("  count: 4\n", ""),
        ("    pattern: sequential\n", ""),
        ("name: Test", "name:"),
        ("name: Test", "name: \"a\\nb\""),
        ("workers:\n  count: 4\n  vcpus: 2\n  memory: 2GiB\n  disks: 8\n", "workers: 4\n"),
        ("seed: 1", "<<: {seed: 1}"),
    ]));
}

#[test]
fn words() {
    insta::assert_snapshot!(messages(&[
        ("initialise: full-write", "initialise: full_write"),
        ("initialise: full-write", "initialise: nothing"),
        ("seed: 1", "deploy: per_footprint"),
        ("seed: 1", "deploy: [once]"),
        ("seed: 1", "on_worker_loss: retry"),
        ("seed: 1", "read_unwritten: yes"),
        ("seed: 1", "profile_set: publishd"),
        ("provider: local", "provider: locl"),
        ("provider: local", "provider: proxmox"),
        ("pattern: sequential", "pattern: sequentail"),
        ("- 4k-random-read", "- 4k-random-raed"),
        ("- 4k-random-read", "- publishd/4k-random-read"),
        ("- 4k-random-read", "- profile: deep/4k-random-red"),
        ("- 4k-random-read", "- 5"),
        ("- 4k-random-read", "- [4k-random-read]"),
        ("- name: streams", "- name: my streams/é"),
    ]));
}

#[test]
fn counts() {
    insta::assert_snapshot!(messages(&[
        ("count: 4", "count: 0"),
        ("count: 4", "count: -4"),
        ("count: 4", "count: 2.5"),
        ("count: 4", "count: 1e3"),
        ("count: 4", "count: 0x10"),
        ("count: 4", "count: 010"),
        ("count: 4", "count: 99999999999999999999999999"),
        ("count: 4", "count: four"),
        ("count: 4", "count:"),
        ("count: 4", "count: [4]"),
        ("disks: 8", "disks: 65"),
        ("vcpus: 2", "vcpus: 129"),
        ("read_percent: 50", "read_percent: 101"),
        ("read_percent: 50", "read_percent: -1"),
        ("read_percent: 50", "read_percent: 70%"),
        ("outstanding_per_disk: 8", "outstanding_per_disk: 0"),
        ("outstanding_per_disk: 8", "outstanding_per_disk: 1025"),
        ("seed: 1", "seed: 9223372036854775808"),
        ("seed: 1", "fill: {outstanding_per_disk: 0, block: 3MiB}"),
        ("pattern: sequential", "pattern: sequential\n    streams: 0"),
        ("pattern: sequential", "pattern: sequential\n    compression_ratio: 0.5\n    duplication_ratio: .inf"),
        ("pattern: sequential", "pattern: sequential\n    rate: {iops_per_disk: 0, poisson: maybe}"),
        ("pattern: sequential", "pattern: sequential\n    rate: 100"),
        ("pattern: sequential", "pattern: sequential\n    flush_every_writes: 0"),
        ("pattern: sequential", "pattern: sequential\n    rate: {iops_per_worker: 10000001}"),
        ("pattern: sequential", "pattern: sequential\n    range: {from_percent: -1, to_percent: 101}"),
        ("pattern: sequential", "pattern: sequential\n    on_error: stop-after-0"),
        ("pattern: sequential", "pattern: sequential\n    on_error: stop-after-many"),
        ("pattern: sequential", "pattern: sequential\n    on_error: contine"),
        ("pattern: sequential", "pattern: sequential\n    stall_threshold: 500ms"),
        ("pattern: sequential", "pattern: sequential\n    stall_threshold: 11m\n    align: 1000"),
    ]));
}

#[test]
fn sizes() {
    insta::assert_snapshot!(messages(&[
        ("[1GiB, 64GiB]", "[0]"),
        ("[1GiB, 64GiB]", "[-1GiB]"),
        ("[1GiB, 64GiB]", "[64G]"),
        ("[1GiB, 64GiB]", "[64g, 64Gb, 64gib, 64 gigabytes]"),
        ("[1GiB, 64GiB]", "[2EB]"),
        ("[1GiB, 64GiB]", "[99EiB, 99999999999999999999TB]"),
        ("[1GiB, 64GiB]", "[3.2TiB, 0.5B, 1.TB, .5TB, 1.2.3TB]"),
        ("[1GiB, 64GiB]", "[big]"),
        ("[1GiB, 64GiB]", "[]"),
        ("[1GiB, 64GiB]", "1GiB"),
        ("memory: 2GiB", "memory: 64MiB"),
        ("memory: 2GiB", "memory: 2048"),
        ("block: 64KiB", "block: 64K"),
        ("block: 64KiB", "block: 64KB"),
        ("block: 64KiB", "block: 0"),
        ("block: 64KiB", "block: 1000"),
        ("block: 64KiB", "block: 4.5KiB\n    streams: 1.5"),
        ("block: 64KiB", "block: 32MiB"),
    ]));
}

#[test]
fn durations() {
    insta::assert_snapshot!(messages(&[
        ("sample: 90s", "sample: 0s"),
        ("sample: 90s", "sample: 90"),
        ("sample: 90s", "sample: -90s"),
        ("sample: 90s", "sample: 0.5s"),
        ("sample: 90s", "sample: 8d"),
        ("sample: 90s", "sample: 1mo"),
        ("sample: 90s", "sample: soon"),
        ("sample: 90s", "sample: 30M"),
        ("precondition: 1m", "precondition: 99999999999999h"),
        ("seed: 1", "settle: 1500ms"),
    ]));
}

#[test]
fn fields_beside_each_other() {
    insta::assert_snapshot!(messages(&[
        // Regions.
        ("[1GiB, 64GiB]", "[31MiB, 64GiB]"),
        ("[1GiB, 64GiB]", "[64GiB, 1GiB, 64GiB]"),
        ("[1GiB, 64GiB]", "[1GiB, 1024MiB]"),
        ("[1GiB, 64GiB]", "[1GiB, 1025MiB, 1050MiB]"),
        ("block: 64KiB", "block: 2MiB\n    streams: 32"),
        ("pattern: sequential", "pattern: hot-spot\n    hot_spot: {io_percent: 90, space_percent: 0.1}"),
        // Names.
        ("- name: streams", "- name: 4k-random-read"),
        ("- 4k-random-read", "- published/4k-random-read\n  - deep/4k-random-read"),
        // Unwritten bytes.
        ("initialise: full-write", "initialise: none"),
        ("seed: 1", "read_unwritten: true"),
        // Fields that need another.
        ("pattern: sequential", "pattern: random\n    streams: 2"),
        ("pattern: sequential", "pattern: sequential\n    hot_spot: {io_percent: 90, space_percent: 10}"),
        ("pattern: sequential", "pattern: hot-spot"),
        ("pattern: sequential", "pattern: hot-spot\n    hot_spot: {io_percent: 101}"),
        ("pattern: sequential", "pattern: sequential\n    rate: {poisson: true}"),
        ("pattern: sequential", "pattern: sequential\n    rate: {iops_per_disk: 1, iops_per_worker: 8}"),
        ("pattern: sequential", "pattern: sequential\n    range: {from_percent: 50, to_percent: 50}"),
        // Range and alignment.
        ("pattern: sequential", "pattern: sequential\n    range: {from_percent: 10, to_percent: 10.1}"),
        ("pattern: sequential", "pattern: sequential\n    align: 16MiB\n    streams: 4"),
        (
            "block: 64KiB\n    pattern: sequential",
            "block: 16MiB\n    pattern: hot-spot\n    hot_spot: {io_percent: 50, space_percent: 60}"
        ),
        // Buffers.
        (
            "block: 64KiB\n    pattern: sequential\n    read_percent: 50\n    outstanding_per_disk: 8",
            "block: 4MiB\n    pattern: random\n    read_percent: 50\n    outstanding_per_disk: 64",
        ),
        ("seed: 1", "fill: {outstanding_per_disk: 1024}"),
    ]));
}

#[test]
fn every_option_of_a_workload_is_read() {
    let options = "pattern: permutation\n    range: {from_percent: 12.5}\n    align: 4KiB\n    \
                   rate: {iops_per_worker: 800, poisson: true}\n    on_error: stop-after-7\n    stall_threshold: 1m30s\n    \
                   compression_ratio: 2.5\n    duplication_ratio: 3\n    flush_every_writes: 64";
    let plan = parse("plan.yaml", &GOOD.replace("pattern: sequential", options), &Profiles::shipped()).unwrap();
    let workload = &plan.workloads[1];
    assert_eq!(workload.pattern, AccessPattern::Permutation);
    assert_eq!(workload.range, Some(RegionRange { from_percent: 12.5, to_percent: 100.0 }));
    assert_eq!(workload.align_bytes, Some(4096));
    assert_eq!(workload.rate, Some(Rate { iops: RateIops::IopsPerWorker(800.0), poisson: true }));
    assert_eq!((workload.on_error, workload.stall_seconds), (OnError::StopAfter { errors: 7 }, 90));
    assert_eq!((workload.compression_ratio, workload.duplication_ratio), (2.5, 3.0));
    assert_eq!(workload.flush_every_writes, Some(64));
    // A region of 1 GiB over 32 disks; whole blocks of 64 KiB.
    assert_eq!(workload.sub_range(32 << 20), Some(4 << 20..32 << 20));
    let third = Workload { range: Some(RegionRange { from_percent: 33.3, to_percent: 66.6 }), ..workload.clone() };
    assert_eq!(third.sub_range(1 << 20), Some(5 * 65_536..10 * 65_536));
    let plain = &plan.workloads[0];
    assert_eq!((plain.range, plain.align_bytes, plain.rate), (None, None, None));
    assert_eq!((plain.on_error, plain.stall_seconds, plain.sub_range(1 << 20)), (OnError::Stop, 1, None));
}

#[test]
fn a_workload_on_a_profile_keeps_what_it_does_not_name() {
    let mut profiles = Profiles::shipped();
    let profile = "description: d\nname: odd\nblock: 4KiB\npattern: random\nread_percent: 50\noutstanding_per_disk: 2\n\
                   range: {to_percent: 50}\nalign: 512\nrate: {iops_per_disk: 9}\non_error: continue\nstall_threshold: 5s\n";
    profiles.add("published", "odd", profile).unwrap();
    let yaml = GOOD.replace("- 4k-random-read", "- {profile: odd, name: even, stall_threshold: 7s}");
    let workload = parse("plan.yaml", &yaml, &profiles).unwrap().workloads.remove(0);
    let base = &profiles.get("published/odd").unwrap().workload;
    assert_eq!(workload, Workload { name: "even".into(), stall_seconds: 7, ..base.clone() });
    assert_eq!((base.align_bytes, base.on_error, base.stall_seconds), (Some(512), OnError::Continue, 5));
}

#[test]
fn a_block_larger_than_the_region() {
    let small = GOOD.replace("[1GiB, 64GiB]", "[64MiB]").replace("block: 64KiB", "block: 4MiB");
    insta::assert_snapshot!(errors(&small), @"plan.yaml:15:12: workloads[1].block: found a block of 4MiB; allowed: at most 2MiB, the smallest region, of 2MiB");
}

#[test]
fn unwritten_reads_that_are_meant_are_allowed() {
    let meant = GOOD.replace("initialise: full-write", "initialise: none\nread_unwritten: true");
    assert!(parse("plan.yaml", &meant, &Profiles::shipped()).unwrap().read_unwritten);
    let writes = GOOD
        .replace("initialise: full-write", "initialise: none")
        .replace("- 4k-random-read", "- 4k-random-write")
        .replace("read_percent: 50", "read_percent: 0");
    assert!(!parse("plan.yaml", &writes, &Profiles::shipped()).unwrap().read_unwritten);
}

#[test]
fn all_problems_come_together_in_the_order_of_the_file() {
    let bad = GOOD
        .replace("count: 4", "count: 0")
        .replace("[1GiB, 64GiB]", "[1G, 64GiB]")
        .replace("sample: 90s", "sample: 90")
        .replace("- 4k-random-read", "- 4k-random-raed")
        .replace("read_percent: 50", "read_percent: 150\n    outstandig: 3")
        .replace("seed: 1", "sed: 1");
    let errors = errors(&bad);
    insta::assert_snapshot!("together_plain", errors);
    insta::assert_json_snapshot!("together_json", errors);
    insta::assert_snapshot!("together_terminal", terminal(&errors));
}

#[test]
fn columns_count_characters() {
    let bad = GOOD.replace("target: { provider: local }", "target: { disk_dir: \"/żółć\", provider: locl }");
    let errors = errors(&bad);
    assert_eq!((errors.problems()[0].line, errors.problems()[0].column), (2, 40));
    assert!(terminal(&errors).contains("locl"), "the label is on a character boundary");
}

#[test]
fn a_byte_that_is_not_utf8() {
    let mut bytes = GOOD.as_bytes().to_vec();
    let at = GOOD.find("count: 4").unwrap() + "count: ".len();
    bytes[at] = 0xff;
    let errors = parse_bytes("plan.yaml", &bytes, &Profiles::shipped()).unwrap_err();
    insta::assert_snapshot!(errors, @"plan.yaml:4:10: found a byte that is not UTF-8; allowed: UTF-8 text");
    assert!(parse_bytes("plan.yaml", GOOD.as_bytes(), &Profiles::shipped()).is_ok());
}

#[test]
fn a_huge_file_is_refused_at_the_limit() {
    let padded = |bytes: usize| format!("{GOOD}{}", "#".repeat(bytes - GOOD.len()));
    assert!(parse("plan.yaml", &padded(limits::MAX_YAML_BYTES), &Profiles::shipped()).is_ok());
    let over = errors(&padded(limits::MAX_YAML_BYTES + 1));
    insta::assert_snapshot!(over, @"plan.yaml:1:1: found 1048577 bytes; allowed: at most 1048576 bytes of YAML");
}

#[test]
fn aliases_are_expanded_within_a_bound() {
    let shared = GOOD.replace("count: 4", "count: &n 4").replace("vcpus: 2", "vcpus: *n");
    assert_eq!(parse("plan.yaml", &shared, &Profiles::shipped()).unwrap().workers.vcpus, 4);

    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(", ")));
    }
    insta::assert_snapshot!(errors(&bomb), @"plan.yaml:5:10: found more than 20000 values (aliases expanded); allowed: a plan of fewer");

    // Many aliases of one long text share it.
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), vec!["*a"; 15_000].join(", "));
    assert_eq!(errors(&long).problems()[0].found, "the unknown field `a`");
}

#[test]
fn a_list_of_problems_ends_at_a_limit() {
    let many: String = (0..250).map(|index| format!("x{index}: 1\n")).collect();
    let errors = errors(&format!("{GOOD}{many}"));
    assert_eq!(errors.problems().len(), limits::MAX_PROBLEMS);
    assert_eq!(errors.omitted(), 150);
    assert!(errors.to_string().ends_with("\nplan.yaml: and 150 more"));
}

#[test]
fn excerpts_are_short_and_without_control_characters() {
    let bad = GOOD.replace("count: 4", &format!("count: \"\\e[31m{}\"", "x".repeat(10_000)));
    let message = errors(&bad).to_string();
    assert!(message.contains("\\u{1b}[31mxxx") && message.contains('…'), "{message}");
    assert!(message.len() < 300 && !message.contains('\u{1b}'), "{message}");
}

fn terminal(errors: &dyn Diagnostic) -> String {
    let mut text = String::new();
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(100);
    handler.render_report(&mut text, errors).unwrap();
    text
}

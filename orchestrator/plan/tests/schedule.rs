//! Schedules of the shipped plans: every step, every byte and second, and the text that `check` prints.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::time::Duration;

use plan::{FillRate, FillRateSource, MIB, Profiles, Progress, Schedule, StepKind, TestPlan, parse, schedule};

const GB: u64 = 1_000_000_000;

fn example(name: &str, edit: impl Fn(String) -> String) -> (TestPlan, Schedule) {
    let yaml = edit(plan::example(name).unwrap().to_owned());
    let plan = parse(name, &yaml, &Profiles::shipped()).unwrap();
    let schedule = schedule(&plan, FillRate::assumed());
    (plan, schedule)
}

#[test]
fn the_demo_s_steps_are_in_order() {
    let (plan, schedule) = example("demo", |yaml| yaml);
    let mut expected = vec![StepKind::Deploy];
    for (footprint, from_byte, bytes_per_disk) in [(0, 0, 64 * MIB), (1, 64 * MIB, 192 * MIB)] {
        let bytes = 4 * bytes_per_disk;
        expected.push(StepKind::Fill { footprint, from_byte, bytes_per_disk, bytes });
        expected.push(StepKind::Verify { footprint });
        for workload in 0..5 {
            expected.push(StepKind::Case { footprint, workload, precondition_seconds: 1, sample_seconds: 5 });
        }
    }
    expected.push(StepKind::TearDown);
    let steps: Vec<StepKind> = schedule.steps.iter().map(|step| step.kind).collect();
    assert_eq!(steps, expected);
    assert_eq!(schedule.fill_bytes, 1024 * MIB, "the second footprint fills only what is new");
    assert_eq!(schedule.case_seconds, 60);
    assert!(schedule.total_seconds < 110, "the demo ends within two minutes: {}", schedule.total_seconds);
    assert_eq!(schedule.footprints[1].effective_bytes, plan.effective_bytes(&plan.footprints[1]));
}

#[test]
fn a_deployment_for_each_footprint_fills_it_whole() {
    let (_, schedule) = example("demo", |yaml| yaml + "deploy: per-footprint\nsettle: 3s\n");
    assert_eq!(schedule.fill_bytes, (256 + 1024) * MIB);
    assert_eq!(schedule.settle_seconds, 6);
    let count = |wanted: fn(&StepKind) -> bool| schedule.steps.iter().filter(|step| wanted(&step.kind)).count();
    assert_eq!(count(|step| matches!(step, StepKind::Deploy)), 2);
    assert_eq!(count(|step| matches!(step, StepKind::TearDown)), 2);
    assert_eq!(count(|step| matches!(step, StepKind::Settle { .. })), 2);
    assert_eq!(schedule.steps[0].kind, StepKind::Deploy);
    assert_eq!(schedule.steps.last().unwrap().kind, StepKind::TearDown);
}

#[test]
fn without_initialisation_nothing_is_filled() {
    let (plan, schedule) = example("demo", |yaml| yaml + "initialise: none\nread_unwritten: true\n");
    assert_eq!((schedule.fill_bytes, schedule.fill_seconds), (0, 0));
    let fills = |kind: &StepKind| matches!(kind, StepKind::Fill { .. } | StepKind::Verify { .. });
    assert!(!schedule.steps.iter().any(|step| fills(&step.kind)));
    assert!(schedule.render(&plan).contains("never written are read"));
    assert!(!schedule.render(&plan).contains("MB/s"));
}

#[test]
fn the_parts_add_up_to_the_whole() {
    for name in plan::examples() {
        let (_, schedule) = example(name, |yaml| yaml);
        let parts = schedule.fill_seconds + schedule.case_seconds + schedule.settle_seconds + schedule.overhead_seconds;
        assert_eq!(parts, schedule.total_seconds, "{name}");
        assert_eq!(schedule.total_seconds, schedule.remaining_seconds(&Progress::default()), "{name}");
        let fills =
            schedule.steps.iter().map(|step| if let StepKind::Fill { bytes, .. } = step.kind { bytes } else { 0 });
        assert_eq!(fills.sum::<u64>(), schedule.fill_bytes, "{name}");
    }
}

#[test]
fn the_fill_rate_says_where_it_comes_from() {
    assert_eq!(FillRate::assumed().source(), FillRateSource::Assumed);
    assert_eq!(FillRate::given(0), None);
    assert_eq!(FillRate::measured(GB, Duration::ZERO), None);
    assert_eq!(FillRate::measured(0, Duration::from_secs(1)), None);
    let measured = FillRate::measured(3 * GB, Duration::from_millis(1500)).unwrap();
    assert_eq!((measured.bytes_per_second(), measured.source()), (2 * GB, FillRateSource::Measured));

    let plan = parse("p", plan::example("published-hci").unwrap(), &Profiles::shipped()).unwrap();
    let given = schedule(&plan, FillRate::given(2 * GB).unwrap());
    // 16 TB less what alignment to 1 MiB drops, at 2 GB/s.
    assert!(given.fill_seconds.abs_diff(8000) <= 3, "{}", given.fill_seconds);
    assert_eq!(given.case_seconds, 15 * 5400);
}

#[test]
fn what_remains_follows_the_run() {
    let (_, schedule) = example("demo", |yaml| yaml);
    let total = schedule.total_seconds;
    let first_fill = schedule.steps[1].seconds;
    let at = |steps_done, step_elapsed, fill_bytes_done, measured| {
        let step_elapsed = Duration::from_secs(step_elapsed);
        schedule.remaining_seconds(&Progress { steps_done, step_elapsed, fill_bytes_done, measured })
    };
    assert_eq!(at(0, 1, 0, None), total - 1);
    assert_eq!(at(0, 1000, 0, None), total - schedule.steps[0].seconds, "a late step counts as about to end");
    assert_eq!(at(1, 500, 0, None), total - schedule.steps[0].seconds, "a fill goes by its bytes, not its clock");
    assert_eq!(at(1, 0, 256 * MIB, None), total - schedule.steps[0].seconds - first_fill);

    // At 64 MiB/s the 1 GiB of both fills takes 16 s.
    let slow = FillRate::given(64 * MIB);
    let other = total - schedule.fill_seconds;
    assert_eq!(at(0, 0, 0, slow), other + 16);
    assert_eq!(at(1, 2, 128 * MIB, slow), other - schedule.steps[0].seconds + 14);

    let count = schedule.steps.len();
    assert_eq!(at(count - 1, 0, 0, slow), schedule.steps[count - 1].seconds);
    assert_eq!(at(count, 5, 7, slow), 0);
    assert_eq!(at(usize::MAX, 0, 0, None), 0);
}

#[test]
fn the_text_and_the_json_for_check() {
    for name in ["demo", "published-hci", "reference"] {
        let (plan, schedule) = example(name, |yaml| yaml);
        insta::assert_snapshot!(format!("text_{name}"), schedule.render(&plan));
    }
    let (_, schedule) = example("demo", |yaml| yaml);
    insta::assert_json_snapshot!("json_demo", schedule);
}

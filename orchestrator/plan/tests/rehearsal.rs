//! A plan's rehearsal: all of its workloads, in seconds.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use plan::{FillRate, MIB, Profiles, TestPlan};

fn read(yaml: &str) -> TestPlan {
    plan::parse("plan.yaml", yaml, &Profiles::shipped()).unwrap()
}

#[test]
fn every_shipped_plan_is_rehearsed_within_minutes_with_all_its_workloads() {
    for name in plan::examples() {
        let plan = read(plan::example(name).unwrap());
        let rehearsal = plan.rehearsal();
        assert_eq!((&rehearsal.workloads, &rehearsal.workers), (&plan.workloads, &plan.workers), "{name}");
        assert_eq!((&rehearsal.target, rehearsal.guard), (&plan.target, plan.guard), "{name}");
        assert!(rehearsal.rehearsal && rehearsal.canary && !plan.rehearsal, "{name}");
        assert_eq!(rehearsal.name, format!("Rehearsal of {}", plan.name));
        assert_eq!(rehearsal.footprints.len(), plan.footprints.len().min(2), "{name}");
        let regions: Vec<u64> = rehearsal.footprints.iter().map(|one| rehearsal.region_bytes(one)).collect();
        assert!(regions[0] > 0 && regions.is_sorted_by(|a, b| a < b), "{name}: {regions:?}");
        assert!(regions[0] <= plan.region_bytes(&plan.footprints[0]), "{name}: {regions:?}");
        let schedule = plan::schedule(&rehearsal, FillRate::assumed());
        assert!(schedule.total_seconds <= 10 * 60, "{name}: {} s", schedule.total_seconds);
        assert_eq!(rehearsal.rehearsal(), rehearsal, "the smallest is the smallest");
    }
}

#[test]
fn the_footprint_holds_what_the_workloads_need_and_is_never_larger_than_the_plans() {
    let yaml = |footprints: &str, workload: &str| {
        format!(
            "name: x\ntarget: {{provider: local}}\nworkers: {{count: 2, vcpus: 1, memory: 8GiB, disks: 2}}\nfootprints: {footprints}\n\
             settle: 1h\nprecondition: 0s\nsample: 1h\nworkloads: [{workload}]\n"
        )
    };
    let regions = |yaml: &str| -> Vec<u64> {
        let rehearsal = read(yaml).rehearsal();
        assert_eq!((rehearsal.settle_seconds, rehearsal.precondition_seconds, rehearsal.sample_seconds), (1, 0, 3));
        rehearsal.footprints.iter().map(|footprint| rehearsal.region_bytes(footprint) / MIB).collect()
    };
    assert_eq!(regions(&yaml("[1GiB, 1TiB, 2TiB]", "4k-random-read")), [16, 32]);
    assert_eq!(regions(&yaml("[8MiB, 12MiB]", "4k-random-read")), [2, 3], "the plan's own are smaller");
    assert_eq!(regions(&yaml("[1TiB]", "4k-random-read")), [16]);
    let streams =
        "{name: s, block: 4MiB, pattern: sequential, streams: 16, read_percent: 100, outstanding_per_disk: 16}";
    assert_eq!(regions(&yaml("[1TiB]", streams)), [64], "each of 16 streams holds a block of 4 MiB");
    assert_eq!(regions(&yaml("[288MiB]", streams)), [64], "not the plan's 72 MiB");
}

#[test]
fn a_long_name_stays_within_its_bounds() {
    let name = "é".repeat(100);
    let rehearsal = TestPlan { name, ..read(plan::DEMO_PLAN) }.rehearsal();
    assert_eq!(rehearsal.name.chars().count(), 100);
}

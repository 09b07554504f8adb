//! From a plan's workload to what the workers are told.

use worker_protocol::{OnError, Pattern, Rate, SubRange, WorkloadSpec};

/// The workload as a worker gets it, for regions of `region_bytes`.
pub(crate) fn workload_spec(workload: &plan::Workload, region_bytes: u64) -> WorkloadSpec {
    WorkloadSpec {
        block_bytes: workload.block_bytes,
        pattern: pattern(workload.pattern),
        sub_range: workload.sub_range(region_bytes).map(|range| SubRange { start: range.start, end: range.end }),
        align_bytes: workload.align_bytes,
        read_percent: workload.read_percent,
        outstanding_per_disk: workload.outstanding_per_disk,
        rate: workload.rate.map(rate),
        compression_ratio: workload.compression_ratio,
        duplication_ratio: workload.duplication_ratio,
        flush_every_writes: workload.flush_every_writes,
        on_error: match workload.on_error {
            plan::OnError::Stop => OnError::Stop,
            plan::OnError::Continue => OnError::Continue,
            plan::OnError::StopAfter { errors } => OnError::StopAfter { errors: errors.into() },
        },
        stall_threshold_ms: Some(workload.stall_seconds.saturating_mul(1_000)),
    }
}

fn pattern(pattern: plan::AccessPattern) -> Pattern {
    match pattern {
        plan::AccessPattern::Random => Pattern::Random,
        plan::AccessPattern::Sequential { streams } => Pattern::Sequential { streams },
        plan::AccessPattern::Permutation => Pattern::Permutation,
        plan::AccessPattern::HotSpot { io_percent, space_percent } => Pattern::HotSpot { io_percent, space_percent },
    }
}

fn rate(rate: plan::Rate) -> Rate {
    let (iops, per_disk) = match rate.iops {
        plan::RateIops::IopsPerDisk(iops) => (iops, true),
        plan::RateIops::IopsPerWorker(iops) => (iops, false),
    };
    Rate { iops, per_disk, poisson: rate.poisson }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "name: x\ntarget: {provider: local}\nworkers: {count: 1, disks: 2}\nfootprints: [64MiB]\n\
                        precondition: 1s\nsample: 1s\nworkloads:\n  - ";

    fn told(workload: &str) -> WorkloadSpec {
        let plan = plan::parse("plan.yaml", &format!("{HEAD}{workload}"), &plan::Profiles::shipped()).unwrap();
        workload_spec(&plan.workloads[0], plan.region_bytes(&plan.footprints[0]))
    }

    #[test]
    fn every_field_of_a_plan_reaches_the_worker() {
        let yaml = "{name: all, block: 8KiB, pattern: hot-spot, hot_spot: {io_percent: 80, space_percent: 25}, \
                    range: {from_percent: 25, to_percent: 75}, align: 4KiB, read_percent: 60, outstanding_per_disk: 3, \
                    rate: {iops_per_worker: 500, poisson: true}, compression_ratio: 2.5, duplication_ratio: 1.5, \
                    flush_every_writes: 12, on_error: stop-after-4, stall_threshold: 6s}";
        let expected = WorkloadSpec {
            block_bytes: 8192,
            pattern: Pattern::HotSpot { io_percent: 80.0, space_percent: 25.0 },
            sub_range: Some(SubRange { start: 8 << 20, end: 24 << 20 }),
            align_bytes: Some(4096),
            read_percent: 60,
            outstanding_per_disk: 3,
            rate: Some(Rate { iops: 500.0, per_disk: false, poisson: true }),
            compression_ratio: 2.5,
            duplication_ratio: 1.5,
            flush_every_writes: Some(12),
            on_error: OnError::StopAfter { errors: 4 },
            stall_threshold_ms: Some(6_000),
        };
        assert_eq!(told(yaml), expected);
    }

    #[test]
    fn every_pattern_and_policy_reaches_the_worker() {
        let rest = "block: 4KiB, read_percent: 0, outstanding_per_disk: 1";
        let with = |more: &str| told(&format!("{{name: one, {rest}, {more}}}"));
        assert_eq!(with("pattern: random").pattern, Pattern::Random);
        assert_eq!(with("pattern: permutation").pattern, Pattern::Permutation);
        assert_eq!(with("pattern: sequential, streams: 5").pattern, Pattern::Sequential { streams: 5 });
        let plain = with("pattern: random");
        assert_eq!((plain.on_error, plain.rate, plain.sub_range, plain.align_bytes), (OnError::Stop, None, None, None));
        let going_on = with("pattern: random, on_error: continue, rate: {iops_per_disk: 7}");
        assert_eq!(going_on.on_error, OnError::Continue);
        assert_eq!(going_on.rate, Some(Rate { iops: 7.0, per_disk: true, poisson: false }));
    }
}

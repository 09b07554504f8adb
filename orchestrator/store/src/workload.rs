//! A case's workload as it is stored: the plan's workload as JSON, which an older program may have written without some fields.

use analysis::export::{HotSpot, Rate, RegionRange, WorkloadOptions};
use serde::Deserialize;

use crate::error::Fault;
use crate::rows::from_json;

/// What the evaluation and the export need of a workload.
#[derive(Debug, Deserialize)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) block_bytes: u64,
    pub(crate) pattern: Pattern,
    pub(crate) read_percent: u32,
    pub(crate) outstanding_per_disk: u32,
    #[serde(default)]
    rate: Option<StoredRate>,
    #[serde(default)]
    range: Option<RegionRange>,
    #[serde(default)]
    align_bytes: Option<u64>,
    #[serde(default = "one")]
    compression_ratio: f64,
    #[serde(default = "one")]
    duplication_ratio: f64,
    #[serde(default)]
    flush_every_writes: Option<u32>,
    #[serde(default)]
    on_error: OnError,
    #[serde(default = "one_second")]
    stall_seconds: u32,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Pattern {
    pub(crate) kind: String,
    #[serde(default)]
    streams: Option<u32>,
    #[serde(flatten)]
    hot_spot: Option<HotSpot>,
}

/// Exactly one of the two rates is there.
#[derive(Debug, Clone, Copy, Deserialize)]
struct StoredRate {
    #[serde(default)]
    iops_per_disk: Option<f64>,
    #[serde(default)]
    iops_per_worker: Option<f64>,
    #[serde(default)]
    poisson: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(tag = "policy", rename_all = "kebab-case")]
enum OnError {
    #[default]
    Stop,
    Continue,
    StopAfter {
        errors: u64,
    },
}

fn one() -> f64 {
    1.0
}

fn one_second() -> u32 {
    1
}

impl Workload {
    /// Reads `cases.workload_json`.
    pub(crate) fn of(json: &str) -> Result<Self, Fault> {
        from_json(json, "cases.workload_json")
    }

    /// Open loop, as the workers were told; none is a closed loop.
    pub(crate) fn wire_rate(&self) -> Option<worker_protocol::Rate> {
        let StoredRate { iops_per_disk, iops_per_worker, poisson } = self.rate?;
        let iops = iops_per_disk.or(iops_per_worker)?;
        Some(worker_protocol::Rate { iops, per_disk: iops_per_disk.is_some(), poisson })
    }

    /// What the export says beside block, pattern, mix and outstanding I/Os.
    pub(crate) fn options(&self) -> WorkloadOptions {
        let rate = self.wire_rate().map(|rate| Rate {
            iops: rate.iops,
            per: if rate.per_disk { "disk" } else { "worker" }.to_owned(),
            poisson: rate.poisson,
        });
        WorkloadOptions {
            streams: self.pattern.streams,
            hot_spot: self.pattern.hot_spot,
            range: self.range,
            align_bytes: self.align_bytes,
            rate,
            compression_ratio: self.compression_ratio,
            duplication_ratio: self.duplication_ratio,
            flush_every_writes: self.flush_every_writes,
            on_error: match self.on_error {
                OnError::Stop => "stop".to_owned(),
                OnError::Continue => "continue".to_owned(),
                OnError::StopAfter { errors } => format!("stop-after-{errors}"),
            },
            stall_seconds: self.stall_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every field of the plan's workload comes out again, as the plan writes it.
    #[test]
    fn a_plans_workload_is_read_back() {
        let planned = plan::Workload {
            name: "odd".into(),
            profile: None,
            block_bytes: 8192,
            pattern: plan::AccessPattern::HotSpot { io_percent: 90.0, space_percent: 10.0 },
            range: Some(plan::RegionRange { from_percent: 5.0, to_percent: 50.0 }),
            align_bytes: Some(4096),
            read_percent: 70,
            outstanding_per_disk: 4,
            rate: Some(plan::Rate { iops: plan::RateIops::IopsPerWorker(800.0), poisson: true }),
            compression_ratio: 2.0,
            duplication_ratio: 1.5,
            flush_every_writes: Some(9),
            on_error: plan::OnError::StopAfter { errors: 7 },
            stall_seconds: 3,
        };
        let read = |workload: &plan::Workload| Workload::of(&serde_json::to_string(workload).unwrap()).unwrap();
        let expected = WorkloadOptions {
            streams: None,
            hot_spot: Some(HotSpot { io_percent: 90.0, space_percent: 10.0 }),
            range: Some(RegionRange { from_percent: 5.0, to_percent: 50.0 }),
            align_bytes: Some(4096),
            rate: Some(Rate { iops: 800.0, per: "worker".into(), poisson: true }),
            compression_ratio: 2.0,
            duplication_ratio: 1.5,
            flush_every_writes: Some(9),
            on_error: "stop-after-7".into(),
            stall_seconds: 3,
        };
        assert_eq!(read(&planned).options(), expected);
        let streams = plan::Workload {
            pattern: plan::AccessPattern::Sequential { streams: 6 },
            rate: Some(plan::Rate { iops: plan::RateIops::IopsPerDisk(50.0), poisson: false }),
            on_error: plan::OnError::Continue,
            ..planned
        };
        let options = read(&streams).options();
        assert_eq!((options.streams, options.hot_spot, options.on_error.as_str()), (Some(6), None, "continue"));
        let rate = read(&streams).wire_rate();
        assert_eq!(rate, Some(worker_protocol::Rate { iops: 50.0, per_disk: true, poisson: false }));
    }

    #[test]
    fn what_the_first_program_wrote_is_read() {
        let first = r#"{"name":"x","block_bytes":4096,"pattern":{"kind":"random"},"read_percent":100,"outstanding_per_disk":2,
            "rate":{"iops_per_disk":10.0,"poisson":false},"compression_ratio":1.0,"duplication_ratio":1.0,"flush_every_writes":null}"#;
        let options = Workload::of(first).unwrap().options();
        assert_eq!((options.on_error.as_str(), options.stall_seconds, options.range), ("stop", 1, None));
        assert_eq!(options.rate.unwrap().iops, 10.0);
    }
}

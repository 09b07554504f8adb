//! Throughput from counts, and Little's law.

/// Bytes a MiB.
const MIB: f64 = 1_048_576.0;

/// MiB a second: iops × block / 2^20.
#[must_use]
pub fn mib_per_s(iops: f64, block_bytes: u64) -> f64 {
    iops * to_f64(block_bytes) / MIB
}

/// Little's law, L = λ × W: the mean number of I/Os in flight, from I/Os a second and their mean latency (µs).
#[must_use]
pub fn outstanding(iops: f64, mean_latency_us: f64) -> f64 {
    iops * mean_latency_us / 1e6
}

/// count / seconds.
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    to_f64(count) / seconds
}

/// Bytes as MiB.
pub(crate) fn mib(bytes: u64) -> f64 {
    to_f64(bytes) / MIB
}

/// A count as a float.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts below 2^53 are exact; beyond, 15 digits are enough for a figure"
)]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

//! Totals of one operation with their latencies decoded and checked, and the figures made from them.

use latency_histogram::{BlobError, Exact, Latencies};
use worker_protocol::{OpTotals, Ops as WireOps, Sample};

use crate::{export, throughput};

/// The largest count that is taken from a worker for one disk or one second: 17 million I/Os a second for 11 days. Beyond it the
/// numbers are refused, so that sums over a fleet stay inside 64 bits.
pub const MAX_COUNT: u64 = 1 << 44;

/// The largest sum of latencies (ns) or bytes that is taken from a worker for one disk or one second: 36 years, or 1 EiB.
pub const MAX_SUM: u64 = 1 << 60;

/// Reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

impl std::fmt::Display for OpKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "reads",
            Self::Write => "writes",
        })
    }
}

/// What a worker's totals are about; names them in an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// One disk over the window.
    Disk(String),
    /// One disk over the window, timed from submission (open loop).
    DiskService(String),
    /// All disks in the sample of this number.
    Sample(u64),
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Disk(serial) => write!(f, "disk {serial}"),
            Self::DiskService(serial) => write!(f, "disk {serial} (service time)"),
            Self::Sample(number) => write!(f, "sample {number}"),
        }
    }
}

/// A worker's numbers contradict themselves.
#[derive(Debug, thiserror::Error)]
#[error("worker {worker}, {part}, {op}: {contradiction}")]
pub struct TotalsError {
    /// Name of the worker.
    pub worker: String,
    /// Disk or sample.
    pub part: Part,
    /// Operation.
    pub op: OpKind,
    /// What is wrong.
    pub contradiction: Contradiction,
}

/// What is wrong with totals.
#[derive(Debug, thiserror::Error)]
pub enum Contradiction {
    /// The histogram is none of ours or does not hold `count` latencies.
    #[error(transparent)]
    Histogram(#[from] BlobError),
    /// A number beyond its limit.
    #[error("{field} is {found}; at most {limit} is taken")]
    TooLarge {
        /// Field of `OpTotals`.
        field: &'static str,
        /// Its value.
        found: u64,
        /// [`MAX_COUNT`] or [`MAX_SUM`].
        limit: u64,
    },
    /// Bytes are not count × block.
    #[error("{count} I/Os of {block_bytes} bytes cannot have moved {bytes} bytes")]
    Bytes {
        /// I/Os.
        count: u64,
        /// Bytes an I/O.
        block_bytes: u64,
        /// Bytes said to be moved.
        bytes: u64,
    },
    /// The sum lies outside count × minimum to count × maximum.
    #[error("latencies from {min_ns} to {max_ns} ns of {count} I/Os cannot sum to {sum_ns} ns")]
    Sum {
        /// I/Os.
        count: u64,
        /// Sum, ns.
        sum_ns: u64,
        /// Smallest, ns.
        min_ns: u64,
        /// Largest, ns.
        max_ns: u64,
    },
}

/// Totals of one operation, with its latencies.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Totals {
    /// Latencies of the I/Os that completed well.
    pub latencies: Latencies,
    /// Bytes that they moved.
    pub bytes: u64,
    /// I/Os that failed or were short; not among the latencies.
    pub errors: u64,
}

impl Totals {
    /// Decodes and checks a worker's totals. `block_bytes` is the size of each I/O, where all have the same.
    ///
    /// # Errors
    /// [`Contradiction`] where the numbers cannot be true together.
    pub fn decode(wire: &OpTotals, block_bytes: Option<u64>) -> Result<Self, Contradiction> {
        check_limits(wire)?;
        check_bytes(wire, block_bytes)?;
        let exact = Exact {
            count: wire.count,
            sum_ns: wire.sum_ns,
            min_ns: wire.min_ns,
            max_ns: wire.max_ns,
            over_range: wire.over_range,
        };
        let latencies = Latencies::decode(&wire.histogram, exact)?;
        check_sum(wire)?;
        Ok(Self { latencies, bytes: wire.bytes, errors: wire.errors })
    }

    /// The totals as a worker sends them, and as the store keeps them.
    #[must_use]
    pub fn encode(&self) -> OpTotals {
        let Exact { count, sum_ns, min_ns, max_ns, over_range } = self.latencies.exact();
        let (bytes, errors, histogram) = (self.bytes, self.errors, self.latencies.encode());
        OpTotals { count, bytes, errors, sum_ns, min_ns, max_ns, over_range, histogram }
    }

    /// Adds all of another's I/Os.
    pub fn merge(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.errors = self.errors.saturating_add(other.errors);
    }

    /// Figures over `seconds`; none where there was no I/O, or no time.
    #[must_use]
    pub fn figures(&self, seconds: f64) -> Option<export::Op> {
        let exact = self.latencies.exact();
        if seconds <= 0.0 || (exact.count == 0 && self.errors == 0) {
            return None;
        }
        Some(export::Op {
            count: exact.count,
            bytes: self.bytes,
            iops: throughput::per_second(exact.count, seconds),
            mib_per_s: throughput::mib(self.bytes) / seconds,
            errors: self.errors,
            over_range: exact.over_range,
            latency_us: latency_figures(&self.latencies),
        })
    }

    /// Figures of one second; none where no I/O completed well.
    #[must_use]
    pub fn second(&self) -> Option<export::SecondOp> {
        let latency = latency_figures(&self.latencies)?;
        Some(export::SecondOp {
            iops: throughput::per_second(self.latencies.count(), 1.0),
            mib_per_s: throughput::mib(self.bytes),
            mean_us: latency.mean,
            p50_us: latency.p50,
            p99_us: latency.p99,
            max_us: latency.max,
        })
    }
}

/// Reads and writes, decoded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadWrite {
    /// Reads.
    pub read: Totals,
    /// Writes.
    pub write: Totals,
}

impl ReadWrite {
    /// Decodes and checks both of a worker's operations.
    ///
    /// # Errors
    /// [`TotalsError`] that names worker, disk or sample, and operation.
    pub fn decode(wire: &WireOps, block_bytes: Option<u64>, worker: &str, part: &Part) -> Result<Self, TotalsError> {
        let one = |totals, op| {
            Totals::decode(totals, block_bytes).map_err(|contradiction| TotalsError {
                worker: worker.to_owned(),
                part: part.clone(),
                op,
                contradiction,
            })
        };
        Ok(Self { read: one(&wire.read, OpKind::Read)?, write: one(&wire.write, OpKind::Write)? })
    }

    /// Both as a worker sends them, and as the store keeps them.
    #[must_use]
    pub fn encode(&self) -> WireOps {
        WireOps { read: self.read.encode(), write: self.write.encode() }
    }

    /// Adds all of another's I/Os.
    pub fn merge(&mut self, other: &Self) {
        self.read.merge(&other.read);
        self.write.merge(&other.write);
    }

    /// Figures over `seconds`; `all` is from the merged histograms of both.
    #[must_use]
    pub fn figures(&self, seconds: f64) -> export::Ops {
        let mut all = self.read.clone();
        all.merge(&self.write);
        export::Ops { read: self.read.figures(seconds), write: self.write.figures(seconds), all: all.figures(seconds) }
    }
}

/// Checks a sample before it is stored.
///
/// # Errors
/// [`TotalsError`] where its numbers cannot be true together.
pub fn check_sample(worker: &str, sample: &Sample, block_bytes: u64) -> Result<(), TotalsError> {
    ReadWrite::decode(&sample.ops, Some(block_bytes), worker, &Part::Sample(sample.number)).map(|_| ())
}

fn check_limits(wire: &OpTotals) -> Result<(), Contradiction> {
    let limits = [
        ("count", wire.count, MAX_COUNT),
        ("errors", wire.errors, MAX_COUNT),
        ("bytes", wire.bytes, MAX_SUM),
        ("sum_ns", wire.sum_ns, MAX_SUM),
        ("max_ns", wire.max_ns, MAX_SUM),
    ];
    match limits.into_iter().find(|(_, found, limit)| found > limit) {
        Some((field, found, limit)) => Err(Contradiction::TooLarge { field, found, limit }),
        None => Ok(()),
    }
}

fn check_bytes(wire: &OpTotals, block_bytes: Option<u64>) -> Result<(), Contradiction> {
    let OpTotals { count, bytes, .. } = *wire;
    match block_bytes {
        Some(block_bytes) if u128::from(count) * u128::from(block_bytes) != u128::from(bytes) => {
            Err(Contradiction::Bytes { count, block_bytes, bytes })
        }
        _ => Ok(()),
    }
}

fn check_sum(wire: &OpTotals) -> Result<(), Contradiction> {
    let OpTotals { count, sum_ns, min_ns, max_ns, .. } = *wire;
    let times = |latency: u64| u128::from(count) * u128::from(latency);
    if count > 0 && !(times(min_ns)..=times(max_ns)).contains(&u128::from(sum_ns)) {
        return Err(Contradiction::Sum { count, sum_ns, min_ns, max_ns });
    }
    Ok(())
}

fn latency_figures(latencies: &Latencies) -> Option<export::Latency> {
    let percentile = |percent| latencies.percentile_ns(percent).map(micros);
    Some(export::Latency {
        mean: latencies.mean_ns()? / 1e3,
        min: micros(latencies.min_ns()?),
        p50: percentile(50.0)?,
        p90: percentile(90.0)?,
        p95: percentile(95.0)?,
        p99: percentile(99.0)?,
        p99_9: percentile(99.9)?,
        p99_99: percentile(99.99)?,
        max: micros(latencies.max_ns()?),
    })
}

/// ns as µs.
pub(crate) fn micros(ns: u64) -> f64 {
    throughput::to_f64(ns) / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(latencies: &[u64]) -> Totals {
        let mut totals = Totals::default();
        for &latency in latencies {
            totals.latencies.record(latency);
            totals.bytes += 4096;
        }
        totals
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let kept = Totals { errors: 3, ..totals(&[1_000, 2_000_000, 700_000_000_000]) };
        assert_eq!(Totals::decode(&kept.encode(), Some(4096)).unwrap(), kept);
        assert_eq!(Totals::decode(&OpTotals::default(), Some(4096)).unwrap(), Totals::default());
    }

    #[test]
    fn a_contradiction_names_worker_disk_and_operation() {
        let good = totals(&[1_000, 3_000]).encode();
        type Break = fn(&mut OpTotals);
        let broken: [(Break, &str); 6] = [
            (|totals| (totals.count, totals.bytes) = (3, 3 * 4096), "3 latencies"),
            (|totals| totals.bytes = 4096, "2 I/Os of 4096 bytes cannot have moved 4096 bytes"),
            (|totals| totals.sum_ns = 7_000, "cannot sum to 7000 ns"),
            (|totals| totals.min_ns = 9_000, "contradict each other"),
            (|totals| totals.errors = u64::MAX, "errors is 18446744073709551615; at most"),
            (|totals| totals.histogram = vec![1, 2, 3], "not an HdrHistogram V2 deflate blob"),
        ];
        for (break_it, text) in broken {
            let mut wire = WireOps { read: good.clone(), write: good.clone() };
            break_it(&mut wire.write);
            let error = ReadWrite::decode(&wire, Some(4096), "w2", &Part::Disk("d7".into())).unwrap_err().to_string();
            assert!(error.starts_with("worker w2, disk d7, writes: "), "{error}");
            assert!(error.contains(text), "{error} should say {text}");
        }
    }

    #[test]
    fn errors_alone_are_figures_without_latencies() {
        let failed = Totals { errors: 5, ..Totals::default() };
        let op = failed.figures(10.0).unwrap();
        assert_eq!((op.count, op.errors, op.latency_us), (0, 5, None));
        assert_eq!(Totals::default().figures(10.0), None);
        assert_eq!(failed.second(), None);
    }

    #[test]
    fn all_is_the_merge_of_reads_and_writes() {
        let both = ReadWrite { read: totals(&[1_000; 99]), write: totals(&[9_000_000]) };
        let ops = both.figures(2.0);
        let all = ops.all.unwrap();
        assert_eq!((all.count, all.iops), (100, 50.0));
        let latency = all.latency_us.unwrap();
        assert_eq!((latency.min, latency.max), (1.0, 9_000.0));
        assert!((latency.mean - (99.0 + 9_000.0) / 100.0).abs() < 1e-9);
        assert!(latency.p99 < 1.01, "the 99th of 100 is a read: {}", latency.p99);
    }
}

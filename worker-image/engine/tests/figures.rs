//! Figures against independent arithmetic: percentiles, exported histograms, data reduction, rates.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail")]

mod support;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::{Compression, write::ZlibEncoder};
use latency_histogram::{Latencies, bucket_width_ns};
use load_engine::{Pattern, Rate, Workload};
use support::{TestDisk, fill_job, load_job, run_whole};

const MIB: u64 = 1 << 20;
const PERCENTS: [f64; 8] = [0.0, 50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0];

/// The value of rank ⌈percent / 100 × count⌉ in a sorted list.
fn nearest_rank(sorted: &[u64], percent: f64) -> u64 {
    of_rank(sorted, (exact_rank(sorted, percent) - 1e-9).ceil())
}

/// The value of the rank that PyPI's hdrhistogram means: percent / 100 × count, rounded to the nearest.
fn rounded_rank(sorted: &[u64], percent: f64) -> u64 {
    of_rank(sorted, (exact_rank(sorted, percent) + 0.5).floor())
}

fn exact_rank(sorted: &[u64], percent: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    let rank = percent * sorted.len() as f64 / 100.0;
    rank
}

fn of_rank(sorted: &[u64], rank: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number, clamped")]
    let rank = (rank as usize).clamp(1, sorted.len());
    sorted[rank - 1]
}

/// A run with all its latencies: the merged histogram of the window, and the sorted list of the same I/Os.
fn measured() -> (Latencies, Vec<u64>) {
    let (one, other) = (TestDisk::new(8 * MIB), TestDisk::new(8 * MIB));
    let disks = vec![one.spec("one"), other.spec("other")];
    run_whole(fill_job(disks.clone()));
    let mut job = load_job(disks, Workload { outstanding: 4, ..Workload::default() }, 1, 2);
    job.threads = 2;
    job.tuning.trace_ios = 2_000_000;
    let outcome = run_whole(job).outcome;
    let mut merged = Latencies::new();
    outcome.disks.iter().for_each(|disk| merged.merge(&disk.ops.read.latencies));
    let window = 1_000_000_000..3_000_000_000_u64;
    let traced = outcome.trace.iter().filter(|io| window.contains(&io.completed_ns));
    let mut sorted: Vec<u64> = traced.map(|io| io.completed_ns - io.issued_ns).collect();
    sorted.sort_unstable();
    (merged, sorted)
}

#[test]
fn percentiles_are_those_of_the_sorted_list_and_of_other_peoples_reader() {
    let (merged, sorted) = measured();
    assert_eq!(merged.count(), sorted.len() as u64, "histogram and list hold the same I/Os");
    assert!(sorted.len() > 1000);
    assert_eq!(merged.exact().sum_ns, sorted.iter().sum::<u64>());
    assert_eq!(merged.min_ns(), sorted.first().copied());
    assert_eq!(merged.max_ns(), sorted.last().copied());
    for percent in PERCENTS {
        let (got, truth) = (merged.percentile_ns(percent).unwrap(), nearest_rank(&sorted, percent));
        assert!(got.abs_diff(truth) <= bucket_width_ns(truth), "p{percent}: {got} ns, in the list {truth} ns");
    }
    let Some(python) = python() else { return };
    for (percent, theirs) in PERCENTS.iter().zip(read_in_python(&python, &merged.encode())) {
        let truth = rounded_rank(&sorted, *percent);
        assert!(
            theirs.abs_diff(truth) <= bucket_width_ns(truth),
            "p{percent}: {theirs} ns in Python, in the list {truth} ns"
        );
    }
}

/// The tests' Python with PyPI's hdrhistogram; none, with the reason printed, where `tests/run` has not made it.
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/.venv/bin/python");
    let works = Command::new(&python).args(["-c", "import hdrh.histogram"]).stderr(Stdio::null()).status();
    if works.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    println!("skipped: {} has no hdrhistogram", python.display());
    None
}

/// The percentiles that PyPI's hdrhistogram finds in a blob.
fn read_in_python(python: &Path, blob: &[u8]) -> Vec<u64> {
    let script = "import sys, base64\n\
        from hdrh.histogram import HdrHistogram\n\
        histogram = HdrHistogram.decode(base64.b64encode(sys.stdin.buffer.read()))\n\
        print(*[histogram.get_value_at_percentile(float(p)) for p in sys.argv[1:]])";
    let percents = PERCENTS.map(|percent| percent.to_string());
    let mut child = Command::new(python)
        .args(["-c", script])
        .args(percents)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(blob).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(|value| value.parse().unwrap()).collect()
}

/// The blocks that a load wrote to an empty file, each at most once.
fn written(block_bytes: u64, compression_ratio: f64, duplication_ratio: f64) -> Vec<Vec<u8>> {
    let disk = TestDisk::new(6_000 * block_bytes);
    let rate = Some(Rate { iops: 5000.0, per_disk: true, poisson: false });
    let workload = Workload {
        block_bytes,
        pattern: Pattern::Permutation,
        read_percent: 0,
        outstanding: 8,
        rate,
        compression_ratio,
        duplication_ratio,
        ..Workload::default()
    };
    run_whole(load_job(vec![disk.spec("disk")], workload, 0, 1));
    let bytes = std::fs::read(&disk.path).unwrap();
    let blocks = bytes.chunks(usize::try_from(block_bytes).unwrap());
    let blocks: Vec<Vec<u8>> = blocks.filter(|block| block.iter().any(|&byte| byte != 0)).map(<[u8]>::to_vec).collect();
    assert!(blocks.len() > 2000, "only {} blocks written", blocks.len());
    blocks
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn ratio(part: usize, whole: usize) -> f64 {
    whole as f64 / part as f64
}

fn compressed(bytes: &[u8]) -> usize {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap().len()
}

#[test]
fn what_was_written_compresses_as_asked() {
    for (block_bytes, asked) in [(4096, 1.0), (4096, 2.0), (32_768, 2.0), (32_768, 4.0)] {
        let blocks = written(block_bytes, asked, 1.0);
        let sizes: usize = blocks.iter().take(500).map(|block| compressed(block)).sum();
        let found = ratio(sizes, 500 * usize::try_from(block_bytes).unwrap());
        assert!((found / asked - 1.0).abs() < 0.05, "{block_bytes} byte blocks compress {found} to 1, asked {asked}");
        // Neighbours in one window of a compressor do not help it.
        let together = compressed(&blocks[..32].concat());
        let found = ratio(together, 32 * usize::try_from(block_bytes).unwrap());
        assert!((found / asked - 1.0).abs() < 0.05, "32 blocks together compress {found} to 1, asked {asked}");
    }
}

#[test]
fn what_was_written_repeats_as_asked() {
    for asked in [1.0, 2.0, 4.0] {
        let blocks = written(8192, 1.0, asked);
        let mut copies = HashMap::<&[u8], usize>::new();
        let mut granules = HashMap::<&[u8], usize>::new();
        for block in &blocks {
            *copies.entry(block).or_default() += 1;
            block.chunks(4096).for_each(|granule| *granules.entry(granule).or_default() += 1);
        }
        for (what, found) in [
            ("blocks", ratio(copies.len(), blocks.len())),
            ("granules of 4 KiB", ratio(granules.len(), 2 * blocks.len())),
        ] {
            assert!((found / asked - 1.0).abs() < 0.02, "{what}: each is there {found} times, asked {asked}");
        }
    }
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let disk = TestDisk::new(8 * MIB);
    run_whole(fill_job(vec![disk.spec("disk")]));
    for (iops, poisson) in [(100.0, false), (2000.0, false), (2000.0, true)] {
        let rate = Some(Rate { iops, per_disk: true, poisson });
        let workload = Workload { rate, outstanding: 64, ..Workload::default() };
        let outcome = run_whole(load_job(vec![disk.spec("disk")], workload, 0, 2)).outcome;
        let pacing = outcome.disks[0].pacing.unwrap();
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let intended = pacing.intended as f64 / 2.0;
        // A Poisson count of 4,000 has a standard deviation of 1.6 %.
        let tolerance = if poisson { 0.07 } else { 0.001 };
        assert!((intended / iops - 1.0).abs() <= tolerance, "{intended} intended a second, asked {iops}");
        let done = outcome.disks[0].ops.read.count + outcome.disks[0].unfinished + pacing.missed;
        assert!(done.abs_diff(pacing.intended) <= 1, "{done} of {pacing:?}");
    }
}

#[test]
fn a_rate_of_the_job_is_divided_among_its_disks_and_threads() {
    let (one, other) = (TestDisk::new(8 * MIB), TestDisk::new(8 * MIB));
    let rate = Some(Rate { iops: 1000.0, per_disk: false, poisson: false });
    let workload = Workload { rate, outstanding: 8, ..Workload::default() };
    let mut job = load_job(vec![one.spec("one"), other.spec("other")], workload, 0, 1);
    job.threads = 4;
    let outcome = run_whole(job).outcome;
    for disk in &outcome.disks {
        assert_eq!(disk.pacing.unwrap().intended, 500, "{:?}", disk.pacing);
    }
}

#[test]
fn rates_up_to_100000_iops_are_kept_to_a_percent() {
    let disk = TestDisk::new(MIB);
    for iops in [100.0, 10_000.0, 100_000.0] {
        let rate = Some(Rate { iops, per_disk: true, poisson: false });
        let workload = Workload { rate, outstanding: 1024, ..Workload::default() };
        let mut job = load_job(vec![disk.spec("disk")], workload, 0, 2);
        // A device that is always fast enough.
        job.tuning.nop = true;
        // Another process may take the CPU for a moment at the window's end; three windows are enough to find one without.
        let mut found = Vec::new();
        let kept = (0..3).any(|_| {
            #[expect(clippy::cast_precision_loss, reason = "a small count")]
            let done = run_whole(job.clone()).outcome.disks[0].ops.read.count as f64 / 2.0;
            found.push(done);
            (done / iops - 1.0).abs() <= 0.01
        });
        assert!(kept, "{found:?} I/Os a second, asked {iops}");
    }
}

#[test]
fn a_mix_holds_to_a_tenth_of_a_percent_with_a_disk_on_two_threads() {
    let disk = TestDisk::new(MIB);
    let workload = Workload { read_percent: 70, outstanding: 32, ..Workload::default() };
    let mut job = load_job(vec![disk.spec("disk")], workload, 0, 2);
    (job.threads, job.tuning.nop) = (2, true);
    let ops = run_whole(job).outcome.disks.remove(0).ops;
    let all = ops.read.count + ops.write.count;
    assert!(all > 700_000, "only {all} I/Os: the decks under way at the end would show");
    assert!((ops.read.count * 1000).abs_diff(all * 700) <= all, "{} reads of {all}", ops.read.count);
}

#[test]
fn an_open_loop_in_time_is_not_judged_by_its_polling() {
    let disk = TestDisk::new(MIB);
    let rate = Some(Rate { iops: 50_000.0, per_disk: true, poisson: false });
    let mut job = load_job(vec![disk.spec("disk")], Workload { rate, outstanding: 64, ..Workload::default() }, 0, 1);
    job.tuning.nop = true;
    // Another process may take the CPU, so that the load is late indeed or the thread not busy: those windows show nothing.
    let mut shown = 0;
    for _ in 0..4 {
        let outcome = run_whole(job.clone()).outcome;
        let pacing = outcome.disks[0].pacing.unwrap();
        if outcome.thread_cpu[0] > 0.9 && (pacing.late + pacing.missed) * 100 <= pacing.intended {
            shown += 1;
            assert!(!outcome.warnings.iter().any(|one| one.contains("the generator limits")), "{:?}", outcome.warnings);
        }
    }
    println!("{shown} windows were polled through and in time");
}

#[test]
fn cpu_time_of_kernel_workers_is_counted_at_the_end_of_each_job() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: no /dev/shm");
        return;
    };
    let job_on = |number: u32| {
        let path = directory.path().join(number.to_string());
        std::fs::File::create(&path).unwrap().set_len(MIB).unwrap();
        let spec = support::disk("disk", &path, MIB);
        run_whole(fill_job(vec![spec.clone()]));
        let rate = Some(Rate { iops: 1000.0, per_disk: true, poisson: false });
        load_job(vec![spec], Workload { rate, outstanding: 4, ..Workload::default() }, 0, 1)
    };
    let running: Vec<_> =
        (0..8).map(job_on).map(|job| std::thread::spawn(move || run_whole(job).outcome.io_wq_cpu)).collect();
    let used: Vec<f64> = running.into_iter().map(|job| job.join().unwrap()).collect();
    if used.iter().all(|&cpu| cpu == 0.0) {
        println!("skipped: this kernel reads from /dev/shm inline");
        return;
    }
    assert!(used.iter().all(|&cpu| cpu > 0.0), "{used:?}");
}

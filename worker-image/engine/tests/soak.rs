//! Random jobs one after another: no panic, no hang, no leak, and the invariants hold in each.
//!
//! `LOAD_ENGINE_SOAK_SECONDS` sets the length (default 8 s), `LOAD_ENGINE_SOAK_SEED` the first seed; a failure names its seed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail")]

mod support;

use std::time::{Duration, Instant};

use load_engine::{
    Event, FillSpec, Job, LoadSpec, OnError, OpTotals, Outcome, Pattern, Phase, Rate, Second, Tuning, VerifySpec, Work,
    Workload, prepare,
};
use support::TestDisk;

const MIB: u64 = 1 << 20;

/// SplitMix64: the tests' own, so that they do not lean on the engine's.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % sides
    }

    fn u32(&mut self, from: u32, to: u32) -> u32 {
        from + u32::try_from(self.roll(u64::from(to - from) + 1)).unwrap()
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.roll(one_in) == 0
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.roll(of.len() as u64)).unwrap()].clone()
    }
}

fn workload(dice: &mut Dice) -> Workload {
    let pattern = match dice.roll(4) {
        0 => Pattern::Random,
        1 => Pattern::Sequential { streams: dice.u32(1, 9) },
        2 => Pattern::Permutation,
        _ => Pattern::HotSpot { io_percent: f64::from(dice.u32(0, 100)), space_percent: f64::from(dice.u32(1, 99)) },
    };
    let rate = dice.chance(3).then(|| Rate {
        iops: f64::from(dice.u32(1, 200_000)),
        per_disk: dice.chance(2),
        poisson: dice.chance(2),
    });
    Workload {
        block_bytes: dice.pick(&[512, 1024, 4096, 8192, 12_288, 65_536, 262_144, MIB, 1000]),
        pattern,
        sub_range: dice.chance(4).then_some(MIB..2 * MIB),
        align_bytes: dice.chance(4).then(|| dice.pick(&[512, 4096, 65_536])),
        read_percent: dice.pick(&[0, 1, 30, 50, 70, 99, 100]),
        outstanding: dice.pick(&[1, 2, 3, 8, 32, 100]),
        rate,
        compression_ratio: dice.pick(&[1.0, 1.5, 2.0, 10.0]),
        duplication_ratio: dice.pick(&[1.0, 1.2, 2.0, 5.0]),
        flush_every_writes: dice.chance(4).then(|| dice.u32(1, 50)),
        on_error: dice.pick(&[OnError::Stop, OnError::Continue, OnError::StopAfter { errors: 3 }]),
        stall_threshold: Duration::from_millis(100),
    }
}

fn random_job(dice: &mut Dice, disks: &[TestDisk]) -> Job {
    let count = usize::try_from(dice.roll(disks.len() as u64)).unwrap() + 1;
    let specs = (0_u64..).zip(&disks[..count]).map(|(number, disk)| disk.spec(&format!("disk-{number}"))).collect();
    let work = match dice.roll(6) {
        0 => Work::Fill(FillSpec {
            block_bytes: dice.pick(&[4096, 65_536, MIB, 3 * MIB]),
            outstanding: dice.u32(1, 16),
            zero: dice.chance(3),
        }),
        1 => Work::Verify(VerifySpec {
            blocks: dice.u32(1, 500),
            block_bytes: dice.pick(&[512, 4096, 65_536]),
            zero: dice.chance(3),
        }),
        _ => Work::Load(LoadSpec {
            workload: workload(dice),
            precondition_seconds: dice.u32(0, 1),
            sample_seconds: dice.u32(1, 2),
        }),
    };
    let tuning = Tuning {
        reissue_batch: dice.pick(&[1, 4, 16, 256]),
        stamp_each: dice.chance(3),
        first_rung: dice.u32(0, 4),
        register_buffers: !dice.chance(3),
        direct: !dice.chance(3),
        trace_ios: dice.pick(&[0, 1000]),
        nop: dice.chance(10),
        ..Tuning::default()
    };
    Job { disks: specs, threads: dice.u32(1, 5), work, seed: dice.roll(u64::MAX), own_kernel: false, tuning }
}

fn add(total: &mut OpTotals, part: &OpTotals) {
    total.count += part.count;
    total.bytes += part.bytes;
    total.errors += part.errors;
    total.latencies.merge(&part.latencies);
}

/// Seconds and totals hold the same I/Os.
fn check(job: &Job, seconds: &[Second], outcome: &Outcome) {
    assert_eq!(outcome.disks.len(), job.disks.len());
    assert_eq!(outcome.complete, outcome.reason.is_none());
    if !matches!(job.work, Work::Load(_)) {
        return;
    }
    let (mut told, mut totals) =
        ((OpTotals::default(), OpTotals::default()), (OpTotals::default(), OpTotals::default()));
    for second in seconds.iter().filter(|second| second.phase == Phase::Sample) {
        add(&mut told.0, &second.ops.read);
        add(&mut told.1, &second.ops.write);
    }
    for disk in &outcome.disks {
        add(&mut totals.0, &disk.ops.read);
        add(&mut totals.1, &disk.ops.write);
        if let Some(service) = &disk.service {
            assert_eq!(service.read.latencies.count(), disk.ops.read.count);
            assert_eq!(service.write.latencies.count(), disk.ops.write.count);
        }
    }
    assert_eq!(told, totals);
    let numbers: Vec<(Phase, u32)> = seconds.iter().map(|second| (second.phase, second.index)).collect();
    assert!(
        numbers.windows(2).all(|pair| pair[0] != pair[1] && (pair[1].1 == pair[0].1 + 1 || pair[1].1 == 0)),
        "{numbers:?}"
    );
}

#[test]
fn random_jobs_never_panic_hang_or_leak() {
    let variable =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default);
    let end = Instant::now() + Duration::from_secs(variable("LOAD_ENGINE_SOAK_SECONDS", 8));
    let disks: Vec<TestDisk> = (0..3).map(|_| TestDisk::new(4 * MIB)).collect();
    let (mut ran, mut refused, mut before) = (0, 0, None);
    for seed in variable("LOAD_ENGINE_SOAK_SEED", 1).. {
        if Instant::now() > end && ran > 0 {
            break;
        }
        println!("seed {seed}");
        let mut dice = Dice(seed);
        let job = random_job(&mut dice, &disks);
        let Ok(prepared) = prepare(job.clone()) else {
            refused += 1;
            continue;
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        let started = Instant::now();
        let running = prepared.start(Instant::now() + Duration::from_millis(dice.roll(10)), sender);
        if !dice.chance(5) {
            // Most are ended early, at any moment.
            std::thread::sleep(Duration::from_millis(dice.roll(400)));
            running.stop();
        }
        let outcome = running.join();
        assert!(started.elapsed() < Duration::from_secs(20), "{job:?} took {:?}", started.elapsed());
        let seconds: Vec<Second> = receiver
            .iter()
            .filter_map(|event| if let Event::Second(second) = event { Some(*second) } else { None })
            .collect();
        check(&job, &seconds, &outcome);
        ran += 1;
        if ran == 10 {
            before = Some(resources());
        }
    }
    println!("{ran} jobs ran, {refused} were refused");
    let Some(before) = before else { return };
    let deadline = Instant::now() + Duration::from_secs(5);
    // The kernel frees rings a moment after they are closed.
    while resources().0 > before.0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let after = resources();
    assert!(after.0 <= before.0, "{} files and threads after ten jobs, {} at the end", before.0, after.0);
    assert!(after.1 < before.1 + 64 * MIB, "{} bytes resident after ten jobs, {} at the end", before.1, after.1);
}

/// Open files and threads together, and resident bytes.
fn resources() -> (usize, u64) {
    let count = |path: &str| std::fs::read_dir(path).unwrap().count();
    (count("/proc/self/fd") + count("/proc/self/task"), support::resident_bytes())
}

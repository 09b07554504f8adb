//! A fleet that is only numbers: it knows each of its I/Os, so that what is merged can be held against a sorted list.

use std::collections::BTreeSet;

use analysis::Evaluation;
use analysis::case::{
    CaseInput, CaseResult, Ending, SecondMark, WorkerClock, WorkerFinished, WorkerInput, WorkerSecond,
};
use analysis::totals::{ReadWrite, Totals};
use worker_protocol::{DiskFinished, Pacing, Phase};

pub(crate) const BLOCK_BYTES: u64 = 4096;
pub(crate) const PRECONDITION_SECONDS: u32 = 2;
pub(crate) const SAMPLE_SECONDS: u32 = 6;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
/// The start on each worker's clock.
pub(crate) const START_AT_NS: u64 = 50 * SECOND_NS;

/// One I/O.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Io {
    pub(crate) disk: usize,
    pub(crate) write: bool,
    pub(crate) latency_ns: u64,
}

/// The I/Os of one worker, by second of the window.
#[derive(Debug, Clone)]
pub(crate) struct FakeWorker {
    pub(crate) name: String,
    pub(crate) disks: usize,
    pub(crate) seconds: Vec<Vec<Io>>,
}

impl FakeWorker {
    /// A worker of two disks whose latencies lie around `typical_ns`, with a tail; the same for the same `seed`.
    pub(crate) fn new(name: &str, seed: u64, typical_ns: u64, ios_a_second: usize) -> Self {
        let mut random = Random(seed);
        let mut io = || {
            let tail = if random.below(100) == 0 { 40 } else { 1 };
            let latency_ns = typical_ns / 2 + random.below(typical_ns) * tail;
            let disk = usize::from(random.below(2) == 1);
            Io { disk, write: random.below(10) < 3, latency_ns }
        };
        let seconds = (0..SAMPLE_SECONDS).map(|_| (0..ios_a_second).map(|_| io()).collect()).collect();
        Self { name: name.into(), disks: 2, seconds }
    }

    /// All latencies of the seconds, sorted.
    pub(crate) fn latencies(&self, seconds: impl Fn(u32) -> bool) -> Vec<u64> {
        let kept = (0..).zip(&self.seconds).filter(|(second, _)| seconds(*second));
        kept.flat_map(|(_, ios)| ios.iter().map(|io| io.latency_ns)).collect()
    }

    fn totals(ios: impl Iterator<Item = Io>) -> ReadWrite {
        let mut totals = ReadWrite::default();
        for io in ios {
            let side: &mut Totals = if io.write { &mut totals.write } else { &mut totals.read };
            side.latencies.record(io.latency_ns);
            side.bytes += BLOCK_BYTES;
        }
        totals
    }

    /// The sample of a second of the window; preconditioning repeats the first second.
    pub(crate) fn sample(&self, phase: Phase, second: u32) -> WorkerSecond {
        let (index, number) = match phase {
            Phase::Precondition => (0, second),
            Phase::Sample => (second as usize, PRECONDITION_SECONDS + second),
        };
        let ops = Self::totals(self.seconds[index].iter().copied()).encode();
        WorkerSecond { worker: self.name.clone(), number: number.into(), whole: true, ops }
    }

    /// What the worker delivers in an open loop: each I/O's service time is a quarter of its response time, and disk 0 had I/Os that
    /// started late.
    pub(crate) fn open_loop_input(&self) -> WorkerInput {
        let mut input = self.input();
        let disks = input.finished.iter_mut().flat_map(|finished| &mut finished.disks);
        for (index, disk) in disks.enumerate() {
            let ios: Vec<Io> = self.seconds.iter().flatten().copied().filter(|io| io.disk == index).collect();
            let (count, late) = (ios.len() as u64, if index == 0 { 9 } else { 0 });
            let served = ios.into_iter().map(|io| Io { latency_ns: io.latency_ns / 4, ..io });
            disk.service = Some(Self::totals(served).encode());
            disk.pacing = Some(Pacing { intended: count + 1, late, missed: 1, largest_lag_ns: 7_000 * late });
        }
        input
    }

    /// What the worker delivers when all goes well.
    pub(crate) fn input(&self) -> WorkerInput {
        let serials: Vec<String> = (0..self.disks).map(|disk| format!("{}-d{disk}", self.name)).collect();
        let disks = serials.iter().enumerate().map(|(index, serial)| {
            let ios = self.seconds.iter().flatten().copied().filter(|io| io.disk == index);
            DiskFinished { serial: serial.clone(), ops: Self::totals(ios).encode(), ..DiskFinished::default() }
        });
        let phases = [(Phase::Precondition, PRECONDITION_SECONDS), (Phase::Sample, SAMPLE_SECONDS)];
        let marks = phases.into_iter().flat_map(|(phase, count)| (0..count).map(move |second| (phase, second)));
        WorkerInput {
            worker: self.name.clone(),
            disks: serials.clone(),
            clock: Some(WorkerClock { start_at_worker_ns: START_AT_NS, offset_start_ns: 0, offset_end_ns: Some(700) }),
            finished: Some(WorkerFinished {
                started_worker_ns: START_AT_NS + 3_000,
                ended_worker_ns: START_AT_NS + u64::from(PRECONDITION_SECONDS + SAMPLE_SECONDS) * SECOND_NS,
                complete: true,
                disks: disks.collect(),
                ..WorkerFinished::default()
            }),
            seconds: marks.map(|(phase, second)| mark(phase, &self.sample(phase, second), second)).collect(),
            ..WorkerInput::default()
        }
    }
}

fn mark(phase: Phase, sample: &WorkerSecond, second: u32) -> SecondMark {
    let (read_count, write_count) = (sample.ops.read.count, sample.ops.write.count);
    SecondMark { phase, second, whole: sample.whole, read_count, write_count }
}

/// A case of these workers in which all went well.
pub(crate) fn case(workers: &[FakeWorker]) -> CaseInput {
    CaseInput {
        block_bytes: BLOCK_BYTES,
        precondition_seconds: PRECONDITION_SECONDS,
        sample_seconds: SAMPLE_SECONDS,
        expected_workers: u32::try_from(workers.len()).unwrap(),
        reads_unwritten: false,
        rate: None,
        ending: Ending::Ran,
        workers: workers.iter().map(FakeWorker::input).collect(),
    }
}

/// Evaluates a case; each worker's seconds are those that its input marks.
pub(crate) fn evaluate(workers: &[FakeWorker], input: CaseInput) -> CaseResult {
    let marks: BTreeSet<(usize, bool, u32)> = (0..)
        .zip(&input.workers)
        .flat_map(|(index, worker)| {
            worker.seconds.iter().map(move |mark| (index, mark.phase == Phase::Sample, mark.second))
        })
        .collect();
    let mut evaluation = Evaluation::new(input);
    for (phase, count) in [(Phase::Precondition, PRECONDITION_SECONDS), (Phase::Sample, SAMPLE_SECONDS)] {
        for second in 0..count {
            let present =
                (0..).zip(workers).filter(|(index, _)| marks.contains(&(*index, phase == Phase::Sample, second)));
            let samples: Vec<WorkerSecond> = present.map(|(_, worker)| worker.sample(phase, second)).collect();
            evaluation.add_second(phase, second, &samples);
        }
    }
    evaluation.finish()
}

/// SplitMix64: <https://prng.di.unimi.it/splitmix64.c>.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

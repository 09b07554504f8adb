//! What workers deliver, checked before it is stored: numbers that contradict themselves end their worker's part of the job at once, with
//! the reason, and never the run.

use std::collections::{BTreeMap, BTreeSet};

use analysis::totals;
use worker_protocol::{DiskFinished, Finished, Phase, Sample};

/// What a case allows its workers to deliver.
#[derive(Debug)]
pub(crate) struct Bounds {
    pub(crate) block_bytes: u64,
    pub(crate) precondition_seconds: u32,
    pub(crate) sample_seconds: u32,
    /// Serials of each worker's disks.
    pub(crate) disks: BTreeMap<String, BTreeSet<String>>,
}

/// A worker whose part of a job cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) worker: String,
    pub(crate) why: String,
}

/// The samples that may be stored, and the workers that sent another: nothing of theirs from there on is taken.
pub(crate) fn sift<'s>(bounds: &Bounds, samples: &'s [(String, Sample)]) -> (Vec<(&'s str, &'s Sample)>, Vec<Refused>) {
    let (mut sound, mut refused) = (Vec::with_capacity(samples.len()), Vec::<Refused>::new());
    for (worker, sample) in samples {
        if refused.iter().any(|one| one.worker == *worker) {
            continue;
        }
        match check_sample(bounds, worker, sample) {
            Ok(()) => sound.push((worker.as_str(), sample)),
            Err(why) => refused.push(Refused { worker: worker.clone(), why }),
        }
    }
    (sound, refused)
}

fn check_sample(bounds: &Bounds, worker: &str, sample: &Sample) -> Result<(), String> {
    let (phase, seconds) = match sample.phase {
        Phase::Precondition => ("preconditioning", bounds.precondition_seconds),
        Phase::Sample => ("the window", bounds.sample_seconds),
    };
    if sample.second >= seconds {
        return Err(format!("sample {}: second {} of {phase}, which has {seconds}", sample.number, sample.second));
    }
    let all = u64::from(bounds.precondition_seconds) + u64::from(bounds.sample_seconds);
    if sample.number >= all {
        return Err(format!("sample {}: the case has {all} seconds", sample.number));
    }
    totals::check_sample(worker, sample, bounds.block_bytes).map_err(|error| error.to_string())
}

/// Checks a load's end for what the store cannot hold; whether its totals agree with its seconds is judged with them.
pub(crate) fn check_finished(bounds: &Bounds, worker: &str, finished: &Finished) -> Result<(), String> {
    let serials: BTreeSet<String> = finished.disks.iter().map(|disk| disk.serial.clone()).collect();
    let assigned = bounds.disks.get(worker).map_or(0, BTreeSet::len);
    if serials.len() != finished.disks.len() || bounds.disks.get(worker) != Some(&serials) {
        let reported = finished.disks.len();
        return Err(format!("its end is about {reported} disks that are not the {assigned} assigned"));
    }
    let shares = finished.thread_cpu.iter().chain(&finished.steal).chain([&finished.io_wq_cpu]);
    if let Some(share) = shares.into_iter().find(|share| !share.is_finite() || **share < 0.0) {
        return Err(format!("its end says a CPU time of {share}"));
    }
    let times = [("first I/O", finished.started_worker_ns), ("last I/O", finished.ended_worker_ns)];
    let scalars = times.into_iter().chain(finished.disks.iter().flat_map(disk_scalars));
    match scalars.into_iter().find(|(_, value)| i64::try_from(*value).is_err()) {
        Some((what, value)) => Err(format!("its end says {what} {value}; at most {} is taken", i64::MAX)),
        None => Ok(()),
    }
}

fn disk_scalars(disk: &DiskFinished) -> impl Iterator<Item = (&'static str, u64)> {
    let all = [Some(&disk.ops), disk.service.as_ref()].into_iter().flatten();
    let of_ops = all.flat_map(|ops| [&ops.read, &ops.write]).flat_map(|op| {
        [
            ("count", op.count),
            ("bytes", op.bytes),
            ("errors", op.errors),
            ("sum_ns", op.sum_ns),
            ("min_ns", op.min_ns),
            ("max_ns", op.max_ns),
            ("over_range", op.over_range),
        ]
    });
    let own = [
        ("unfinished", disk.unfinished),
        ("oldest_unfinished_ns", disk.oldest_unfinished_ns),
        ("flushes", disk.flushes),
    ];
    of_ops.chain(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use worker_protocol::{OpTotals, Ops};

    fn bounds() -> Bounds {
        let disks = [("w1".to_owned(), ["d1", "d2"].map(str::to_owned).into())];
        Bounds { block_bytes: 4096, precondition_seconds: 2, sample_seconds: 3, disks: disks.into() }
    }

    fn sample(number: u64, phase: Phase, second: u32) -> Sample {
        Sample { job: 1, number, phase, second, whole: true, ops: Ops::default(), disks: Vec::new() }
    }

    #[test]
    fn a_worker_that_contradicts_itself_is_cut_off_there_and_the_others_are_kept() {
        let mut bad = sample(3, Phase::Sample, 1);
        bad.ops.read = OpTotals { count: 2, bytes: 4096, ..OpTotals::default() };
        let of = |worker: &str, sample: Sample| (worker.to_owned(), sample);
        let samples = [
            of("w1", sample(2, Phase::Sample, 0)),
            of("w2", sample(2, Phase::Sample, 0)),
            of("w1", bad),
            of("w1", sample(4, Phase::Sample, 2)),
            of("w2", sample(3, Phase::Sample, 1)),
        ];
        let (sound, refused) = sift(&bounds(), &samples);
        let kept: Vec<(&str, u64)> = sound.iter().map(|(worker, sample)| (*worker, sample.number)).collect();
        assert_eq!(kept, [("w1", 2), ("w2", 2), ("w2", 3)]);
        let why = "worker w1, sample 3, reads: 2 I/Os of 4096 bytes cannot have moved 4096 bytes";
        assert_eq!(refused, [Refused { worker: "w1".into(), why: why.into() }]);
    }

    #[test]
    fn seconds_and_numbers_beyond_the_case_are_refused() {
        let cases = [
            (sample(0, Phase::Precondition, 2), "sample 0: second 2 of preconditioning, which has 2"),
            (sample(4, Phase::Sample, 3), "sample 4: second 3 of the window, which has 3"),
            (sample(5, Phase::Sample, 2), "sample 5: the case has 5 seconds"),
            (sample(u64::MAX, Phase::Sample, 2), "sample 18446744073709551615: the case has 5 seconds"),
        ];
        for (sample, why) in cases {
            assert_eq!(check_sample(&bounds(), "w1", &sample).unwrap_err(), why);
        }
        assert!(check_sample(&bounds(), "w1", &sample(4, Phase::Sample, 2)).is_ok());
    }

    fn finished() -> Finished {
        let disk = |serial: &str| DiskFinished { serial: serial.into(), ..DiskFinished::default() };
        Finished {
            job: 1,
            started_worker_ns: 1,
            ended_worker_ns: 2,
            complete: true,
            reason: None,
            disks: vec![disk("d1"), disk("d2")],
            thread_cpu: vec![0.5],
            steal: None,
            io_wq_cpu: 0.0,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn an_end_that_the_store_cannot_hold_is_refused() {
        type Break = fn(&mut Finished);
        let broken: [(Break, &str); 7] = [
            (|end| end.disks.truncate(1), "about 1 disks that are not the 2 assigned"),
            (|end| end.disks[1].serial = "d1".into(), "about 2 disks that are not the 2 assigned"),
            (|end| end.thread_cpu.push(f64::NAN), "a CPU time of NaN"),
            (|end| end.steal = Some(-1.0), "a CPU time of -1"),
            (|end| end.ended_worker_ns = u64::MAX, "says last I/O 18446744073709551615"),
            (|end| end.disks[1].flushes = 1 << 63, "says flushes 9223372036854775808"),
            (
                |end| {
                    end.disks[0].service =
                        Some(Ops { read: OpTotals { min_ns: u64::MAX, ..OpTotals::default() }, ..Ops::default() })
                },
                "says min_ns",
            ),
        ];
        assert_eq!(check_finished(&bounds(), "w1", &finished()), Ok(()));
        for (break_it, part) in broken {
            let mut end = finished();
            break_it(&mut end);
            let why = check_finished(&bounds(), "w1", &end).unwrap_err();
            assert!(why.contains(part), "{why} should say {part}");
        }
        assert!(check_finished(&bounds(), "w9", &finished()).is_err(), "a worker that the case was not given to");
    }
}

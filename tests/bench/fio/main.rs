//! The worker against fio: the same I/O on the same file in the same run, and fio once more as its own control.
//!
//! `cargo build --release && cargo bench -p end-to-end --bench fio -- --rounds 5 --seconds 5`
//!
//! The worker is the real process (`fourcorners worker`), driven over the worker protocol by a real fleet. It fills the file
//! first; then each round of a case runs fio, the worker and fio again. docs/benchmarks.md says what is equal and what is not.

mod cpu;
mod fio;
mod job;
mod table;
mod worker;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::Parser;

use job::{Job, Round};
use worker::Worker;

/// Bytes of the file are a multiple of this: every block size of the cases and the fill's divide it.
const MIB: u64 = 1 << 20;

/// Compares the worker with fio on one file.
#[derive(Debug, Parser)]
#[command(name = "fio", max_term_width = 100)]
struct Args {
    /// Rounds a case: each is fio, worker, fio
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Window of each measurement, seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Load before each window, seconds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    ramp: u32,
    /// Size of the file, MiB
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    mib: u64,
    /// Directory of the file, on the file system to be measured; the default is the build's
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Only cases whose name contains this
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// What `cargo bench` says to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let compared = tokio::select! {
        compared = compare(&args) => compared,
        // Dropping the comparison ends its processes and removes the file.
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    match compared {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn compare(args: &Args) -> anyhow::Result<()> {
    let wanted = |job: &Job| args.case.as_ref().is_none_or(|part| job.name().contains(part));
    let jobs: Vec<Job> = job::cases(args.seconds, args.ramp).into_iter().filter(wanted).collect();
    anyhow::ensure!(!jobs.is_empty(), "no case has such a name; there are {}", names(args));
    let dir = directory(args.dir.as_deref())?;
    let file = dir.path().join("disk");
    let bytes = args.mib * MIB;
    let (version, load) = (fio::version().await?, load_average()?);

    let mut worker = Worker::start(&file, bytes).await?;
    eprintln!("filling {} with {} MiB", file.display(), args.mib);
    worker.fill().await?;
    let mut results = Vec::new();
    for job in &jobs {
        results.push((job, rounds(job, args.rounds, &file, bytes, &mut worker).await?));
    }
    let engine = worker.end().await?;

    println!("{version}, {} MiB in {}", args.mib, dir.path().parent().unwrap_or(dir.path()).display());
    println!("engine: {}", engine.granted.join(", "));
    println!(
        "{} rounds of {} s after {} s; load average {load} before, {} after",
        args.rounds,
        args.seconds,
        args.ramp,
        load_average()?
    );
    println!("{}", table::render(&results));
    engine.warnings.iter().for_each(|warning| println!("engine: {warning}"));
    Ok(())
}

fn names(args: &Args) -> String {
    job::cases(args.seconds, args.ramp).iter().map(Job::name).collect::<Vec<_>>().join(", ")
}

/// A directory of the bench's own, removed at its end.
fn directory(parent: Option<&Path>) -> anyhow::Result<tempfile::TempDir> {
    let parent = parent.map_or_else(|| end_to_end::workspace().join("target/tmp"), Path::to_path_buf);
    fs::create_dir_all(&parent).with_context(|| format!("{}: cannot be made", parent.display()))?;
    tempfile::Builder::new()
        .prefix("bench-fio-")
        .tempdir_in(&parent)
        .with_context(|| format!("{}: no directory can be made in it", parent.display()))
}

async fn rounds(job: &Job, count: u32, file: &Path, bytes: u64, worker: &mut Worker) -> anyhow::Result<Vec<Round>> {
    let mut rounds = Vec::new();
    for round in 0..count {
        // Every run draws offsets of its own: a repeated sequence would meet warm caches below the file.
        let seed = u64::from(round) * 3 + 1;
        let fio = fio::measure(job, file, bytes, seed).await?;
        let worker = worker.measure(job, seed + 1).await?;
        let control = fio::measure(job, file, bytes, seed + 2).await?;
        eprintln!(
            "{}, round {} of {count}: IOPS fio {:.0}, worker {:.0}, fio {:.0}",
            job.name(),
            round + 1,
            fio.iops,
            worker.iops,
            control.iops
        );
        rounds.push(Round { fio, worker, control });
    }
    Ok(rounds)
}

/// The machine's load average over one minute.
fn load_average() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/loadavg").context("/proc/loadavg")?;
    Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
}

//! fio's side.

use std::{
    path::Path,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use serde_json::Value;
use tokio::process::Command;

use crate::{
    cpu,
    job::{Access, Figures, Job},
};

/// How much longer than its job fio may take.
const GRACE: Duration = Duration::from_secs(60);

/// What fio calls itself.
///
/// # Errors
/// Where there is no fio.
pub(crate) async fn version() -> anyhow::Result<String> {
    let output =
        Command::new("fio").arg("--version").output().await.context("fio cannot be started; apt install fio")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a job on the file's first `bytes`.
///
/// # Errors
/// With fio's own words where it fails, or reports errors of the file.
pub(crate) async fn measure(job: &Job, file: &Path, bytes: u64, seed: u64) -> anyhow::Result<Figures> {
    let mut command = Command::new("fio");
    command.args(arguments(job, bytes, seed)).arg(filename(file)?);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = command.spawn().context("fio cannot be started")?;
    let pid = child.id().context("fio has ended at once")?;
    let run = tokio::time::timeout(job.length() + GRACE, child.wait_with_output());
    let (output, share) = tokio::join!(run, cpu::share(pid, Instant::now(), job));
    let output = output.context("fio did not end in time")??;
    let figures = figures(job, &output);
    // Where fio failed, its words say more than that its process was gone.
    let (iops, mean_us, p99_us) = figures?;
    Ok(Figures { iops, mean_us, p99_us, cpu: share? / iops * 1e6 })
}

fn arguments(job: &Job, bytes: u64, seed: u64) -> Vec<String> {
    let access = match job.access {
        Access::RandomRead => "randread",
        Access::SequentialWrite => "write",
    };
    let mut arguments: Vec<String> = [
        "--name=bench",
        "--output-format=json",
        "--ioengine=io_uring",
        "--direct=1",
        // As the engine: a thread, a registered file, registered buffers, blocks drawn with replacement.
        "--thread",
        "--registerfiles=1",
        "--fixedbufs=1",
        "--norandommap",
        // Only what is compared: latency from before the submission to the completion.
        "--lat_percentiles=1",
        "--clat_percentiles=0",
        "--disable_clat=1",
        "--disable_slat=1",
        "--percentile_list=99",
        // The file is there already, filled.
        "--fallocate=none",
        "--time_based",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.extend([
        format!("--rw={access}"),
        format!("--bs={}", job.block_bytes),
        format!("--iodepth={}", job.depth),
        format!("--size={bytes}"),
        format!("--runtime={}", job.seconds),
        format!("--ramp_time={}", job.ramp),
        format!("--randseed={seed}"),
    ]);
    arguments
}

/// fio splits file names at colons.
fn filename(file: &Path) -> anyhow::Result<String> {
    let name = file.to_str().with_context(|| format!("{}: fio needs a name in UTF-8", file.display()))?;
    Ok(format!("--filename={}", name.replace(':', "\\:")))
}

/// IOPS, mean and 99th percentile in µs.
fn figures(job: &Job, output: &Output) -> anyhow::Result<(f64, f64, f64)> {
    let text = String::from_utf8_lossy(&output.stdout);
    let said = || format!("fio ({}): {}{text}", output.status, String::from_utf8_lossy(&output.stderr));
    anyhow::ensure!(output.status.success(), "{}", said());
    // Notes of fio's may stand before the document.
    let start = text.find('{').with_context(said)?;
    let document: Value = serde_json::from_str(&text[start..]).with_context(said)?;
    let report = &document["jobs"][0];
    anyhow::ensure!(report["error"] == 0, "{}", said());
    let side = match job.access {
        Access::RandomRead => &report["read"],
        Access::SequentialWrite => &report["write"],
    };
    let number = |value: &Value| value.as_f64().filter(|&number| number > 0.0).with_context(said);
    let latency = &side["lat_ns"];
    Ok((number(&side["iops"])?, number(&latency["mean"])? / 1e3, number(&latency["percentile"]["99.000000"])? / 1e3))
}

//! CPU time of a process while it loads, all its threads and the kernel's io-wq threads that work for it together.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::Context;

use crate::job::Job;

/// Units of the times in /proc/PID/stat, a second: the same on every architecture that Linux still has.
const USER_HZ: f64 = 100.0;

/// CPU seconds a second in the middle three fifths of the window. So neither start nor end of a process or job counts, and
/// it does not matter that nobody tells when exactly fio's window begins.
///
/// # Errors
/// Where the process is not there any more.
pub(crate) async fn share(pid: u32, load_start: Instant, job: &Job) -> anyhow::Result<f64> {
    let window_start = load_start + Duration::from_secs(u64::from(job.ramp));
    let window = Duration::from_secs(u64::from(job.seconds));
    tokio::time::sleep_until((window_start + window / 5).into()).await;
    let (before, since) = (used(pid)?, Instant::now());
    tokio::time::sleep_until((window_start + window * 4 / 5).into()).await;
    Ok((used(pid)? - before) / since.elapsed().as_secs_f64())
}

/// CPU time of the whole process since its start, seconds.
fn used(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The name in parentheses may hold anything; utime and stime are the 12th and 13th fields after it.
    let (_, fields) = stat.rsplit_once(')').with_context(|| format!("{path}: {stat}"))?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    let ticks: f64 = ticks.sum::<Result<f64, _>>().with_context(|| format!("{path}: {stat}"))?;
    Ok(ticks / USER_HZ)
}

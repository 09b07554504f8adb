//! What `/sys` and `/proc` tell about devices and CPU time, and the two queue settings that the engine may change.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use crate::error::PrepareError;
use crate::limits::{PUT_BACK_LIMIT, QUEUE_SET_LIMIT};
use crate::outcome::DeviceCounters;
use crate::probe::{queue_of, sysfs_of, sysfs_u32};
use crate::report::DiskSettings;
use crate::thread::ended_within;

/// The device's counters since boot; none where it has none.
pub(crate) fn counters(device: u64) -> Option<DeviceCounters> {
    let text = fs::read_to_string(sysfs_of(device).join("stat")).ok()?;
    let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    match fields[..] {
        [reads, read_merges, _, _, writes, write_merges, ..] => {
            Some(DeviceCounters { reads, read_merges, writes, write_merges })
        }
        _ => None,
    }
}

pub(crate) fn difference(before: DeviceCounters, after: DeviceCounters) -> DeviceCounters {
    DeviceCounters {
        reads: after.reads.wrapping_sub(before.reads),
        read_merges: after.read_merges.wrapping_sub(before.read_merges),
        writes: after.writes.wrapping_sub(before.writes),
        write_merges: after.write_merges.wrapping_sub(before.write_merges),
    }
}

/// Reads a block device's queue settings into `settings`.
pub(crate) fn read_settings(device: u64, settings: &mut DiskSettings) {
    let queue = queue_of(device);
    settings.scheduler = scheduler(&queue);
    settings.nomerges = sysfs_u32(&queue.join("nomerges"));
    settings.nr_requests = sysfs_u32(&queue.join("nr_requests"));
    settings.max_sectors_kb = sysfs_u32(&queue.join("max_sectors_kb"));
    settings.poll_queues = sysfs_u32(Path::new("/sys/module/nvme/parameters/poll_queues"))
        .filter(|_| fs::canonicalize(&queue).is_ok_and(|path| path.to_string_lossy().contains("/nvme")));
}

/// The scheduler in brackets, or the only one.
fn scheduler(queue: &Path) -> Option<String> {
    let text = fs::read_to_string(queue.join("scheduler")).ok()?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
    Some(chosen.unwrap_or(text.trim()).to_owned())
}

/// Files of queue settings that were changed, and what was in them. Dropping it writes that back, which may hang.
#[derive(Debug, Default)]
struct Changes(Vec<(PathBuf, String)>);

impl Changes {
    /// Sets scheduler `none` and `nomerges=2`; gives what was changed, and what the kernel refused. May hang: the kernel changes a
    /// scheduler only once every I/O of the device is over, also one that never will be.
    fn make(queue: &Path) -> (Self, Vec<String>) {
        let (mut changes, mut refused) = (Self::default(), Vec::new());
        let nomerges = sysfs_u32(&queue.join("nomerges")).map(|value| value.to_string());
        for (name, before, wanted) in [("scheduler", scheduler(queue), "none"), ("nomerges", nomerges, "2")] {
            let Some(before) = before.filter(|value| value != wanted) else { continue };
            match fs::write(queue.join(name), wanted) {
                Ok(()) => changes.0.push((queue.join(name), before)),
                Err(error) => refused.push(format!("{name} stays {before}: {error}")),
            }
        }
        (changes, refused)
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        for (path, before) in self.0.drain(..).rev() {
            // A device that is gone needs nothing put back.
            let _ = fs::write(path, before);
        }
    }
}

/// Queue settings that were changed, and are put back when this is dropped. What was already so is not touched. The kernel is asked by
/// threads that are left behind beyond [`QUEUE_SET_LIMIT`] and [`PUT_BACK_LIMIT`].
#[derive(Debug, Default)]
pub(crate) struct QueueGuard {
    changed: Changes,
}

impl QueueGuard {
    /// Sets scheduler `none` and `nomerges=2`; what cannot be set is a warning.
    ///
    /// # Errors
    /// The disk does not let its settings be changed within [`QUEUE_SET_LIMIT`]. Where it does later, they are put back at once.
    pub(crate) fn set(&mut self, id: &str, device: u64, warnings: &mut Vec<String>) -> Result<(), PrepareError> {
        let queue = queue_of(device);
        let (sender, made) = channel();
        // What nobody receives is dropped, and so put back.
        let setting = move || drop(sender.send(Changes::make(&queue)));
        if let Err(error) = std::thread::Builder::new().name("load-queue".to_owned()).spawn(setting) {
            warnings.push(format!("disk {id}: scheduler and merge setting stay: no thread to set them: {error}"));
            return Ok(());
        }
        let Ok((mut changes, refused)) = made.recv_timeout(QUEUE_SET_LIMIT) else {
            let limit = QUEUE_SET_LIMIT.as_secs();
            let problem = format!(
                "its scheduler and merge setting could not be set within {limit} s: it holds I/Os that do not end"
            );
            return Err(PrepareError::Disk { disk: id.to_owned(), problem });
        };
        self.changed.0.append(&mut changes.0);
        warnings.extend(refused.into_iter().map(|refused| format!("disk {id}: {refused}")));
        Ok(())
    }

    /// Puts the settings back; false where the thread that does so was left behind after [`PUT_BACK_LIMIT`].
    pub(crate) fn put_back(&mut self) -> bool {
        let changed = std::mem::take(&mut self.changed);
        if changed.0.is_empty() {
            return true;
        }
        // Where there is no thread to be had, dropping the closure puts them back.
        let putting = std::thread::Builder::new().name("load-restore".to_owned()).spawn(move || drop(changed));
        putting.map_or(true, |putting| ended_within(&putting, PUT_BACK_LIMIT))
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// CPU time of this machine since boot, in ticks: taken by the hypervisor, and all of it. None outside a VM.
pub(crate) fn steal_ticks() -> Option<(u64, u64)> {
    let virtual_machine = fs::read_to_string("/proc/cpuinfo")
        .ok()?
        .lines()
        .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"));
    if !virtual_machine {
        return None;
    }
    let text = fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest times are in user already.
    fields.get(7).map(|&steal| (steal, fields.iter().take(8).sum()))
}

/// CPU time of this process's io-wq worker threads by the thread that they work for, ns; those that ended meanwhile are not in it.
pub(crate) fn io_wq_ns() -> HashMap<i32, u64> {
    let mut total = HashMap::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok) {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let owner = name.trim().strip_prefix("iou-wrk-").and_then(|owner| owner.parse().ok());
        if let Some(owner) = owner {
            let schedstat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let cpu_ns = schedstat.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
            *total.entry(owner).or_default() += cpu_ns;
        }
    }
    total
}

/// CPU time of the calling thread's io-wq workers, by its id. They end with the thread, so that nobody else can read it in time.
pub(crate) fn own_io_wq_ns() -> (i32, u64) {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    (thread, io_wq_ns().get(&thread).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_scheduler_is_the_one_in_brackets() {
        let directory = tempfile::tempdir().unwrap();
        for (text, expected) in
            [("[none] mq-deadline\n", "none"), ("none [mq-deadline] bfq\n", "mq-deadline"), ("none\n", "none")]
        {
            fs::write(directory.path().join("scheduler"), text).unwrap();
            assert_eq!(scheduler(directory.path()).as_deref(), Some(expected));
        }
    }

    #[test]
    fn steal_is_a_part_of_all_ticks() {
        match steal_ticks() {
            Some((steal, all)) => assert!(steal <= all && all > 0),
            None => println!("skipped: not a virtual machine"),
        }
    }
}

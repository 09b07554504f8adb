//! Counters of devices and CPUs at one moment.

use std::collections::HashMap;

use crate::clock::now_ns;
use crate::device;
use crate::disk::Disk;
use crate::outcome::DeviceCounters;

/// Readings at the start or the end of a window.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// No reading of a device is later.
    pub(crate) at_ns: u64,
    /// By disk; none for files.
    pub(crate) devices: Vec<Option<DeviceCounters>>,
    /// By the thread that they work for.
    pub(crate) io_wq_ns: HashMap<i32, u64>,
    /// Stolen ticks and all ticks; none outside a VM.
    pub(crate) steal: Option<(u64, u64)>,
}

impl Snapshot {
    pub(crate) fn take(disks: &[Disk]) -> Self {
        let devices = disks.iter().map(|disk| disk.device.and_then(device::counters)).collect();
        Self {
            devices,
            // After the devices' readings: a thread that was preempted between the two must not seem earlier than it was.
            at_ns: now_ns(),
            io_wq_ns: device::io_wq_ns(),
            steal: device::steal_ticks(),
        }
    }

    /// Share of the CPUs that the hypervisor took between two snapshots.
    pub(crate) fn steal_since(&self, before: &Self) -> Option<f64> {
        let ((before_steal, before_all), (steal, all)) = (before.steal?, self.steal?);
        Some(crate::thread::share(steal.saturating_sub(before_steal), all.saturating_sub(before_all)))
    }
}

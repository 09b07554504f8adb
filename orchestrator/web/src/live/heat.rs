//! The disks of all workers over the last seconds, so that one that is slower than the others is seen.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::history::shorten;

/// Seconds that the map's figures cover: one alone is noise.
const WINDOW_SECONDS: usize = 10;

/// Disks of all workers that are told one by one; beyond it each worker is one cell, or a page could not draw them.
pub(crate) const MAX_CELLS: usize = 4_096;

/// What one disk did in one second, reads and writes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskBeat {
    /// I/Os completed.
    pub count: u64,
    /// Sum of their latencies, ns.
    pub sum_ns: u64,
    /// Largest latency, ns.
    pub max_ns: u64,
    /// Failed or short I/Os.
    pub errors: u64,
}

impl DiskBeat {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.errors += other.errors;
    }
}

/// Workers of a case and their disks, in order.
pub type Layout = Vec<(String, Vec<String>)>;

/// The last seconds of each disk of a case.
#[derive(Debug, Default)]
pub(crate) struct HeatWindow {
    layout: Layout,
    seconds: VecDeque<BTreeMap<String, Vec<DiskBeat>>>,
    /// When the newest of them began, seconds after the run did.
    newest: u32,
    errors: BTreeMap<String, Vec<u64>>,
}

/// The map as the page gets it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Heat {
    /// Seconds that the figures cover.
    pub(crate) seconds: usize,
    /// When the newest of them began, seconds after the run did.
    pub(crate) newest: u32,
    /// Each cell is a whole worker.
    pub(crate) by_worker: bool,
    pub(crate) rows: Vec<HeatRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HeatRow {
    pub(crate) worker: String,
    /// Serial, IOPS, mean latency in µs (null without an I/O), largest latency in µs, errors since the case began.
    pub(crate) cells: Vec<(String, f64, Option<f64>, f64, u64)>,
}

impl HeatWindow {
    /// Another case, with these workers.
    pub(crate) fn begin(&mut self, layout: Layout) {
        *self = Self { layout, ..Self::default() };
    }

    /// A second of the workers that delivered it, which began `at` seconds after the run.
    pub(crate) fn add(&mut self, at: u32, second: BTreeMap<String, Vec<DiskBeat>>) {
        self.newest = self.newest.max(at);
        for (worker, disks) in &second {
            let sums = self.errors.entry(worker.clone()).or_default();
            sums.resize(disks.len().max(sums.len()), 0);
            sums.iter_mut().zip(disks).for_each(|(sum, disk)| *sum += disk.errors);
        }
        self.seconds.push_back(second);
        if self.seconds.len() > WINDOW_SECONDS {
            self.seconds.pop_front();
        }
    }

    /// The map; none before the first second of a case.
    pub(crate) fn map(&self) -> Option<Heat> {
        if self.seconds.is_empty() {
            return None;
        }
        let cells: usize = self.layout.iter().map(|(_, disks)| disks.len()).sum();
        let by_worker = cells > MAX_CELLS;
        let rows = self.layout.iter().take(MAX_CELLS).map(|(worker, disks)| {
            let each = disks.iter().enumerate().map(|(index, serial)| (serial.clone(), self.sum(worker, index)));
            let cells = if by_worker {
                let mut all = DiskBeat::default();
                each.for_each(|(_, beat)| all.add(&beat));
                vec![self.cell(worker.clone(), all)]
            } else {
                each.map(|(serial, beat)| self.cell(serial, beat)).collect()
            };
            HeatRow { worker: worker.clone(), cells }
        });
        Some(Heat { seconds: self.seconds.len(), newest: self.newest, by_worker, rows: rows.collect() })
    }

    /// A disk over the window; its errors over the case.
    fn sum(&self, worker: &str, disk: usize) -> DiskBeat {
        let mut sum = DiskBeat::default();
        let beats = self.seconds.iter().filter_map(|second| second.get(worker)?.get(disk));
        beats.for_each(|beat| sum.add(beat));
        sum.errors = self.errors.get(worker).and_then(|sums| sums.get(disk)).copied().unwrap_or(0);
        sum
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for a person")]
    fn cell(&self, name: String, beat: DiskBeat) -> (String, f64, Option<f64>, f64, u64) {
        let us = |ns: u64| ns as f64 / 1e3;
        let mean = (beat.count > 0).then(|| shorten(us(beat.sum_ns) / beat.count as f64));
        let iops = shorten(beat.count as f64 / self.seconds.len().max(1) as f64);
        (name, iops, mean, shorten(us(beat.max_ns)), beat.errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(count: u64, each_us: u64) -> DiskBeat {
        DiskBeat { count, sum_ns: count * each_us * 1_000, max_ns: each_us * 2_000, errors: 1 }
    }

    fn window(disks: usize) -> HeatWindow {
        let mut window = HeatWindow::default();
        let serials = (0..disks).map(|disk| format!("d{disk}")).collect();
        window.begin(vec![("w1".into(), serials), ("w2".into(), vec!["d0".into()])]);
        window
    }

    #[test]
    fn a_straggler_is_seen_over_the_last_seconds_and_a_silent_worker_has_no_latency() {
        let mut window = window(2);
        assert_eq!(window.map(), None);
        for second in 0..25 {
            let slow = if second < 15 { 100 } else { 900 };
            window.add(second, [("w1".to_owned(), vec![beat(10, 100), beat(2, slow)])].into());
        }
        let map = window.map().unwrap();
        assert_eq!((map.seconds, map.newest, map.by_worker), (10, 24, false));
        let cells = &map.rows[0].cells;
        assert_eq!(cells[0], ("d0".to_owned(), 10.0, Some(100.0), 200.0, 25));
        assert_eq!(cells[1], ("d1".to_owned(), 2.0, Some(900.0), 1_800.0, 25));
        assert_eq!(map.rows[1].cells[0], ("d0".to_owned(), 0.0, None, 0.0, 0));
    }

    #[test]
    fn too_many_disks_become_a_cell_a_worker() {
        let mut window = window(MAX_CELLS);
        window.add(0, [("w1".to_owned(), vec![beat(10, 100), beat(30, 300)])].into());
        let map = window.map().unwrap();
        assert!(map.by_worker);
        assert_eq!(map.rows[0].cells, [("w1".to_owned(), 40.0, Some(250.0), 600.0, 2)]);
    }
}

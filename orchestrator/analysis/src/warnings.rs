//! What the reader of a case's figures must know, beside the verdict.

use std::collections::BTreeMap;

use worker_protocol::{DiskFinished, OpTotals, Stall};

use crate::case::{CaseInput, WorkerFinished, WorkerInput};
use crate::generator;
use crate::throughput::to_f64;
use crate::totals::micros;

/// Workers or disks that a warning names before it only counts them.
const NAMED: usize = 4;

/// Beside every figure of a case that reads what was never written.
const UNWRITTEN: &str = "bytes that were never written are read: storage may answer such reads without touching a device, so no figure \
    of this case says anything about reading data";

/// All warnings of a case, the gravest kind first; equal ones of several workers or disks are one.
pub(crate) fn warnings(input: &CaseInput) -> Vec<String> {
    let mut said = Said::default();
    for worker in &input.workers {
        for disk in worker.finished.iter().flat_map(|finished| &finished.disks) {
            disk_warnings(worker, disk, &mut said);
        }
        engine_warnings(worker, &mut said);
        if let Some(finished) = &worker.finished {
            load_warnings(worker, finished, &mut said);
        }
    }
    let unwritten = input.reads_unwritten.then(|| UNWRITTEN.to_owned());
    unwritten.into_iter().chain(said.into_lines()).collect()
}

/// Texts in the order first said, each with who said it.
#[derive(Default)]
struct Said {
    order: Vec<String>,
    by: BTreeMap<String, Vec<String>>,
}

impl Said {
    fn say(&mut self, who: impl Into<String>, text: impl Into<String>) {
        let text = text.into();
        let by = self.by.entry(text.clone()).or_default();
        if by.is_empty() {
            self.order.push(text);
        }
        by.push(who.into());
    }

    fn into_lines(self) -> impl Iterator<Item = String> {
        let Self { order, by } = self;
        order.into_iter().map(move |text| format!("{}: {text}", names(by.get(&text).map_or(&[], Vec::as_slice))))
    }
}

fn names(all: &[String]) -> String {
    let named = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if all.len() > NAMED { format!("{named} and {} more", all.len() - NAMED) } else { named }
}

fn disk_warnings(worker: &WorkerInput, disk: &DiskFinished, said: &mut Said) {
    let who = || format!("{}/{}", worker.worker, disk.serial);
    let texts = [error_text(disk), request_text(disk), stall_text(&disk.stalls), unfinished_text(disk)];
    texts.into_iter().flatten().for_each(|text| said.say(who(), text));
}

/// Errors in the window are beside the figures; those outside it are said because they are in none.
fn error_text(disk: &DiskFinished) -> Option<String> {
    let in_window = disk.ops.read.errors.saturating_add(disk.ops.write.errors);
    let all = disk.errors.iter().fold(0_u64, |sum, errors| sum.saturating_add(errors.count));
    let kinds = error_kinds(disk);
    match (in_window, all) {
        (0, 0) => None,
        (0, all) => Some(format!("{all} I/Os failed or were short outside the window{kinds}")),
        (in_window, _) => Some(format!("{in_window} I/Os failed or were short{kinds}")),
    }
}

fn error_kinds(disk: &DiskFinished) -> String {
    let kinds: Vec<String> = disk.errors.iter().map(|errors| format!("{} {}", errors.count, errors.kind)).collect();
    let offset = disk.errors.iter().find_map(|errors| errors.first_offsets.first());
    let first = offset.map(|offset| format!(", the first at byte {offset}")).unwrap_or_default();
    if kinds.is_empty() { first } else { format!(" ({}{first})", kinds.join(", ")) }
}

fn request_text(disk: &DiskFinished) -> Option<String> {
    let device = disk.device.filter(|device| device.differs)?;
    let side = |name: &str, ops: &OpTotals, requests: u64, merges: u64| {
        let ios = ops.count.saturating_add(ops.errors);
        (ios > 0 || requests > 0)
            .then(|| format!("{requests} {name} requests ({merges} merged into others) for {ios} {name}s"))
    };
    let sides = [
        side("read", &disk.ops.read, device.reads, device.read_merges),
        side("write", &disk.ops.write, device.writes, device.write_merges),
    ];
    let sides: Vec<String> = sides.into_iter().flatten().collect();
    Some(format!("the device completed {}: merged, split, or not ours alone", sides.join(" and ")))
}

/// One line a disk, however often it stalled; each stall is in the export.
fn stall_text(stalls: &[Stall]) -> Option<String> {
    let longest = stalls.iter().max_by_key(|stall| stall.length_ns)?;
    let (start, length) = (signed_seconds(longest.start_ns), to_f64(longest.length_ns) / 1e9);
    let one = format!("no I/O completed for {length:.1} s from {start:.1} s after the start of the window");
    if stalls.len() == 1 {
        return Some(one);
    }
    let all = stalls.iter().fold(0_u64, |sum, stall| sum.saturating_add(stall.length_ns));
    Some(format!("{} stalls, {:.1} s together; the longest: {one}", stalls.len(), to_f64(all) / 1e9))
}

#[expect(clippy::cast_precision_loss, reason = "a time for a person to read")]
fn signed_seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

fn unfinished_text(disk: &DiskFinished) -> Option<String> {
    let slowest = disk.ops.read.max_ns.max(disk.ops.write.max_ns);
    (disk.unfinished > 0 && disk.oldest_unfinished_ns > slowest).then(|| {
        let age = micros(disk.oldest_unfinished_ns) / 1e3;
        format!("an I/O in flight at the end of the window had waited {age:.1} ms, longer than any that is counted")
    })
}

fn engine_warnings(worker: &WorkerInput, said: &mut Said) {
    let Some(engine) = &worker.engine else { return };
    for disk in engine.disks.iter().filter(|disk| !disk.direct) {
        said.say(
            format!("{}/{}", worker.worker, disk.serial),
            "no O_DIRECT: the page cache is measured, not the storage alone",
        );
    }
    for warning in &engine.warnings {
        said.say(&worker.worker, warning);
    }
}

fn load_warnings(worker: &WorkerInput, finished: &WorkerFinished, said: &mut Said) {
    let name = &worker.worker;
    if let Some(text) = generator::warning(worker) {
        said.say(name, text);
    }
    let reported = worker.engine.iter().flat_map(|engine| &engine.warnings).collect::<Vec<_>>();
    for warning in finished.warnings.iter().filter(|warning| !reported.contains(warning)) {
        said.say(name, warning);
    }
}

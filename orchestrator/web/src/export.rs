//! The exports that other programs read.

use std::cell::RefCell;
use std::io::Write;

use analysis::export::{Case, Export, FORMAT, Op, Run, WorkloadOptions};
use serde::ser::{Error as _, SerializeSeq as _};
use serde::{Serialize, Serializer};

use crate::Error;
use crate::source::{Cases, Measured};

/// The CSV export's columns, in order, with what each holds. Numbers have a point and no separators; a figure that does not exist is empty.
pub const CSV_COLUMNS: [(&str, &str); 76] = [
    ("run_id", "UUID of the run"),
    ("run_name", "name of the plan"),
    ("run_state", "done, failed, cancelled, stopped, or the state of a run that has not ended"),
    ("run_complete", "false where anything that the plan asked for is missing or incomplete"),
    ("case", "place of the case in the run, from 1"),
    ("workload", "name of the workload"),
    ("footprint", "footprint as the plan spells it"),
    ("footprint_bytes", "footprint as asked"),
    ("effective_bytes", "what was measured: region × workers × disks"),
    ("region_bytes", "part of each data disk"),
    ("block_bytes", "bytes an I/O"),
    ("pattern", "random, sequential, permutation or hot-spot"),
    ("read_percent", "share of reads"),
    ("outstanding_per_disk", "I/Os in flight a disk"),
    ("case_state", "complete, incomplete, failed, cancelled or running"),
    ("case_reason", "why the case is not complete"),
    ("started", "start of preconditioning, UTC"),
    ("finished", "end of the window, UTC"),
    ("fill_bytes", "new bytes that were written before the footprint's first case"),
    ("fill_seconds", "from the first write to the last flush"),
    ("fill_verified_blocks", "random blocks read back and found as written"),
    ("workers_expected", "workers that the plan asked for"),
    ("workers_measured", "workers that the figures contain"),
    ("window_seconds", "seconds that the figures cover"),
    ("start_skew_us", "latest first I/O minus earliest over the workers"),
    ("clock_drift_us", "largest change of a worker's clock offset during the case"),
    ("steady_state", "verdict on the end of preconditioning: achieved, not-achieved or not-evaluated"),
    ("steady_range_percent", "range of the last five rounds' IOPS, of their mean"),
    ("steady_excursion_percent", "rise or fall of the line fitted through them, of their mean"),
    ("unfinished_count", "I/Os in flight when the window ended"),
    ("unfinished_oldest_us", "age of the oldest of them"),
    ("op", "read, write, or all; empty where the case has no figures"),
    ("count", "I/Os completed in the window"),
    ("bytes", "bytes they moved"),
    ("iops", "count / window_seconds"),
    ("mib_per_s", "bytes / window_seconds / 2^20"),
    ("errors", "I/Os that failed or were short"),
    ("over_range", "I/Os slower than 10 minutes"),
    ("latency_mean_us", "sum / count"),
    ("latency_min_us", "fastest I/O"),
    ("latency_p50_us", "median"),
    ("latency_p90_us", "90th percentile, from merged histograms, as all percentiles"),
    ("latency_p95_us", "95th percentile"),
    ("latency_p99_us", "99th percentile"),
    ("latency_p99_9_us", "99.9th percentile"),
    ("latency_p99_99_us", "99.99th percentile"),
    ("latency_max_us", "slowest I/O"),
    ("warnings", "what the reader of these figures must know, of the run and of the case, separated by \" | \""),
    ("streams", "sequential streams a disk"),
    ("hot_spot_io_percent", "share of the I/Os that go to the hot spot"),
    ("hot_spot_space_percent", "share of the range that the hot spot is"),
    ("range_from_percent", "start of the part of each region that is used; empty is all of it"),
    ("range_to_percent", "end of it"),
    ("align_bytes", "offsets are multiples of it; empty is the block"),
    ("compression_ratio", "size / compressed size of what is written"),
    ("duplication_ratio", "blocks / distinct blocks of what is written"),
    ("flush_every_writes", "writes of an engine thread to a disk between two flushes; empty is never"),
    ("on_error", "stop, continue or stop-after-N"),
    ("rate_iops", "open loop: I/Os a second as asked; empty is a closed loop"),
    ("rate_per", "open loop: disk or worker, of what the rate is"),
    ("rate_poisson", "open loop: exponential gaps"),
    ("asked_iops", "open loop: the rate asked of all disks together"),
    ("intended", "open loop: I/Os whose intended start is in the window"),
    ("late", "open loop: of those, started more than 100 µs late"),
    ("missed", "open loop: of those, not started in the window"),
    ("largest_lag_us", "open loop: largest lag behind an intended start"),
    ("service_mean_us", "open loop: mean time from submission, of this row's I/Os"),
    ("service_p50_us", "open loop: its median"),
    ("service_p99_us", "open loop: its 99th percentile"),
    ("service_p99_9_us", "open loop: its 99.9th percentile"),
    ("service_max_us", "open loop: the slowest"),
    ("generator_may_limit", "true where the load generator, not the storage, may limit the figures"),
    ("generator_thread_cpu_max", "CPU time of the busiest engine thread, share of one CPU"),
    ("stalls", "times without any completion on a disk, all disks, preconditioning included"),
    ("stall_longest_seconds", "the longest of them"),
    ("run_rehearsal", "true where the plan was only tried at its smallest: the figures are no result"),
];

/// The run as JSON: the contract of [`Export`], indented.
///
/// # Errors
/// [`Error::Json`].
pub fn export_json(export: &Export) -> Result<String, Error> {
    Ok(serde_json::to_string_pretty(export)? + "\n")
}

/// [`export_json`] as it is sent, a case at a time: a run of a day has tens of megabytes.
pub(crate) fn write_json(measured: Measured, to: &mut dyn Write) -> Result<(), Error> {
    let export = Sent { format: FORMAT, run: measured.run, cases: OneByOne(RefCell::new(measured.cases)) };
    serde_json::to_writer_pretty(&mut *to, &export)?;
    Ok(to.write_all(b"\n")?)
}

/// [`Export`] while it is sent.
#[derive(Serialize)]
struct Sent {
    format: &'static str,
    run: Run,
    cases: OneByOne,
}

/// A list of cases that are there one at a time. It can be written once.
struct OneByOne(RefCell<Cases>);

impl Serialize for OneByOne {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for case in &mut *self.0.borrow_mut() {
            list.serialize_element(&case.map_err(S::Error::custom)?)?;
        }
        list.end()
    }
}

pub(crate) fn write_csv(export: &Export, to: &mut dyn Write) -> Result<(), Error> {
    Ok(to.write_all(cases_csv(export)?.as_bytes())?)
}

/// The run as CSV: a header ([`CSV_COLUMNS`]), then a row a case and operation; a case without figures has one row without an operation.
///
/// A text that a spreadsheet would take for a formula starts with an apostrophe.
///
/// # Errors
/// [`Error::Csv`].
pub fn cases_csv(export: &Export) -> Result<String, Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(CSV_COLUMNS.map(|(name, _)| name))?;
    for (index, case) in export.cases.iter().enumerate() {
        let ops = [("read", &case.ops.read), ("write", &case.ops.write), ("all", &case.ops.all)];
        let measured: Vec<_> =
            ops.into_iter().filter_map(|(name, op)| op.as_ref().map(|op| (name, Some(op)))).collect();
        let rows = if measured.is_empty() { vec![("", None)] } else { measured };
        for (name, op) in rows {
            writer.write_record(row(export, index, case, name, op))?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn row(export: &Export, index: usize, case: &Case, name: &str, op: Option<&Op>) -> Vec<String> {
    let mut row = run_and_profile(export, index, case).to_vec();
    row.extend(circumstances(case));
    row.push(name.to_owned());
    row.extend(figures(op));
    let warnings: Vec<&str> = export.run.warnings.iter().chain(&case.warnings).map(String::as_str).collect();
    row.push(plain_text(&warnings.join(" | ")));
    row.extend(options(case.options.as_ref()));
    row.extend(open_loop(case, name));
    row.extend(quality(case));
    row.push(export.run.rehearsal.to_string());
    row
}

fn options(options: Option<&WorkloadOptions>) -> [String; 13] {
    let hot_spot = options.and_then(|options| options.hot_spot);
    let range = options.and_then(|options| options.range);
    let rate = options.and_then(|options| options.rate.as_ref());
    [
        or_empty(options.and_then(|options| options.streams)),
        or_empty(hot_spot.map(|spot| spot.io_percent)),
        or_empty(hot_spot.map(|spot| spot.space_percent)),
        or_empty(range.map(|range| range.from_percent)),
        or_empty(range.map(|range| range.to_percent)),
        or_empty(options.and_then(|options| options.align_bytes)),
        or_empty(options.map(|options| options.compression_ratio)),
        or_empty(options.map(|options| options.duplication_ratio)),
        or_empty(options.and_then(|options| options.flush_every_writes)),
        plain_text(options.map(|options| options.on_error.as_str()).unwrap_or_default()),
        or_empty(rate.map(|rate| rate.iops)),
        plain_text(rate.map(|rate| rate.per.as_str()).unwrap_or_default()),
        or_empty(rate.map(|rate| rate.poisson)),
    ]
}

fn open_loop(case: &Case, name: &str) -> [String; 10] {
    let pacing = case.pacing;
    let service = case.service.as_ref().and_then(|ops| match name {
        "read" => ops.read.as_ref(),
        "write" => ops.write.as_ref(),
        "all" => ops.all.as_ref(),
        _ => None,
    });
    let latency = service.and_then(|op| op.latency_us.as_ref());
    [
        or_empty(pacing.map(|pacing| pacing.asked_iops)),
        or_empty(pacing.map(|pacing| pacing.intended)),
        or_empty(pacing.map(|pacing| pacing.late)),
        or_empty(pacing.map(|pacing| pacing.missed)),
        or_empty(pacing.map(|pacing| pacing.largest_lag_us)),
        or_empty(latency.map(|latency| latency.mean)),
        or_empty(latency.map(|latency| latency.p50)),
        or_empty(latency.map(|latency| latency.p99)),
        or_empty(latency.map(|latency| latency.p99_9)),
        or_empty(latency.map(|latency| latency.max)),
    ]
}

fn quality(case: &Case) -> [String; 4] {
    let threads = case.per_worker.iter().filter_map(|part| part.generator.as_ref()).flat_map(|used| &used.thread_cpu);
    let stalls = || case.per_disk.iter().flat_map(|disk| &disk.stalls).map(|stall| stall.length_seconds);
    [
        or_empty(case.generator.as_ref().map(|generator| generator.may_limit)),
        or_empty(threads.copied().reduce(f64::max)),
        stalls().count().to_string(),
        or_empty(stalls().reduce(f64::max)),
    ]
}

fn run_and_profile(export: &Export, index: usize, case: &Case) -> [String; 14] {
    let run = &export.run;
    [
        plain_text(&run.id),
        plain_text(&run.name),
        plain_text(&run.state),
        run.complete.to_string(),
        (index + 1).to_string(),
        plain_text(&case.workload),
        plain_text(&case.footprint),
        case.footprint_bytes.to_string(),
        case.effective_bytes.to_string(),
        case.region_bytes.to_string(),
        case.block_bytes.to_string(),
        plain_text(&case.pattern),
        case.read_percent.to_string(),
        case.outstanding_per_disk.to_string(),
    ]
}

fn circumstances(case: &Case) -> [String; 17] {
    let fill = case.fill.as_ref();
    let steady = case.steady_state.as_ref();
    [
        plain_text(&case.state),
        plain_text(case.reason.as_deref().unwrap_or_default()),
        or_empty(case.started),
        or_empty(case.finished),
        or_empty(fill.map(|fill| fill.bytes)),
        or_empty(fill.map(|fill| fill.seconds)),
        or_empty(fill.map(|fill| fill.verified_blocks)),
        case.workers.expected.to_string(),
        case.workers.measured.to_string(),
        case.window_seconds.to_string(),
        or_empty(case.start_skew_us),
        or_empty(case.clock_drift_us),
        plain_text(steady.map(|steady| steady.verdict.as_str()).unwrap_or_default()),
        or_empty(steady.and_then(|steady| steady.range_percent)),
        or_empty(steady.and_then(|steady| steady.excursion_percent)),
        case.unfinished.count.to_string(),
        or_empty(case.unfinished.oldest_us),
    ]
}

fn figures(op: Option<&Op>) -> [String; 15] {
    let latency = op.and_then(|op| op.latency_us.as_ref());
    [
        or_empty(op.map(|op| op.count)),
        or_empty(op.map(|op| op.bytes)),
        or_empty(op.map(|op| op.iops)),
        or_empty(op.map(|op| op.mib_per_s)),
        or_empty(op.map(|op| op.errors)),
        or_empty(op.map(|op| op.over_range)),
        or_empty(latency.map(|latency| latency.mean)),
        or_empty(latency.map(|latency| latency.min)),
        or_empty(latency.map(|latency| latency.p50)),
        or_empty(latency.map(|latency| latency.p90)),
        or_empty(latency.map(|latency| latency.p95)),
        or_empty(latency.map(|latency| latency.p99)),
        or_empty(latency.map(|latency| latency.p99_9)),
        or_empty(latency.map(|latency| latency.p99_99)),
        or_empty(latency.map(|latency| latency.max)),
    ]
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Spreadsheets run a cell that starts like this, also after white space.
fn plain_text(text: &str) -> String {
    let formula = text.trim_start().starts_with(['=', '+', '-', '@']) || text.starts_with(['\t', '\r', '\n']);
    if formula { format!("'{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_case_that_cannot_be_read_ends_the_text_with_an_error() {
        let run = Run {
            id: "1".to_owned(),
            name: "one".to_owned(),
            state: "done".to_owned(),
            complete: true,
            reason: None,
            ended_early: None,
            started: Timestamp::UNIX_EPOCH,
            finished: None,
            rehearsal: false,
            note: String::new(),
            plan: serde_json::Value::Null,
            plan_yaml: String::new(),
            environment: serde_json::Value::Null,
            warnings: Vec::new(),
            events: Vec::new(),
        };
        let cases = Box::new(std::iter::once(Err("its figures are damaged".into())));
        let error = write_json(Measured { run, cases }, &mut Vec::new()).unwrap_err();
        assert!(matches!(&error, Error::Json(why) if why.to_string().contains("damaged")), "{error:?}");
    }

    #[test]
    fn formulas_are_text() {
        for bad in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\r=1"] {
            assert_eq!(plain_text(bad), format!("'{bad}"));
        }
        for fine in ["", "4k-random-read", "a=b", "'=1"] {
            assert_eq!(plain_text(fine), fine);
        }
    }
}

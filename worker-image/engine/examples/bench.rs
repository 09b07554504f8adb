//! Runs one job from `key=value` arguments and prints its figures as JSON: what `tests/bench/engine` drives.
//!
//! `cargo run --release -p load-engine --example bench -- path=FILE block=4096 depth=32 read=100 seconds=5`
//!
//! Keys: `work` (load, fill, verify), `path` (repeatable), `size` (bytes; default: the file's), `block`, `depth`, `read`
//! (percent), `pattern` (random, sequential, permutation), `streams`, `rate` and `poisson` (0 or 1), `compression`, `duplication`,
//! `flush`, `precondition`, `seconds`, `threads`, `reissue`, `stamp_each`, `nop`, `direct`, `register`, `pin`, `own_kernel` (0 or
//! 1 each), `seed`.

use std::collections::HashMap;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::mpsc::channel;
use std::time::Instant;

use latency_histogram::Latencies;
use load_engine::{
    DiskSpec, FillSpec, Job, LoadSpec, OpTotals, Outcome, Pattern, Rate, Report, Tuning, VerifySpec, Work, Workload,
    prepare,
};

fn main() -> ExitCode {
    match Arguments::read().and_then(|arguments| run(&arguments)) {
        Ok(complete) => ExitCode::from(u8::from(!complete)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

struct Arguments {
    paths: Vec<String>,
    values: HashMap<String, String>,
}

impl Arguments {
    fn read() -> Result<Self, String> {
        let mut arguments = Self { paths: Vec::new(), values: HashMap::new() };
        for argument in std::env::args().skip(1) {
            let (key, value) = argument.split_once('=').ok_or_else(|| format!("{argument}: not KEY=VALUE"))?;
            if key == "path" {
                arguments.paths.push(value.to_owned());
            } else {
                arguments.values.insert(key.to_owned(), value.to_owned());
            }
        }
        Ok(arguments)
    }

    fn get<T: FromStr>(&self, key: &str, default: T) -> Result<T, String> {
        self.values
            .get(key)
            .map_or(Ok(default), |value| value.parse().map_err(|_| format!("{key}={value}: not understood")))
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool, String> {
        Ok(self.get(key, u32::from(default))? != 0)
    }
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let job = job(arguments)?;
    let seconds = arguments.get("seconds", 3.0)?;
    let prepared = prepare(job).map_err(|error| error.to_string())?;
    let report = prepared.report().clone();
    let (sender, receiver) = channel();
    let running = prepared.start(Instant::now(), sender);
    // The seconds are not wanted here, but must not pile up.
    receiver.iter().for_each(drop);
    let outcome = running.join();
    println!("{}", json(&outcome, &report, seconds));
    Ok(outcome.complete)
}

fn job(arguments: &Arguments) -> Result<Job, String> {
    let disks = arguments.paths.iter().map(|path| disk(arguments, path)).collect::<Result<_, _>>()?;
    let work = match arguments.get("work", "load".to_owned())?.as_str() {
        "load" => Work::Load(load(arguments)?),
        "fill" => Work::Fill(FillSpec {
            block_bytes: arguments.get("block", 1 << 20)?,
            outstanding: arguments.get("depth", 8)?,
            zero: false,
        }),
        "verify" => Work::Verify(VerifySpec {
            blocks: arguments.get("blocks", 1000)?,
            block_bytes: arguments.get("block", 4096)?,
            zero: false,
        }),
        other => return Err(format!("work={other}: load, fill or verify")),
    };
    let defaults = Tuning::default();
    let tuning = Tuning {
        reissue_batch: arguments.get("reissue", defaults.reissue_batch)?,
        stamp_each: arguments.flag("stamp_each", false)?,
        pin: if arguments.values.contains_key("pin") { Some(arguments.flag("pin", false)?) } else { None },
        nop: arguments.flag("nop", false)?,
        character_devices: true,
        first_rung: arguments.get("rung", 0)?,
        register_buffers: arguments.flag("register", true)?,
        direct: arguments.flag("direct", true)?,
        ..defaults
    };
    Ok(Job {
        disks,
        threads: arguments.get("threads", 1)?,
        work,
        seed: arguments.get("seed", 1)?,
        own_kernel: arguments.flag("own_kernel", false)?,
        tuning,
    })
}

fn disk(arguments: &Arguments, path: &str) -> Result<DiskSpec, String> {
    let found =
        || load_engine::probe_disk(path.as_ref()).map(|probe| probe.size_bytes).map_err(|error| error.to_string());
    let size_bytes = match arguments.get("size", 0)? {
        0 => found()?,
        size => size,
    };
    let region = 0..arguments.get("region", size_bytes)?;
    Ok(DiskSpec { id: path.to_owned(), path: path.into(), size_bytes, region, data_seed: 1 })
}

fn load(arguments: &Arguments) -> Result<LoadSpec, String> {
    let pattern = match arguments.get("pattern", "random".to_owned())?.as_str() {
        "random" => Pattern::Random,
        "sequential" => Pattern::Sequential { streams: arguments.get("streams", 1)? },
        "permutation" => Pattern::Permutation,
        other => return Err(format!("pattern={other}: random, sequential or permutation")),
    };
    let rate = match arguments.get("rate", 0.0)? {
        0.0 => None,
        iops => Some(Rate { iops, per_disk: true, poisson: arguments.flag("poisson", false)? }),
    };
    let workload = Workload {
        block_bytes: arguments.get("block", 4096)?,
        pattern,
        read_percent: arguments.get("read", 100)?,
        outstanding: arguments.get("depth", 1)?,
        rate,
        compression_ratio: arguments.get("compression", 1.0)?,
        duplication_ratio: arguments.get("duplication", 1.0)?,
        flush_every_writes: Some(arguments.get("flush", 0)?).filter(|&every| every > 0),
        ..Workload::default()
    };
    Ok(LoadSpec {
        workload,
        precondition_seconds: arguments.get("precondition", 0)?,
        sample_seconds: arguments.get("seconds", 3)?,
    })
}

fn json(outcome: &Outcome, report: &Report, seconds: f64) -> String {
    let mut reads = OpTotals::default();
    let mut writes = OpTotals::default();
    for disk in &outcome.disks {
        for (total, part) in [(&mut reads, &disk.ops.read), (&mut writes, &disk.ops.write)] {
            total.count += part.count;
            total.bytes += part.bytes;
            total.errors += part.errors;
            total.latencies.merge(&part.latencies);
        }
    }
    let mut all = reads.latencies.clone();
    all.merge(&writes.latencies);
    let bytes = reads.bytes + writes.bytes;
    let elapsed = outcome.disks.iter().map(|disk| disk.elapsed.as_secs_f64()).fold(0.0, f64::max);
    let devices: Vec<String> =
        outcome.disks.iter().filter_map(|disk| disk.device).map(|device| format!("{device:?}")).collect();
    let pacing: Vec<String> =
        outcome.disks.iter().filter_map(|disk| disk.pacing).map(|pacing| format!("{pacing:?}")).collect();
    let fields = [
        ("complete", outcome.complete.to_string()),
        ("reason", quoted(outcome.reason.as_deref().unwrap_or(""))),
        ("count", (reads.count + writes.count).to_string()),
        ("iops", number(as_f64(reads.count + writes.count) / seconds)),
        ("mib_per_s", number(as_f64(bytes) / f64::from(1 << 20) / if elapsed > 0.0 { elapsed } else { seconds })),
        ("elapsed_s", number(elapsed)),
        ("errors", (reads.errors + writes.errors).to_string()),
        ("lat_us", latencies(&all)),
        ("read_lat_us", latencies(&reads.latencies)),
        ("write_lat_us", latencies(&writes.latencies)),
        ("thread_cpu", number(outcome.thread_cpu.iter().sum())),
        ("io_wq_cpu", number(outcome.io_wq_cpu)),
        ("granted", list(&report.granted)),
        ("refused", list(&report.refused)),
        ("devices", list(&devices)),
        ("pacing", list(&pacing)),
        ("warnings", list(&[report.warnings.clone(), outcome.warnings.clone()].concat())),
    ];
    let fields: Vec<String> = fields.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
    format!("{{{}}}", fields.join(", "))
}

fn latencies(latencies: &Latencies) -> String {
    let micros = |ns: u64| number(as_f64(ns) / 1000.0);
    let at = |percent: f64| micros(latencies.percentile_ns(percent).unwrap_or(0));
    let mean = number(latencies.mean_ns().unwrap_or(0.0) / 1000.0);
    format!(
        "{{\"mean\": {mean}, \"p50\": {}, \"p99\": {}, \"p99_9\": {}, \"max\": {}}}",
        at(50.0),
        at(99.0),
        at(99.9),
        micros(latencies.max_ns().unwrap_or(0))
    )
}

fn list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
    format!("[{}]", items.join(", "))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " "))
}

fn number(value: f64) -> String {
    format!("{value:.3}")
}

#[expect(clippy::cast_precision_loss, reason = "figures for a person")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

//! The one command, from start to report, and everything that can be asked of its results afterwards.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use analysis::export::{Export, Op};
use end_to_end::Site;
use serde_json::Value;

const MIB: u64 = 1 << 20;

#[test]
fn the_demo_measures_two_footprints_and_leaves_only_its_results() {
    let site = Site::new();
    let answer = site.ask(["demo"]);
    assert!(answer.ok(), "{answer:?}");
    assert!(site.disk_files().is_empty(), "disks are removed: {:?}", site.disk_files());
    assert_eq!(site.workers(), vec![]);

    let printed_path = |label: &str| {
        let line = answer.stdout.lines().find(|line| line.starts_with(label)).unwrap();
        line[label.len()..].trim().to_owned()
    };
    let html = fs::read_to_string(printed_path("Report:")).unwrap();
    let database = printed_path("Database:");
    assert!(answer.stdout.contains("4k-random-read") && answer.stdout.contains("IOPS"), "{}", answer.stdout);
    assert!(answer.stderr.contains("left"), "progress with time left: {}", answer.stderr);

    let json = site.export();
    contract(&json);
    figures(&serde_json::from_value(json.clone()).unwrap());
    html_needs_no_network(&html);
    database_is_sound(&database);
    csv_agrees(&site, &json);

    let shown = site.ask(["show"]);
    assert!(shown.ok() && shown.stdout.contains("32k-sequential-write"), "{shown:?}");
    let again: Value = serde_json::from_str(&site.ask(["show", "latest", "--json"]).stdout).unwrap();
    assert_eq!(again, json, "show --json and export are the same document");
}

/// The names that the export's documentation promises, in the JSON itself.
fn contract(json: &Value) {
    assert_eq!(json["format"], "fourcorners/1");
    for key in ["id", "name", "state", "started", "finished", "plan", "environment"] {
        assert!(!json["run"][key].is_null(), "run.{key}");
    }
    assert_eq!(json["run"]["state"], "done");
    let cases = json["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 10);
    for case in cases {
        let keys: BTreeSet<&str> = case.as_object().unwrap().keys().map(String::as_str).collect();
        let promised = [
            "footprint_bytes",
            "effective_bytes",
            "region_bytes",
            "workload",
            "block_bytes",
            "read_percent",
            "outstanding_per_disk",
            "state",
            "started",
            "finished",
            "fill",
            "workers",
            "window_seconds",
            "start_skew_us",
            "unfinished",
            "ops",
            "seconds",
            "per_worker",
            "per_disk",
        ];
        for key in promised {
            assert!(keys.contains(key), "{key} is missing from a case");
        }
        let read_only = case["read_percent"] == 100;
        assert_eq!(case["ops"]["write"].is_null(), read_only, "an operation without I/O is null");
        let op = &case["ops"][if read_only { "read" } else { "write" }];
        for key in ["count", "bytes", "iops", "mib_per_s", "errors"] {
            assert!(op[key].is_number(), "{key}");
        }
        for key in ["mean", "min", "p50", "p90", "p95", "p99", "p99_9", "p99_99", "max"] {
            assert!(op["latency_us"][key].is_number(), "latency_us.{key}");
        }
    }
}

/// Figures that must hold together, whatever the disk.
fn figures(export: &Export) {
    let footprints: Vec<u64> = export.cases.iter().map(|case| case.footprint_bytes).collect();
    assert_eq!(footprints, [vec![256 * MIB; 5], vec![1024 * MIB; 5]].concat());
    for case in &export.cases {
        let name = format!("{} {}", case.footprint, case.workload);
        assert_eq!(case.state, "complete", "{name}: {:?}", case.reason);
        assert_eq!(case.effective_bytes, case.region_bytes * 4, "{name}");
        assert_eq!((case.workers.expected, case.workers.measured), (2, 2), "{name}");
        assert!(case.start_skew_us.unwrap() < 50_000.0, "{name}: workers started {:?} µs apart", case.start_skew_us);

        let fill = case.fill.as_ref().unwrap();
        let new_bytes = if case.footprint_bytes == 256 * MIB { 256 * MIB } else { 768 * MIB };
        assert_eq!(fill.bytes, new_bytes, "{name}: only the new bytes are filled");
        assert_eq!(fill.verified_blocks, 4_000, "{name}");

        let all = case.ops.all.as_ref().unwrap();
        assert_eq!(all.bytes, all.count * case.block_bytes, "{name}");
        assert_eq!(all.errors, 0, "{name}");
        close(all.iops, as_f64(all.count) / case.window_seconds, 1e-9);
        close(all.mib_per_s, all.iops * as_f64(case.block_bytes) / as_f64(MIB), 1e-9);
        in_order(all, &name);
        littles_law(case, all, &name);

        let window = case.seconds.len();
        close(f64::from(u32::try_from(window).unwrap()), case.window_seconds, 1e-9);
        let by_second: f64 =
            case.seconds.iter().flat_map(|second| [&second.read, &second.write]).flatten().map(|op| op.iops).sum();
        close(by_second, as_f64(all.count), 1e-6);
        let by_worker: u64 = case.per_worker.iter().map(|worker| worker.ops.all.as_ref().unwrap().count).sum();
        let by_disk: u64 = case.per_disk.iter().map(|disk| disk.ops.all.as_ref().unwrap().count).sum();
        assert_eq!((by_worker, by_disk), (all.count, all.count), "{name}");
        assert_eq!(case.per_disk.len(), 4, "{name}");

        if case.read_percent == 70 {
            let share = as_f64(case.ops.read.as_ref().unwrap().count) / as_f64(all.count);
            assert!((share - 0.7).abs() < 0.02, "{name}: {share} of the I/Os are reads");
        }
    }
}

fn in_order(op: &Op, name: &str) {
    let l = op.latency_us.as_ref().unwrap();
    let ascending = [l.min, l.p50, l.p90, l.p95, l.p99, l.p99_9, l.p99_99, l.max];
    assert!(ascending.is_sorted(), "{name}: {ascending:?}");
    assert!(l.min <= l.mean && l.mean <= l.max, "{name}");
}

/// In a closed loop, IOPS × mean latency is the number of I/Os in flight (Little's law): never more, and nearly all of it.
fn littles_law(case: &analysis::export::Case, all: &Op, name: &str) {
    let in_flight = all.iops * all.latency_us.as_ref().unwrap().mean / 1e6;
    let asked = f64::from(case.outstanding_per_disk) * 4.0;
    assert!(in_flight < asked * 1.05 && in_flight > asked * 0.5, "{name}: {in_flight} of {asked} I/Os in flight");
}

fn html_needs_no_network(html: &str) {
    assert!(html.contains("4k-random-read") && html.contains("plotly"));
    // Plotly's source names addresses that it never asks; that the whole file asks for none is shown in a browser, by the web crate's tests.
    let markup: String =
        html.split("<script").map(|part| part.split_once("</script>").map_or(part, |(_, after)| after)).collect();
    let outside = ["src=\"http", "href=\"http", "src='http", "url(http", "@import"];
    let found: Vec<_> = outside.iter().filter(|mark| markup.contains(**mark)).collect();
    assert!(found.is_empty(), "the report loads from outside: {found:?}");
}

/// SQLite's own shell, so that not only our library thinks the file is well.
fn database_is_sound(path: &str) {
    let asked = Command::new("sqlite3")
        .args([path, "PRAGMA integrity_check; PRAGMA foreign_key_check; PRAGMA journal_mode;"])
        .output();
    match asked {
        Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\nwal\n"),
        Err(error) => end_to_end::skip(&format!("sqlite3 cannot be run: {error}")),
    }
}

fn csv_agrees(site: &Site, json: &Value) {
    let path = site.path().join("cases.csv");
    let answer = site.ask(["export", "latest", "--format", "csv", "-o", path.to_str().unwrap()]);
    assert!(answer.ok(), "{answer:?}");
    let csv = fs::read_to_string(&path).unwrap();
    let expected: usize = json["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["ops"].as_object().unwrap().values().filter(|op| !op.is_null()).count())
        .sum();
    assert_eq!(csv.lines().count(), expected + 1, "a row a case and operation, and a header");
}

fn close(left: f64, right: f64, relative: f64) {
    assert!((left - right).abs() <= relative * right.abs().max(1.0), "{left} and {right}");
}

#[expect(clippy::cast_precision_loss, reason = "counts of a short run")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

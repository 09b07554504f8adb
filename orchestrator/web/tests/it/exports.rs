//! JSON and CSV.

use analysis::export::Export;
use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use futures_util::future::join_all;
use tower::ServiceExt as _;
use web::{CSV_COLUMNS, cases_csv, export_json};

use crate::client::Interface;
use crate::router::ID;
use crate::samples;

fn rows(csv: &str) -> Vec<std::collections::HashMap<String, String>> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    reader.deserialize().collect::<Result<_, _>>().unwrap()
}

#[test]
fn json_gives_back_the_run() {
    for export in [samples::demo(), samples::incomplete(), samples::cancelled(), samples::hostile()] {
        let text = export_json(&export).unwrap();
        assert!(serde_json::from_str::<Export>(&text).unwrap() == export, "{}", export.run.name);
        assert!(text.starts_with("{\n") && text.ends_with("}\n"));
    }
}

#[test]
fn csv_has_a_row_a_case_and_operation() {
    let export = samples::cancelled();
    let csv = cases_csv(&export).unwrap();
    insta::assert_snapshot!("cancelled.csv", csv);
    let rows = rows(&csv);
    let ops: Vec<&str> = rows.iter().map(|row| row["op"].as_str()).collect();
    assert_eq!(ops, ["read", "all", "write", "all", "read", "write", "all", ""]);
    let case = &export.cases[2];
    let (row, op) = (&rows[4], case.ops.read.as_ref().unwrap());
    assert_eq!(row["workload"], "8k-random-70-30");
    assert_eq!(row["iops"].parse::<f64>().unwrap(), op.iops);
    assert_eq!(row["latency_p99_9_us"].parse::<f64>().unwrap(), op.latency_us.as_ref().unwrap().p99_9);
    assert_eq!(rows[7]["case_reason"], "cancelled while preconditioning");
    assert_eq!(rows[7]["iops"], "");
    assert_eq!(rows[0].len(), CSV_COLUMNS.len());
}

#[test]
fn csv_has_the_open_loop_the_options_and_what_limits_a_figure() {
    let export = samples::open_loop();
    let rows = rows(&cases_csv(&export).unwrap());
    let row = &rows[0];
    let case = &export.cases[0];
    let service = case.service.as_ref().unwrap().read.as_ref().unwrap().latency_us.as_ref().unwrap();
    assert_eq!((row["op"].as_str(), row["service_p99_us"].parse::<f64>().unwrap()), ("read", service.p99));
    assert_ne!(row["service_p99_us"], row["latency_p99_us"]);
    for (column, value) in [
        ("hot_spot_io_percent", "90"),
        ("hot_spot_space_percent", "10"),
        ("range_from_percent", "0"),
        ("range_to_percent", "50"),
        ("align_bytes", "512"),
        ("on_error", "stop-after-100"),
        ("rate_iops", "12500"),
        ("rate_per", "disk"),
        ("rate_poisson", "true"),
        ("asked_iops", "50000"),
        ("intended", "250000"),
        ("late", "1200"),
        ("missed", "7"),
        ("largest_lag_us", "3400"),
        ("generator_may_limit", "false"),
        ("generator_thread_cpu_max", "0.31"),
        ("stalls", "0"),
        ("stall_longest_seconds", ""),
        ("streams", ""),
    ] {
        assert_eq!(row[column], value, "{column}");
    }
    let mixed = rows.iter().find(|row| row["workload"] == "8k-random-70-30" && row["op"] == "write").unwrap();
    assert_eq!((mixed["compression_ratio"].as_str(), mixed["flush_every_writes"].as_str()), ("2", "1000"));
    assert_eq!(mixed["rate_per"], "worker");
    let closed = rows.iter().find(|row| row["workload"] == "4k-random-write").unwrap();
    assert_eq!((closed["rate_iops"].as_str(), closed["service_mean_us"].as_str()), ("", ""));
    let stalled = self::rows(&cases_csv(&samples::incomplete()).unwrap());
    let stalled = stalled.iter().find(|row| row["generator_may_limit"] == "true").unwrap();
    assert_eq!((stalled["stalls"].as_str(), stalled["stall_longest_seconds"].as_str()), ("2", "2.25"));
    assert_eq!(stalled["generator_thread_cpu_max"], "0.97");
}

#[test]
fn csv_cells_are_no_formulas() {
    let mut export = samples::cancelled();
    export.run.name = "=HYPERLINK(\"http://evil.example\",\"x\")".to_owned();
    export.run.warnings = vec!["@SUM(1),\"quoted\"\nnext line".to_owned()];
    export.cases[0].workload = "+1".to_owned();
    export.cases[0].footprint = "-2".to_owned();
    export.cases[3].reason = Some("\t=3".to_owned());
    let rows = rows(&cases_csv(&export).unwrap());
    assert_eq!(rows[0]["run_name"], "'=HYPERLINK(\"http://evil.example\",\"x\")");
    assert_eq!(rows[0]["warnings"], "'@SUM(1),\"quoted\"\nnext line");
    assert_eq!(rows[0]["workload"], "'+1");
    assert_eq!(rows[0]["footprint"], "'-2");
    assert_eq!(rows[7]["case_reason"], "'\t=3");
    for (column, value) in rows.iter().flatten() {
        assert!(!value.starts_with(['=', '+', '-', '@', '\t']), "{column}: {value}");
    }
}

#[test]
fn a_run_without_cases_is_a_header() {
    let csv = cases_csv(&samples::empty()).unwrap();
    assert_eq!(csv.lines().count(), 1);
    assert!(csv.starts_with("run_id,run_name,"));
}

/// Each download holds a run and a thread for as long as its client takes: there are a few places, also for whom takes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn downloads_are_few_at_a_time_and_who_has_no_place_is_told_so() {
    let interface = Interface::new(vec![samples::demo()]).await;
    let viewer = interface.log_in("viewer").await;
    let html = format!("/runs/{ID}/export.html");
    let ask = |path: &str| {
        let request = viewer.request(Method::GET, path).body(Body::empty()).unwrap();
        interface.router.clone().oneshot(request)
    };
    // 5 MB each, of which nobody takes any.
    let mut held = Vec::new();
    loop {
        let answer = ask(&html).await.unwrap();
        if answer.status() != StatusCode::OK {
            break;
        }
        held.push(answer);
        assert!(held.len() <= 16, "there is no limit");
    }
    assert!(held.len() >= 2, "{} at a time", held.len());
    let downloads = ["export.html", "export.json", "export.csv"].map(|file| format!("/runs/{ID}/{file}"));
    let paths: Vec<String> = downloads.into_iter().chain([format!("/api/v1/runs/{ID}")]).collect();
    let described = web::routes().into_iter().filter(|route| route.path.contains("/export.")).count();
    assert_eq!(described, 3, "a download that is not asked for here");
    for refused in join_all(paths.iter().map(|path| viewer.get(path))).await {
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.body);
        assert_eq!(refused.headers[header::RETRY_AFTER], "10");
        assert!(refused.body.contains("Too many downloads at once"), "{}", refused.body);
    }
    held.clear();
    for path in &paths {
        let answered = viewer.get(path).await;
        assert_eq!(answered.status, StatusCode::OK, "{path}: {}", answered.body);
    }
}

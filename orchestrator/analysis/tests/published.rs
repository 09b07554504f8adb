//! The arithmetic of throughput and of Little's law, held against published HCI tests.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use analysis::throughput::{mib_per_s, outstanding};

/// 2 outstanding I/Os on each of 16 × 10 disks, in every published row.
const PUBLISHED_OUTSTANDING: f64 = 320.0;

struct Row {
    name: String,
    block_bytes: u64,
    iops: f64,
    mib_per_s: String,
    latency_ms: String,
}

fn rows() -> Vec<Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/published-results.csv");
    let mut reader = csv::Reader::from_path(path).unwrap();
    let headers = reader.headers().unwrap().clone();
    let rows: Vec<Row> = reader
        .records()
        .map(|record| {
            let record = record.unwrap();
            let field = |name: &str| record[headers.iter().position(|header| header == name).unwrap()].to_owned();
            Row {
                name: format!("{} {} {}", field("platform"), field("profile"), field("footprint_bytes")),
                block_bytes: field("block_bytes").parse().unwrap(),
                iops: field("iops").parse().unwrap(),
                mib_per_s: field("mib_per_s"),
                latency_ms: field("latency_ms"),
            }
        })
        .collect();
    assert_eq!(rows.len(), 20, "rows of published-results.csv");
    rows
}

/// One unit of the last printed digit.
fn unit(printed: &str) -> f64 {
    printed.split_once('.').map_or(1.0, |(_, decimals)| 0.1_f64.powi(i32::try_from(decimals.len()).unwrap()))
}

#[test]
fn mib_per_s_agrees_with_every_published_row() {
    for row in rows() {
        let printed: f64 = row.mib_per_s.parse().unwrap();
        let computed = mib_per_s(row.iops, row.block_bytes);
        assert!((computed - printed).abs() <= unit(&row.mib_per_s), "{}: {computed} for {printed}", row.name);
    }
}

#[test]
fn littles_law_shows_the_published_load() {
    let mut precise = 0;
    for row in rows() {
        let latency_us = row.latency_ms.parse::<f64>().unwrap() * 1e3;
        if row.latency_ms.contains('.') {
            precise += 1;
            let load = outstanding(row.iops, latency_us);
            assert!((load / PUBLISHED_OUTSTANDING - 1.0).abs() < 0.01, "{}: {load}", row.name);
        } else {
            // Printed in whole milliseconds: the load lies within a printed unit, and 1 % for the rounding of IOPS.
            let (low, high) = (outstanding(row.iops, latency_us - 1e3), outstanding(row.iops, latency_us + 1e3));
            assert!((low..=high * 1.01).contains(&PUBLISHED_OUTSTANDING), "{}: {low} to {high}", row.name);
        }
    }
    assert_eq!(precise, 5, "rows whose latency has digits enough");
}

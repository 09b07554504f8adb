//! A workload in words.

use analysis::export::{Case, Rate, WorkloadOptions};

use crate::format;

/// Block, pattern, mix and load, and whatever else was asked for.
pub(crate) fn profile(case: &Case) -> String {
    let share = match case.read_percent {
        0 => "write".to_owned(),
        100 => "read".to_owned(),
        reads => format!("{reads} % read, {} % write", 100 - reads.min(100)),
    };
    let mut parts = vec![format!("{} {}", format::bytes(case.block_bytes), pattern(case)), share, load(case)];
    parts.extend(case.options.iter().flat_map(|options| extras(options, case.read_percent < 100)));
    parts.join(", ")
}

/// The loop is open: I/Os start at intended times.
pub(crate) fn open_loop(case: &Case) -> Option<&Rate> {
    case.options.as_ref()?.rate.as_ref()
}

fn pattern(case: &Case) -> String {
    let Some(options) = &case.options else { return case.pattern.clone() };
    let mut text = case.pattern.clone();
    if let Some(streams) = options.streams.filter(|streams| *streams > 1) {
        text.push_str(&format!(" in {streams} streams"));
    }
    if let Some(spot) = options.hot_spot {
        text.push_str(&format!(" ({} % of the I/Os in {} % of the space)", spot.io_percent, spot.space_percent));
    }
    if let Some(range) = options.range {
        text.push_str(&format!(" on {} % to {} % of each region", range.from_percent, range.to_percent));
    }
    if let Some(align) = options.align_bytes {
        text.push_str(&format!(" aligned to {}", format::bytes(align)));
    }
    text
}

fn load(case: &Case) -> String {
    let outstanding = format::count(case.outstanding_per_disk.into());
    match open_loop(case) {
        None => format!("{outstanding} outstanding a disk"),
        Some(rate) => {
            let arrivals = if rate.poisson { " (Poisson arrivals)" } else { "" };
            let iops = format::iops(rate.iops);
            format!(
                "open loop at {} IOPS a {}{arrivals}, at most {outstanding} outstanding a disk",
                iops.text(),
                rate.per
            )
        }
    }
}

/// What differs from a workload that says nothing.
fn extras(options: &WorkloadOptions, writes: bool) -> Vec<String> {
    let mut extras = Vec::new();
    if writes && options.compression_ratio > 1.0 {
        extras.push(format!("data compressible {} to 1", options.compression_ratio));
    }
    if writes && options.duplication_ratio > 1.0 {
        extras.push(format!("data duplicated {} to 1", options.duplication_ratio));
    }
    if let Some(writes) = options.flush_every_writes.filter(|_| writes) {
        extras.push(format!("a flush every {} writes", format::count(writes.into())));
    }
    if options.on_error != "stop" {
        extras.push(format!("on an error: {}", options.on_error.replace('-', " ")));
    }
    if options.stall_seconds != 1 {
        extras.push(format!("stalls from {} s", options.stall_seconds));
    }
    extras
}

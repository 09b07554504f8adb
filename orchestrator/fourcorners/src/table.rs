//! The result table on the terminal.

use analysis::export::{Case, Export, Op, Ops};
use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};

const HEADER: [&str; 11] =
    ["footprint", "workload", "op", "IOPS", "MiB/s", "mean", "p50", "p99", "p99.9", "max", "case"];
/// Columns that hold numbers.
const NUMBERS: std::ops::RangeInclusive<usize> = 3..=9;

/// A line under the header and nothing else: figures are read by column.
pub(crate) const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Renders a run: its state, the table of cases, and every caveat.
pub(crate) fn render(export: &Export) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(HEADER);
    for column in NUMBERS {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for case in &export.cases {
        for row in rows(case) {
            table.add_row(row);
        }
    }
    let mut text = format!("{}\n", heading(export));
    if !export.cases.is_empty() {
        text.push_str(&format!("{table}\n"));
    }
    for note in notes(export) {
        text.push_str(&format!("! {note}\n"));
    }
    text
}

fn heading(export: &Export) -> String {
    let run = &export.run;
    let complete = if run.complete { "complete" } else { "NOT COMPLETE" };
    let reason = run.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    format!("Run {} \"{}\": {}, {complete}{reason}", run.id, run.name, run.state)
}

/// Both operations of a mixed case, else the only one; in an open loop each is followed by its service times.
fn rows(case: &Case) -> Vec<Vec<Cell>> {
    let named = match (&case.ops.read, &case.ops.write) {
        (Some(_), Some(_)) => vec!["all", "read", "write"],
        (Some(_), None) => vec!["read"],
        (None, Some(_)) => vec!["write"],
        (None, None) => vec!["-"],
    };
    let mut rows = Vec::new();
    for name in named {
        rows.push(row(case, name, op_named(&case.ops, name), rows.is_empty()));
        if let Some(service) = case.service.as_ref().and_then(|service| op_named(service, name)) {
            rows.push(row(case, &format!("{name}, service"), Some(service), false));
        }
    }
    rows
}

fn op_named<'a>(ops: &'a Ops, name: &str) -> Option<&'a Op> {
    match name {
        "all" => ops.all.as_ref(),
        "read" => ops.read.as_ref(),
        "write" => ops.write.as_ref(),
        _ => None,
    }
}

fn row(case: &Case, name: &str, op: Option<&Op>, first: bool) -> Vec<Cell> {
    let text = |text: &str| if first { text.to_owned() } else { String::new() };
    let mut cells = vec![text(&case.footprint), text(&case.workload), name.to_owned()];
    match op {
        Some(op) => {
            cells.push(thousands(op.iops));
            cells.push(thousands(op.mib_per_s));
            match &op.latency_us {
                Some(l) => cells.extend([l.mean, l.p50, l.p99, l.p99_9, l.max].map(latency)),
                None => cells.extend(std::iter::repeat_n("-".to_owned(), 5)),
            }
        }
        None => cells.extend(std::iter::repeat_n("-".to_owned(), 7)),
    }
    cells.push(text(&case.state));
    cells.into_iter().map(Cell::new).collect()
}

fn notes(export: &Export) -> Vec<String> {
    let of_run = export.run.warnings.iter().cloned();
    let of_cases = export.cases.iter().flat_map(|case| {
        let reason = case.reason.iter().filter(|_| case.state != "complete");
        reason.chain(&case.warnings).map(move |note| format!("{} {}: {note}", case.footprint, case.workload))
    });
    of_run.chain(of_cases).collect()
}

/// A latency in µs, ms or s with three or more figures.
pub(crate) fn latency(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 10_000.0 => format!("{:.2} ms", us / 1e3),
        us if us < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// A figure with thousands separators; one decimal below 100.
pub(crate) fn thousands(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(thousands(7.04), "7.0");
        assert_eq!(thousands(999.6), "1,000");
        assert_eq!(thousands(227_241.6), "227,242");
        assert_eq!(latency(999.4), "999 µs");
        assert_eq!(latency(1_408.0), "1.41 ms");
        assert_eq!(latency(47_000.0), "47.0 ms");
        assert_eq!(latency(2_000_000.0), "2.00 s");
    }
}

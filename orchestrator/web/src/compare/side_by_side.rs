//! The figures of cases in columns, each divided by that of the first; pure.

use analysis::export::{Case, Latency, Op, Ops};

use crate::format::{self, LatencyUnit};

/// A group of rows: one operation.
pub(crate) struct Group {
    pub(crate) op: &'static str,
    pub(crate) label: &'static str,
    pub(crate) rows: Vec<Row>,
}

pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) cells: Vec<Cell>,
}

pub(crate) struct Cell {
    pub(crate) text: String,
    /// This figure divided by the first case's; empty there, and where one of them is missing.
    pub(crate) ratio: String,
}

type Pick = fn(&Op) -> Option<f64>;
type Show = fn(f64, LatencyUnit) -> String;

/// The unit in which all these cases' latencies are shown.
pub(crate) fn unit(cases: &[&Case]) -> LatencyUnit {
    let medians =
        cases.iter().flat_map(|case| operations(&case.ops)).filter_map(|(_, _, op)| Some(op?.latency_us.as_ref()?.p50));
    LatencyUnit::for_smallest_median(medians.min_by(f64::total_cmp))
}

fn operations(ops: &Ops) -> [(&'static str, &'static str, Option<&Op>); 3] {
    // Both together say something only where there are both.
    let all = ops.all.as_ref().filter(|_| ops.read.is_some() && ops.write.is_some());
    [("read", "Reads", ops.read.as_ref()), ("write", "Writes", ops.write.as_ref()), ("both", "Reads and writes", all)]
}

/// The groups that any of the cases has figures for.
pub(crate) fn groups(cases: &[&Case], unit: LatencyUnit) -> Vec<Group> {
    (0..3)
        .filter_map(|place| {
            let ops: Vec<Option<&Op>> = cases.iter().map(|case| operations(&case.ops)[place].2).collect();
            let (op, label) =
                cases.first().map(|case| (operations(&case.ops)[place].0, operations(&case.ops)[place].1))?;
            ops.iter().any(Option::is_some).then(|| Group { op, label, rows: rows(&ops, unit) })
        })
        .collect()
}

fn rows(ops: &[Option<&Op>], unit: LatencyUnit) -> Vec<Row> {
    let latency = |name: &str| format!("{name}, {}", unit.label());
    let shown: Show = |us, unit| unit.show(us).text().to_owned();
    let figures: [(String, Pick, Show); 11] = [
        ("IOPS".to_owned(), |op| Some(op.iops), |value, _| format::iops(value).text().to_owned()),
        ("MiB/s".to_owned(), |op| Some(op.mib_per_s), |value, _| format::mib_per_s(value).text().to_owned()),
        (latency("mean"), |op| of(op, |l| l.mean), shown),
        (latency("p50"), |op| of(op, |l| l.p50), shown),
        (latency("p90"), |op| of(op, |l| l.p90), shown),
        (latency("p95"), |op| of(op, |l| l.p95), shown),
        (latency("p99"), |op| of(op, |l| l.p99), shown),
        (latency("p99.9"), |op| of(op, |l| l.p99_9), shown),
        (latency("p99.99"), |op| of(op, |l| l.p99_99), shown),
        (latency("max"), |op| of(op, |l| l.max), shown),
        ("errors".to_owned(), errors, |value, _| format!("{value:.0}")),
    ];
    figures
        .into_iter()
        .map(|(label, pick, show)| {
            let values: Vec<Option<f64>> = ops.iter().map(|op| op.and_then(pick)).collect();
            Row { label, cells: cells(&values, |value| show(value, unit)) }
        })
        .collect()
}

fn of(op: &Op, pick: fn(&Latency) -> f64) -> Option<f64> {
    op.latency_us.as_ref().map(pick)
}

#[expect(clippy::cast_precision_loss, reason = "a figure for a person")]
fn errors(op: &Op) -> Option<f64> {
    Some(op.errors as f64)
}

fn cells(values: &[Option<f64>], show: impl Fn(f64) -> String) -> Vec<Cell> {
    let base = values.first().copied().flatten().filter(|base| *base > 0.0);
    values
        .iter()
        .enumerate()
        .map(|(place, value)| Cell {
            text: value.map_or("–".to_owned(), &show),
            ratio: value
                .zip(base)
                .filter(|_| place > 0)
                .map_or(String::new(), |(value, base)| format::ratio(value / base)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_the_first_and_only_where_both_are() {
        let row = cells(&[Some(200.0), Some(100.0), None], |value| format!("{value}"));
        let shown: Vec<(&str, &str)> = row.iter().map(|cell| (cell.text.as_str(), cell.ratio.as_str())).collect();
        assert_eq!(shown, [("200", ""), ("100", "×0.50"), ("–", "")]);
        assert!(cells(&[Some(0.0), Some(1.0)], |value| format!("{value}"))[1].ratio.is_empty());
        assert!(cells(&[None, Some(1.0)], |value| format!("{value}"))[1].ratio.is_empty());
        assert!(groups(&[], LatencyUnit::Milli).is_empty());
    }
}

//! What a second of a run is followed by: named figures in a fixed order, which the page's script shares.

use analysis::export::{Second, SecondOp};

/// How many there are.
pub(crate) const FIGURES: usize = 11;

/// Names by place.
pub(crate) const FIGURE_NAMES: [&str; FIGURES] = [
    "read_iops",
    "read_mib_per_s",
    "read_p50_us",
    "read_p99_us",
    "read_max_us",
    "write_iops",
    "write_mib_per_s",
    "write_p50_us",
    "write_p99_us",
    "write_max_us",
    "fill_mib_per_s",
];

/// A second's figures; none where there is nothing to tell.
pub(crate) type Figures = [Option<f64>; FIGURES];

/// The cluster in a second of a case. An operation of the workload that completed nothing has 0 IOPS and no latency: a stall is seen.
pub(crate) fn of_case(second: &Second, reads: bool, writes: bool) -> Figures {
    let op = |op: Option<&SecondOp>, asked: bool| match op {
        Some(op) => [Some(op.iops), Some(op.mib_per_s), Some(op.p50_us), Some(op.p99_us), Some(op.max_us)],
        None if asked => [Some(0.0), Some(0.0), None, None, None],
        None => [None; 5],
    };
    let mut figures = Figures::default();
    figures[..5].copy_from_slice(&op(second.read.as_ref(), reads));
    figures[5..10].copy_from_slice(&op(second.write.as_ref(), writes));
    figures
}

/// A second of a fill.
pub(crate) fn of_fill(mib_per_s: f64) -> Figures {
    let mut figures = Figures::default();
    figures[10] = Some(mib_per_s);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_zero_and_an_operation_that_is_not_asked_for_is_nothing() {
        let op = SecondOp { iops: 9.0, mib_per_s: 1.0, mean_us: 5.0, p50_us: 4.0, p99_us: 7.0, max_us: 8.0 };
        let second = Second { t: 3, read: Some(op), write: None };
        let mixed = of_case(&second, true, true);
        assert_eq!(&mixed[..5], [Some(9.0), Some(1.0), Some(4.0), Some(7.0), Some(8.0)]);
        assert_eq!(&mixed[5..7], [Some(0.0), Some(0.0)]);
        assert_eq!(mixed[7], None);
        assert_eq!(of_case(&second, true, false)[5], None);
        assert_eq!(FIGURE_NAMES[10], "fill_mib_per_s");
        assert_eq!(of_fill(3.0)[10], Some(3.0));
    }
}

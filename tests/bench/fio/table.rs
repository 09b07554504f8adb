//! Medians and ratios.

use comfy_table::{CellAlignment, Table, presets};

use crate::job::{Figures, Job, Round};

/// A figure's name, decimals, and where it is.
type Figure = (&'static str, usize, fn(&Figures) -> f64);

const FIGURES: [Figure; 4] = [
    ("IOPS", 0, |figures| figures.iops),
    ("mean, µs", 1, |figures| figures.mean_us),
    ("p99, µs", 1, |figures| figures.p99_us),
    ("CPU s / 10⁶ I/Os", 2, |figures| figures.cpu),
];

/// All cases, a row a figure: the three medians, the two ratios of medians, and in parentheses the ratios of single rounds.
pub(crate) fn render(results: &[(&Job, Vec<Round>)]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["case", "depth", "figure", "fio", "worker", "fio again", "worker / fio", "fio again / fio"]);
    table.column_iter_mut().skip(3).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    for (job, rounds) in results {
        for figure in &FIGURES {
            table.add_row(row(job, rounds, figure));
        }
    }
    table.to_string()
}

fn row(job: &Job, rounds: &[Round], (name, decimals, pick): &Figure) -> [String; 8] {
    let of = |side: fn(&Round) -> &Figures| rounds.iter().map(|round| pick(side(round))).collect::<Vec<_>>();
    let fio = of(|round| &round.fio);
    let worker = of(|round| &round.worker);
    let control = of(|round| &round.control);
    let plain = |values: &[f64]| format!("{:.decimals$}", median(values));
    [
        job.kind(),
        job.depth.to_string(),
        (*name).to_owned(),
        plain(&fio),
        plain(&worker),
        plain(&control),
        ratio(&worker, &fio),
        ratio(&control, &fio),
    ]
}

/// Ratio of the medians (least to greatest ratio within a round).
fn ratio(of: &[f64], to: &[f64]) -> String {
    let ratios = || of.iter().zip(to).map(|(of, to)| of / to);
    let (least, greatest) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
    format!("{:.3} ({least:.3}–{greatest:.3})", median(of) / median(to))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

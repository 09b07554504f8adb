//! Figures, sizes and times as a reader sees them. The exports carry the exact values.

use std::fmt;

use askama::filters::HtmlSafe;
use jiff::Timestamp;

/// Shown where there is no figure.
const MISSING: &str = "–";

/// A figure as HTML: its text and the decimals that it leaves out, drawn invisibly so that a column's decimal points align.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Num {
    text: String,
    pad: &'static str,
}

impl Num {
    /// No figure.
    pub(crate) fn missing() -> Self {
        Self { text: MISSING.to_owned(), pad: "" }
    }

    /// `value` with `decimals` decimals; `column_decimals` (0 to 3) is what the column's most precise value has.
    fn new(value: f64, decimals: usize, column_decimals: usize) -> Self {
        if !value.is_finite() {
            return Self::missing();
        }
        let pad = match (decimals, column_decimals) {
            (0, 1) => ".0",
            (0, 2) => ".00",
            (0, 3) => ".000",
            (1, 2) | (2, 3) => "0",
            (1, 3) => "00",
            _ => "",
        };
        Self { text: grouped(value, decimals), pad }
    }

    /// Without the invisible decimals.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if self.pad.is_empty() { Ok(()) } else { write!(f, "<i class=\"pad\" aria-hidden=\"true\">{}</i>", self.pad) }
    }
}

impl HtmlSafe for Num {}

/// Unit of the latencies of one report: a single one, so that no column mixes two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LatencyUnit {
    /// Microseconds.
    Micro,
    /// Milliseconds.
    Milli,
}

impl LatencyUnit {
    /// Milliseconds, unless the smallest median would then have fewer than three figures (below 0.1 ms).
    pub(crate) fn for_smallest_median(us: Option<f64>) -> Self {
        if us.is_some_and(|us| us < 100.0) { Self::Micro } else { Self::Milli }
    }

    /// `µs` or `ms`.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Micro => "µs",
            Self::Milli => "ms",
        }
    }

    /// Microseconds of one unit.
    pub(crate) fn us(self) -> f64 {
        match self {
            Self::Micro => 1.0,
            Self::Milli => 1e3,
        }
    }

    /// A latency to three significant figures or whole units: histograms hold no more.
    pub(crate) fn show(self, us: f64) -> Num {
        let value = us / self.us();
        match self {
            Self::Micro => Num::new(value, usize::from(value < 100.0), 1),
            Self::Milli => Num::new(value, significant_decimals(value), 3),
        }
    }
}

fn significant_decimals(value: f64) -> usize {
    match value.abs() {
        v if v < 1.0 => 3,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    }
}

/// I/Os a second.
pub(crate) fn iops(value: f64) -> Num {
    Num::new(value, usize::from(value < 100.0 && value != 0.0), 0)
}

/// MiB a second.
pub(crate) fn mib_per_s(value: f64) -> Num {
    Num::new(value, usize::from(value < 1000.0), 1)
}

/// A count.
pub(crate) fn count(value: u64) -> String {
    group_digits(&value.to_string())
}

/// Seconds, with a tenth where they are not whole.
pub(crate) fn seconds(value: f64) -> Num {
    let whole = (value - value.round()).abs() < 0.05;
    Num::new(value, usize::from(!whole), 1)
}

/// How long something took, seconds: hundredths below 10, tenths below 100.
pub(crate) fn elapsed(value: f64) -> Num {
    Num::new(value, significant_decimals(value).min(2), 2)
}

/// Microseconds, whole ones above 10.
pub(crate) fn microseconds(value: f64) -> Num {
    Num::new(value, usize::from(value.abs() < 10.0), 1)
}

/// `×0.66`: a figure divided by that of the smallest footprint.
pub(crate) fn ratio(value: f64) -> String {
    if !value.is_finite() {
        return MISSING.to_owned();
    }
    // Below 0.1, hundredths alone would leave one figure or none.
    match value.abs() {
        v if v >= 0.095 || v <= 0.0 => format!("×{}", grouped(value, significant_decimals(value).min(2))),
        v if v >= 0.0095 => format!("×{value:.3}"),
        v if v >= 0.000_05 => format!("×{value:.4}"),
        _ => "×<0.0001".to_owned(),
    }
}

/// Bytes in the largest binary unit that leaves at least 1, to two decimals at most (`1.46 TiB`, `256 MiB`).
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [(&str, u64); 5] =
        [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let Some((unit, size)) = UNITS.into_iter().find(|(_, size)| value >= *size) else {
        return format!("{value} B");
    };
    if value.is_multiple_of(size) {
        return format!("{} {unit}", count(value / size));
    }
    format!("{} {unit}", grouped(value as f64 / size as f64, 2))
}

/// `1 h 05 m`, `2 m 05 s`, `12 s`, rounded to whole seconds.
pub(crate) fn duration(seconds: f64) -> String {
    let Ok(span) = jiff::SignedDuration::try_from_secs_f64(seconds.round()) else {
        return MISSING.to_owned();
    };
    let total = span.as_secs().max(0);
    let (hours, minutes, rest) = (total / 3600, total / 60 % 60, total % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest} s"),
        (0, _) => format!("{minutes} m {rest:02} s"),
        _ => format!("{hours} h {minutes:02} m"),
    }
}

/// A moment as HTML: UTC in the text; the report's script shows it in the browser's zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Timestamp);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.0.strftime("%Y-%m-%dT%H:%M:%SZ");
        let reader = self.0.strftime("%Y-%m-%d %H:%M:%S UTC");
        write!(f, "<time datetime=\"{machine}\">{reader}</time>")
    }
}

impl HtmlSafe for Time {}

/// Footnote links of a figure as HTML.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks(pub(crate) Vec<usize>);

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        f.write_str("<sup class=\"marks\">")?;
        for (index, note) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}<a href=\"#note-{note}\" aria-label=\"note {note}\">{note}</a>")?;
        }
        f.write_str("</sup>")
    }
}

impl HtmlSafe for Marks {}

fn grouped(value: f64, decimals: usize) -> String {
    let plain = format!("{value:.decimals$}");
    match plain.split_once('.') {
        Some((whole, fraction)) => format!("{}.{fraction}", group_digits(whole)),
        None => group_digits(&plain),
    }
}

/// Thousands separated by commas.
fn group_digits(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let mut out = String::with_capacity(sign.len() + digits.len() * 4 / 3);
    out.push_str(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(iops(227_241.6).text(), "227,242");
        assert_eq!(iops(12.34).text(), "12.3");
        assert_eq!(mib_per_s(887.66).text(), "887.7");
        assert_eq!(mib_per_s(12_345.6).text(), "12,346");
    }

    #[test]
    fn latencies_have_three_figures_and_aligned_points() {
        let ms = |us| LatencyUnit::Milli.show(us).to_string();
        let pad = |text| format!("<i class=\"pad\" aria-hidden=\"true\">{text}</i>");
        assert_eq!(ms(312.4), "0.312");
        assert_eq!(ms(4_213.0), format!("4.21{}", pad("0")));
        assert_eq!(ms(42_130.0), format!("42.1{}", pad("00")));
        assert_eq!(ms(1_204_118.0), format!("1,204{}", pad(".000")));
        assert_eq!(LatencyUnit::Micro.show(8.53).text(), "8.5");
        assert_eq!(LatencyUnit::Micro.show(1_204_118.0).text(), "1,204,118");
        assert_eq!(LatencyUnit::for_smallest_median(Some(99.0)), LatencyUnit::Micro);
        assert_eq!(LatencyUnit::for_smallest_median(None), LatencyUnit::Milli);
    }

    #[test]
    fn what_is_no_number_is_a_dash() {
        assert_eq!(iops(f64::NAN).text(), MISSING);
        assert_eq!(ratio(f64::INFINITY), MISSING);
        assert_eq!(duration(f64::NAN), MISSING);
    }

    #[test]
    fn sizes_and_durations_read_well() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(268_435_456), "256 MiB");
        assert_eq!(bytes(1_600_000_000_000), "1.46 TiB");
        assert_eq!(elapsed(0.012).text(), "0.01");
        assert_eq!(elapsed(92.16).text(), "92.2");
        assert_eq!(elapsed(5_400.4).text(), "5,400");
        assert_eq!(duration(12.4), "12 s");
        assert_eq!(duration(125.0), "2 m 05 s");
        assert_eq!(duration(5_400.0), "1 h 30 m");
        assert_eq!(ratio(0.6638), "×0.66");
        assert_eq!(ratio(2.4), "×2.40");
        assert_eq!(ratio(31.25), "×31.2");
        assert_eq!(
            [0.0, 0.1, 0.0949, 0.0123, 0.004_96, 0.000_4].map(ratio),
            ["×0.00", "×0.10", "×0.095", "×0.012", "×0.0050", "×0.0004"]
        );
        assert_eq!(ratio(0.000_001), "×<0.0001");
    }

    #[test]
    fn marks_link_to_their_notes() {
        assert_eq!(Marks::default().to_string(), "");
        assert!(Marks(vec![1, 3]).to_string().contains("<a href=\"#note-3\" aria-label=\"note 3\">3</a>"));
    }
}

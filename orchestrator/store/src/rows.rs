//! Between Rust's types and SQLite's.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use worker_protocol::{OpTotals, Phase};

use crate::error::{Fault, Refusal};

/// A number as SQLite's signed 64 bits.
pub(crate) fn int(value: u64, field: &'static str) -> Result<i64, Fault> {
    i64::try_from(value).map_err(|_| Refusal::TooLarge { field, value }.into())
}

/// A time as stored: UTC with six decimals, so that text sorts as time.
pub(crate) fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// A stored time.
pub(crate) fn time(text: &str, what: &'static str) -> Result<Timestamp, Fault> {
    text.parse().map_err(|error| Fault::unreadable(what, error))
}

/// A stored time that may be absent.
pub(crate) fn time_opt(text: Option<&str>, what: &'static str) -> Result<Option<Timestamp>, Fault> {
    text.map(|text| time(text, what)).transpose()
}

/// A value as stored JSON.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T, what: &'static str) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|error| Refusal::Unwritable { what, detail: error.to_string() }.into())
}

/// Stored JSON as a value.
pub(crate) fn from_json<T: DeserializeOwned>(text: &str, what: &'static str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| Fault::unreadable(what, error))
}

/// Stored JSON that may be absent.
pub(crate) fn from_json_opt<T: DeserializeOwned>(text: Option<&str>, what: &'static str) -> Result<Option<T>, Fault> {
    text.map(|text| from_json(text, what)).transpose()
}

/// The stored word of a phase.
pub(crate) fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Precondition => "precondition",
        Phase::Sample => "sample",
    }
}

/// A stored word as a phase.
pub(crate) fn phase(word: &str) -> Result<Phase, Fault> {
    match word {
        "precondition" => Ok(Phase::Precondition),
        "sample" => Ok(Phase::Sample),
        other => Err(Fault::unreadable("phase", format!("{other:?} is no phase"))),
    }
}

/// The scalars of one operation, as SQLite's integers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalars {
    pub(crate) count: i64,
    pub(crate) bytes: i64,
    pub(crate) errors: i64,
    pub(crate) sum_ns: i64,
    pub(crate) min_ns: i64,
    pub(crate) max_ns: i64,
    pub(crate) over_range: i64,
}

impl Scalars {
    pub(crate) fn of(totals: &OpTotals) -> Result<Self, Fault> {
        Ok(Self {
            count: int(totals.count, "count")?,
            bytes: int(totals.bytes, "bytes")?,
            errors: int(totals.errors, "errors")?,
            sum_ns: int(totals.sum_ns, "sum_ns")?,
            min_ns: int(totals.min_ns, "min_ns")?,
            max_ns: int(totals.max_ns, "max_ns")?,
            over_range: int(totals.over_range, "over_range")?,
        })
    }
}

/// Totals of one operation, as a row of `case_totals` holds them.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct TotalsRow {
    pub(crate) op: String,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    pub(crate) sum_ns: u64,
    pub(crate) min_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) over_range: u64,
    pub(crate) histogram: Vec<u8>,
}

impl TotalsRow {
    /// Puts the row's totals where they belong in `ops`.
    pub(crate) fn put_into(self, ops: &mut worker_protocol::Ops) {
        let target = if self.op == "read" { &mut ops.read } else { &mut ops.write };
        *target = OpTotals {
            count: self.count,
            bytes: self.bytes,
            errors: self.errors,
            sum_ns: self.sum_ns,
            min_ns: self.min_ns,
            max_ns: self.max_ns,
            over_range: self.over_range,
            histogram: self.histogram,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_with_six_decimals() {
        let time_ns: Timestamp = "2026-03-01T12:00:00.123456789+02:00".parse().unwrap();
        assert_eq!(time_text(time_ns), "2026-03-01T10:00:00.123456Z");
        assert_eq!(time_text("2026-03-01T10:00:00Z".parse().unwrap()), "2026-03-01T10:00:00.000000Z");
        assert!(time("yesterday", "runs.started").is_err());
    }

    #[test]
    fn numbers_beyond_63_bits_are_refused_by_name() {
        assert_eq!(int(i64::MAX.unsigned_abs(), "bytes").unwrap(), i64::MAX);
        let error = int(1 << 63, "bytes").unwrap_err().to_string();
        assert!(error.starts_with("bytes is 9223372036854775808"), "{error}");
    }
}

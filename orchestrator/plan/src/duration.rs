//! Durations as plans write them: `90s`, `30m`, `1h30m`, `2d`. Read by `jiff`, kept in whole seconds.

use std::fmt;

use jiff::{Span, SpanRelativeTo};

const SECONDS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DurationError {
    /// Not a duration.
    NotADuration,
    /// A number without a unit.
    NoUnit {
        /// The number taken as seconds.
        suggestion: String,
    },
    /// Not a whole number of seconds.
    Fraction,
    /// Before the present.
    Negative,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotADuration => "a duration such as 90s, 30m or 1h30m",
            Self::NoUnit { .. } => "a duration with its unit, such as 90s, 30m or 1h30m",
            Self::Fraction => "whole seconds",
            Self::Negative => "a duration of 0s or more",
        })
    }
}

impl std::error::Error for DurationError {}

impl DurationError {
    /// What was probably meant, where that is one thing.
    #[must_use]
    pub fn suggestion(&self) -> Option<&str> {
        match self {
            Self::NoUnit { suggestion } => Some(suggestion),
            Self::NotADuration | Self::Fraction | Self::Negative => None,
        }
    }
}

/// Reads a duration in whole seconds. Days are 24 hours; months and years have no fixed length and are refused.
///
/// # Errors
///
/// [`DurationError`] names what is wrong.
pub fn parse(text: &str) -> Result<u64, DurationError> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) {
        return Err(DurationError::NoUnit { suggestion: format!("{text}s") });
    }
    let span: Span = text.parse().map_err(|_| DurationError::NotADuration)?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| DurationError::NotADuration)?;
    if duration.subsec_nanos() != 0 {
        return Err(DurationError::Fraction);
    }
    u64::try_from(duration.as_secs()).map_err(|_| DurationError::Negative)
}

/// Writes whole seconds as plans do (`1h30m`). [`parse`] reads it back.
#[must_use]
pub fn exact(seconds: u64) -> String {
    let mut rest = seconds;
    let mut text = String::new();
    for (unit, length) in SECONDS {
        if rest >= length {
            text.push_str(&format!("{}{unit}", rest / length));
            rest %= length;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

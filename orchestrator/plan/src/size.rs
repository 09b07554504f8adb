//! Sizes in bytes as plans write them: `1.6TB` (10^12), `512MiB` (2^20), `4096`.
//!
//! Decimal fractions are taken exactly, in integers. `bytesize` computes them in floating point, truncates what is
//! not a whole byte, takes `4K` for 4000 bytes and saturates, so it does not serve here.

use std::fmt;

/// Units with their bytes, largest first within each kind.
const UNITS: [(&str, u64); 13] = [
    ("EiB", 1 << 60),
    ("EB", 1_000_000_000_000_000_000),
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Digits of a number that is read; `u64::MAX` has 20, and 10^20 × 2^60 fits `u128`.
const MAX_DIGITS: usize = 20;

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SizeError {
    /// Not a number with a unit.
    NotASize,
    /// A unit without B: `4K` could be either of these.
    Ambiguous {
        /// The decimal reading, with its unit (`4KB`).
        decimal: String,
        /// The binary reading, with its unit (`4KiB`).
        binary: String,
    },
    /// An unknown unit, or one in the wrong case.
    Unit {
        /// The size with the unit that was probably meant.
        suggestion: Option<String>,
    },
    /// Not a whole number of bytes.
    Fraction {
        /// The next smaller size that is whole.
        suggestion: Option<String>,
    },
    /// More than 2^64 - 1 bytes, or more digits than are read.
    TooLarge,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASize => f.write_str("a number with a unit, such as 4KiB, 512MiB or 1.6TB"),
            Self::Ambiguous { decimal, binary } => {
                write!(f, "{decimal} (powers of 1000) or {binary} (powers of 1024)")
            }
            Self::Unit { .. } => {
                f.write_str("the units B, KB, MB, GB, TB, PB, EB (powers of 1000), KiB to EiB (of 1024)")
            }
            Self::Fraction { .. } => f.write_str("a whole number of bytes"),
            Self::TooLarge => f.write_str("at most 18446744073709551615 bytes"),
        }
    }
}

impl std::error::Error for SizeError {}

impl SizeError {
    /// What was probably meant, where that is one thing.
    #[must_use]
    pub fn suggestion(&self) -> Option<&str> {
        match self {
            Self::Unit { suggestion } | Self::Fraction { suggestion } => suggestion.as_deref(),
            Self::NotASize | Self::Ambiguous { .. } | Self::TooLarge => None,
        }
    }
}

/// Reads a size: digits, optionally with a decimal fraction, and a unit; a bare whole number is bytes.
///
/// # Errors
///
/// [`SizeError`] names what is wrong; the result is exact or refused, never rounded.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (whole, fraction) = split_number(number).ok_or(SizeError::NotASize)?;
    let factor = unit_bytes(number, unit.trim_start())?;
    if whole.len() + fraction.len() > MAX_DIGITS {
        return Err(SizeError::TooLarge);
    }
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| SizeError::NotASize)?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| SizeError::TooLarge)?);
    let scaled = digits * u128::from(factor);
    let bytes = u64::try_from(scaled / scale).map_err(|_| SizeError::TooLarge)?;
    if scaled.is_multiple_of(scale) {
        Ok(bytes)
    } else {
        Err(SizeError::Fraction { suggestion: next_smaller(bytes, unit.trim_start()) })
    }
}

/// `12.5` -> (`12`, `5`); `12` -> (`12`, ``). None if either part of a fraction is missing.
fn split_number(number: &str) -> Option<(&str, &str)> {
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (number, ""),
    };
    let valid = !whole.is_empty() && !fraction.contains('.');
    valid.then_some((whole, fraction))
}

fn unit_bytes(number: &str, unit: &str) -> Result<u64, SizeError> {
    if unit.is_empty() {
        return if number.contains('.') { Err(SizeError::NotASize) } else { Ok(1) };
    }
    if let Some((_, bytes)) = UNITS.iter().find(|(name, _)| *name == unit || (unit == "kB" && *name == "KB")) {
        return Ok(*bytes);
    }
    let upper = unit.to_ascii_uppercase();
    if ["K", "M", "G", "T", "P", "E"].contains(&upper.as_str()) {
        return Err(SizeError::Ambiguous {
            decimal: format!("{number}{upper}B"),
            binary: format!("{number}{upper}iB"),
        });
    }
    let near = UNITS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit) || name.eq_ignore_ascii_case(&format!("{unit}B")));
    Err(SizeError::Unit { suggestion: near.map(|(name, _)| format!("{number}{name}")) })
}

/// A size that is not whole, rounded down to a unit two steps finer than its own, so that it reads well.
fn next_smaller(bytes: u64, unit: &str) -> Option<String> {
    let position = UNITS.iter().position(|(name, _)| *name == unit)?;
    let (name, factor) = UNITS.get(position + 2).or(UNITS.last())?;
    (bytes >= *factor).then(|| format!("{}{name}", bytes / factor))
}

/// Writes a size exactly: in the largest unit that holds it as a whole number. [`parse`] reads it back.
#[must_use]
pub fn exact(bytes: u64) -> String {
    let fits = |&&(_, factor): &&(&str, u64)| bytes >= factor && bytes.is_multiple_of(factor);
    UNITS.iter().find(fits).map_or_else(|| format!("{bytes}B"), |(name, factor)| format!("{}{name}", bytes / factor))
}

/// Writes a size for reading, in a binary unit with at most two decimals (`9.31GiB`), rounded down.
#[must_use]
pub fn approximate(bytes: u64) -> String {
    let binary = UNITS.iter().find(|(name, factor)| name.ends_with("iB") && bytes >= *factor);
    let Some((name, factor)) = binary else { return format!("{bytes}B") };
    let hundredths = u128::from(bytes) * 100 / u128::from(*factor);
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    if rest == 0 { format!("{whole}{name}") } else { format!("{whole}.{rest:02}{name}") }
}

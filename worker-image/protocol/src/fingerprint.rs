use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};

/// Bytes of a SHA-256.
const BYTES: usize = 32;

/// SHA-256 over a certificate's DER; shown as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; BYTES]);

/// A text that is no fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no SHA-256 fingerprint; expected 64 hexadecimal digits, with or without colons")]
pub struct FingerprintError {
    /// What was found.
    pub found: String,
}

impl Fingerprint {
    /// The fingerprint of a certificate.
    #[must_use]
    pub fn of(certificate_der: &[u8]) -> Self {
        Self(Sha256::digest(certificate_der).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || FingerprintError { found: text.chars().take(100).collect() };
        let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b':').collect();
        if digits.len() != 2 * BYTES {
            return Err(wrong());
        }
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let (high, low) = (hexadecimal(pair[0]).ok_or_else(wrong)?, hexadecimal(pair[1]).ok_or_else(wrong)?);
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_shown() {
        // The SHA-256 of no bytes at all, as every tool prints it.
        let shown = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let print = Fingerprint::of(b"");
        assert_eq!(print.to_string(), shown);
        assert_eq!(shown.parse(), Ok(print));
        let colons: Vec<String> =
            shown.to_uppercase().as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair).into()).collect();
        assert_eq!(colons.join(":").parse(), Ok(print), "as openssl shows it");
        for wrong in ["", "12", &shown[1..], &format!("{shown}00"), &shown.replace('e', "g"), &shown.replace('e', "é")]
        {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}

//! Asking a person.

use std::io::{self, BufRead, Write};

use anyhow::Context;

/// Longest answer that is read, bytes.
const MAX_ANSWER_BYTES: u64 = 100;

/// Asks on standard error and reads the answer from standard input; only `y` and `yes` mean yes. None where nobody answers.
pub(crate) fn confirm(question: &str) -> anyhow::Result<Option<bool>> {
    // Where it cannot be shown, the answer is none.
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    let read = io::Read::take(io::stdin().lock(), MAX_ANSWER_BYTES).read_line(&mut answer);
    let read = read.context("standard input")?;
    Ok((read > 0).then(|| matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")))
}

//! What the program says. Whoever stops listening must not stop the program: a run goes on, and an interrupt is still heard.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use anyhow::Context;
use hypervisor::{Finding, Severity};

/// Writes a result to standard output, as it is.
///
/// # Errors
/// Where it cannot be written. A reader that has gone (`| head`) has had enough, which is no error.
pub(crate) fn result(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

/// Writes a line for a person to standard error. Where that cannot be written, there is nobody to tell.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A finding with its weight and its remedy.
pub(crate) fn finding(finding: &Finding) -> String {
    let weight = match finding.severity {
        Severity::Blocker => "blocker",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    format!("{weight}: {}\n    what to do: {}", finding.message, finding.remedy)
}

/// An error with its causes, those left out that it has said already.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if !text.contains(&cause) {
            let colon = if text.is_empty() { "" } else { ": " };
            text.push_str(&format!("{colon}{cause}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let repeated = anyhow::anyhow!("disk full").context("storing failed: disk full").context("a run");
        assert_eq!(chain(&repeated), "a run: storing failed: disk full");
        let apart = anyhow::anyhow!("no space").context("x.html: cannot write");
        assert_eq!(chain(&apart), "x.html: cannot write: no space");
    }
}

//! Reading a plan from a file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use miette::Diagnostic;
use plan::{PlanErrors, Profiles, TestPlan, limits::MAX_YAML_BYTES};

use crate::output;

/// A plan with its text.
pub(crate) struct PlanFile {
    pub(crate) plan: TestPlan,
    pub(crate) yaml: String,
}

/// Reads and validates a plan; the inner error lists everything that is wrong with it.
pub(crate) fn read(path: &Path) -> anyhow::Result<Result<PlanFile, PlanErrors>> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    // One byte too many is enough for the parser to refuse it, however long the file is.
    File::open(path)
        .and_then(|file| file.take(MAX_YAML_BYTES as u64 + 1).read_to_end(&mut bytes))
        .with_context(|| format!("{name}: the plan cannot be read"))?;
    Ok(plan::parse_bytes(&name, &bytes, &Profiles::shipped()).map(|plan| {
        let yaml = String::from_utf8_lossy(&bytes).into_owned();
        PlanFile { plan, yaml }
    }))
}

/// The longest line that is drawn: beyond it the file is hardly a plan, and a screenful of it says nothing.
const MAX_DRAWN_BYTES: usize = 1_000;

/// Shows what is wrong with a plan: each problem with its line, where the lines can be drawn.
pub(crate) fn show_errors(errors: &PlanErrors) {
    let mut text = String::new();
    let width = 100;
    let handler = miette::GraphicalReportHandler::new().with_width(width);
    let drawn = handler.render_report(&mut text, errors as &dyn Diagnostic);
    match drawn {
        Ok(()) if text.lines().all(|line| line.len() <= MAX_DRAWN_BYTES) => output::note(text.trim_end()),
        _ => output::note(format!("error: {errors}")),
    }
}

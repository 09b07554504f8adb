//! Reading a plan from a file.

use std::path::Path;

use anyhow::Context;
use miette::Diagnostic;
use plan::{PlanErrors, Profiles, TestPlan};

/// A plan with its text.
pub(crate) struct PlanFile {
    pub(crate) plan: TestPlan,
    pub(crate) yaml: String,
}

/// Reads and validates a plan; the inner error lists everything that is wrong with it.
pub(crate) fn read(path: &Path) -> anyhow::Result<Result<PlanFile, PlanErrors>> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("{name}: the plan cannot be read"))?;
    Ok(plan::parse_bytes(&name, &bytes, &Profiles::shipped()).map(|plan| {
        let yaml = String::from_utf8_lossy(&bytes).into_owned();
        PlanFile { plan, yaml }
    }))
}

/// Shows what is wrong with a plan: each problem with its line, then the one-line form of all of them.
pub(crate) fn show_errors(errors: &PlanErrors) {
    let mut text = String::new();
    let width = 100;
    let handler = miette::GraphicalReportHandler::new().with_width(width);
    let drawn = handler.render_report(&mut text, errors as &dyn Diagnostic);
    match drawn {
        Ok(()) => eprint!("{text}"),
        Err(_) => eprintln!("{errors}"),
    }
}

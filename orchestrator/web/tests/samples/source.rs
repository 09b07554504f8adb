//! Sample runs as a source of pages.

use analysis::export::Export;
use uuid::Uuid;
use web::{Progress, RunSource, RunSummary, SourceError};

/// Runs in memory.
pub(crate) struct Runs {
    pub(crate) exports: Vec<Export>,
    pub(crate) progress: Option<Progress>,
}

impl RunSource for Runs {
    async fn list_runs(&self, limit: u32) -> Result<Vec<RunSummary>, SourceError> {
        let limit = usize::try_from(limit)?;
        self.exports.iter().take(limit).map(|export| summary(export)).collect()
    }

    async fn load_export(&self, id: Uuid) -> Result<Option<Export>, SourceError> {
        Ok(self.exports.iter().find(|export| export.run.id == id.to_string()).cloned())
    }

    async fn progress(&self, id: Uuid) -> Option<Progress> {
        let known = self.exports.iter().any(|export| export.run.id == id.to_string());
        self.progress.clone().filter(|_| known)
    }
}

fn summary(export: &Export) -> Result<RunSummary, SourceError> {
    let run = &export.run;
    Ok(RunSummary {
        id: run.id.parse()?,
        name: run.name.clone(),
        state: run.state.clone(),
        complete: run.complete,
        reason: run.reason.clone(),
        started: run.started,
        finished: run.finished,
    })
}

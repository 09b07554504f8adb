//! `runs` and `show`: what the store holds.

use std::path::Path;
use std::process::ExitCode;

use analysis::export::Export;
use comfy_table::Table;
use serde_json::json;
use store::{DataDir, RunSummary, Store};

use crate::cli::{JsonArgs, ShowArgs};
use crate::closing::with_store;
use crate::output;
use crate::table::{self, STYLE};

/// Runs listed at the most, newest first.
const MAX_LISTED: u32 = 1_000;

pub(crate) async fn list(data_dir: &Path, args: &JsonArgs) -> anyhow::Result<ExitCode> {
    let store = Store::open_read_only(&DataDir::new(data_dir)).await?;
    let runs = with_store(store, async |store| latest(store).await).await?;
    let text = if args.json {
        json!(runs.iter().map(as_json).collect::<Vec<_>>()).to_string()
    } else {
        as_table(&runs).to_string()
    };
    output::result(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn show(data_dir: &Path, args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let export = load(data_dir, &args.run).await?;
    if args.output.json {
        output::result(&format!("{}\n", web::export_json(&export)?))?;
    } else {
        output::result(&table::render(&export))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A run's results, by its id, the beginning of one, or `latest`.
pub(crate) async fn load(data_dir: &Path, run: &str) -> anyhow::Result<Export> {
    let store = Store::open_read_only(&DataDir::new(data_dir)).await?;
    with_store(store, async |store| found(store, run).await).await
}

async fn found(store: &Store, run: &str) -> anyhow::Result<Export> {
    Ok(store.load_export(store.find_run(run).await?).await?)
}

async fn latest(store: &Store) -> anyhow::Result<Vec<RunSummary>> {
    Ok(store.list_runs(MAX_LISTED).await?)
}

fn as_json(run: &RunSummary) -> serde_json::Value {
    json!({
        "id": run.id.to_string(),
        "name": run.name,
        "state": run.state.as_str(),
        "complete": run.complete,
        "reason": run.reason,
        "rehearsal": run.rehearsal,
        "started": run.started,
        "finished": run.finished,
        "cases": run.cases,
        "complete_cases": run.complete_cases,
    })
}

fn as_table(runs: &[RunSummary]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(["run", "name", "state", "complete cases", "started (UTC)", "reason"]);
    for run in runs {
        table.add_row([
            run.id.to_string(),
            run.name.clone(),
            run.state.to_string(),
            format!("{} of {}", run.complete_cases, run.cases),
            run.started.strftime("%Y-%m-%d %H:%M:%S").to_string(),
            run.reason.clone().unwrap_or_default(),
        ]);
    }
    table
}

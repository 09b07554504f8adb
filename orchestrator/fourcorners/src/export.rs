//! `export`: a run's results as a file.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use crate::cli::{ExportArgs, Format};
use crate::{output, runs};

pub(crate) async fn export(data_dir: &Path, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let export = runs::load(data_dir, &args.run).await?;
    let text = match args.format {
        Format::Json => web::export_json(&export)?,
        Format::Csv => web::cases_csv(&export)?,
        Format::Html => web::report_html(&export)?,
    };
    if args.output == Path::new("-") {
        output::result(&text)?;
    } else {
        std::fs::write(&args.output, text)
            .with_context(|| format!("{}: cannot write the export", args.output.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

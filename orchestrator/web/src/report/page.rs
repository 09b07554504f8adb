//! The report's pages.

use std::io::Write;

use analysis::export::Export;
use askama::Template;

use super::view::ReportView;
use crate::source::Measured;
use crate::{Error, assets};

/// A report as one file: styles, scripts and data are in it, and its policy lets it load nothing else.
#[derive(Template)]
#[template(path = "report/file.html")]
struct FilePage {
    view: ReportView,
    version: &'static str,
    policy: String,
    style: &'static str,
    plotly: &'static str,
    script: &'static str,
}

/// The report of a run as one self-contained HTML file (about 5 MB, most of it the chart library) that opens from disk without a network.
///
/// # Errors
/// [`Error::Json`] or [`Error::Template`]: neither depends on the figures.
pub fn report_html(export: &Export) -> Result<String, Error> {
    Ok(file_page(export)?.render()?)
}

/// [`report_html`] as it is sent.
pub(crate) fn write_report(measured: Measured, to: &mut dyn Write) -> Result<(), Error> {
    Ok(file_page(&measured.whole().map_err(Error::Read)?)?.write_into(to)?)
}

fn file_page(export: &Export) -> Result<FilePage, Error> {
    Ok(FilePage {
        view: ReportView::of(export)?,
        version: env!("CARGO_PKG_VERSION"),
        policy: file_policy(),
        style: assets::REPORT_CSS,
        plotly: assets::plotly_js(),
        script: assets::REPORT_JS,
    })
}

/// Only the two scripts that we put there run, whatever text a name brings along, and nothing is fetched.
fn file_policy() -> String {
    let [plotly, script] = [assets::plotly_js(), assets::REPORT_JS].map(assets::script_hash);
    format!(
        "default-src 'none'; script-src '{plotly}' '{script}'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
}

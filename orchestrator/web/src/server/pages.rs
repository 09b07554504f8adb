//! The handlers.

use std::sync::Arc;

use analysis::export::Export;
use askama::Template;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::{Value, json};
use uuid::Uuid;

use super::problem::{AsJson, AsPage, Problem};
use super::static_files::AssetUrls;
use crate::format::{self, Time};
use crate::report::{ReportView, verdict};
use crate::source::{RunSource, RunSummary};
use crate::{Error, cases_csv, export_json, report_html};

/// Runs that the list shows at most, the newest ones.
const LISTED_RUNS: u32 = 1000;

#[derive(Template)]
#[template(path = "pages/runs.html")]
struct RunsPage {
    assets: &'static AssetUrls,
    runs: Vec<RunRow>,
    /// There may be more runs than are listed.
    full: bool,
}

struct RunRow {
    id: Uuid,
    short_id: String,
    name: String,
    state: String,
    tone: &'static str,
    reason: Option<String>,
    started: Time,
    took: String,
}

#[derive(Template)]
#[template(path = "pages/run.html")]
struct RunPage {
    assets: &'static AssetUrls,
    id: Uuid,
    view: ReportView,
    live: bool,
}

/// `/`.
pub(crate) async fn runs<S: RunSource>(State(source): State<Arc<S>>) -> Result<Response, AsPage> {
    let runs = source.list_runs(LISTED_RUNS).await.map_err(|error| Problem::source(error.as_ref()))?;
    let full = u32::try_from(runs.len()).is_ok_and(|count| count >= LISTED_RUNS);
    html(&RunsPage { assets: AssetUrls::get(), runs: runs.into_iter().map(run_row).collect(), full })
}

fn run_row(run: RunSummary) -> RunRow {
    let (state, tone, _) = verdict(&run.state, run.complete);
    let took = run.finished.map(|end| format::duration(end.duration_since(run.started).as_secs_f64()));
    RunRow {
        id: run.id,
        // A version 7 UUID starts with its time: the end tells runs apart.
        short_id: format!("…{}", &run.id.simple().to_string()[24..]),
        name: run.name,
        state,
        tone,
        reason: run.reason,
        started: Time(run.started),
        took: took.unwrap_or_else(|| "–".to_owned()),
    }
}

/// `/runs/{id}`.
pub(crate) async fn run<S: RunSource>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
) -> Result<Response, AsPage> {
    let (id, export) = load(source.as_ref(), &id).await?;
    let page = render(move || {
        let view = ReportView::of(&export)?;
        let live = view.head.tone == "busy";
        Ok(RunPage { assets: AssetUrls::get(), id, view, live }.render()?)
    });
    Ok(Html(page.await?).into_response())
}

/// `/runs/{id}/export.html`.
pub(crate) async fn export_as_html<S: RunSource>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
) -> Result<Response, AsPage> {
    download(source.as_ref(), &id, "html", "text/html; charset=utf-8", report_html).await
}

/// `/runs/{id}/export.json`.
pub(crate) async fn export_as_json<S: RunSource>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
) -> Result<Response, AsPage> {
    download(source.as_ref(), &id, "json", "application/json", export_json).await
}

/// `/runs/{id}/export.csv`.
pub(crate) async fn export_as_csv<S: RunSource>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
) -> Result<Response, AsPage> {
    download(source.as_ref(), &id, "csv", "text/csv; charset=utf-8", cases_csv).await
}

/// `/api/v1/runs`.
pub(crate) async fn api_runs<S: RunSource>(State(source): State<Arc<S>>) -> Result<Json<Value>, AsJson> {
    let runs = source.list_runs(LISTED_RUNS).await.map_err(|error| Problem::source(error.as_ref()))?;
    Ok(Json(json!({ "runs": runs })))
}

/// `/api/v1/runs/{id}`: the export.
pub(crate) async fn api_run<S: RunSource>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
) -> Result<Response, AsJson> {
    let (_, export) = load(source.as_ref(), &id).await?;
    let body = render(move || export_json(&export)).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// `/api/v1/runs/{id}/progress`: null where the run does not go on in this process.
pub(crate) async fn api_progress<S: RunSource>(
    State(source): State<Arc<S>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, AsJson> {
    let id = run_id(&id)?;
    Ok(Json(json!({ "progress": source.progress(id).await })))
}

/// `/healthz`.
pub(crate) async fn health() -> &'static str {
    "ok\n"
}

/// Whatever else is asked for.
pub(crate) async fn nothing(uri: Uri) -> Response {
    let problem = Problem::no_page(uri.path());
    if uri.path().starts_with("/api/") { AsJson(problem).into_response() } else { AsPage(problem).into_response() }
}

/// Whatever is not GET or HEAD.
pub(crate) async fn wrong_method(uri: Uri) -> Response {
    let problem = Problem::method();
    if uri.path().starts_with("/api/") { AsJson(problem).into_response() } else { AsPage(problem).into_response() }
}

/// A run's id is a UUID; nothing else reaches the source.
fn run_id(id: &str) -> Result<Uuid, Problem> {
    id.parse().map_err(|_| Problem::no_run(id))
}

async fn load<S: RunSource>(source: &S, id: &str) -> Result<(Uuid, Export), Problem> {
    let id = run_id(id)?;
    let export = source.load_export(id).await.map_err(|error| Problem::source(error.as_ref()))?;
    export.map(|export| (id, export)).ok_or_else(|| Problem::no_run(&id.to_string()))
}

/// Rendering takes tens of milliseconds for a long run: away from the threads that answer.
async fn render(make: impl FnOnce() -> Result<String, Error> + Send + 'static) -> Result<String, Problem> {
    let made = tokio::task::spawn_blocking(make).await.map_err(|error| Problem::render(&error))?;
    made.map_err(|error| Problem::render(&error))
}

async fn download<S: RunSource>(
    source: &S,
    id: &str,
    extension: &str,
    kind: &'static str,
    make: fn(&Export) -> Result<String, Error>,
) -> Result<Response, AsPage> {
    let (id, export) = load(source, id).await?;
    let disposition = format!("attachment; filename=\"{}\"", file_name(&export.run.name, id, extension));
    let disposition = HeaderValue::try_from(disposition).map_err(|error| Problem::render(&error))?;
    let body = render(move || make(&export)).await?;
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static(kind)), (header::CONTENT_DISPOSITION, disposition)];
    Ok((headers, body).into_response())
}

/// `fourcorners-demo-2c1d4e5f6a7b.html`: letters, digits and dashes only, whatever the name has.
fn file_name(name: &str, id: Uuid, extension: &str) -> String {
    let dashed: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let words: Vec<&str> = dashed.split('-').filter(|word| !word.is_empty()).collect();
    let short: String = words.join("-").chars().take(60).collect();
    let parts: Vec<&str> =
        ["fourcorners", short.trim_matches('-')].into_iter().filter(|part| !part.is_empty()).collect();
    format!("{}-{}.{extension}", parts.join("-"), &id.simple().to_string()[20..])
}

fn html(page: &impl Template) -> Result<Response, AsPage> {
    let page = page.render().map_err(|error| Problem::render(&error))?;
    Ok(Html(page).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_tame() {
        let id: Uuid = "0199c2a4-5b6e-7d10-9f3a-2c1d4e5f6a7b".parse().unwrap();
        assert_eq!(file_name("Demo 1", id, "csv"), "fourcorners-demo-1-2c1d4e5f6a7b.csv");
        assert_eq!(file_name("../../etc/passwd\r\n\"", id, "json"), "fourcorners-etc-passwd-2c1d4e5f6a7b.json");
        assert_eq!(file_name("測試", id, "html"), "fourcorners-2c1d4e5f6a7b.html");
        assert!(file_name(&"x".repeat(500), id, "html").len() < 100);
    }
}

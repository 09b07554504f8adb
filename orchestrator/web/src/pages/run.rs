//! `/runs/{id}`: the report, its downloads, the engineer's note, and the run's deletion.

use std::io::Write;

use askama::Template;
use axum::extract::{Form, Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use serde::Deserialize;
use store::{Refusal, StoreError};
use uuid::Uuid;

use super::conclude;
use crate::Error;
use crate::app::App;
use crate::export::{write_csv, write_json};
use crate::format::Time;
use crate::frame::{Flash, Frame, html, onward};
use crate::problem::Problem;
use crate::report::{ReportView, Tables, verdict, write_report};
use crate::source::{Measured, RunSummary};
use crate::streamed::{Place, streamed};
use crate::visitor::Visitor;

/// Characters of a note.
pub(crate) const MAX_NOTE: usize = 10_000;

#[derive(Template)]
#[template(path = "pages/run.html")]
struct RunPage {
    frame: Frame,
    id: Uuid,
    note: String,
    view: ReportView,
    live: bool,
    /// What the run's journal does not say to be removed.
    left: Vec<String>,
}

#[derive(Template)]
#[template(path = "pages/case.html")]
struct CasePage {
    frame: Frame,
    id: Uuid,
    view: ReportView,
}

/// The run that a page asks about.
struct RunAsked {
    id: Uuid,
    name: String,
    state: String,
    tone: &'static str,
    started: Time,
    note: String,
}

#[derive(Template)]
#[template(path = "pages/delete_run.html")]
struct DeletePage {
    frame: Frame,
    run: RunAsked,
    /// What the journal does not say to be removed; asked about once more.
    left: Option<String>,
}

impl From<RunSummary> for RunAsked {
    fn from(run: RunSummary) -> Self {
        let (state, tone, _) = verdict(&run.state, run.complete);
        Self { id: run.id, name: run.name, state, tone, started: Time(run.started), note: run.note }
    }
}

/// A note.
#[derive(Deserialize)]
pub(crate) struct NoteForm {
    note: String,
}

/// The confirmation of a deletion.
#[derive(Deserialize)]
pub(crate) struct DeleteForm {
    #[serde(default)]
    forget_left: Option<String>,
}

/// `/runs/{id}`.
pub(crate) async fn page(State(app): State<App>, frame: Frame, Path(id): Path<String>) -> Result<Response, Problem> {
    let id = run_id(&id)?;
    let export = app.runs().load_report(id).await?.ok_or_else(|| Problem::no_run(&id.to_string()))?;
    // Of a run that goes on, everything is there: that is no news.
    let left = if export.run.finished.is_some() { app.workshop().left(id).await? } else { Vec::new() };
    let page = render(move || {
        let view = ReportView::with_tables(&export, Tables::Apart(format!("/runs/{id}/cases")))?;
        let live = view.head.tone == "busy";
        Ok(RunPage { frame, id, note: export.run.note, view, live, left }.render()?)
    });
    Ok(Html(page.await?).into_response())
}

/// `/runs/{id}/cases/{place}`: one case with all its tables; its place is from 1.
pub(crate) async fn case_page(
    State(app): State<App>,
    frame: Frame,
    Path((id, place)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let id = run_id(&id)?;
    let no_case = || Problem::no_page(&format!("/runs/{id}/cases/{place}"));
    let ordinal = place.parse::<u32>().ok().and_then(|place| place.checked_sub(1)).ok_or_else(no_case)?;
    let export = app.runs().load_case(id, ordinal).await?.ok_or_else(|| Problem::no_run(&id.to_string()))?;
    if export.cases.is_empty() {
        return Err(no_case());
    }
    let page = render(move || Ok(CasePage { frame, id, view: ReportView::of_case(&export)? }.render()?));
    Ok(Html(page.await?).into_response())
}

/// `POST /runs/{id}/note`.
pub(crate) async fn set_note(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<String>,
    Form(form): Form<NoteForm>,
) -> Result<Response, Problem> {
    let id = run_id(&id)?;
    let noted = write_note(&app, id, &form.note).await.map(|()| Flash::done("The note was saved."));
    conclude(&app, &visitor, &format!("/runs/{id}"), noted)
}

/// Replaces a run's note, within its bounds.
pub(crate) async fn write_note(app: &App, id: Uuid, note: &str) -> Result<(), Problem> {
    // A form sends line ends as the web has them.
    let note = note.replace("\r\n", "\n");
    let note = note.trim();
    let characters = note.chars().count();
    if characters > MAX_NOTE {
        return Err(Problem::input(format!("The note has {characters} characters; the most is {MAX_NOTE}.")));
    }
    Ok(app.runs().set_note(id, note).await?)
}

/// `/runs/{id}/delete`: asks.
pub(crate) async fn delete_page(
    State(app): State<App>,
    frame: Frame,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    html(&delete_question(frame, summary(&app, &id).await?, None)?)
}

/// `POST /runs/{id}/delete`.
pub(crate) async fn delete(
    State(app): State<App>,
    frame: Frame,
    visitor: Visitor,
    Path(id): Path<String>,
    Form(form): Form<DeleteForm>,
) -> Result<Response, Problem> {
    let run = summary(&app, &id).await?;
    match app.runs().delete_run(run.id, form.forget_left.is_some()).await {
        Ok(()) => Ok(onward(&app, &visitor, "/", Flash::done(format!("The run {} was deleted.", run.name)))),
        Err(error) => match left_behind(error.as_ref()) {
            Some(left) => {
                let page = html(&delete_question(frame, run, Some(left))?)?;
                Ok((StatusCode::CONFLICT, page).into_response())
            }
            None => Err(error.into()),
        },
    }
}

#[derive(Template)]
#[template(path = "pages/tear_down.html")]
struct TearDownPage {
    frame: Frame,
    run: RunAsked,
    left: Vec<String>,
}

/// `/runs/{id}/tear-down`: asks.
pub(crate) async fn tear_down_page(
    State(app): State<App>,
    frame: Frame,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let run = summary(&app, &id).await?;
    if run.finished.is_none() {
        return Err(Problem::conflict(
            format!("The run {} goes on.", run.name),
            "Stop it on its live page, which removes what it made; or wait for its end.",
        ));
    }
    let left = app.workshop().left(run.id).await?;
    html(&TearDownPage { frame, run: run.into(), left })
}

/// `POST /runs/{id}/tear-down`.
pub(crate) async fn tear_down(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let run = summary(&app, &id).await?;
    let done = torn_down(&app, run.id).await.and_then(|left| match left.as_slice() {
        [] => Ok(Flash::done("All that the run had left is gone.")),
        left => Err(Problem::conflict(
            format!("Not all of it could be removed. Left are:\n{}", left.join("\n")),
            "Set right what stands in the way and tear down again, or remove by hand what is named.",
        )),
    });
    conclude(&app, &visitor, &format!("/runs/{}", run.id), done)
}

/// Removes what a run left; answers what could not be removed, and why.
pub(crate) async fn torn_down(app: &App, id: Uuid) -> Result<Vec<String>, Problem> {
    let before = app.workshop().left(id).await?;
    let why = match app.workshop().tear_down(id).await {
        Ok(left) => return Ok(left),
        Err(why) => why,
    };
    let left = app.workshop().left(id).await?;
    Err(broken_off(&why, &before, &left))
}

/// A tear-down that ended early: what was removed is what the journal does not know as left any more.
fn broken_off(why: &str, before: &[String], left: &[String]) -> Problem {
    let removed: Vec<&str> = before.iter().filter(|object| !left.contains(object)).map(String::as_str).collect();
    let what = match removed.as_slice() {
        [] => format!("Nothing was removed: {why}."),
        removed => format!("The tear-down broke off: {why}. Removed before that:\n{}", removed.join("\n")),
    };
    Problem::conflict(what, "Set that right and tear down again: it goes on with what is left, which the report lists.")
}

fn delete_question(frame: Frame, run: RunSummary, left: Option<String>) -> Result<DeletePage, Problem> {
    if run.finished.is_none() {
        return Err(Problem::conflict(
            format!("The run {} goes on; only a run that has ended can be deleted.", run.name),
            "Wait for its end, or stop it on its live page. Nothing was removed.",
        ));
    }
    Ok(DeletePage { frame, run: run.into(), left })
}

/// What a run may have left, where its deletion was refused for that.
fn left_behind(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<String> {
    let StoreError::Refused { reason, .. } = error.downcast_ref::<StoreError>()? else { return None };
    let Refusal::LeftBehind { objects } = reason.as_ref() else { return None };
    Some(objects.join(", "))
}

async fn summary(app: &App, id: &str) -> Result<RunSummary, Problem> {
    let id = run_id(id)?;
    app.runs().summary(id).await?.ok_or_else(|| Problem::no_run(&id.to_string()))
}

/// `/runs/{id}/export.html`.
pub(crate) async fn export_as_html(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let place = app.downloads().take().await?;
    let (id, measured) = load(&app, &id).await?;
    let file = file_name(&measured.run.name, id, "html");
    download(place, &file, "text/html; charset=utf-8", move |to| write_report(measured, to))
}

/// `/runs/{id}/export.json`.
pub(crate) async fn export_as_json(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let place = app.downloads().take().await?;
    let (id, measured) = load(&app, &id).await?;
    let file = file_name(&measured.run.name, id, "json");
    download(place, &file, "application/json", move |to| write_json(measured, to))
}

/// `/runs/{id}/export.csv`.
pub(crate) async fn export_as_csv(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let (id, place) = (run_id(&id)?, app.downloads().take().await?);
    // It has no seconds.
    let export = app.runs().load_figures(id).await?.ok_or_else(|| Problem::no_run(&id.to_string()))?;
    let file = file_name(&export.run.name, id, "csv");
    download(place, &file, "text/csv; charset=utf-8", move |to| write_csv(&export, to))
}

/// A run's id is a UUID; nothing else reaches the source.
pub(crate) fn run_id(id: &str) -> Result<Uuid, Problem> {
    id.parse().map_err(|_| Problem::no_run(id))
}

/// A run with all that was measured.
pub(crate) async fn load(app: &App, id: &str) -> Result<(Uuid, Measured), Problem> {
    let id = run_id(id)?;
    let measured = app.runs().load_export(id).await?;
    measured.map(|measured| (id, measured)).ok_or_else(|| Problem::no_run(&id.to_string()))
}

/// Rendering takes tens of milliseconds for a long run: away from the threads that answer.
pub(crate) async fn render(make: impl FnOnce() -> Result<String, Error> + Send + 'static) -> Result<String, Problem> {
    let made = tokio::task::spawn_blocking(make).await.map_err(|error| Problem::render(&error))?;
    made.map_err(|error| Problem::render(&error))
}

/// A file that is made while it is sent.
pub(crate) fn download(
    place: Place,
    file: &str,
    kind: &'static str,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Error> + Send + 'static,
) -> Result<Response, Problem> {
    let disposition = HeaderValue::try_from(format!("attachment; filename=\"{file}\""));
    let disposition = disposition.map_err(|error| Problem::render(&error))?;
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static(kind)), (header::CONTENT_DISPOSITION, disposition)];
    Ok((headers, streamed(place, write)).into_response())
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

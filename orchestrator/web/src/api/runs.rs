//! Runs.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::export::write_json;
use crate::pages::{self, RunsQuery, run_id};
use crate::problem::{ErrorBody, Problem};
use crate::source::{Progress, RunSummary};
use crate::streamed::streamed;

/// Runs of an answer where none are asked for.
const DEFAULT_LIMIT: u32 = 1000;

/// A list of runs.
#[derive(Serialize, ToSchema)]
pub(crate) struct Runs {
    /// Newest first.
    runs: Vec<RunSummary>,
}

/// How far a run is.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunProgress {
    /// Null where the run does not go on in this process.
    progress: Option<Progress>,
}

/// A note.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Note {
    /// 10,000 characters at most; empty to have none.
    note: String,
}

/// What a run left.
#[derive(Serialize, ToSchema)]
pub(crate) struct Leftovers {
    /// Each for a person; empty where everything is gone.
    left: Vec<String>,
}

/// How to delete.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Deletion {
    /// Also where the run's journal does not say that all it made was removed; the record of it goes with the run.
    #[serde(default)]
    forget_left: bool,
}

/// Lists runs, newest first.
#[utoipa::path(get, path = "/api/v1/runs", tag = "runs", params(RunsQuery), responses((status = 200, body = Runs)))]
pub(crate) async fn list(State(app): State<App>, Query(query): Query<RunsQuery>) -> Result<Json<Runs>, Problem> {
    Ok(Json(Runs { runs: app.runs().list_runs(&query.filter(DEFAULT_LIMIT)?).await? }))
}

/// A run with all that was measured: the export, as docs/export.md describes it.
#[utoipa::path(get, path = "/api/v1/runs/{id}", tag = "runs", params(("id" = Uuid, Path)),
    responses((status = 200, body = Object), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(crate) async fn export(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Problem> {
    let place = app.downloads().take().await?;
    let (_, measured) = pages::load(&app, &id).await?;
    let body = streamed(place, move |to| write_json(measured, to));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// How far a run is.
#[utoipa::path(get, path = "/api/v1/runs/{id}/progress", tag = "runs", params(("id" = Uuid, Path)),
    responses((status = 200, body = RunProgress)))]
pub(crate) async fn progress(State(app): State<App>, Path(id): Path<String>) -> Result<Json<RunProgress>, Problem> {
    Ok(Json(RunProgress { progress: app.runs().progress(run_id(&id)?).await }))
}

/// Replaces what the engineer says of a run.
#[utoipa::path(put, path = "/api/v1/runs/{id}/note", tag = "runs", params(("id" = Uuid, Path)), request_body = Note,
    responses((status = 204), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(crate) async fn set_note(
    State(app): State<App>,
    Path(id): Path<String>,
    Json(note): Json<Note>,
) -> Result<StatusCode, Problem> {
    pages::write_note(&app, run_id(&id)?, &note.note).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a run's journal does not say to be removed; of a run that goes on, what there is now.
#[utoipa::path(get, path = "/api/v1/runs/{id}/leftovers", tag = "runs", params(("id" = Uuid, Path)),
    responses((status = 200, body = Leftovers)))]
pub(crate) async fn leftovers(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Leftovers>, Problem> {
    Ok(Json(Leftovers { left: app.workshop().left(run_id(&id)?).await? }))
}

/// Removes what a run that has ended left; answers what could not be removed, and why.
#[utoipa::path(post, path = "/api/v1/runs/{id}/tear-down", tag = "runs", params(("id" = Uuid, Path)),
    responses((status = 200, body = Leftovers), (status = 409, body = ErrorBody)))]
pub(crate) async fn tear_down(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Leftovers>, Problem> {
    Ok(Json(Leftovers { left: pages::torn_down(&app, run_id(&id)?).await? }))
}

/// Deletes a run that has ended.
#[utoipa::path(delete, path = "/api/v1/runs/{id}", tag = "runs", params(("id" = Uuid, Path), Deletion),
    responses((status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(deletion): Query<Deletion>,
) -> Result<StatusCode, Problem> {
    app.runs().delete_run(run_id(&id)?, deletion.forget_left).await?;
    Ok(StatusCode::NO_CONTENT)
}

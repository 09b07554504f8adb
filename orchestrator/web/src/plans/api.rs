//! Plans and runs for scripts.

use analysis::export::How;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use plan::{FillRate, Problem as PlanProblem};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{check, in_force};
use crate::app::App;
use crate::clusters::Wanted;
use crate::live::{Prospect, StartError, ended};
use crate::pages::run_id;
use crate::problem::{ErrorBody, Problem};
use crate::visitor::Visitor;

/// Problems that an error names; the check lists all.
const NAMED_PROBLEMS: usize = 3;

/// A run that was started.
#[derive(Serialize, ToSchema)]
pub(crate) struct Started {
    /// UUID of the run.
    id: Uuid,
}

/// Checks a plan and says what it would do; nothing is started. As `fourcorners check PLAN --json`.
#[utoipa::path(post, path = "/api/v1/plans/check", tag = "plans",
    request_body(content = String, content_type = "application/yaml", description = "The plan, as docs/plan.md describes it"),
    responses((status = 200, body = Object)))]
pub(crate) async fn check_plan(State(app): State<App>, yaml: String) -> Result<Json<Value>, Problem> {
    let answer = match check::read(&yaml, &in_force(&app).await?) {
        Ok(plan) => {
            let findings = app.workshop().findings(&plan, Wanted::Anew).await.list;
            let schedule = plan::schedule(&plan, FillRate::assumed());
            json!({ "valid": true, "plan": plan, "schedule": schedule, "findings": findings })
        }
        Err(errors) => json!({ "valid": false, "errors": errors }),
    };
    Ok(Json(answer))
}

/// How to start.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Manner {
    /// At its smallest, with a canary first: marked so that its figures are taken for no result.
    #[serde(default)]
    rehearse: bool,
}

/// Starts a plan; one run goes on at a time.
#[utoipa::path(post, path = "/api/v1/runs", tag = "runs", params(Manner),
    request_body(content = String, content_type = "application/yaml", description = "The plan, as docs/plan.md describes it"),
    responses((status = 201, body = Started), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(crate) async fn start(
    State(app): State<App>,
    Query(manner): Query<Manner>,
    yaml: String,
) -> Result<(StatusCode, Json<Started>), Problem> {
    let plan = check::read(&yaml, &in_force(&app).await?).map_err(|errors| Problem::input(named(errors.problems())))?;
    let plan = if manner.rehearse { plan.rehearsal() } else { plan };
    match app.workshop().start(plan, yaml).await {
        Ok(id) => Ok((StatusCode::CREATED, Json(Started { id }))),
        Err(StartError::Refused(why)) => Err(Problem::input(why)),
        Err(error) => Err(Problem::conflict(format!("{error}."))),
    }
}

fn named(problems: &[PlanProblem]) -> String {
    let one = |problem: &PlanProblem| format!("line {}, column {}: {problem}", problem.line, problem.column);
    let more = problems.len().saturating_sub(NAMED_PROBLEMS);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", problems.iter().take(NAMED_PROBLEMS).map(one).collect::<Vec<_>>().join("; "))
}

/// Stops a run: a case that is being measured gets its whole result first, the cases after it are not run, workers and disks are removed.
/// Where no case is being measured, it ends at once. The run counts as stopped, unless nothing was left out.
#[utoipa::path(post, path = "/api/v1/runs/{id}/stop", tag = "runs", params(("id" = Uuid, Path)),
    responses((status = 202, body = Prospect), (status = 409, body = ErrorBody)))]
pub(crate) async fn stop(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Prospect>), Problem> {
    Ok((StatusCode::ACCEPTED, Json(ended(&app, &visitor, run_id(&id)?, How::Stop).await?)))
}

/// Cancels a run, also one that is being stopped: it ends now, what was measured of a case is kept and marked as cancelled, the cases after
/// it are not run, workers and disks are removed.
#[utoipa::path(post, path = "/api/v1/runs/{id}/cancel", tag = "runs", params(("id" = Uuid, Path)),
    responses((status = 202, body = Prospect), (status = 409, body = ErrorBody)))]
pub(crate) async fn cancel(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Prospect>), Problem> {
    Ok((StatusCode::ACCEPTED, Json(ended(&app, &visitor, run_id(&id)?, How::Cancel).await?)))
}

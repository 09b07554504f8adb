//! `/new`: a plan is written, judged while it is written, and started.

use askama::Template;
use axum::Json;
use axum::extract::{Form, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use jiff::Timestamp;
use plan::{PlanErrors, TestPlan, limits::MAX_YAML_BYTES};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::check::{self, Verdict};
use super::place::{self, Place};
use super::{in_force, what_to_do};
use crate::app::App;
use crate::clusters::Wanted;
use crate::frame::{Frame, html};
use crate::live::{Findings, StartError};
use crate::pages::run_id;
use crate::problem::Problem;

#[derive(Template)]
#[template(path = "pages/new.html")]
struct NewPage {
    frame: Frame,
    yaml: String,
    cache: String,
    examples: Vec<&'static str>,
    verdict: Verdict,
    place: Place,
    /// Why the plan was not started.
    refused: Option<Refused>,
    /// The run under way, if there is one.
    busy: Option<Uuid>,
}

struct Refused {
    what: String,
    remedy: &'static str,
    /// The run that goes on.
    run: Option<Uuid>,
}

/// What stands beside the text and the fields of its place, by themselves: the script puts them there after each change.
#[derive(Template)]
#[template(path = "plans/answer.html")]
struct Answer {
    verdict: Verdict,
    place: Place,
}

/// What to start from.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct StartFrom {
    /// An example plan.
    example: Option<String>,
    /// A run whose plan is taken.
    run: Option<String>,
}

/// The page's form.
#[derive(Deserialize)]
pub(crate) struct PlanForm {
    yaml: String,
    #[serde(default)]
    cache: String,
    #[serde(default)]
    action: String,
    /// `yes` where a cluster is to be looked at now.
    #[serde(default)]
    anew: String,
}

/// A change of one field.
#[derive(Deserialize)]
pub(crate) struct EditForm {
    yaml: String,
    field: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    chosen: bool,
}

/// `/new`.
pub(crate) async fn page(
    State(app): State<App>,
    frame: Frame,
    Query(from): Query<StartFrom>,
) -> Result<Response, Problem> {
    let yaml = match (&from.run, &from.example) {
        (Some(run), _) => plan_of(&app, run).await?,
        (None, Some(name)) => {
            plan::example(name).ok_or_else(|| Problem::input(format!("There is no example plan {name:?}.")))?.to_owned()
        }
        (None, None) => plan::DEMO_PLAN.to_owned(),
    };
    let judged = judge(&app, &yaml, "", Wanted::Known).await?;
    html(&new_page(&app, frame, (yaml, String::new()), (judged.verdict, judged.place), None))
}

fn new_page(
    app: &App,
    frame: Frame,
    (yaml, cache): (String, String),
    (verdict, place): (Verdict, Place),
    refused: Option<Refused>,
) -> NewPage {
    let busy = app.workshop().hub().shows().filter(|(_, goes_on)| *goes_on).map(|(id, _)| id);
    NewPage { frame, yaml, cache, examples: plan::examples().collect(), verdict, place, refused, busy }
}

async fn plan_of(app: &App, run: &str) -> Result<String, Problem> {
    let id = run_id(run)?;
    app.runs().plan_yaml(id).await?.ok_or_else(|| Problem::no_run(run))
}

/// A text with what it is worth.
struct Judged {
    read: Result<TestPlan, PlanErrors>,
    verdict: Verdict,
    place: Place,
}

async fn judge(app: &App, yaml: &str, cache: &str, wanted: Wanted) -> Result<Judged, Problem> {
    let cache = check::cache(cache).map_err(Problem::input)?;
    let profiles = in_force(app).await?;
    let read = check::read(yaml, &profiles);
    let findings = match &read {
        Ok(plan) => app.workshop().findings(plan, wanted).await,
        Err(_) => Findings::default(),
    };
    let place = place::read(app, yaml, wanted).await?;
    let verdict = check::verdict(yaml, &read, &profiles, (cache, Timestamp::now()), findings);
    Ok(Judged { read, verdict, place })
}

/// A form sends line ends as the web has them.
fn lines(yaml: &str) -> String {
    yaml.replace("\r\n", "\n")
}

/// `POST /new`: check, download or start, as the button says.
pub(crate) async fn act(State(app): State<App>, frame: Frame, Form(form): Form<PlanForm>) -> Result<Response, Problem> {
    let yaml = lines(&form.yaml);
    if form.action == "download" {
        return Ok(download(&yaml));
    }
    let wanted = if form.action == "check" { Wanted::Anew } else { Wanted::Known };
    let Judged { read, verdict, place } = judge(&app, &yaml, &form.cache, wanted).await?;
    let refused = match (form.action.as_str(), read) {
        (action @ ("start" | "rehearse"), Ok(plan)) => {
            let plan = if action == "rehearse" { plan.rehearsal() } else { plan };
            match app.workshop().start(plan, yaml.clone()).await {
                Ok(id) => return Ok(Redirect::to(&format!("/runs/{id}/live")).into_response()),
                Err(error) => Some(refused(error)),
            }
        }
        ("start" | "rehearse", Err(_)) => Some(Refused {
            what: "Nothing was started: the plan has problems.".to_owned(),
            remedy: "Correct what is listed below, then start it again.",
            run: None,
        }),
        _ => None,
    };
    let status = if refused.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
    let page = html(&new_page(&app, frame, (yaml, form.cache), (verdict, place), refused))?;
    Ok((status, page).into_response())
}

fn refused(error: StartError) -> Refused {
    let run = match &error {
        StartError::Busy { id, .. } => *id,
        StartError::Closed(_) | StartError::Refused(_) => None,
    };
    Refused { what: format!("Nothing was started: {error}."), remedy: what_to_do(&error), run }
}

fn download(yaml: &str) -> Response {
    let name = plan::edit::value(yaml, "name").unwrap_or_default();
    let tame: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).take(60).collect();
    let tame = tame.trim_matches('-');
    let name = if tame.is_empty() { "plan" } else { tame };
    let headers = [
        (header::CONTENT_TYPE, "application/yaml; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}.yaml\"")),
    ];
    (headers, yaml.to_owned()).into_response()
}

/// `POST /new/check`: what stands beside the text.
pub(crate) async fn check(State(app): State<App>, Form(form): Form<PlanForm>) -> Result<Response, Problem> {
    let wanted = if form.anew == "yes" { Wanted::Anew } else { Wanted::Known };
    let judged = judge(&app, &lines(&form.yaml), &form.cache, wanted).await?;
    html(&Answer { verdict: judged.verdict, place: judged.place })
}

/// `POST /new/edit`: the text after a change of one field.
pub(crate) async fn edit(Form(form): Form<EditForm>) -> Result<Response, Problem> {
    if form.yaml.len() > MAX_YAML_BYTES {
        return Err(Problem::too_large());
    }
    let answer = match check::change(&lines(&form.yaml), &form.field, &form.value, form.chosen) {
        Ok(yaml) => json!({ "yaml": yaml }),
        Err(why) => json!({ "why": why }),
    };
    Ok(Json(answer).into_response())
}

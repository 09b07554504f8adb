//! `/runs/{id}/live`: the run under way.

use analysis::export::{Event, HostLoad, How, StorageHealth};
use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;
use uuid::Uuid;

use super::beat::Health;
use super::hub::Snapshot;
use super::prospect::{self, Prospect};
use super::steps::StepView;
use super::stream;
use crate::app::App;
use crate::format::{self, Time};
use crate::frame::{Flash, Frame, html, onward};
use crate::pages::run_id;
use crate::problem::Problem;
use crate::report::{escape_island, is_at_rest};
use crate::visitor::Visitor;

#[derive(Template)]
#[template(path = "pages/live.html")]
struct LivePage {
    frame: Frame,
    id: Uuid,
    name: String,
    began: Time,
    state: String,
    tone: &'static str,
    step: String,
    percent: String,
    left: String,
    cases: String,
    /// How it is being ended early.
    ending: Option<EndingView>,
    /// What ending it would do.
    stop: String,
    cancel: String,
    ended: bool,
    reason: Option<String>,
    steps: Vec<StepRow>,
    log: Vec<LogRow>,
    tells_health: bool,
    health: Option<HealthView>,
    warnings: Vec<String>,
    /// What the guard said last.
    guard: Vec<LogRow>,
    /// The whole state, for the script.
    island: String,
}

struct StepRow {
    kind: &'static str,
    label: String,
    /// `ahead`, `now` or `done`.
    place: &'static str,
    /// Width in the bar, as a flex factor.
    weight: u64,
    estimate: String,
    began: String,
    took: String,
}

/// Hosts and storage, last.
struct HealthView {
    at: Time,
    hosts: Vec<HostRow>,
    storage: Option<StorageRow>,
}

struct HostRow {
    host: String,
    cpu: String,
    memory: String,
    io_pressure: String,
    io_wait: String,
}

struct StorageRow {
    status: String,
    checks: String,
    recovery: String,
    displaced: String,
    scrubbing: String,
    at_rest: bool,
}

struct LogRow {
    at: Time,
    level: String,
    message: String,
}

/// A run that somebody ends early.
struct EndingView {
    /// At once: there is nothing left to ask for.
    at_once: bool,
    words: String,
}

/// `/runs/{id}/live`; the report where the run does not go on in this process.
pub(crate) async fn page(State(app): State<App>, frame: Frame, Path(id): Path<String>) -> Result<Response, Problem> {
    let id = run_id(&id)?;
    match app.workshop().hub().snapshot(id) {
        Some(snapshot) => html(&live_page(frame, id, snapshot)),
        None => Ok(Redirect::to(&format!("/runs/{id}")).into_response()),
    }
}

fn live_page(frame: Frame, id: Uuid, snapshot: Snapshot) -> LivePage {
    let Snapshot {
        name,
        began,
        steps,
        progress,
        log,
        tells_health,
        health,
        warnings,
        guard,
        end,
        ending,
        prospects,
        json,
        ..
    } = snapshot;
    let (state, tone) = match &end {
        None => (progress.state.clone(), "busy"),
        Some(end) if end.state == "done" => (end.state.clone(), "good"),
        Some(end) => (end.state.clone(), "bad"),
    };
    let ending =
        ending.map(|ending| EndingView { at_once: ending.how == How::Cancel, words: prospect::ending(&ending) });
    let [stop, cancel] = prospects;
    LivePage {
        frame,
        id,
        name,
        began: Time(began),
        state,
        tone,
        step: progress.step,
        percent: format!("{:.1}", progress.fraction * 100.0),
        left: progress.seconds_left.map_or("–".to_owned(), format::duration),
        cases: format!("{} of {}", progress.case, progress.cases),
        ending,
        stop,
        cancel,
        ended: end.is_some(),
        reason: end.and_then(|end| end.reason),
        steps: steps.iter().map(step_row).collect(),
        log: log.into_iter().rev().map(log_row).collect(),
        tells_health,
        health: health.map(health_view),
        warnings,
        guard: guard.into_iter().map(log_row).collect(),
        island: escape_island(&json),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate for a person")]
fn step_row(step: &StepView) -> StepRow {
    let place = match (step.began, step.ended) {
        (None, _) => "ahead",
        (Some(_), None) => "now",
        (Some(_), Some(_)) => "done",
    };
    StepRow {
        kind: step.kind,
        label: step.label.clone(),
        place,
        weight: step.seconds.max(1),
        estimate: format::duration(step.seconds as f64),
        began: step.began.map_or(String::new(), format::duration),
        took: step.began.zip(step.ended).map_or(String::new(), |(from, to)| format::duration(to - from)),
    }
}

fn health_view(health: Health) -> HealthView {
    HealthView {
        at: Time(health.at),
        hosts: health.hosts.into_iter().map(host_row).collect(),
        storage: health.storage.map(storage_row),
    }
}

fn host_row(load: HostLoad) -> HostRow {
    let percent = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.1}"));
    let memory = match (load.memory_used_bytes, load.memory_bytes) {
        (Some(used), Some(of)) => format!("{} of {}", format::bytes(used), format::bytes(of)),
        (Some(used), None) => format::bytes(used),
        (None, _) => "–".to_owned(),
    };
    HostRow {
        memory,
        cpu: percent(load.cpu_percent),
        io_pressure: percent(load.io_pressure_percent),
        io_wait: percent(load.io_wait_percent),
        host: load.host,
    }
}

fn storage_row(health: StorageHealth) -> StorageRow {
    StorageRow {
        at_rest: is_at_rest(&health),
        checks: health.checks.join(", "),
        recovery: format::bytes(health.recovery_bytes_per_second),
        displaced: format!("{:.2}", health.displaced_percent),
        scrubbing: format::count(health.scrubbing),
        status: health.status,
    }
}

fn log_row(event: Event) -> LogRow {
    LogRow { at: Time(event.at), level: event.level, message: event.message }
}

/// Where a page's script goes on.
#[derive(Deserialize)]
pub(crate) struct After {
    #[serde(default)]
    after: Option<String>,
}

/// `/runs/{id}/feed`: server-sent events from the message after the one that the browser had last.
pub(crate) async fn feed(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<String>,
    Query(query): Query<After>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = run_id(&id)?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).or(query.after.as_deref());
    let hub = app.workshop().hub().clone();
    let still = move || {
        let (app, visitor) = (app.clone(), visitor.clone());
        Box::pin(async move { matches!(visitor.again(&app).await, Ok(Some(_))) }) as stream::Still
    };
    match stream::feed(hub, id, last, Box::new(still)) {
        Some(feed) => Ok(feed.into_response()),
        None => Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Too many viewers",
            "As many pages as there may be follow the run already.",
            "Close one of them. This page tries again by itself; the run goes on whoever watches.",
        )),
    }
}

/// `POST /runs/{id}/stop`.
pub(crate) async fn stop(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    end(&app, &visitor, &id, How::Stop).await
}

/// `POST /runs/{id}/cancel`.
pub(crate) async fn cancel(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    end(&app, &visitor, &id, How::Cancel).await
}

async fn end(app: &App, visitor: &Visitor, id: &str, how: How) -> Result<Response, Problem> {
    let id = run_id(id)?;
    let flash = match ended(app, visitor, id, how).await {
        Ok(prospect) => Flash::done(prospect.words),
        Err(problem) => Flash::refused(&problem),
    };
    Ok(onward(app, visitor, &format!("/runs/{id}/live"), flash))
}

/// Ends a run for a visitor. Answers what that does.
pub(crate) async fn ended(app: &App, visitor: &Visitor, id: Uuid, how: How) -> Result<Prospect, Problem> {
    let workshop = app.workshop();
    if let Some(why) = workshop.hub().no_more(id, how) {
        return Err(Problem::conflict(why, "Wait for its end; its report says then what was measured."));
    }
    let prospect = workshop.hub().prospect(id, how);
    let asked = workshop.end(id, how, visitor.name()).await;
    // A run that was only just recorded is shown a moment later.
    let prospect = prospect.or_else(|| workshop.hub().prospect(id, how));
    prospect.filter(|_| asked).ok_or_else(Problem::not_going_on)
}

//! `/`: the list of runs.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use store::{RunFilter, RunGroup, RunId};
use utoipa::IntoParams;
use uuid::Uuid;

use crate::app::App;
use crate::format::{self, Time};
use crate::frame::{Frame, html};
use crate::problem::Problem;
use crate::report::verdict;
use crate::source::RunSummary;

/// Runs on a page.
const PAGE: u32 = 100;

/// Runs that one answer of the API has at most.
const MAX_LISTED: u32 = 1000;

/// Characters of a search.
const MAX_SEARCH: usize = 200;

#[derive(Template)]
#[template(path = "pages/runs.html")]
struct RunsPage {
    frame: Frame,
    runs: Vec<RunRow>,
    groups: Vec<Choice>,
    text: String,
    /// Something is left out.
    filtered: bool,
    /// This is not the first page.
    later: bool,
    /// Query of the page with the runs before these.
    older: Option<String>,
}

/// One state of the filter.
struct Choice {
    word: &'static str,
    label: &'static str,
    chosen: bool,
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
    note: String,
    rehearsal: bool,
    ended: bool,
}

/// Which runs to list.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunsQuery {
    /// `going-on`, `complete`, `incomplete`, `failed`, `cancelled` or `stopped`; all where it is empty or left out.
    state: String,
    /// A part of the name or of the note; letters' case does not matter.
    text: String,
    /// Runs created before this one, by its id.
    before: Option<String>,
    /// The most runs, 1000 at most.
    limit: Option<u32>,
}

impl RunsQuery {
    /// # Errors
    /// What cannot be a filter.
    pub(crate) fn filter(&self, default_limit: u32) -> Result<RunFilter, Problem> {
        let text = self.text.trim();
        if text.chars().count() > MAX_SEARCH {
            return Err(Problem::input(format!("The text to look for has more than {MAX_SEARCH} characters.")));
        }
        let before = match self.before.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => Some(RunId(id.parse().map_err(|_| Problem::input(format!("{id:?} is no id of a run.")))?)),
            None => None,
        };
        let limit = self.limit.unwrap_or(default_limit).clamp(1, MAX_LISTED);
        Ok(RunFilter { state: self.group()?, text: (!text.is_empty()).then(|| text.to_owned()), before, limit })
    }

    fn group(&self) -> Result<Option<RunGroup>, Problem> {
        if self.state.is_empty() {
            return Ok(None);
        }
        let words = RunGroup::ALL.map(RunGroup::as_str).join(", ");
        let unknown = || Problem::input(format!("{:?} is no state to filter by; there are {words}.", self.state));
        RunGroup::from_word(&self.state).map(Some).ok_or_else(unknown)
    }

    /// The query of the next page.
    fn older_than(&self, last: Uuid) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in [("state", &self.state), ("text", &self.text)] {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        query.append_pair("before", &last.to_string()).finish()
    }
}

/// `/`.
pub(crate) async fn page(
    State(app): State<App>,
    frame: Frame,
    Query(query): Query<RunsQuery>,
) -> Result<Response, Problem> {
    let wanted = query.filter(PAGE)?;
    // One more tells whether there are more.
    let mut runs = app.runs().list_runs(&RunFilter { limit: wanted.limit + 1, ..wanted.clone() }).await?;
    let shown = usize::try_from(wanted.limit).unwrap_or(usize::MAX);
    let more = runs.len() > shown;
    runs.truncate(shown);
    let older = runs.last().filter(|_| more).map(|last| query.older_than(last.id));
    let groups = [("", "all states", wanted.state.is_none())].into_iter();
    let groups = groups.chain(RunGroup::ALL.map(|group| (group.as_str(), label(group), wanted.state == Some(group))));
    html(&RunsPage {
        frame,
        runs: runs.into_iter().map(run_row).collect(),
        groups: groups.map(|(word, label, chosen)| Choice { word, label, chosen }).collect(),
        text: query.text.clone(),
        filtered: wanted.state.is_some() || wanted.text.is_some(),
        later: wanted.before.is_some(),
        older,
    })
}

fn label(group: RunGroup) -> &'static str {
    match group {
        RunGroup::GoingOn => "going on",
        other => other.as_str(),
    }
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
        note: run.note,
        rehearsal: run.rehearsal,
        ended: run.finished.is_some(),
    }
}

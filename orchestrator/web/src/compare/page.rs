//! `/compare?run=ID&case=ID:PLACE`: pick runs, pick their cases, see them side by side.

use std::collections::BTreeMap;

use analysis::export::{Case, Export};
use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::{Html, IntoResponse as _, Response};
use store::RunFilter;
use uuid::Uuid;

use super::differences::{self, BY_NATURE, Differences};
use super::side_by_side::{self, Group};
use crate::app::App;
use crate::export::write_csv_of;
use crate::format::Time;
use crate::frame::Frame;
use crate::pages::{download, render, run_id};
use crate::problem::Problem;
use crate::report::{Plan, badges, handed_on, overlay, profile, texts, verdict};

/// Runs of a comparison: each is read whole, but for its seconds.
const MAX_RUNS: usize = 6;
/// Cases side by side: beyond it nobody can tell the curves apart.
const MAX_CASES: usize = 12;
/// Runs to pick from, the newest.
const LISTED_RUNS: u32 = 50;

#[derive(Template)]
#[template(path = "pages/compare.html")]
struct ComparePage {
    frame: Frame,
    runs: Vec<RunChoice>,
    cases: Vec<RunCases>,
    columns: Vec<Column>,
    of_runs: Differences,
    of_cases: Differences,
    run_names: Vec<String>,
    /// What the reader must know of all of a run's figures.
    run_notes: Vec<RunNotes>,
    /// What is not compared, with why.
    left_out: [(&'static str, &'static str); BY_NATURE.len()],
    groups: Vec<Group>,
    unit: &'static str,
    chart: Option<String>,
    most_runs: usize,
    most_cases: usize,
    /// Query of the same cases as CSV.
    csv: String,
}

struct RunNotes {
    name: String,
    notes: Vec<String>,
}

/// A run to pick.
struct RunChoice {
    id: Uuid,
    name: String,
    started: Time,
    state: String,
    tone: &'static str,
    chosen: bool,
}

/// The cases of a picked run.
struct RunCases {
    name: String,
    cases: Vec<CaseChoice>,
}

struct CaseChoice {
    value: String,
    label: String,
    profile: String,
    chosen: bool,
}

/// A case side by side.
struct Column {
    colour: usize,
    run: Uuid,
    run_name: String,
    footprint: String,
    workload: String,
    /// What the reader must know of its figures, in a few words and as sentences.
    badges: Vec<String>,
    notes: Vec<String>,
}

/// What the address asks for.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    runs: Vec<Uuid>,
    /// Run and place of the case in it, from 0.
    cases: Vec<(Uuid, usize)>,
}

impl Asked {
    fn of(query: &str) -> Result<Self, Problem> {
        let mut asked = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let run = match &*name {
                "run" => run_id(&value)?,
                "case" => {
                    let (run, place) = value.split_once(':').ok_or_else(|| no_case(&value))?;
                    let (run, place) = (run_id(run)?, place.parse().map_err(|_| no_case(&value))?);
                    if !asked.cases.contains(&(run, place)) {
                        asked.cases.push((run, place));
                    }
                    run
                }
                _ => continue,
            };
            if !asked.runs.contains(&run) {
                asked.runs.push(run);
            }
        }
        if asked.runs.len() > MAX_RUNS {
            return Err(Problem::input(format!(
                "{} runs are asked for; {MAX_RUNS} can be compared at a time.",
                asked.runs.len()
            )));
        }
        if asked.cases.len() > MAX_CASES {
            let found = asked.cases.len();
            return Err(Problem::input(format!("{found} cases are asked for; {MAX_CASES} can be compared at a time.")));
        }
        Ok(asked)
    }
}

fn no_case(value: &str) -> Problem {
    Problem::input(format!(
        "{value:?} is no case: it is the run's id, a colon, and the case's place in the run from 0."
    ))
}

/// `/compare`.
pub(crate) async fn page(State(app): State<App>, frame: Frame, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let asked = Asked::of(query.as_deref().unwrap_or_default())?;
    let filter = RunFilter { state: None, text: None, before: None, limit: LISTED_RUNS };
    let listed = app.runs().list_runs(&filter).await?;
    let runs = listed.into_iter().map(|run| {
        let (state, tone, _) = verdict(&run.state, run.complete);
        RunChoice {
            id: run.id,
            name: run.name,
            started: Time(run.started),
            state,
            tone,
            chosen: asked.runs.contains(&run.id),
        }
    });
    let runs: Vec<RunChoice> = runs.collect();
    let exports = load(&app, &asked).await?;
    let page = render(move || Ok(build(frame, runs, &exports, asked)?.render()?));
    Ok(Html(page.await?).into_response())
}

/// `/compare.csv`: the same cases, a row a case and operation, with what the reader of each must know.
pub(crate) async fn csv(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let asked = Asked::of(query.as_deref().unwrap_or_default())?;
    let place = app.downloads().take().await?;
    let exports = load(&app, &asked).await?;
    let picked = if asked.cases.is_empty() { preselected(&exports) } else { asked.cases };
    download(place, "fourcorners-comparison.csv", "text/csv; charset=utf-8", move |to| {
        let by_id: BTreeMap<Uuid, &Export> = exports.iter().map(|(id, export)| (*id, export)).collect();
        let cases: Vec<(&Export, usize)> =
            picked.iter().filter_map(|(run, place)| Some((*by_id.get(run)?, *place))).collect();
        write_csv_of(&cases, to)
    })
}

async fn load(app: &App, asked: &Asked) -> Result<Vec<(Uuid, Export)>, Problem> {
    let mut exports = Vec::new();
    for id in &asked.runs {
        let export = app.runs().load_figures(*id).await?.ok_or_else(|| Problem::no_run(&id.to_string()))?;
        exports.push((*id, export));
    }
    Ok(exports)
}

/// What is compared where only runs are picked: the first workloads that all of them have, or of one run its first workload on each footprint.
fn preselected(exports: &[(Uuid, Export)]) -> Vec<(Uuid, usize)> {
    let measured = |case: &&Case| case.ops.all.is_some();
    let Some((_, first)) = exports.first() else { return Vec::new() };
    let Some(workload) = first.cases.iter().find(measured).map(|case| case.workload.clone()) else { return Vec::new() };
    let cases = exports.iter().flat_map(|(id, export)| {
        let of_workload =
            export.cases.iter().enumerate().filter(|(_, case)| case.workload == workload && measured(case));
        of_workload.map(|(place, _)| (*id, place))
    });
    cases.take(MAX_CASES).collect()
}

fn build(
    frame: Frame,
    runs: Vec<RunChoice>,
    exports: &[(Uuid, Export)],
    asked: Asked,
) -> Result<ComparePage, crate::Error> {
    let picked = if asked.cases.is_empty() { preselected(exports) } else { asked.cases };
    let names = names(exports);
    let by_id: BTreeMap<Uuid, &Export> = exports.iter().map(|(id, export)| (*id, export)).collect();
    let found: Vec<(Uuid, &Case)> =
        picked.iter().filter_map(|(run, place)| Some((*run, by_id.get(run)?.cases.get(*place)?))).collect();
    let cases: Vec<&Case> = found.iter().map(|(_, case)| *case).collect();
    let plans: BTreeMap<Uuid, Plan> = exports.iter().map(|(id, export)| (*id, Plan::of(&export.run.plan))).collect();
    let with_plans: Vec<(&Case, &Plan)> = found.iter().map(|(run, case)| (*case, &plans[run])).collect();
    let unit = side_by_side::unit(&cases);
    let columns = found.iter().enumerate().map(|(place, (run, case))| {
        let mut column = column(place, *run, &names, (case, &plans[run]));
        // Wherever its figures are looked at.
        if by_id[run].run.rehearsal {
            column.badges.insert(0, "rehearsal: no result".to_owned());
        }
        column
    });
    let columns: Vec<Column> = columns.collect();
    let labelled: Vec<(String, &Case)> =
        columns.iter().zip(&cases).map(|(column, case)| (label(column, names.len()), *case)).collect();
    let compared: Vec<&Export> = exports.iter().map(|(_, export)| export).collect();
    Ok(ComparePage {
        frame,
        runs,
        cases: exports.iter().map(|(id, export)| run_cases(*id, export, &names, &picked)).collect(),
        of_runs: differences::of_runs(&compared),
        of_cases: differences::of_cases(&with_plans),
        run_names: exports.iter().map(|(id, _)| names[id].clone()).collect(),
        run_notes: exports.iter().map(|(id, export)| run_notes(&names[id], export)).collect(),
        left_out: BY_NATURE,
        csv: csv_query(&picked),
        groups: side_by_side::groups(&cases, unit),
        unit: unit.label(),
        chart: overlay(&labelled, unit)?,
        columns,
        most_runs: MAX_RUNS,
        most_cases: MAX_CASES,
    })
}

/// Names of runs; those that are called alike are told apart by the end of their ids.
fn names(exports: &[(Uuid, Export)]) -> BTreeMap<Uuid, String> {
    let name = |(id, export): &(Uuid, Export)| {
        let alike = exports.iter().filter(|(_, other)| other.run.name == export.run.name).count();
        let end = &id.simple().to_string()[26..];
        let name = if alike > 1 { format!("{} (…{end})", export.run.name) } else { export.run.name.clone() };
        (*id, name)
    };
    exports.iter().map(name).collect()
}

fn run_cases(id: Uuid, export: &Export, names: &BTreeMap<Uuid, String>, picked: &[(Uuid, usize)]) -> RunCases {
    let cases = export.cases.iter().enumerate().map(|(place, case)| CaseChoice {
        value: format!("{id}:{place}"),
        label: format!("{}: {}", case.footprint, case.workload),
        profile: profile(case),
        chosen: picked.contains(&(id, place)),
    });
    RunCases { name: names[&id].clone(), cases: cases.collect() }
}

fn run_notes(name: &str, export: &Export) -> RunNotes {
    let run = &export.run;
    let (_, _, banner) = verdict(&run.state, run.complete);
    let rehearsal = run.rehearsal.then(|| "This is a rehearsal: no result.".to_owned());
    let reason = run.reason.as_ref().map(|reason| format!("Reason: {reason}"));
    let notes = rehearsal.into_iter().chain(banner).chain(reason).chain(handed_on::warnings(run));
    RunNotes { name: name.to_owned(), notes: notes.collect() }
}

fn csv_query(cases: &[(Uuid, usize)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    cases.iter().for_each(|(run, place)| {
        query.append_pair("case", &format!("{run}:{place}"));
    });
    query.finish()
}

fn column(place: usize, run: Uuid, names: &BTreeMap<Uuid, String>, (case, plan): (&Case, &Plan)) -> Column {
    Column {
        colour: place % 6 + 1,
        run,
        run_name: names.get(&run).cloned().unwrap_or_default(),
        footprint: case.footprint.clone(),
        workload: case.workload.clone(),
        badges: badges(case, plan),
        notes: texts(case, plan),
    }
}

fn label(column: &Column, runs: usize) -> String {
    let case = format!("{} {}", column.footprint, column.workload);
    if runs > 1 { format!("{}: {case}", column.run_name) } else { case }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_bounded_and_checked() {
        let id = Uuid::now_v7();
        let asked = Asked::of(&format!("run={id}&case={id}:3&case={id}:3&x=1")).unwrap();
        assert_eq!(asked, Asked { runs: vec![id], cases: vec![(id, 3)] });
        for bad in ["run=1", "case=x", "case=1:2", &format!("case={id}:-1"), "run=../../etc"] {
            assert!(Asked::of(bad).is_err(), "{bad}");
        }
        let many: String = (0..13).map(|place| format!("case={id}:{place}&")).collect();
        assert!(Asked::of(&many).is_err());
        let many: String = (0..7).map(|_| format!("run={}&", Uuid::now_v7())).collect();
        assert!(Asked::of(&many).is_err());
    }
}

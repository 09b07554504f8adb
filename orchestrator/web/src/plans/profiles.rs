//! `/profiles`: the shipped workload profiles, and the users' own.

use askama::Template;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use plan::{AccessPattern, PlanErrors, Profile, RateIops, Workload};
use serde::Deserialize;

use super::{OWN_SET, in_force};
use crate::app::App;
use crate::format::{self, Time};
use crate::frame::{Flash, Frame, html, onward};
use crate::problem::Problem;
use crate::visitor::Visitor;

/// What a new profile begins as.
const BEGINNING: &str = "name: my-profile\ndescription: What it stands for\nblock: 8KiB\npattern: random\nread_percent: 70\noutstanding_per_disk: 4\n";

#[derive(Template)]
#[template(path = "pages/profiles.html")]
struct ListPage {
    frame: Frame,
    sets: Vec<Set>,
    /// Own ones that cannot be read any more.
    broken: Vec<String>,
}

struct Set {
    name: String,
    note: &'static str,
    own: bool,
    rows: Vec<Row>,
}

struct Row {
    id: String,
    name: String,
    description: String,
    block: String,
    pattern: String,
    reads: String,
    load: String,
}

#[derive(Template)]
#[template(path = "pages/profile.html")]
struct ProfilePage {
    frame: Frame,
    title: String,
    yaml: String,
    /// The own profile that is changed; none for a new one.
    was: Option<String>,
    /// It may be changed.
    editable: bool,
    /// Of a shipped or stored one.
    id: Option<String>,
    changed: Option<Time>,
    part: ProfilePart,
}

/// What stands beside the text.
#[derive(Template)]
#[template(path = "plans/profile_verdict.html")]
struct ProfilePart {
    problems: Vec<plan::Problem>,
    row: Option<Row>,
}

/// What to copy.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct CopyOf {
    from: Option<String>,
}

/// A profile to be kept.
#[derive(Deserialize)]
pub(crate) struct ProfileForm {
    yaml: String,
    #[serde(default)]
    was: String,
}

/// `/profiles`.
pub(crate) async fn list(State(app): State<App>, frame: Frame) -> Result<Response, Problem> {
    let profiles = in_force(&app).await?;
    let known = |name: &str| profiles.get(&format!("{OWN_SET}/{name}")).is_some();
    let broken = app.store().list_profiles().await?.into_iter().map(|own| own.name).filter(|name| !known(name));
    let sets = [
        (OWN_SET, "Kept in the data directory of this server. Plans call them own/NAME."),
        ("published", "2 outstanding I/Os a disk, as the published HCI tests used. A plan's default."),
        ("deep", "16 outstanding I/Os a disk (random) or 8 (sequential): enough to find a peak on NVMe."),
    ];
    let set = |(name, note): (&str, &'static str)| {
        let prefix = format!("{name}/");
        let rows = profiles.iter().filter(|profile| profile.id.starts_with(&prefix)).map(row).collect();
        Set { name: name.to_owned(), note, own: name == OWN_SET, rows }
    };
    html(&ListPage { frame, sets: sets.into_iter().map(set).collect(), broken: broken.collect() })
}

fn row(profile: &Profile) -> Row {
    let workload = &profile.workload;
    Row {
        id: profile.id.clone(),
        name: workload.name.clone(),
        description: profile.description.clone(),
        block: format::bytes(workload.block_bytes),
        pattern: pattern(&workload.pattern),
        reads: format!("{} %", workload.read_percent),
        load: load(workload),
    }
}

fn pattern(pattern: &AccessPattern) -> String {
    match pattern {
        AccessPattern::Random => "random".to_owned(),
        AccessPattern::Sequential { streams: 1 } => "sequential".to_owned(),
        AccessPattern::Sequential { streams } => format!("sequential, {streams} streams"),
        AccessPattern::Permutation => "each block once".to_owned(),
        AccessPattern::HotSpot { io_percent, space_percent } => {
            format!("{io_percent} % of the I/Os in {space_percent} % of the space")
        }
    }
}

fn load(workload: &Workload) -> String {
    let outstanding = format!("{} outstanding", workload.outstanding_per_disk);
    match workload.rate.map(|rate| rate.iops) {
        None => outstanding,
        Some(RateIops::IopsPerDisk(iops)) => format!("{iops} IOPS a disk, at most {outstanding}"),
        Some(RateIops::IopsPerWorker(iops)) => format!("{iops} IOPS a worker, at most {outstanding}"),
    }
}

/// `/profiles/{set}/{name}`.
pub(crate) async fn show(
    State(app): State<App>,
    frame: Frame,
    Path((set, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let id = format!("{set}/{name}");
    let (yaml, changed) = text_of(&app, &id).await?;
    let editable = set == OWN_SET && frame.is_admin();
    let was = editable.then(|| name.clone());
    let part = judge(&yaml);
    html(&ProfilePage { frame, title: id.clone(), yaml, was, editable, id: Some(id), changed, part })
}

/// A profile's text as it was written, and of an own one when.
async fn text_of(app: &App, id: &str) -> Result<(String, Option<Time>), Problem> {
    if let Some(name) = id.strip_prefix("own/") {
        let own = app.store().list_profiles().await?.into_iter().find(|own| own.name == name);
        return own.map(|own| (own.yaml, Some(Time(own.changed)))).ok_or_else(|| no_profile(id));
    }
    plan::shipped_profile(id).map(|yaml| (yaml.to_owned(), None)).ok_or_else(|| no_profile(id))
}

fn no_profile(id: &str) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "No such profile",
        format!("There is no workload profile {id}."),
        "The page Profiles lists those that are here.",
    )
}

/// `/profiles/new`.
pub(crate) async fn new(State(app): State<App>, frame: Frame, Query(copy): Query<CopyOf>) -> Result<Response, Problem> {
    let yaml = match &copy.from {
        Some(id) => text_of(&app, id).await?.0,
        None => BEGINNING.to_owned(),
    };
    let title = copy.from.map_or("A new profile".to_owned(), |id| format!("A copy of {id}"));
    let part = judge(&yaml);
    html(&ProfilePage { frame, title, yaml, was: None, editable: true, id: None, changed: None, part })
}

fn read(yaml: &str) -> Result<Profile, PlanErrors> {
    Profile::read(OWN_SET, "profile", yaml)
}

/// `/profiles/check`: what stands beside the text.
pub(crate) async fn check(Form(form): Form<ProfileForm>) -> Result<Response, Problem> {
    html(&judge(&lines(&form.yaml)))
}

fn judge(yaml: &str) -> ProfilePart {
    match read(yaml) {
        Ok(profile) => ProfilePart { problems: Vec::new(), row: Some(row(&profile)) },
        Err(errors) => ProfilePart { problems: errors.problems().to_vec(), row: None },
    }
}

fn lines(yaml: &str) -> String {
    yaml.replace("\r\n", "\n")
}

/// `POST /profiles/new`: keeps a profile, under the name that is in it.
pub(crate) async fn save(
    State(app): State<App>,
    frame: Frame,
    visitor: Visitor,
    Form(form): Form<ProfileForm>,
) -> Result<Response, Problem> {
    let yaml = lines(&form.yaml);
    let was = (!form.was.is_empty()).then_some(form.was);
    // The text is shown again, so that it is not lost.
    let not_kept = |frame, was, status: StatusCode, why: &str| -> Result<Response, Problem> {
        let (title, part, yaml) = (format!("Not kept: {why}"), judge(&yaml), yaml.clone());
        let page = html(&ProfilePage { frame, title, yaml, was, editable: true, id: None, changed: None, part })?;
        Ok((status, page).into_response())
    };
    let Ok(profile) = read(&yaml) else {
        return not_kept(frame, was, StatusCode::UNPROCESSABLE_ENTITY, "correct the problems that are listed");
    };
    let name = profile.workload.name;
    let taken = app.store().list_profiles().await?.iter().any(|own| own.name == name);
    if taken && was.as_deref() != Some(&*name) {
        let why = format!("there is an own profile {name} already; give this one another name");
        return not_kept(frame, was, StatusCode::CONFLICT, &why);
    }
    match app.store().put_profile(&name, &yaml).await.map_err(Problem::from) {
        Ok(()) => {}
        Err(problem) if problem.status.is_client_error() => {
            return not_kept(frame, was, problem.status, &format!("{} {}", problem.what, problem.remedy));
        }
        Err(problem) => return Err(problem),
    }
    if let Some(was) = was.filter(|was| *was != name) {
        app.store().delete_profile(&was).await?;
    }
    Ok(onward(&app, &visitor, "/profiles", Flash::done(format!("The profile own/{name} was kept."))))
}

/// `POST /profiles/{set}/{name}/delete`.
pub(crate) async fn delete(
    State(app): State<App>,
    visitor: Visitor,
    Path((set, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    if set != OWN_SET {
        return Err(Problem::conflict(
            format!("{set}/{name} ships with the program and cannot be deleted."),
            "Copy it, and change the copy. Nothing was changed.",
        ));
    }
    app.store().delete_profile(&name).await?;
    let text = format!("The profile own/{name} was deleted. Runs that used it keep what they used.");
    Ok(onward(&app, &visitor, "/profiles", Flash::done(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_profile_can_be_copied_as_it_is() {
        for profile in plan::Profiles::shipped().iter() {
            let copy = read(plan::shipped_profile(&profile.id).unwrap()).unwrap();
            assert_eq!(copy.workload.block_bytes, profile.workload.block_bytes);
            assert_eq!(copy.id, format!("own/{}", profile.workload.name));
        }
        assert!(read(BEGINNING).is_ok());
        assert_eq!(plan::shipped_profile("plans/demo"), None, "a plan is no profile");
    }

    #[test]
    fn problems_are_told_beside_the_text() {
        let bad = judge(&BEGINNING.replace("8KiB", "8K"));
        assert!(bad.row.is_none());
        assert_eq!((bad.problems[0].line, bad.problems[0].field.as_str()), (3, "block"));
        assert_eq!(judge(BEGINNING).row.unwrap().load, "4 outstanding");
    }
}

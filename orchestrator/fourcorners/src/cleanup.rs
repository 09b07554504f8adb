//! `cleanup`: lists and removes what earlier runs left, by the journal and by our marks in the clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use comfy_table::Table;
use hypervisor::proxmox::Timing;
use hypervisor::{Found, Hypervisor};
use plan::proxmox::is_connection_name;
use serde_json::{Value, json};
use store::{DataDir, JournalEntry, RunId, RunSummary, Store, StoreError};

use crate::ask::confirm;
use crate::cli::JsonArgs;
use crate::closing::with_store;
use crate::file_journal::FileJournal;
use crate::table::STYLE;
use crate::{output, place, plan_file, recover};

/// Runs that are looked at, latest first.
const MAX_RUNS: u32 = 10_000;

#[derive(Debug, Args)]
pub(crate) struct CleanupArgs {
    /// Only what this run left: its id, the beginning of one, or `latest`
    #[arg(long, conflicts_with = "fleet")]
    run: Option<String>,
    /// Also what carries the mark of this fleet, which no run here knows. Only where the orchestrator that made it is gone for good
    #[arg(long)]
    fleet: Option<String>,
    /// Also look at the cluster that this plan names, where no run here knows it
    #[arg(long, value_name = "PLAN")]
    plan: Option<PathBuf>,
    /// Only list it
    #[arg(long)]
    dry_run: bool,
    /// Remove without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    output: JsonArgs,
}

pub(crate) async fn cleanup(data_dir: &Path, args: &CleanupArgs) -> anyhow::Result<ExitCode> {
    if let Some(fleet) = args.fleet.as_deref().filter(|fleet| !is_connection_name(fleet)) {
        bail!("--fleet: found {fleet:?}; expected what follows `fc-` in the tag of a worker's VM");
    }
    let dir = DataDir::new(data_dir);
    let _lock = dir.lock()?;
    let store = Store::open(&dir).await?;
    with_store(store, async |store| clean_up(data_dir, store, args).await).await
}

async fn clean_up(data_dir: &Path, store: &Store, args: &CleanupArgs) -> anyhow::Result<ExitCode> {
    let survey = Survey::make(data_dir, store, args).await?;
    if args.dry_run || survey.is_empty() {
        say(args, &survey, &[])?;
        return Ok(if survey.incomplete { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    output::note(survey.table());
    if !args.yes && !agreed()? {
        return Ok(ExitCode::FAILURE);
    }
    let left = remove(data_dir, store, args, &survey).await?;
    say(args, &survey, &left)?;
    Ok(if left.is_empty() && !survey.incomplete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a run's journal does not say to be removed, for a person. No place is looked at.
pub(crate) async fn left(store: &Store, run: RunId) -> Result<Vec<String>, StoreError> {
    Ok(run::leftovers(store, run).await?.iter().map(described).collect())
}

/// `cleanup --run` of a run that has ended, without its questions; answers what was not removed, and why. The caller holds the data
/// directory; another run may go on.
pub(crate) async fn tear_down(data_dir: &Path, store: &Store, run: RunId) -> anyhow::Result<Vec<String>> {
    // Whatever has not ended would be ended by the clean-up.
    if !store.run_summary(run).await?.state.is_final() {
        bail!("the run goes on: stop it, which removes what it made");
    }
    let args = CleanupArgs {
        run: Some(run.to_string()),
        fleet: None,
        plan: None,
        dry_run: false,
        yes: true,
        output: JsonArgs { json: false },
    };
    let survey = Survey::make(data_dir, store, &args).await?;
    let mut left = remove_of_runs(store, &survey).await?;
    left.extend(survey.skipped.iter().map(|why| format!("not looked at: {why}")));
    Ok(left)
}

fn agreed() -> anyhow::Result<bool> {
    match confirm("Remove it?")? {
        Some(true) => Ok(true),
        Some(false) => {
            output::note("Nothing was removed.");
            Ok(false)
        }
        None => bail!("nobody answered, and nothing was removed; say --yes to remove it without a question"),
    }
}

/// What is left, and what of it was in the way.
fn say(args: &CleanupArgs, survey: &Survey, left: &[String]) -> anyhow::Result<()> {
    if args.output.json {
        let removed = !args.dry_run && !survey.is_empty();
        let text = json!({ "items": survey.items, "skipped": survey.skipped, "removed": removed, "left": left });
        return output::result(&format!("{text}\n"));
    }
    let mut text = match (args.dry_run, survey.is_empty()) {
        (_, true) if survey.items.is_empty() && survey.skipped.is_empty() => "Nothing is left.\n".to_owned(),
        (_, true) if survey.items.is_empty() => "Nothing that is left was found.\n".to_owned(),
        (true, _) | (_, true) => format!("{}\n", survey.table()),
        (false, false) if left.is_empty() && survey.items.iter().any(|item| item.kept.is_some()) => {
            "All of it is gone but what is kept.\n".to_owned()
        }
        (false, false) if left.is_empty() && !survey.skipped.is_empty() => "All that was found is gone.\n".to_owned(),
        (false, false) if left.is_empty() => "All of it is gone.\n".to_owned(),
        (false, false) => "Not all of it could be removed:\n".to_owned(),
    };
    left.iter().for_each(|left| text.push_str(&format!("  {left}\n")));
    survey.skipped.iter().for_each(|why| text.push_str(&format!("Not looked at: {why}\n")));
    output::result(&text)
}

/// A thing that is left.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
struct Item {
    /// Run that made it; none where no run here did.
    run: Option<String>,
    /// Its fleet, by its mark.
    fleet: Option<String>,
    object: String,
    /// `journal`, `mark` or both.
    known_by: &'static str,
    /// Whether it is removed, and if not, why.
    kept: Option<String>,
}

/// A run that left something.
struct OfRun {
    run: RunId,
    finished: bool,
    has_leftovers: bool,
    place: String,
    found: Vec<Found>,
}

/// What there is.
struct Survey {
    /// Providers by what was recorded of the place.
    places: BTreeMap<String, Box<dyn Hypervisor>>,
    runs: Vec<OfRun>,
    /// What belongs to no run here and is asked for: (key of the place, object).
    strangers: Vec<(String, Found)>,
    items: BTreeSet<Item>,
    /// Places and objects that could not be looked at, and why.
    skipped: BTreeSet<String>,
    /// Whether something is or may be left there.
    incomplete: bool,
}

impl Survey {
    async fn make(data_dir: &Path, store: &Store, args: &CleanupArgs) -> anyhow::Result<Self> {
        let mut survey = Self {
            places: BTreeMap::new(),
            runs: Vec::new(),
            strangers: Vec::new(),
            items: BTreeSet::new(),
            skipped: BTreeSet::new(),
            incomplete: false,
        };
        let runs = match &args.run {
            Some(asked) => vec![store.run_summary(store.find_run(asked).await?).await?],
            None => store.list_runs(MAX_RUNS).await?,
        };
        for run in &runs {
            survey.add_run(data_dir, store, run).await?;
        }
        if let Some(path) = &args.plan {
            survey.add_plan(data_dir, path).await?;
        }
        survey.look(store, args).await?;
        survey.ask_for_fleet(data_dir, args)?;
        Ok(survey)
    }

    fn is_empty(&self) -> bool {
        self.items.iter().all(|item| item.kept.is_some())
    }

    /// A run with what its journal says is left, and its place.
    async fn add_run(&mut self, data_dir: &Path, store: &Store, run: &RunSummary) -> anyhow::Result<()> {
        let leftovers = run::leftovers(store, run.id).await?;
        let place = store.environment(run.id).await?["place"].take();
        let key = key_of(&place);
        // A local place carries no marks: without leftovers there is nothing to look for.
        let is_marked = place["provider"] == "proxmox";
        if leftovers.is_empty() && !is_marked {
            return Ok(());
        }
        if !self.places.contains_key(&key) {
            match place::recorded(data_dir, &place) {
                Ok(Some(provider)) => {
                    self.places.insert(key.clone(), provider);
                }
                Ok(None) => {
                    self.skipped.insert(format!("run {}: this program does not know its place: {place}", run.id));
                }
                Err(error) => _ = self.skipped.insert(format!("run {}: {error:#}", run.id)),
            }
        }
        self.items.extend(leftovers.iter().map(|left| Item {
            run: Some(run.id.to_string()),
            fleet: None,
            object: described(left),
            known_by: "journal",
            kept: None,
        }));
        let (finished, has_leftovers) = (run.state.is_final(), !leftovers.is_empty());
        self.runs.push(OfRun { run: run.id, finished, has_leftovers, place: key, found: Vec::new() });
        Ok(())
    }

    /// The place of a plan, for marks.
    async fn add_plan(&mut self, data_dir: &Path, path: &Path) -> anyhow::Result<()> {
        let file = match plan_file::read(path)? {
            Ok(file) => file,
            Err(errors) => {
                plan_file::show_errors(&errors);
                bail!("{}: the plan cannot be used", path.display());
            }
        };
        let provider = place::of_plan(data_dir, &file.plan, Timing::default())?;
        let key = key_of(&provider.describe().await);
        self.places.entry(key).or_insert(provider);
        Ok(())
    }

    /// Looks for our marks in all places.
    async fn look(&mut self, store: &Store, args: &CleanupArgs) -> anyhow::Result<()> {
        let (mut searched, mut dead) = (Vec::new(), Vec::new());
        for (key, provider) in &self.places {
            match provider.find(None).await {
                Ok(search) => searched.push((key.clone(), search)),
                Err(error) => dead.push((key.clone(), error.to_string())),
            }
        }
        for (key, error) in dead {
            self.places.remove(&key);
            self.skipped.insert(error);
            self.incomplete |= args.plan.is_some();
        }
        let mut seen = BTreeSet::new();
        for (key, search) in searched {
            self.incomplete |= !search.unread.is_empty();
            self.skipped.extend(search.unread.iter().map(|left| format!("{}: {}", left.object, left.reason)));
            self.skipped.extend(search.blind);
            for found in search.found {
                let run = run::run_of_fleet(&found.fleet);
                let known = match run {
                    Some(run) => store.run_summary(run).await.is_ok(),
                    None => false,
                };
                if let (Some(run), true) = (run, known) {
                    self.found_of(run, &key, &found);
                } else if args.run.is_none() && seen.insert((cluster_of(&key), found.object.clone())) {
                    self.strangers.push((key.clone(), found));
                }
            }
        }
        // An old run's cluster may be gone for good; that matters where its journal says that something is left there.
        self.incomplete |= self.runs.iter().any(|of| of.has_leftovers && !self.places.contains_key(&of.place));
        self.list_found(args);
        Ok(())
    }

    /// Something of a run was found. Where the run's own way to its cluster is gone (a dead node, another token), this is the way.
    fn found_of(&mut self, run: RunId, key: &str, found: &Found) {
        for of in self.runs.iter_mut().filter(|of| of.run == run) {
            if !self.places.contains_key(&of.place) {
                key.clone_into(&mut of.place);
            }
            if of.place == key {
                of.found.push(found.clone());
            }
        }
    }

    /// Lists what was found beside what the journals say.
    fn list_found(&mut self, args: &CleanupArgs) {
        let is_reached = |of: &&OfRun| self.places.contains_key(&of.place);
        let reached: BTreeSet<String> = self.runs.iter().filter(is_reached).map(|of| of.run.to_string()).collect();
        let kept = |item: Item| {
            let is_kept = item.run.as_ref().is_some_and(|run| !reached.contains(run));
            Item { kept: is_kept.then(|| "its place cannot be reached".to_owned()), ..item }
        };
        self.items = std::mem::take(&mut self.items).into_iter().map(kept).collect();
        for of in &self.runs {
            for found in &of.found {
                let run = Some(of.run.to_string());
                let journalled = self.items.iter().any(|item| item.run == run && item.object == found.object);
                self.items.retain(|item| item.run != run || item.object != found.object);
                self.items.insert(Item {
                    run,
                    fleet: Some(found.fleet.clone()),
                    object: found.object.clone(),
                    known_by: if journalled { "journal and mark" } else { "mark" },
                    kept: None,
                });
            }
        }
        for (_, found) in &self.strangers {
            let asked = args.fleet.as_deref() == Some(&*found.fleet);
            let kept = "no run here made it; where its orchestrator is gone for good, say --fleet".to_owned();
            self.items.insert(Item {
                run: None,
                fleet: Some(found.fleet.clone()),
                object: found.object.clone(),
                known_by: "mark",
                kept: (!asked).then_some(kept),
            });
        }
        self.strangers.retain(|(_, found)| args.fleet.as_deref() == Some(&*found.fleet));
    }

    /// The fleet that is asked for is there, by its marks or by what an earlier cleanup of it wrote.
    fn ask_for_fleet(&mut self, data_dir: &Path, args: &CleanupArgs) -> anyhow::Result<()> {
        let Some(fleet) = &args.fleet else { return Ok(()) };
        if run::run_of_fleet(fleet).is_some_and(|run| self.knows(run)) {
            bail!("fleet {fleet} is of a run here; without --fleet, it is cleaned up with the others");
        }
        if self.strangers.is_empty() {
            if !FileJournal::exists(data_dir, fleet) || self.places.len() != 1 {
                bail!(
                    "nothing that carries the mark of fleet {fleet} was found; --plan PLAN says which cluster to look at"
                );
            }
            self.items.insert(Item {
                run: None,
                fleet: Some(fleet.clone()),
                object: "what an earlier cleanup could not remove".to_owned(),
                known_by: "journal",
                kept: None,
            });
        }
        self.place_of_fleet().map_or(Ok(()), |key| FileJournal::check(data_dir, fleet, &cluster_of(key)))
    }

    /// Where the fleet that is asked for was found, else where it is looked for.
    fn place_of_fleet(&self) -> Option<&String> {
        self.strangers.first().map(|(key, _)| key).or_else(|| self.places.keys().next())
    }

    fn knows(&self, run: RunId) -> bool {
        self.runs.iter().any(|of| of.run == run)
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(STYLE).set_header(["left", "of", "known by", ""]);
        for item in &self.items {
            let of = match (&item.run, &item.fleet) {
                (Some(run), _) => format!("run {run}"),
                (None, fleet) => format!("fleet {}", fleet.as_deref().unwrap_or("?")),
            };
            let kept = item.kept.as_ref().map_or(String::new(), |why| format!("kept: {why}"));
            table.add_row([item.object.clone(), of, item.known_by.to_owned(), kept]);
        }
        table.to_string()
    }
}

/// Removes what was found to be left; answers what was not removed, and why.
async fn remove(data_dir: &Path, store: &Store, args: &CleanupArgs, survey: &Survey) -> anyhow::Result<Vec<String>> {
    let anew;
    let survey = if survey.runs.iter().all(|of| of.finished) {
        survey
    } else {
        let asked = args.run.as_ref().and(survey.runs.first()).map(|of| of.run);
        recover::recover(data_dir, store, asked).await?;
        // What that removed is not to be taken for something found.
        anew = Survey::make(data_dir, store, args).await?;
        &anew
    };
    let mut left = remove_of_runs(store, survey).await?;
    if let Some(fleet) = &args.fleet {
        left.extend(remove_strangers(data_dir, fleet, survey).await?);
    }
    Ok(left)
}

/// Removes what runs that have ended left.
async fn remove_of_runs(store: &Store, survey: &Survey) -> anyhow::Result<Vec<String>> {
    let mut left = Vec::new();
    for of in survey.runs.iter().filter(|of| of.has_leftovers || !of.found.is_empty()) {
        let Some(place) = survey.places.get(&of.place) else { continue };
        left.extend(run::clean_up(store, of.run, place.as_ref(), &of.found).await?);
    }
    Ok(left)
}

/// Adopts what no run here made, and destroys it.
async fn remove_strangers(data_dir: &Path, fleet: &str, survey: &Survey) -> anyhow::Result<Vec<String>> {
    let Some(key) = survey.place_of_fleet() else { return Ok(Vec::new()) };
    let place = survey.places.get(key).context("its place was looked at")?;
    let journal = FileJournal::open(data_dir, fleet, &cluster_of(key))?;
    let known: Vec<(String, Value)> = journal
        .entries()
        .into_iter()
        .map(|entry| (entry.intent.object, entry.intent.details["node"].clone()))
        .collect();
    for (_, found) in survey.strangers.iter().filter(|(at, _)| cluster_of(at) == cluster_of(key)) {
        let identity = (found.record.object.clone(), found.record.details["node"].clone());
        if !known.contains(&identity) {
            place.adopt(found, &journal).await?;
        }
    }
    let left = place.destroy(&journal.entries(), &journal).await?;
    // What could not be looked at may be the fleet's, too. Whatever makes the survey incomplete is among what it skipped.
    if left.is_empty() && survey.skipped.is_empty() {
        journal.finish()?;
    }
    Ok(left.into_iter().map(|left| format!("{} was left alone: {}", left.object, left.reason)).collect())
}

/// What distinguishes one recorded place from another.
fn key_of(place: &Value) -> String {
    let parts = ["provider", "isolation", "disk_dir", "settings"].map(|name| &place[name]);
    json!(parts).to_string()
}

/// The cluster that a place is on, by its endpoint: several places may be on one.
fn cluster_of(key: &str) -> String {
    let parts: Value = serde_json::from_str(key).unwrap_or_default();
    parts[3]["endpoint"].as_str().unwrap_or_default().to_owned()
}

/// A journal's entry for a person.
fn described(entry: &JournalEntry) -> String {
    let object = entry.object.as_deref().unwrap_or("?");
    let text = |name: &str| entry.intent[name].as_str();
    let node = text("node").map_or(String::new(), |node| format!(" on {node}"));
    match (&*entry.kind, text("name")) {
        ("proxmox.create-vm" | "proxmox.adopt-vm", Some(name)) => format!("VM {object} ({name}){node}"),
        ("proxmox.upload-image", _) => format!("image {}{node}", text("volid").unwrap_or(object)),
        ("proxmox.delete-volume", _) => format!("volume {}{node}", text("volid").unwrap_or(object)),
        (kind, _) => format!("{kind} {object}{node}"),
    }
}

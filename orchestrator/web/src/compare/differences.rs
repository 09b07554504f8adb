//! In what runs and cases differ that are about to be compared; pure.

use std::collections::{BTreeMap, BTreeSet};

use analysis::export::{Case, Export, PerDisk};
use serde_json::Value;

use crate::format;
use crate::report::{
    Plan, flatten, handed_on, io_errors, missing, missing_share, profile, sample_span, storage_in_window, unrest,
    verdict,
};

/// Places that differ between any two runs and explain no figure, with why. A place is a path without the numbers of its lists.
pub(crate) const BY_NATURE: [(&str, &str); 6] = [
    ("environment.seed", "each run draws its own: where and what is written follows from it, not how"),
    ("environment.transitions", "when this run came to which state"),
    ("environment.workers.hello.activity", "what a worker was at when it came back to its orchestrator"),
    ("environment.workers.hello.boot_id", "of one start of the agent"),
    ("environment.workers.hello.macs", "given anew with each deployment"),
    ("environment.workers.hello.uuid", "given anew with each deployment"),
];

/// Stands for the run's id in values that are made of it: marks, serials, paths of disk files.
const THIS_RUN: &str = "RUN";

/// Values that a cell lists at most; a cluster of workers that all differ would fill a page.
const MAX_VALUES: usize = 4;

/// What one column has, by name: of a list's entries (the workers) each value once.
type Column = BTreeMap<String, BTreeSet<String>>;

/// One thing and what each column has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) name: String,
    pub(crate) cells: Vec<Cell>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// It is not what the first column has.
    pub(crate) differs: bool,
}

/// What differs, and how many things do not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Differences {
    pub(crate) rows: Vec<Difference>,
    pub(crate) same: usize,
}

impl Differences {
    fn of(columns: &[Column]) -> Self {
        let names: BTreeSet<&String> = columns.iter().flat_map(BTreeMap::keys).collect();
        let mut out = Self::default();
        let nothing = BTreeSet::new();
        for name in names {
            let values: Vec<_> = columns.iter().map(|column| column.get(name).unwrap_or(&nothing)).collect();
            if values.windows(2).all(|two| two[0] == two[1]) {
                out.same += 1;
            } else {
                out.rows.push(Difference { name: name.clone(), cells: cells(&values) });
            }
        }
        out
    }
}

/// Whole sets are compared; what is listed of a long one is first what not all columns have.
fn cells(values: &[&BTreeSet<String>]) -> Vec<Cell> {
    let in_all = |value: &String| values.iter().all(|column| column.contains(value));
    let cell = |column: &&BTreeSet<String>| {
        let (common, own): (Vec<&str>, Vec<&str>) = {
            let (common, own): (Vec<&String>, Vec<&String>) = column.iter().partition(|value| in_all(value));
            (common.into_iter().map(String::as_str).collect(), own.into_iter().map(String::as_str).collect())
        };
        let mut shown: Vec<&str> = own.into_iter().chain(common).take(MAX_VALUES).collect();
        shown.sort_unstable();
        let more = column.len() - shown.len();
        let text = match (shown.is_empty(), more) {
            (true, _) => "–".to_owned(),
            (false, 0) => shown.join(", "),
            (false, more) => format!("{} and {more} more", shown.join(", ")),
        };
        Cell { text, differs: values.first() != Some(column) }
    };
    values.iter().map(cell).collect()
}

/// State, warnings, plan and environment of each run. What is by footprint or by workload is the cases'.
pub(crate) fn of_runs(runs: &[&Export]) -> Differences {
    let columns: Vec<Column> = runs.iter().map(|export| of_run(export)).collect();
    Differences::of(&columns)
}

fn of_run(export: &Export) -> Column {
    let run = &export.run;
    let mut plan = handed_on::plan(&run.plan);
    // Which there are, and in which order: what ran before a case may tell in it.
    for (list, name) in [("workloads", "name"), ("footprints", "label")] {
        if let Some(items) = plan.get_mut(list).and_then(Value::as_array_mut) {
            items.iter_mut().for_each(|item| *item = item.get_mut(name).map(Value::take).unwrap_or_default());
        }
    }
    let mut rows = Column::new();
    for (part, value) in [("plan", &plan), ("environment", &handed_on::environment(&run.environment))] {
        add(&mut rows, part, value, &run.id);
    }
    let (state, ..) = verdict(&run.state, run.complete);
    rows.insert("run.state".to_owned(), [state].into());
    rows.insert("run.reason".to_owned(), run.reason.iter().cloned().collect());
    rows.insert("run.rehearsal".to_owned(), [if run.rehearsal { "yes" } else { "no" }.to_owned()].into());
    rows.insert("run.warnings".to_owned(), handed_on::warnings(run).into_iter().collect());
    rows
}

/// Adds what a value has, but for what differs [`BY_NATURE`].
fn add(rows: &mut Column, part: &str, value: &Value, run: &str) {
    for (path, value) in flatten(value) {
        let steps = path.split('.').filter(|step| !step.is_empty() && step.parse::<usize>().is_err());
        let path = std::iter::once(part).chain(steps).collect::<Vec<_>>().join(".");
        if !is_left_out(&path) {
            rows.entry(path).or_default().insert(without_run(&value, run));
        }
    }
}

fn is_left_out(path: &str) -> bool {
    let is_below = |place: &str| path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    BY_NATURE.iter().any(|(place, _)| is_below(place))
}

/// A value without what names the run itself: the whole id, and the end of it that serials begin with.
fn without_run(value: &str, run: &str) -> String {
    let mark = run.get(run.len().saturating_sub(8)..).filter(|mark| mark.len() == 8);
    let value = if run.is_empty() { value.to_owned() } else { value.replace(run, THIS_RUN) };
    mark.map_or_else(|| value.clone(), |mark| value.replace(mark, THIS_RUN))
}

/// What was measured in each case, how much of it, and what may have disturbed it.
pub(crate) fn of_cases(cases: &[(&Case, &Plan)]) -> Differences {
    let columns: Vec<Column> = cases.iter().map(|(case, plan)| of_case(case, plan)).collect();
    Differences::of(&columns)
}

fn of_case(case: &Case, plan: &Plan) -> Column {
    let unknown = || "not known".to_owned();
    let steady = case.steady_state.as_ref().map_or("–", |steady| &*steady.verdict);
    let generator = case.generator.as_ref().map(|generator| generator.may_limit);
    let rows = [
        ("bytes measured", exactly(case.effective_bytes)),
        ("footprint", format!("{} ({})", case.footprint, exactly(case.footprint_bytes))),
        ("region a disk", exactly(case.region_bytes)),
        ("workload", case.workload.clone()),
        ("workload’s profile", profile(case)),
        ("workers measured", format!("{} of {}", case.workers.measured, case.workers.expected)),
        ("data disks measured", case.per_disk.len().to_string()),
        ("window", format!("{} s", format::seconds(case.window_seconds).text())),
        ("seconds not in the series", missing_seconds(case, plan).unwrap_or_else(unknown)),
        ("state", case.state.clone()),
        ("reason", case.reason.clone().unwrap_or_else(|| "–".to_owned())),
        ("steady state", steady.to_owned()),
        ("fill", if case.fill.is_some() { "filled before" } else { "not filled" }.to_owned()),
        ("errors", errors(case)),
        ("stalls", stalls(&case.per_disk)),
        (
            "load generator",
            generator.map_or_else(unknown, |may| if may { "may limit" } else { "no finding" }.to_owned()),
        ),
        (
            "storage cluster",
            match unrest(case) {
                Some(unrest) => format!("not at rest in the window: {unrest}"),
                None => storage_in_window(case).unwrap_or_else(unknown),
            },
        ),
        ("warnings", if case.warnings.is_empty() { "none".to_owned() } else { case.warnings.join(" ") }),
    ];
    rows.map(|(name, value)| (name.to_owned(), [value].into())).into()
}

/// In a unit for a person, and exactly where that rounds.
fn exactly(bytes: u64) -> String {
    let shown = format::bytes(bytes);
    if shown.contains('.') { format!("{shown}, {} B", format::count(bytes)) } else { shown }
}

/// I/Os of the window that failed; by kind where disks told it, preconditioning included.
fn errors(case: &Case) -> String {
    let count: u64 = [&case.ops.read, &case.ops.write].into_iter().flatten().map(|op| op.errors).sum();
    let kinds: Vec<String> =
        io_errors(case).iter().map(|(kind, count)| format!("{} {kind}", format::count(*count))).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    format!("{}{kinds}", format::count(count))
}

/// Of how many, and their share.
fn missing_seconds(case: &Case, plan: &Plan) -> Option<String> {
    let (missing, share) = (missing(case, plan)?, missing_share(case, plan)?);
    Some(format!("{missing} of {} ({share:.1} %)", sample_span(case, plan)))
}

fn stalls(disks: &[PerDisk]) -> String {
    let lengths: Vec<f64> = disks.iter().flat_map(|disk| &disk.stalls).map(|stall| stall.length_seconds).collect();
    match lengths.iter().copied().reduce(f64::max) {
        Some(longest) => format!("{}, the longest {longest:.1} s", lengths.len()),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn run(id: &str, plan: Value, environment: Value) -> Export {
        let run = analysis::export::Run {
            id: id.to_owned(),
            name: "one".to_owned(),
            state: "done".to_owned(),
            complete: true,
            reason: None,
            ended_early: None,
            started: Timestamp::UNIX_EPOCH,
            finished: None,
            rehearsal: false,
            note: String::new(),
            plan,
            plan_yaml: String::new(),
            environment,
            warnings: Vec::new(),
            events: Vec::new(),
        };
        Export { format: String::new(), run, cases: Vec::new() }
    }

    fn rows(found: &Differences) -> Vec<(&str, &str, &str)> {
        found
            .rows
            .iter()
            .map(|row| (row.name.as_str(), row.cells[0].text.as_str(), row.cells[1].text.as_str()))
            .collect()
    }

    const IDS: [&str; 2] = ["0199c2a4-5b6e-7d10-9f3a-2c1d4e5f6a7b", "0199c2a4-5b6e-7d10-9f3a-2c1dffffffff"];

    /// What a run records, with everything that differs by nature, and a value of one field of its own.
    fn environment(id: &str, nature: &str, kernel: &str) -> Value {
        let mark = &id[28..];
        json!({"kernel": "6.1", "seed": nature, "transitions": [{"state": "done", "at": nature}],
            "place": {"disk_dir": "/srv", "settings": {"token": {"id": nature}, "storage": "ceph"}},
            "workers": [{"name": "worker-1", "hello": {"kernel": kernel, "uuid": nature, "macs": [nature], "boot_id": nature,
                "activity": {"job": nature},
                "disks": [{"serial": format!("{mark}-1w1d1"), "path": format!("/srv/{id}-1/{mark}-1w1d1.img")}]}}]})
    }

    #[test]
    fn what_differs_by_nature_is_left_out_there_and_nowhere_else() {
        let [old, new] = [("a", "6.1"), ("b", "6.6")].map(|it| it);
        let old = run(IDS[0], json!({"name": "x"}), environment(IDS[0], old.0, old.1));
        let new = run(IDS[1], json!({"name": "x"}), environment(IDS[1], new.0, new.1));
        let found = of_runs(&[&old, &new]);
        assert_eq!(rows(&found), [("environment.workers.hello.kernel", "6.1", "6.6")]);
        assert!(found.same > 5, "{found:?}");
        for (place, why) in BY_NATURE {
            assert!(!why.is_empty());
            let known = rows(&of_runs(&[&old, &new])).iter().all(|(name, ..)| !name.starts_with(place));
            assert!(known && is_left_out(place) && !is_left_out(&format!("{place}s")), "{place}");
        }
    }

    /// Each of these keys was once left out wherever it stood.
    #[test]
    fn names_paths_addresses_and_directories_are_compared() {
        let of = |value: &str| {
            let plan = json!({"name": value, "workloads": [{"name": value}], "footprints": [{"label": value, "bytes": 1}],
                "target": {"disk_dir": value, "addressing": {"address": value}}});
            let environment = json!({"place": {"disk_dir": value, "storage": {"name": value, "path": value}, "pid": value},
                "workers": [{"name": value, "hello": {"disks": [{"path": value, "scsi_address": value, "serial": value}]}}]});
            run(IDS[0], plan, environment)
        };
        let found = of_runs(&[&of("this"), &of("that")]);
        let names: Vec<&str> = found.rows.iter().map(|row| row.name.as_str()).collect();
        let expected = [
            "environment.place.disk_dir",
            "environment.place.pid",
            "environment.place.storage.name",
            "environment.place.storage.path",
            "environment.workers.hello.disks.path",
            "environment.workers.hello.disks.scsi_address",
            "environment.workers.hello.disks.serial",
            "environment.workers.name",
            "plan.footprints",
            "plan.name",
            "plan.target.addressing.address",
            "plan.target.disk_dir",
            "plan.workloads",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn warnings_and_states_of_runs_are_compared() {
        let calm = run(IDS[0], Value::Null, Value::Null);
        let mut warned = calm.clone();
        warned.run.warnings = vec!["moved to pve2".to_owned()];
        (warned.run.complete, warned.run.reason) = (false, Some("1 of 2 cases".to_owned()));
        let found = of_runs(&[&calm, &warned]);
        let expected = [
            ("run.reason", "–", "1 of 2 cases"),
            ("run.state", "complete", "incomplete"),
            ("run.warnings", "–", "moved to pve2"),
        ];
        assert_eq!(rows(&found), expected);
    }

    #[test]
    fn long_lists_are_compared_whole_and_show_first_what_is_their_own() {
        let of = |last: &str| {
            let workers: Vec<Value> =
                ["a", "b", "c", "d", "e", last].iter().map(|name| json!({"name": name})).collect();
            run(IDS[0], Value::Null, json!({ "workers": workers }))
        };
        let found = of_runs(&[&of("x"), &of("y")]);
        assert_eq!(rows(&found), [("environment.workers.name", "a, b, c, x and 2 more", "a, b, c, y and 2 more")]);
        assert_eq!(found.rows[0].cells.iter().map(|cell| cell.differs).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_plan_of_another_shape_is_compared_as_it_is() {
        let of = |plan: Value| run(IDS[0], plan, Value::Null);
        let found = of_runs(&[&of(json!({"workloads": ["x", 1], "footprints": 7})), &of(json!("text"))]);
        assert_eq!(
            rows(&found),
            [("plan", "–", "text"), ("plan.footprints", "7", "–"), ("plan.workloads", "null, null", "–")]
        );
    }

    #[test]
    fn a_thing_that_one_column_lacks_differs() {
        let columns = [Column::from([("a".to_owned(), ["1".to_owned()].into())]), Column::new()];
        assert_eq!(rows(&Differences::of(&columns)), [("a", "1", "–")]);
        assert_eq!(Differences::of(&[]), Differences::default());
    }
}

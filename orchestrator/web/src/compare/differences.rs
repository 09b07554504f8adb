//! In what runs and cases differ that are about to be compared; pure.

use std::collections::{BTreeMap, BTreeSet};

use analysis::export::{Case, Export};
use serde_json::Value;

use crate::format;
use crate::report::{flatten, profile};

/// What is of its own in every run and explains no figure.
const INCIDENTAL: [&str; 12] =
    ["seed", "uuid", "mac", "serial", "token", "pid", "path", "address", "name", "transitions", "boot_id", "disk_dir"];

/// Values that a cell lists at most; a cluster of workers that all differ would fill a page.
const MAX_VALUES: usize = 4;

/// One thing and what each column has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

impl Difference {
    /// Whether a column's value is another than the first one's.
    pub(crate) fn differs(&self, value: &str) -> bool {
        self.values.first().is_some_and(|first| first != value)
    }
}

/// What differs, and how many things do not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Differences {
    pub(crate) rows: Vec<Difference>,
    pub(crate) same: usize,
}

impl Differences {
    fn of(columns: &[BTreeMap<String, String>]) -> Self {
        let names: BTreeSet<&String> = columns.iter().flat_map(BTreeMap::keys).collect();
        let mut out = Self::default();
        for name in names {
            let values: Vec<String> =
                columns.iter().map(|column| column.get(name).cloned().unwrap_or_else(|| "–".to_owned())).collect();
            if values.windows(2).all(|two| two[0] == two[1]) {
                out.same += 1;
            } else {
                out.rows.push(Difference { name: name.clone(), values });
            }
        }
        out
    }
}

/// Plan and environment of each run. What is by footprint or by workload is the cases'.
pub(crate) fn of_runs(runs: &[&Export]) -> Differences {
    let columns: Vec<BTreeMap<String, String>> = runs.iter().map(|export| of_run(export)).collect();
    Differences::of(&columns)
}

fn of_run(export: &Export) -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    let mut plan = export.run.plan.clone();
    if let Some(fields) = plan.as_object_mut() {
        fields.remove("workloads");
        fields.remove("footprints");
    }
    for (part, value) in [("plan", &plan), ("environment", &export.run.environment)] {
        for (path, values) in merged(value) {
            let shown: Vec<&str> = values.iter().take(MAX_VALUES).map(String::as_str).collect();
            let more = if values.len() > MAX_VALUES {
                format!(" and {} more", values.len() - MAX_VALUES)
            } else {
                String::new()
            };
            rows.insert(format!("{part}.{path}"), format!("{}{more}", shown.join(", ")));
        }
    }
    rows
}

/// Values by path; those of a list's entries (the workers) under one path, each value once.
fn merged(value: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut out: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, value) in flatten(value) {
        let steps: Vec<&str> = path.split('.').filter(|step| step.parse::<usize>().is_err()).collect();
        if steps.iter().any(|step| INCIDENTAL.contains(step)) {
            continue;
        }
        out.entry(steps.join(".")).or_default().insert(value);
    }
    out
}

/// What was measured in each case, and how much of it.
pub(crate) fn of_cases(cases: &[&Case]) -> Differences {
    let columns: Vec<BTreeMap<String, String>> = cases.iter().map(|case| of_case(case)).collect();
    Differences::of(&columns)
}

fn of_case(case: &Case) -> BTreeMap<String, String> {
    let steady = case.steady_state.as_ref().map_or("–", |steady| &*steady.verdict);
    let rows = [
        ("bytes measured", format::bytes(case.effective_bytes)),
        ("footprint", format!("{} ({})", case.footprint, format::bytes(case.footprint_bytes))),
        ("region a disk", format::bytes(case.region_bytes)),
        ("workload", profile(case)),
        ("workers measured", format!("{} of {}", case.workers.measured, case.workers.expected)),
        ("data disks measured", case.per_disk.len().to_string()),
        ("window", format!("{} s", format::seconds(case.window_seconds).text())),
        ("state", case.state.clone()),
        ("steady state", steady.to_owned()),
        ("fill", if case.fill.is_some() { "filled before" } else { "not filled" }.to_owned()),
    ];
    rows.map(|(name, value)| (name.to_owned(), value)).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_listed_and_what_is_incidental_is_not() {
        let old = json!({"kernel": "6.1", "seed": 7, "cpus": 2, "workers": [
            {"name": "w1", "hello": {"kernel": "6.1", "uuid": "a"}}, {"name": "w2", "hello": {"kernel": "6.1", "uuid": "b"}}]});
        let new = json!({"kernel": "6.1", "seed": 8, "cpus": 4, "workers": [
            {"name": "w1", "hello": {"kernel": "6.1", "uuid": "c"}}, {"name": "w2", "hello": {"kernel": "6.6", "uuid": "d"}}]});
        let columns: Vec<BTreeMap<String, String>> = [&old, &new]
            .map(|value| {
                merged(value)
                    .into_iter()
                    .map(|(path, values)| (path, values.into_iter().collect::<Vec<_>>().join(", ")))
                    .collect()
            })
            .into();
        let found = Differences::of(&columns);
        let rows: Vec<(&str, &str, &str)> =
            found.rows.iter().map(|row| (row.name.as_str(), row.values[0].as_str(), row.values[1].as_str())).collect();
        assert_eq!(rows, [("cpus", "2", "4"), ("workers.hello.kernel", "6.1", "6.1, 6.6")]);
        assert_eq!(found.same, 1);
    }

    #[test]
    fn a_thing_that_one_column_lacks_differs() {
        let columns = [BTreeMap::from([("a".to_owned(), "1".to_owned())]), BTreeMap::new()];
        assert_eq!(Differences::of(&columns).rows[0].values, ["1", "–"]);
        assert_eq!(Differences::of(&[]), Differences::default());
    }
}

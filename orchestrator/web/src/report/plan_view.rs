//! What the report shows of the plan. A plan of another version may lack a field: what is missing is left out, not guessed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PlanView {
    pub(crate) target: TargetView,
    pub(crate) workers: WorkersView,
    pub(crate) footprints: Vec<FootprintView>,
    pub(crate) workloads: Vec<WorkloadName>,
    pub(crate) precondition_seconds: Option<u32>,
    pub(crate) sample_seconds: Option<u32>,
    pub(crate) initialise: Option<String>,
    pub(crate) read_unwritten: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TargetView {
    pub(crate) provider: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WorkersView {
    pub(crate) count: Option<u32>,
    pub(crate) disks: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FootprintView {
    pub(crate) bytes: u64,
    pub(crate) label: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WorkloadName {
    pub(crate) name: String,
}

impl PlanView {
    pub(crate) fn of(plan: &Value) -> Self {
        Self::deserialize(plan).unwrap_or_default()
    }
}

/// The environment: what is short, and each long list (the workers) by itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EnvironmentView {
    /// `path`, `value`.
    pub(crate) rows: Vec<(String, String)>,
    pub(crate) lists: Vec<EnvironmentList>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EnvironmentList {
    pub(crate) name: String,
    pub(crate) count: usize,
    /// `path`, `value`; a path starts with the place in the list, from 1.
    pub(crate) rows: Vec<(String, String)>,
}

impl EnvironmentView {
    pub(crate) fn of(environment: &Value) -> Self {
        let Some(fields) = environment.as_object() else {
            return Self { rows: flatten(environment), lists: Vec::new() };
        };
        let mut out = Self::default();
        for (name, value) in fields.iter().collect::<BTreeMap<_, _>>() {
            match value.as_array().filter(|items| items.iter().any(Value::is_object)) {
                Some(items) => {
                    out.lists.push(EnvironmentList { name: name.clone(), count: items.len(), rows: flatten(value) });
                }
                None => flatten_into(name, value, &mut out.rows),
            }
        }
        out
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.lists.is_empty()
    }
}

/// A nested value as `path`, `value` rows.
pub(crate) fn flatten(value: &Value) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    flatten_into("", value, &mut rows);
    rows
}

fn flatten_into(path: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    let child = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(fields) => {
            // By name, however the document kept them.
            for (name, value) in fields.iter().collect::<BTreeMap<_, _>>() {
                flatten_into(&child(name), value, rows);
            }
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            for (index, item) in items.iter().enumerate() {
                flatten_into(&child(&(index + 1).to_string()), item, rows);
            }
        }
        Value::Array(items) => {
            rows.push((path.to_owned(), items.iter().map(scalar).collect::<Vec<_>>().join(", ")));
        }
        Value::Null => {}
        other => rows.push((path.to_owned(), scalar(other))),
    }
}

fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nested_values_become_rows() {
        let rows = flatten(
            &json!({"kernel": "6.1", "flags": ["A", "B"], "cpu": {"count": 2}, "workers": [{"id": 1}], "none": null}),
        );
        let expect = [("cpu.count", "2"), ("flags", "A, B"), ("kernel", "6.1"), ("workers.1.id", "1")];
        assert_eq!(rows, expect.map(|(path, value)| (path.to_owned(), value.to_owned())));
    }

    #[test]
    fn long_lists_stand_by_themselves() {
        let view =
            EnvironmentView::of(&json!({"kernel": "6.1", "workers": [{"name": "a"}, {"name": "b"}], "cpus": [0, 1]}));
        assert_eq!(view.rows, [("cpus".to_owned(), "0, 1".to_owned()), ("kernel".to_owned(), "6.1".to_owned())]);
        assert_eq!((view.lists.len(), view.lists[0].count), (1, 2));
        assert_eq!(view.lists[0].rows[1], ("2.name".to_owned(), "b".to_owned()));
        assert!(EnvironmentView::of(&Value::Null).is_empty());
    }

    #[test]
    fn a_plan_of_another_shape_shows_nothing() {
        assert!(PlanView::of(&json!("text")).footprints.is_empty());
        assert_eq!(PlanView::of(&json!({"workers": {"count": 2}})).workers.count, Some(2));
    }
}

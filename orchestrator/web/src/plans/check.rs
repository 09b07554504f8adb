//! What a plan's text is worth: its problems with their places, or what it costs; pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use plan::edit::{self, Item};
use plan::{FillRate, PlanErrors, Problem, Profiles, TestPlan, size};

use super::place;
use crate::format::{self, Time};
use crate::live::Findings;

/// A cache that holds less than this share of a footprint leaves it to the disks behind it, percent.
const SPILL_PERCENT: u64 = 25;

/// Fields that the form shows with one value each, but for those of the place.
const FIELDS: [&str; 11] = [
    "name",
    "workers.count",
    "workers.disks",
    "workers.vcpus",
    "workers.memory",
    "footprints",
    "initialise",
    "settle",
    "precondition",
    "sample",
    "deploy",
];

/// The text, judged.
pub(crate) struct Verdict {
    pub(crate) problems: Vec<Problem>,
    /// Problems beyond those.
    pub(crate) omitted: usize,
    /// None where there are problems.
    pub(crate) costs: Option<Costs>,
    pub(crate) findings: Findings,
    pub(crate) form: Form,
    /// The form's values for the page's script.
    pub(crate) form_json: String,
}

impl Verdict {
    /// Something stands in the way of a plan that is valid by itself.
    pub(crate) fn is_blocked(&self) -> bool {
        self.findings.list.iter().any(|finding| finding.severity == "blocker")
    }

    /// When the cluster was asked.
    pub(crate) fn looked(&self) -> Option<Time> {
        self.findings.looked.map(Time)
    }
}

/// What a plan needs.
pub(crate) struct Costs {
    pub(crate) footprints: Vec<FootprintCost>,
    pub(crate) cases: usize,
    pub(crate) disks: String,
    pub(crate) disk: String,
    pub(crate) all_disks: String,
    pub(crate) fill: String,
    pub(crate) total: String,
    pub(crate) ends: Time,
    pub(crate) parts: String,
    /// What its rehearsal takes.
    pub(crate) rehearsal: String,
    /// A cache size was entered.
    pub(crate) cached: bool,
}

pub(crate) struct FootprintCost {
    pub(crate) label: String,
    pub(crate) region: String,
    pub(crate) effective: String,
    pub(crate) fill: String,
    pub(crate) fill_time: String,
    pub(crate) case_time: String,
    /// How it lies to the cache; empty where none was entered.
    pub(crate) cache: String,
}

/// The plan as fields: what the text says, also where it is no valid plan.
#[derive(Debug, PartialEq, serde::Serialize)]
pub(crate) struct Form {
    /// By field; empty where the text has none.
    pub(crate) values: BTreeMap<&'static str, String>,
    /// Nodes of a cluster that the text lists.
    pub(crate) nodes: Vec<String>,
    pub(crate) workloads: Vec<Choice>,
    /// Workloads with fields of their own: only the text changes them.
    pub(crate) groups: Vec<String>,
}

/// A profile that the plan may use.
#[derive(Debug, PartialEq, serde::Serialize)]
pub(crate) struct Choice {
    /// `published/4k-random-read`.
    pub(crate) id: String,
    pub(crate) chosen: bool,
}

impl Form {
    pub(crate) fn value(&self, field: &str) -> &str {
        self.values.get(field).map_or("", String::as_str)
    }

    pub(crate) fn is(&self, field: &str, value: &str) -> bool {
        self.value(field) == value
    }
}

/// Reads a plan's text with these profiles.
pub(crate) fn read(yaml: &str, profiles: &Profiles) -> Result<TestPlan, PlanErrors> {
    plan::parse("plan", yaml, profiles)
}

/// Judges a plan's text as it would start `now`. `findings` are those of the place, for a valid plan.
pub(crate) fn verdict(
    yaml: &str,
    read: &Result<TestPlan, PlanErrors>,
    profiles: &Profiles,
    (cache, now): (Option<u64>, Timestamp),
    findings: Findings,
) -> Verdict {
    let form = form(yaml, profiles);
    let form_json = serde_json::to_string(&form).unwrap_or_default();
    let (problems, omitted, costs) = match read {
        Ok(plan) => (Vec::new(), 0, Some(costs(plan, cache, now))),
        Err(errors) => (errors.problems().to_vec(), errors.omitted(), None),
    };
    Verdict { problems, omitted, costs, findings, form, form_json: crate::report::escape_island(&form_json) }
}

#[expect(clippy::cast_precision_loss, reason = "times for a person")]
fn costs(plan: &TestPlan, cache: Option<u64>, now: Timestamp) -> Costs {
    let schedule = plan::schedule(plan, FillRate::assumed());
    let time = |seconds: u64| format::duration(seconds as f64);
    let footprints = schedule.footprints.iter().map(|footprint| FootprintCost {
        label: footprint.label.clone(),
        region: format::bytes(footprint.region_bytes),
        effective: format::bytes(footprint.effective_bytes),
        fill: format::bytes(footprint.fill_bytes),
        fill_time: time(footprint.fill_seconds),
        case_time: time(footprint.case_seconds),
        cache: cache.map_or(String::new(), |cache| lies(footprint.effective_bytes, cache)),
    });
    let rate = format::bytes(schedule.fill_rate.bytes_per_second());
    let parts = format!(
        "fill {} (assumed: {rate} a second over all disks), cases {}, settling {}, everything else {}",
        time(schedule.fill_seconds),
        time(schedule.case_seconds),
        time(schedule.settle_seconds),
        time(schedule.overhead_seconds)
    );
    let length = SignedDuration::from_secs(i64::try_from(schedule.total_seconds).unwrap_or(i64::MAX));
    Costs {
        footprints: footprints.collect(),
        cases: schedule.cases,
        disks: format!("{} × {}", plan.workers.count, plan.workers.disks),
        disk: format::bytes(plan.disk_bytes()),
        all_disks: format::bytes(plan.disk_bytes().saturating_mul(plan.total_disks())),
        fill: format::bytes(schedule.fill_bytes),
        total: time(schedule.total_seconds),
        ends: Time(now.saturating_add(length).unwrap_or(now)),
        parts,
        rehearsal: time(plan::schedule(&plan.rehearsal(), FillRate::assumed()).total_seconds),
        cached: cache.is_some(),
    }
}

/// How a footprint lies to a cache. What is cached is the storage's to decide: this is what fits at most.
fn lies(bytes: u64, cache: u64) -> String {
    let percent = u64::try_from(u128::from(cache) * 100 / u128::from(bytes.max(1))).unwrap_or(u64::MAX);
    match percent {
        100.. => "fits the cache".to_owned(),
        SPILL_PERCENT..=99 => format!("partly: {percent} % fit at most"),
        _ => format!("spills: {percent} % fit at most"),
    }
}

/// A cache size as the engineer enters it; none where nothing is entered.
pub(crate) fn cache(text: &str) -> Result<Option<u64>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    size::parse(text).map(Some).map_err(|error| format!("Cache size: {error}"))
}

fn form(yaml: &str, profiles: &Profiles) -> Form {
    let listed = |field| -> Vec<String> {
        let items = edit::list(yaml, field).unwrap_or_default().into_iter().map(|item| match item {
            Item::Value(label) => label,
            Item::Group(_) => String::new(),
        });
        items.collect()
    };
    let value = |field: &'static str| match field {
        "footprints" => listed(field).join(", "),
        field => edit::value(yaml, field).unwrap_or_default(),
    };
    let set = edit::value(yaml, "profile_set").unwrap_or_else(|| "published".to_owned());
    let (mut used, mut groups) = (Vec::new(), Vec::new());
    for item in edit::list(yaml, "workloads").unwrap_or_default() {
        match item {
            Item::Value(id) => used.push(full_id(&id, &set)),
            Item::Group(name) => groups.push(name),
        }
    }
    let workloads =
        profiles.iter().map(|profile| Choice { id: profile.id.clone(), chosen: used.contains(&profile.id) });
    let values = FIELDS.into_iter().chain(place::FIELDS).map(|field| (field, value(field))).collect();
    Form { values, nodes: listed("target.nodes"), workloads: workloads.collect(), groups }
}

fn full_id(id: &str, set: &str) -> String {
    if id.contains('/') { id.to_owned() } else { format!("{set}/{id}") }
}

/// The text after a change of the form.
pub(crate) fn change(yaml: &str, field: &str, value: &str, chosen: bool) -> Result<String, String> {
    let changed = match field {
        "target.connection" => return place::choose(yaml, value.trim()),
        "target.nodes" => return place::choose_node(yaml, value, chosen),
        "target.vmids.first" | "target.vmids.last" => return place::set_vmid(yaml, field, value.trim()),
        "workloads" if chosen => edit::add_item(yaml, field, value),
        "workloads" => remove_workload(yaml, value),
        "footprints" => {
            let labels: Vec<&str> = value.split([',', ';']).map(str::trim).filter(|label| !label.is_empty()).collect();
            edit::set_list(yaml, field, &labels)
        }
        field if !FIELDS.contains(&field) && !place::FIELDS.contains(&field) => {
            return Err(format!("{field} is no field of the form"));
        }
        field if place::FLAGS.contains(&field) => edit::set_flag(yaml, field, value.trim() == "true"),
        field if value.trim().is_empty() => edit::remove(yaml, field),
        field => edit::set(yaml, field, value.trim()),
    };
    changed.map_err(|error| error.to_string())
}

/// Without a profile, by its full name or by the short one that the plan's set gives.
fn remove_workload(yaml: &str, id: &str) -> Result<String, edit::EditError> {
    let changed = edit::remove_item(yaml, "workloads", id)?;
    let set = edit::value(yaml, "profile_set").unwrap_or_else(|| "published".to_owned());
    match id.strip_prefix(&set).and_then(|rest| rest.strip_prefix('/')) {
        Some(short) if changed == yaml => edit::remove_item(yaml, "workloads", short),
        _ => Ok(changed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(yaml: &str, cache: Option<u64>) -> Verdict {
        let profiles = Profiles::shipped();
        let now = "2026-03-01T10:00:00Z".parse().unwrap();
        verdict(yaml, &read(yaml, &profiles), &profiles, (cache, now), Findings::default())
    }

    #[test]
    fn a_plan_shows_its_regions_bytes_and_end() {
        let demo = judged(plan::DEMO_PLAN, Some(512 << 20));
        let costs = demo.costs.unwrap();
        assert_eq!((costs.cases, costs.disks.as_str(), costs.disk.as_str()), (10, "2 × 2", "256 MiB"));
        assert_eq!(costs.footprints[0].region, "64 MiB");
        assert_eq!(costs.footprints[0].cache, "fits the cache");
        assert_eq!(costs.footprints[1].cache, "partly: 50 % fit at most");
        assert_eq!(costs.footprints[1].fill, "768 MiB");
        assert_eq!(costs.fill, "1 GiB");
        assert!(costs.ends.0 > "2026-03-01T10:01:00Z".parse().unwrap());
        assert!(costs.parts.contains("assumed"), "{}", costs.parts);
        let plain = judged(plan::DEMO_PLAN, None).costs.unwrap();
        assert!(plain.footprints.iter().all(|footprint| footprint.cache.is_empty()), "no cache is guessed");
        assert_eq!(lies(1 << 40, 1 << 30), "spills: 0 % fit at most");
        assert!(cache(" 4K ").is_err() && cache(" ") == Ok(None) && cache("4GiB") == Ok(Some(4 << 30)));
    }

    #[test]
    fn problems_have_lines_and_the_form_still_shows_what_the_text_says() {
        let yaml = plan::DEMO_PLAN.replace("count: 2", "count: 0").replace("sample: 5s", "sample: 5");
        let bad = judged(&yaml, None);
        assert!(bad.costs.is_none());
        let fields: Vec<&str> = bad.problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, ["workers.count", "sample"]);
        assert_eq!(yaml.lines().nth(bad.problems[0].line - 1), Some("  count: 0"));
        assert_eq!(bad.form.value("workers.count"), "0");
        assert_eq!(bad.form.value("footprints"), "256MiB, 1GiB");
        let chosen: Vec<&str> = bad.form.workloads.iter().filter(|one| one.chosen).map(|one| one.id.as_str()).collect();
        assert_eq!(chosen.len(), 5);
        assert!(chosen.contains(&"published/8k-random-70-30"), "a short name counts by the plan's set: {chosen:?}");
        assert!(judged("a: [", None).form.values.values().all(String::is_empty));
    }

    #[test]
    fn the_form_changes_the_text_and_nothing_else() {
        let demo = plan::DEMO_PLAN;
        let fewer = change(demo, "workloads", "published/4k-random-read", false).unwrap();
        assert_eq!(fewer, demo.replace("  - 4k-random-read\n", ""));
        let more = change(&fewer, "workloads", "deep/4k-random-read", true).unwrap();
        assert!(more.ends_with("  - deep/4k-random-read\n"), "{more}");
        let other = change(&more, "footprints", "64MiB,  2GiB ;", true).unwrap();
        assert!(other.contains("footprints: [64MiB, 2GiB]"), "{other}");
        assert_eq!(change(&other, "settle", "", true), Ok(other.clone()), "what is absent need not be removed");
        let settled = change(&other, "settle", "1m", true).unwrap();
        assert_eq!(change(&settled, "settle", " ", true), Ok(other));
        assert!(read(&settled, &Profiles::shipped()).is_ok());
        assert!(change(demo, "seed; x", "1", true).unwrap_err().contains("no field"));
    }

    /// What a person does on the form, one after the other: every text between is what the form then shows, and the last is a plan.
    #[test]
    fn a_cluster_is_chosen_on_the_form_and_left_again() {
        let demo = plan::DEMO_PLAN;
        let steps = [
            ("target.connection", "lab", true),
            ("target.storage", "ceph", true),
            ("target.iso_storage", "local", true),
            ("target.bridge", "vmbr0", true),
            ("target.vlan", "120", true),
            ("target.mtu", "1400", true),
            ("target.nodes", "pve2", true),
            ("target.nodes", "pve1", true),
            ("target.nodes", "pve2", false),
            ("target.vmids.first", "95000", true),
            ("guard.min_free_percent", "15", true),
            ("guard.ceph", "false", true),
        ];
        let mut text = demo.to_owned();
        for (field, value, chosen) in steps {
            text = change(&text, field, value, chosen).unwrap();
            let form = judged(&text, None).form;
            if field == "target.nodes" {
                assert_eq!(form.nodes.contains(&value.to_owned()), chosen, "{text}");
            } else {
                assert_eq!(form.value(field), value, "{text}");
            }
        }
        let plan = read(&text, &Profiles::shipped()).unwrap();
        let plan::Target::Proxmox(target) = &plan.target else { unreachable!("{text}") };
        assert_eq!((&*target.storage, &*target.iso_storage), ("ceph", "local"));
        assert_eq!((target.vlan, target.mtu), (Some(120), Some(1400)));
        assert_eq!(target.nodes, Some(plan::proxmox::Nodes::Evenly(vec!["pve1".into()])));
        assert_eq!((target.vmids.first, target.vmids.last), (95_000, 99_999));
        let guard = plan.guard.unwrap();
        assert!((guard.min_free_percent, guard.ceph, guard.quorum) == (15.0, false, true), "{guard:?}");
        assert!(text.contains("ceph: false }"), "{text}");

        let all = change(&text, "target.nodes", "pve1", false).unwrap();
        assert!(!all.contains("nodes"), "{all}");
        assert!(!change(&all, "target.vmids.first", "", true).unwrap().contains("vmids"));
        assert!(!change(&all, "target.vlan", "", true).unwrap().contains("vlan"));
        let back = change(&all, "target.connection", "", true).unwrap();
        assert_eq!(read(&back, &Profiles::shipped()).ok(), read(demo, &Profiles::shipped()).ok(), "{back}");
    }

    #[test]
    fn what_the_form_cannot_say_of_a_cluster_stays_as_the_text_says_it() {
        let given = plan::DEMO_PLAN.replace(
            "provider: local",
            "provider: proxmox\n  endpoint: 'https://pve1'\n  token: { id: 'a@b!c', secret_env: X }\n  storage: ceph\n  \
             iso_storage: local\n  bridge: vmbr0\n  nodes: { pve1: 2 }",
        );
        assert!(given.contains("nodes:"), "the demo's target is a group of lines: {given}");
        assert!(change(&given, "target.nodes", "pve2", true).unwrap_err().contains("change it there"));
        let saved = change(&given, "target.connection", "lab", true).unwrap();
        assert!(!saved.contains("endpoint") && !saved.contains("token"), "{saved}");
        assert!(saved.contains("storage: ceph") && saved.contains("nodes: { pve1: 2 }"), "{saved}");
        assert!(change(&given, "target.connection", "../x y", true).unwrap_err().contains("no name"));
    }
}

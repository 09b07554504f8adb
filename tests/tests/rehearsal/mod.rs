//! `run --rehearse`: the plan in seconds, and no result wherever it is looked at, beside the same plan run in earnest.

use std::fs;

use end_to_end::{Answer, Site};
use serde_json::{Value, json};

use super::Opened;
use super::browser::{Driver, until};

/// In earnest it takes longer than its rehearsal in every one of its times.
const PLAN: &str = "# kept as written\nname: Friday night\ntarget: {provider: local}\nworkers: {count: 2, vcpus: 1, memory: 256MiB, disks: 1}\n\
                    footprints: [64MiB, 128MiB]\nsettle: 2s\nprecondition: 3s\nsample: 4s\nworkloads: [4k-random-read]\n";

fn run(site: &Site, plan: &str, rehearse: bool) -> Value {
    let mut command = site.command(["run", plan, "--json"]);
    let answer = Answer::from(command.args(rehearse.then_some("--rehearse")).output().unwrap());
    assert!(answer.ok(), "{answer:?}");
    serde_json::from_str(&answer.stdout).unwrap()
}

fn seconds(export: &Value) -> Vec<(f64, usize)> {
    let cases = export["cases"].as_array().unwrap();
    cases
        .iter()
        .map(|case| (case["window_seconds"].as_f64().unwrap(), case["precondition_seconds"].as_array().unwrap().len()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_rehearsed_from_the_command_line_and_told_from_its_run_in_earnest() {
    let site = Site::new();
    let path = site.plan(PLAN);
    let plan = path.to_str().unwrap();
    let [rehearsed, earnest] = [true, false].map(|rehearse| run(&site, plan, rehearse));
    assert!(site.disk_files().is_empty(), "disks are removed: {:?}", site.disk_files());

    assert_eq!((seconds(&rehearsed), seconds(&earnest)), (vec![(3.0, 2); 2], vec![(4.0, 3); 2]), "seconds a case");
    let run = &rehearsed["run"];
    assert_eq!((&run["rehearsal"], &run["name"]), (&json!(true), &json!("Rehearsal of Friday night")));
    assert_eq!((&run["complete"], &earnest["run"]["rehearsal"]), (&json!(true), &json!(false)));
    assert!(run["events"].to_string().contains("enrolled as"), "the canary's report is an event: {run}");
    let warned = |export: &Value| export["run"]["warnings"].to_string().contains("Its figures are no result");
    assert!(warned(&rehearsed) && !warned(&earnest), "{}", run["warnings"]);

    // What is stored as written is what was written; what was carried out is beside it.
    assert_eq!((&run["plan_yaml"], &earnest["run"]["plan_yaml"]), (&json!(PLAN), &json!(PLAN)));
    assert_eq!(fs::read_to_string(&path).unwrap(), PLAN);
    let carried_out =
        |export: &Value| ["sample_seconds", "precondition_seconds"].map(|field| export["run"]["plan"][field].clone());
    assert_eq!((carried_out(&rehearsed), carried_out(&earnest)), ([json!(3), json!(2)], [json!(4), json!(3)]));

    let id = |export: &Value| export["run"]["id"].as_str().unwrap().to_owned();
    let ids = [id(&rehearsed), id(&earnest)];
    let report = |id: &str| fs::read_to_string(site.data_dir().join(format!("reports/{id}.html"))).unwrap();
    assert!(report(&ids[0]).contains("rehearsal, no result") && !report(&ids[1]).contains("rehearsal, no result"));
    let listed: Value = serde_json::from_str(&site.ask(["runs", "--json"]).stdout).unwrap();
    assert_eq!((&listed[1]["id"], &listed[1]["rehearsal"]), (&json!(ids[0]), &json!(true)));
    assert_eq!((&listed[0]["id"], &listed[0]["rehearsal"]), (&json!(ids[1]), &json!(false)));
    assert!(site.ask(["runs"]).stdout.contains("Rehearsal of Friday night"));
    in_the_browser(site, &ids).await;
}

/// A list, a report and a comparison say it, too.
async fn in_the_browser(site: Site, [rehearsed, earnest]: &[String; 2]) {
    let Some(driver) = Driver::start() else { return };
    let opened = Opened::at(driver, site).await;
    let admin = &opened.admin;
    assert_eq!((admin.count(".pill.rehearsal").await, admin.text(".pill.rehearsal").await.as_str()), (1, "rehearsal"));
    admin.go(&format!("/runs/{rehearsed}")).await;
    until("the report", || async { admin.text(".banner.rehearsal").await.contains("rehearsal, no result") }).await;
    admin.go(&format!("/runs/{earnest}")).await;
    until("the other report", || async { admin.text("h1").await == "Friday night" }).await;
    assert_eq!(admin.count(".banner.rehearsal").await, 0);

    admin.go(&format!("/compare?run={rehearsed}&run={earnest}")).await;
    until("the comparison", || async { admin.count(".versus").await == 1 }).await;
    let differences = admin.text(".differences").await;
    for part in ["plan.rehearsal", "plan.sample_seconds", "plan.precondition_seconds"] {
        assert!(differences.contains(part), "{part} is not in {differences}");
    }
    assert_eq!(admin.text("main").await.matches("This is a rehearsal: no result").count(), 1, "of one of the runs");
    let marked = admin.text(".versus thead").await.matches("rehearsal: no result").count();
    assert_eq!(marked, 2, "both of its cases, and none of the other's");
    admin.shoot("compare-rehearsal").await;
    // Its plan is used again as it was written.
    admin.go(&format!("/new?run={rehearsed}")).await;
    until("the plan", || async { admin.property("#yaml", "value").await == json!(PLAN) }).await;
    opened.admin.quit().await;
}

//! `check --boot`: one worker goes through the whole chain and is removed, without a run of the plan.

use end_to_end::{Site, small_plan};
use serde_json::Value;

const TIMINGS: &str = "footprints: [64MiB]\nprecondition: 1s\nsample: 1s";

#[test]
fn a_canary_is_flown_and_leaves_its_report_only() {
    let site = Site::new();
    let plan = site.plan(&small_plan(TIMINGS, "[published/4k-random-read]", ""));
    let answer = site.ask(["check", plan.to_str().unwrap(), "--boot"]);
    assert!(answer.ok(), "{answer:?}");
    let line = answer.stdout.lines().find(|line| line.starts_with("canary: enrolled as ")).unwrap();
    assert!(line.contains("of 1073741824 bytes seen") && line.contains("1000 blocks read back as written"), "{line}");

    let answer = site.ask(["check", plan.to_str().unwrap(), "--boot", "--json"]);
    let json: Value = serde_json::from_str(&answer.stdout).unwrap();
    let flown = &json["canary"]["hosts"][0];
    assert!(json["valid"] == true && flown["failure"].is_null(), "{json}");
    assert_eq!((&flown["disk_bytes"], &flown["verified_blocks"]), (&(1 << 30).into(), &1000.into()));

    assert!(site.disk_files().is_empty(), "{:?}", site.disk_files());
    let export = site.export();
    assert_eq!((&export["run"]["name"], &export["run"]["state"]), (&"canary of small".into(), &"done".into()));
    assert!(export["run"]["warnings"][0].as_str().unwrap().contains("Nothing was measured"), "{export}");
}

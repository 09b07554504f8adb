//! `check --boot`: one worker goes through the whole chain and is removed, without a run of the plan.

use std::process::Command;

use end_to_end::{Answer, Site, skip, small_plan};
use serde_json::Value;

/// Makes a network of its own, whose loopback passes packets of at most 1400 bytes, and runs a command there.
const NARROW: &str = "ip link set lo mtu 1400 up && exec \"$@\"";

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

/// `unshare`, as a user who is root in the new network alone.
fn narrow(args: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", NARROW, "narrow"]).args(args);
    command
}

#[test]
fn the_mtu_of_the_way_to_the_orchestrator_is_found() {
    match narrow(&["true"]).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => return skip(&format!("no network of one's own: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => return skip(&format!("unshare: {error}")),
    }
    let site = Site::new();
    let plan = site.plan(&small_plan(TIMINGS, "[published/4k-random-read]", ""));
    let (binary, data_dir) = (end_to_end::binary(), site.data_dir());
    let args = [binary.to_str().unwrap(), "--data-dir", data_dir.to_str().unwrap(), "check", "--boot", "--json"];
    let answer = Answer::from(narrow(&[&args[..], &[plan.to_str().unwrap()]].concat()).output().unwrap());
    assert!(answer.ok(), "{answer:?}");
    let json: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(json["canary"]["hosts"][0]["mtu_bytes"], 1400, "{json}");
    let events = &site.export()["run"]["events"];
    let told = events
        .as_array()
        .unwrap()
        .iter()
        .any(|event| event["message"].as_str().unwrap().contains("MTU to the orchestrator 1400"));
    assert!(told, "kept with the run: {events}");
}

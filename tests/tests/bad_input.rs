//! Each bad input ends with an error that names what is wrong, says what is allowed, and changes nothing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use end_to_end::{Answer, Site, binary, small_plan};

const TIMINGS: &str = "footprints: [64MiB]\nprecondition: 1s\nsample: 1s";
const READ: &str = "[published/4k-random-read]";

/// Both `check` and `run` refuse the plan with all these words, and nothing was made.
fn refused(yaml: &str, words: &[&str]) {
    let site = Site::new();
    let plan = site.plan(yaml);
    for subcommand in ["check", "run"] {
        let answer = site.ask([subcommand, plan.to_str().unwrap()]);
        says(&answer, words);
        assert!(answer.stderr.contains("plan.yaml"), "the file is named: {answer:?}");
        assert!(!site.data_dir().join("disks").exists(), "{subcommand} made disks");
        assert_eq!(site.state(), None, "{subcommand} made a run");
    }
    let answer = site.ask(["check", plan.to_str().unwrap(), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(json["valid"], false);
    let problem = &json["errors"]["problems"][0];
    assert!(problem["line"].as_u64().unwrap() >= 1 && problem["allowed"].is_string(), "{json}");
}

fn says(answer: &Answer, words: &[&str]) {
    assert_eq!(answer.code, Some(1), "{answer:?}");
    // The drawn form wraps lines; the words themselves must be there.
    let text = answer.stderr.split_whitespace().collect::<Vec<_>>().join(" ").replace("│ ", "");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn malformed_yaml() {
    refused("name: x\n  workers: [", &["plan.yaml:2"]);
}

#[test]
fn a_misspelt_field_is_answered_with_the_near_one() {
    refused(&small_plan(TIMINGS, READ, "on_worker_los: fail"), &["on_worker_los", "on_worker_loss"]);
    refused(&small_plan(TIMINGS, "[published/4k-randm-read]", ""), &["4k-randm-read", "4k-random-read"]);
}

#[test]
fn counts_and_sizes_that_cannot_be() {
    let plan = |from: &str, to: &str| small_plan(TIMINGS, READ, "").replace(from, to);
    for count in ["0", "-1", "1.5", "99999999999"] {
        refused(&plan("count: 2", &format!("count: {count}")), &["workers.count", count, "1 to 1024"]);
    }
    for size in ["0MiB", "-64MiB", "64M", "many", "99999999EiB"] {
        refused(&plan("[64MiB]", &format!("[{size}]")), &["footprints[0]", size]);
    }
    refused(&plan("sample: 1s", "sample: 0s"), &["sample"]);
    refused(&plan("sample: 1s", "sample: 1500ms"), &["sample", "1500ms"]);
}

#[test]
fn a_region_smaller_than_a_block_or_a_footprint_smaller_than_its_disks() {
    refused(&small_plan(TIMINGS, READ, "").replace("64MiB]", "1MiB]"), &["footprints[0]", "2MiB"]);
    let large = "[{name: large, block: 16MiB, pattern: random, read_percent: 0, outstanding_per_disk: 1}]";
    refused(&small_plan(TIMINGS, large, "").replace("64MiB]", "16MiB]"), &["16MiB"]);
}

#[test]
fn a_read_percentage_over_100() {
    let inline = "[{name: odd, block: 4KiB, pattern: random, read_percent: 101, outstanding_per_disk: 1}]";
    refused(&small_plan(TIMINGS, inline, ""), &["read_percent", "101", "0 to 100"]);
}

#[test]
fn reading_what_was_never_written_needs_to_be_asked_for() {
    refused(&small_plan(TIMINGS, READ, "initialise: none"), &["read_unwritten"]);
    let site = Site::new();
    let answer = site.run(&small_plan(TIMINGS, READ, "initialise: none\nread_unwritten: true"));
    assert!(answer.ok(), "{answer:?}");
    let case = &site.export()["cases"][0];
    assert!(case["fill"].is_null());
    assert!(case["warnings"].to_string().contains("never written"), "{case}");
}

#[test]
fn a_footprint_that_does_not_fit_the_free_space() {
    let site = Site::new();
    let plan = site.plan(&small_plan(TIMINGS, READ, "").replace("64MiB]", "900TB]"));
    for subcommand in ["check", "run"] {
        let answer = site.ask([subcommand, plan.to_str().unwrap()]);
        let text = format!("{}{}", answer.stdout, answer.stderr);
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(text.contains("available") && text.contains("what to do"), "{text}");
    }
    assert!(site.disk_files().is_empty());
    assert_eq!(site.state(), None);
}

#[test]
fn a_plan_that_is_not_there_or_not_text() {
    let site = Site::new();
    says(&site.ask(["run", "/nowhere/plan.yaml"]), &["/nowhere/plan.yaml", "No such file"]);
    let path = site.plan("");
    fs::write(&path, [0x6e, 0x0a, 0xff, 0xfe]).unwrap();
    says(&site.ask(["check", path.to_str().unwrap()]), &["plan.yaml:2", "UTF-8"]);
}

/// Whoever reads JSON gets JSON, whatever is wrong; the exit status and standard error are as for a person.
#[test]
fn a_check_that_cannot_look_says_so_in_json_as_well() {
    let site = Site::new();
    let asked = |plan: &str| {
        let answer = site.ask(["check", plan, "--json"]);
        assert_eq!(answer.code, Some(1), "{answer:?}");
        let json: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
        let error = json["error"].as_str().unwrap();
        assert!(answer.stderr.contains(error), "{answer:?}");
        (json["valid"].as_bool().unwrap(), error.to_owned())
    };
    let (valid, error) = asked("/nowhere/plan.yaml");
    assert!(!valid && error.contains("/nowhere/plan.yaml") && error.contains("No such file"), "{error}");
    let elsewhere = "target: {provider: proxmox, connection: lab, storage: a, iso_storage: b, bridge: c}";
    let plan = site.plan(&small_plan(TIMINGS, READ, "").replace("target: {provider: local}", elsewhere));
    let (valid, error) = asked(plan.to_str().unwrap());
    assert!(valid && error.contains("fourcorners connect URL --name lab"), "the plan itself is sound: {error}");
}

#[test]
fn an_unusable_data_directory() {
    let site = Site::new();
    let plan = site.plan(&small_plan(TIMINGS, READ, ""));
    let run = |data_dir: &str| {
        let mut command = Command::new(binary());
        Answer::from(command.args(["--data-dir", data_dir, "run", plan.to_str().unwrap()]).output().unwrap())
    };
    says(&run("/proc/fourcorners-data"), &["/proc/fourcorners-data"]);
    let file = site.path().join("file");
    fs::write(&file, "").unwrap();
    says(&run(file.to_str().unwrap()), &[file.to_str().unwrap()]);
}

#[test]
fn a_data_directory_of_somebody_else() {
    if !rustix::process::geteuid().is_root() {
        return end_to_end::skip("only root can act as somebody else");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("fourcorners");
    fs::copy(binary(), &program).unwrap();
    for (mode, name) in [(0o700, "unreadable"), (0o555, "read-only")] {
        let data_dir = dir.path().join(name);
        fs::create_dir(&data_dir).unwrap();
        fs::set_permissions(&data_dir, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        let answer = Answer::from(command.arg("--data-dir").arg(&data_dir).arg("demo").output().unwrap());
        says(&answer, &[data_dir.to_str().unwrap(), "Permission denied"]);
        assert_eq!(fs::read_dir(&data_dir).unwrap().count(), 0, "nothing was made");
    }
}

#[test]
fn a_second_orchestrator_on_the_same_data_directory() {
    let site = Site::new();
    let first = site.start(&small_plan("footprints: [64MiB]\nprecondition: 1s\nsample: 60s", READ, ""));
    site.wait_for_state("sampling");
    let plan = site.path().join("plan.yaml");
    says(&site.ask(["run", plan.to_str().unwrap()]), &["data", "another"]);
    assert!(site.ask(["show"]).ok(), "reading is allowed meanwhile");
    first.signal(rustix::process::Signal::INT);
    assert_eq!(first.end().code, Some(130));
}

#[test]
fn a_database_of_a_newer_version() {
    let site = Site::new();
    assert!(site.run(&small_plan(TIMINGS, READ, "")).ok());
    let database = site.data_dir().join("fourcorners.sqlite");
    assert!(database.exists(), "{:?}", fs::read_dir(site.data_dir()).unwrap().flatten().collect::<Vec<_>>());
    let insert = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (99990101, 'later', 1, x'00', 0)";
    match Command::new("sqlite3").arg(&database).arg(insert).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return end_to_end::skip(&format!("sqlite3 cannot be run: {error}")),
    }
    let before = fs::read(&database).unwrap();
    let plan = site.path().join("plan.yaml");
    for args in [["run", plan.to_str().unwrap()], ["show", "latest"]] {
        says(&site.ask(args), &[database.to_str().unwrap(), "newer"]);
    }
    assert_eq!(fs::read(&database).unwrap(), before, "nothing was changed");
}

#[test]
fn a_port_in_use() {
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    says(&site.ask(["serve", "--listen", &address]), &[&address, "Address already in use", "--listen"]);
    says(&site.ask(["demo", "--serve", "--listen", &address]), &[&address, "Address already in use"]);
    assert_eq!(site.state(), None, "no run was begun");
}

#[test]
fn a_run_that_is_not_there() {
    let site = Site::new();
    assert!(site.run(&small_plan(TIMINGS, READ, "")).ok());
    says(&site.ask(["show", "ffffffff"]), &["ffffffff", "small"]);
    says(&site.ask(["export", "ffffffff", "-o", "-"]), &["ffffffff"]);
}

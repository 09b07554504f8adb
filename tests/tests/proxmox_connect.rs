//! Connecting to a cluster and checking a plan on it, with the built binary: trust, privileges, findings, and no secret anywhere.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use end_to_end::fake::{Fake, SECRET, TOKEN};
use end_to_end::{Answer, Site, files_with};
use serde_json::Value;

/// A plan on a saved connection; `target` adds to its target.
fn plan(target: &str, more: &str) -> String {
    format!(
        "name: on a cluster\ntarget: {{provider: proxmox, connection: lab, storage: ceph, iso_storage: local, bridge: vmbr0, \
         pool: poc{target}}}\nworkers: {{count: 2, vcpus: 1, memory: 512MiB, disks: 2}}\nfootprints: [4GiB]\nprecondition: 1s\nsample: 1s\n\
         workloads: [4k-random-read]\n{more}"
    )
}

/// A token's file outside of the site, so that the site can be searched for its secret.
fn token_file(dir: &Path) -> PathBuf {
    let path = dir.join("token");
    fs::write(&path, format!("{TOKEN}={SECRET}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// `connect` with the token in the environment.
fn connect(site: &Site, fake: &Fake, args: &[&str]) -> Command {
    let mut command = site.command(["connect", &fake.url, "--token-env", "PVE_TOKEN"]);
    command.args(args).env("PVE_TOKEN", format!("{TOKEN}={SECRET}"));
    command
}

fn answer(command: &mut Command) -> Answer {
    Answer::from(command.output().unwrap())
}

/// Answers a question on standard input.
fn answered(command: &mut Command, line: &str) -> Answer {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    Answer::from(child.wait_with_output().unwrap())
}

fn connected(fake: &Fake) -> Site {
    let site = Site::new();
    let answer = answer(&mut connect(&site, fake, &["--name", "lab", "--fingerprint", &fake.fingerprint]));
    assert!(answer.ok(), "{answer:?}");
    site
}

#[test]
fn a_certificate_is_shown_and_pinned_once_a_person_agrees() {
    let Some(fake) = Fake::start() else { return };
    let site = Site::new();
    let asked = |line: &str| answered(&mut connect(&site, &fake, &["--name", "lab"]), line);
    let credentials = fake.get("pve.credentials");
    for no in ["", "n\n", "\n", "yes please\n"] {
        let answer = asked(no);
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(answer.stderr.contains(&fake.fingerprint) && answer.stderr.contains("nothing"), "{answer:?}");
        assert!(!site.data_dir().join("connections").exists(), "{no:?} saved something");
    }
    assert_eq!(fake.get("pve.credentials"), credentials, "the token was not sent");
    let answer = asked("y\n");
    assert!(answer.ok(), "{answer:?}");
    for seen in ["Proxmox VE", "pve1", "pve2", "ceph", "rbd", "vmbr0", "connection: lab"] {
        assert!(answer.stdout.contains(seen), "{seen}: {answer:?}");
    }
    let answer = site.ask(["connections", "list", "--json"]);
    let listed: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(listed[0]["name"], "lab");
    assert_eq!(listed[0]["tls"]["fingerprint"], *fake.fingerprint);
    assert_eq!(listed[0]["token"], TOKEN);
    let again = asked("y\n");
    assert!(!again.ok() && again.stderr.contains("--replace"), "{again:?}");
    assert!(answered(&mut connect(&site, &fake, &["--name", "lab", "--replace"]), "y\n").ok());
    let answer = site.ask(["connections", "show", "lab"]);
    assert!(answer.ok() && answer.stdout.contains("vmbr0"), "{answer:?}");
    assert!(site.ask(["connections", "remove", "lab"]).ok());
    let answer = site.ask(["connections", "show", "lab"]);
    assert!(!answer.ok() && answer.stderr.contains("none is saved"), "{answer:?}");
}

#[test]
fn a_wrong_pin_is_refused_with_both_fingerprints_and_the_token_is_not_sent() {
    let Some(fake) = Fake::start() else { return };
    let site = Site::new();
    let credentials = fake.get("pve.credentials");
    let wrong: String = fake.fingerprint.chars().rev().collect();
    let refused = answer(&mut connect(&site, &fake, &["--fingerprint", &wrong]));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains(&fake.fingerprint) && refused.stderr.contains(&wrong), "{refused:?}");
    let refused = answer(&mut connect(&site, &fake, &["--system-ca"]));
    assert!(!refused.ok() && refused.stderr.contains("certificate"), "{refused:?}");
    assert_eq!(fake.get("pve.credentials"), credentials);
    assert!(!site.data_dir().join("connections").exists());
}

#[test]
fn an_authority_is_trusted_by_a_copy_of_its_file() {
    let Some(fake) = Fake::start() else { return };
    let (site, elsewhere) = (Site::new(), tempfile::tempdir().unwrap());
    let ca = elsewhere.path().join("ca.pem");
    fs::copy(&fake.certificate, &ca).unwrap();
    let token = token_file(elsewhere.path());
    let (ca_path, token_path) = (ca.to_str().unwrap(), token.to_str().unwrap());
    let args = ["connect", &fake.url, "--name", "lab", "--ca", ca_path, "--token-file", token_path];
    let saved = site.ask(args);
    assert!(saved.ok(), "{saved:?}");
    fs::remove_dir_all(elsewhere.path()).unwrap();
    let shown = site.ask(["connections", "show", "lab", "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["inventory"]["hosts"][1]["name"], "pve2");
}

#[test]
fn a_token_that_others_may_read_or_that_is_none_is_refused_without_being_shown() {
    let Some(fake) = Fake::start() else { return };
    let (site, elsewhere) = (Site::new(), tempfile::tempdir().unwrap());
    let token = token_file(elsewhere.path());
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let args = ["connect", &fake.url, "--fingerprint", &fake.fingerprint, "--token-file", token.to_str().unwrap()];
    let refused = site.ask(args);
    assert!(!refused.ok() && refused.stderr.contains("chmod 600"), "{refused:?}");
    let mut command = site.command(["connect", &fake.url, "--fingerprint", &fake.fingerprint, "--token-env", "T"]);
    let refused = answer(command.env("T", SECRET));
    assert!(!refused.ok() && refused.stderr.contains("user@realm!name=SECRET"), "{refused:?}");
    assert!(!refused.stderr.contains(SECRET), "{refused:?}");
    let mut command = site.command(["connect", &fake.url, "--fingerprint", &fake.fingerprint, "--token-env", "T"]);
    let refused = answer(command.env("T", format!("{TOKEN}=wrong-{SECRET}")));
    assert!(!refused.ok() && refused.stderr.contains("pveum user token list"), "{refused:?}");
    assert!(!refused.stderr.contains(SECRET), "{refused:?}");
}

#[test]
fn missing_privileges_are_named_and_nothing_is_saved() {
    let Some(fake) = Fake::start() else { return };
    for missing in [
        "Sys.Audit",
        "VM.Config.Disk",
        "VM.PowerMgmt",
        "Datastore.AllocateSpace",
        "Datastore.AllocateTemplate",
        "SDN.Use",
    ] {
        fake.grant_all_but(&[missing]);
        let site = Site::new();
        let refused = answer(&mut connect(&site, &fake, &["--name", "lab", "--fingerprint", &fake.fingerprint]));
        assert_eq!(refused.code, Some(1), "{missing}: {refused:?}");
        let words = format!("token {TOKEN} lacks {missing} on every path");
        assert!(refused.stdout.contains(&words) && refused.stdout.contains("Not saved"), "{refused:?}");
        assert!(!site.data_dir().join("connections").exists());
    }
    fake.grant_all_but(&[]);
    drop(connected(&fake));
}

#[test]
fn a_check_shows_every_finding_with_its_remedy_and_what_will_be_written() {
    let Some(fake) = Fake::start() else { return };
    fake.grant_all_but(&[]);
    let site = connected(&fake);
    let before = fake.inventory();
    let image = site.path().join("image.iso");
    let image_field = format!(", image: '{}'", image.display());
    let path = site.plan(&plan(&image_field, ""));
    let path = path.to_str().unwrap();
    let imageless = site.ask(["check", path]);
    assert!(!imageless.ok() && imageless.stdout.contains("there is no worker image"), "{imageless:?}");
    fs::write(&image, "an installer").unwrap();
    let wrong = site.ask(["check", path]);
    assert!(!wrong.ok() && wrong.stdout.contains("this is not a worker image"), "{wrong:?}");
    fs::write(&image, worker_image::slot::empty()).unwrap();
    let good = site.ask(["check", path]);
    assert!(good.ok(), "{good:?}");
    for said in [
        "the cluster saved as lab",
        "Fill writes",
        "4GiB in all",
        "Run takes",
        "the storage keeps 20 % free",
        "note: storage ceph",
    ] {
        assert!(good.stdout.contains(said), "{said}: {good:?}");
    }
    fake.run("pve.storages['ceph'].update(avail=2 * 2**30)");
    fake.grant_all_but(&["SDN.Use"]);
    let bad = site.ask(["check", path, "--json"]);
    assert_eq!(bad.code, Some(1), "{bad:?}");
    let json: Value = serde_json::from_str(&bad.stdout).unwrap();
    assert_eq!(json["plan"]["target"]["connection"], "lab");
    assert_eq!(json["schedule"]["fill_bytes"], 4_u64 << 30);
    let findings = json["findings"].as_array().unwrap();
    let blockers: Vec<&Value> = findings.iter().filter(|finding| finding["severity"] == "blocker").collect();
    let says = |text: &str| blockers.iter().any(|finding| finding["message"].as_str().unwrap().contains(text));
    assert!(says("has 2.0 GiB free, the data disks need 4.0 GiB") && says("lacks SDN.Use"), "{findings:#?}");
    assert!(findings.iter().all(|finding| !finding["remedy"].as_str().unwrap().is_empty()));
    let run = site.ask(["run", path]);
    assert!(!run.ok() && run.stderr.contains("nothing was changed") && run.stderr.contains("SDN.Use"), "{run:?}");
    fake.run("pve.storages['ceph'].update(avail=1000 * 2**30)");
    assert_eq!(fake.inventory(), before);
    fake.run("pve.failures = {}\npve.nodes['pve2']['online'] = False");
    fake.grant_all_but(&[]);
    let named = site.plan(&plan(&format!("{image_field}, nodes: [pve2]"), ""));
    let offline = site.ask(["check", named.to_str().unwrap()]);
    assert!(!offline.ok() && offline.stdout.contains("pve2"), "{offline:?}");
}

/// A plan may say where the cluster and the token's secret are; it never says the secret.
#[test]
fn a_plan_names_a_cluster_with_its_secret_in_the_environment_or_in_a_file() {
    let Some(fake) = Fake::start() else { return };
    fake.grant_all_but(&[]);
    let (site, elsewhere) = (Site::new(), tempfile::tempdir().unwrap());
    let image = site.path().join("image.iso");
    fs::write(&image, worker_image::slot::empty()).unwrap();
    let secret = elsewhere.path().join("secret");
    fs::write(&secret, format!("{SECRET}\n")).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let check = |source: &str, tls: &str| {
        let cluster = format!("endpoint: '{}', token: {{id: '{TOKEN}', {source}}}, tls: {{{tls}}}", fake.url);
        let text = plan(&format!(", image: '{}'", image.display()), "").replace("connection: lab", &cluster);
        let path = site.plan(&text);
        answer(site.command(["check", path.to_str().unwrap()]).env("PVE_SECRET", SECRET))
    };
    let ca = format!("ca_file: '{}'", fake.certificate.display());
    let pin = format!("fingerprint: '{}'", fake.fingerprint);
    let file = format!("secret_file: '{}'", secret.display());
    for (source, tls) in [("secret_env: PVE_SECRET", &ca), (&file, &pin)] {
        let good = check(source, tls);
        assert!(good.ok() && good.stdout.contains("note: storage ceph"), "{good:?}");
        assert!(!good.stdout.contains(SECRET) && !good.stderr.contains(SECRET), "{good:?}");
    }
    let unset = check("secret_env: PVE_SECRET_THAT_IS_NOT_SET", &ca);
    assert!(!unset.ok() && unset.stderr.contains("PVE_SECRET_THAT_IS_NOT_SET"), "{unset:?}");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).unwrap();
    let readable = check(&file, &pin);
    assert!(!readable.ok() && readable.stderr.contains("chmod 600"), "{readable:?}");
    assert_eq!(files_with(site.path(), SECRET), Vec::<PathBuf>::new());
}

#[test]
fn the_authorities_of_the_system_are_trusted_where_a_person_says_so() {
    let Some(fake) = Fake::start() else { return };
    fake.grant_all_but(&[]);
    let site = Site::new();
    let mut command = connect(&site, &fake, &["--name", "lab", "--system-ca"]);
    // Where this system keeps them, for this command.
    let saved = answer(command.env("SSL_CERT_FILE", &fake.certificate));
    assert!(saved.ok(), "{saved:?}");
    let shown = answer(site.command(["connections", "show", "lab"]).env("SSL_CERT_FILE", &fake.certificate));
    assert!(shown.ok() && shown.stdout.contains("vmbr0"), "{shown:?}");
    let untrusted = site.ask(["connections", "show", "lab"]);
    assert!(!untrusted.ok() && untrusted.stderr.contains("certificate"), "{untrusted:?}");
}

#[test]
fn a_plan_whose_connection_is_not_saved_says_how_to_save_it() {
    let site = Site::new();
    let path = site.plan(&plan("", ""));
    let missing = site.ask(["check", path.to_str().unwrap()]);
    assert!(!missing.ok() && missing.stderr.contains("fourcorners connect URL --name lab"), "{missing:?}");
}

#[test]
fn workers_elsewhere_need_an_address_that_they_can_reach() {
    let Some(fake) = Fake::start() else { return };
    let site = connected(&fake);
    let path = site.plan(&plan("", ""));
    let refused = site.ask(["run", path.to_str().unwrap(), "--worker-listen", "127.0.0.1:0"]);
    assert!(!refused.ok() && refused.stderr.contains("--worker-listen 0.0.0.0:8441"), "{refused:?}");
    let refused = site.ask(["run", path.to_str().unwrap(), "--worker-address", "nowhere"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

#[test]
fn no_secret_is_anywhere_in_the_clear() {
    let Some(fake) = Fake::start() else { return };
    let site = connected(&fake);
    // A run that fails at its image: everything that a run writes before is there.
    let image = site.path().join("image.iso");
    fs::write(&image, "no image").unwrap();
    let text = plan(&format!(", image: '{}'", image.display()), "canary: false\n");
    let path = site.plan(&text);
    let path = path.to_str().unwrap();
    let mut said = String::new();
    for args in [
        &["check", path][..],
        &["check", path, "--json"],
        &["run", path],
        &["runs", "--json"],
        &["show"],
        &["show", "--json"],
    ] {
        let mut command = site.command(["connections", "list"]);
        command.env("FOURCORNERS_LOG", "trace");
        let listed = answer(&mut command);
        let mut command = Command::new(end_to_end::binary());
        command.arg("--data-dir").arg(site.data_dir()).args(args).stdin(Stdio::null()).env("FOURCORNERS_LOG", "trace");
        command.env("FOURCORNERS_WORKER_LISTEN", "0.0.0.0:0");
        let ran = answer(&mut command);
        said.push_str(&format!("{}{}{}{}", listed.stdout, listed.stderr, ran.stdout, ran.stderr));
    }
    assert_eq!(site.state().as_deref(), Some("failed"), "{said}");
    for format in ["json", "csv", "html"] {
        let answer = site.ask(["export", "latest", "--format", format, "-o", "-"]);
        assert!(answer.ok(), "{answer:?}");
        said.push_str(&answer.stdout);
    }
    assert!(said.contains(TOKEN) && said.contains("no bootstrap slot"), "the run came as far as its image: {said}");
    assert!(!said.contains(SECRET));
    assert_eq!(files_with(site.path(), SECRET), Vec::<PathBuf>::new());
    for file in ["secrets.key", "connections/lab.json"] {
        let mode = fs::metadata(site.data_dir().join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file}");
    }
}

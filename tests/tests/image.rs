//! `image personalise` and `image show`, and what `image build` says where it cannot work. No real image: a file with a slot does.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use end_to_end::{Answer, Site};
use serde_json::{Value, json};

const TOKEN: &str = "s3cret-of-the-fleet";

/// A site with an image in its data directory.
fn site() -> (Site, PathBuf) {
    let site = Site::new();
    fs::create_dir(site.data_dir()).unwrap();
    let image = site.data_dir().join("fourcorners-worker.iso");
    fs::write(&image, [&[7; 100_000][..], &worker_image::slot::empty(), b"end"].concat()).unwrap();
    (site, image)
}

fn personalise(site: &Site, more: &[&str]) -> Answer {
    let mut command = site.command(["image", "personalise", "--image"]);
    command.arg(site.data_dir().join("fourcorners-worker.iso")).arg("--output").arg(site.path().join("personal.iso"));
    command.env("FOURCORNERS_WORKER_TOKEN", TOKEN).args(more);
    Answer::from(command.output().unwrap())
}

fn show(site: &Site, image: &std::path::Path) -> Value {
    let answer = site.ask(["image", "show", image.to_str().unwrap(), "--json"]);
    assert!(answer.ok(), "{answer:?}");
    serde_json::from_str(&answer.stdout).unwrap()
}

#[test]
fn a_personal_image_says_what_it_was_told_and_never_its_token() {
    let (site, image) = site();
    let answer = personalise(
        &site,
        &[
            "--url",
            "192.0.2.7:7443",
            "--url",
            "wss://[2001:db8::7]:7443/api/worker/v1/session",
            "--mtu",
            "9000",
            "--address",
            "52:54:00:00:10:00=192.0.2.50*16",
            "--address",
            "52:54:00:00:20:00=192.0.2.90",
            "--prefix",
            "24",
            "--gateway",
            "192.0.2.1",
            "--json",
        ],
    );
    assert!(answer.ok(), "{answer:?}");
    let personal = site.path().join("personal.iso");
    let (base, shown) = (show(&site, &image), show(&site, &personal));
    assert_eq!(serde_json::from_str::<Value>(&answer.stdout).unwrap(), shown);
    assert_eq!((&base["bootstrap"], &base["sha256"]), (&Value::Null, &base["base_sha256"]));
    assert_eq!(shown["base_sha256"], base["sha256"]);
    let ca = shown["bootstrap"]["ca_sha256"].as_str().unwrap();
    let expected = json!({
        "version": 1,
        "orchestrator_urls": [
            "wss://192.0.2.7:7443/api/worker/v1/session",
            "wss://[2001:db8::7]:7443/api/worker/v1/session"
        ],
        "ca_sha256": ca,
        "token": "(secret)",
        "mtu": 9000,
        "static_addressing": {
            "ranges": [
                {"first_mac": "52:54:00:00:10:00", "first_address": "192.0.2.50", "count": 16},
                {"first_mac": "52:54:00:00:20:00", "first_address": "192.0.2.90", "count": 1}
            ],
            "prefix": 24,
            "gateway": "192.0.2.1"
        }
    });
    assert_eq!(shown["bootstrap"], expected);
    // The fingerprint is that of the data directory's CA, as OpenSSL computes it.
    let fingerprint = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(site.data_dir().join("tls/ca.pem"))
        .output();
    match fingerprint {
        Ok(output) => {
            let said = String::from_utf8(output.stdout).unwrap();
            assert_eq!(said.trim().rsplit('=').next().unwrap().replace(':', "").to_lowercase(), ca);
        }
        Err(error) => end_to_end::skip(&format!("openssl cannot be run: {error}")),
    }
    let text = site.ask(["image", "show", personal.to_str().unwrap()]);
    assert!(text.ok() && text.stdout.contains("16 from 192.0.2.50/24 on"), "{text:?}");
    assert!(!format!("{answer:?}{text:?}{shown}").contains(TOKEN));
    let bytes = fs::read(&personal).unwrap();
    assert!(bytes.windows(TOKEN.len()).any(|piece| piece == TOKEN.as_bytes()), "but the worker finds it");
    assert_eq!(fs::metadata(&personal).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_no_worker_could_use_is_refused_by_its_field() {
    let (site, _) = site();
    let url = ["--url", "192.0.2.7:7443"];
    let refused = |more: &[&str], wanted: &[&str]| {
        let answer = personalise(&site, more);
        assert!(!answer.ok(), "{more:?}");
        for text in wanted {
            assert!(answer.stderr.contains(text), "{text:?} in {}", answer.stderr);
        }
        assert!(!answer.stderr.contains(TOKEN) && !site.path().join("personal.iso").exists(), "{}", answer.stderr);
    };
    refused(&["--url", "orchestrator.example:7443"], &["orchestrator_urls[0]", "an IP address"]);
    refused(&["--url", "0.0.0.0:7443"], &["orchestrator_urls[0]", "of one machine"]);
    refused(&[&url[..], &["--mtu", "100"]].concat(), &["mtu", "576 to 9216"]);
    refused(&[&url[..], &["--ca-sha256", "ab"]].concat(), &["--ca-sha256"]);
    refused(&[&url[..], &["--address", "52:54:00:00:10:00=192.0.2.50*16"]].concat(), &["--prefix"]);
    let range = ["--address", "52:54:00:00:10:00=192.0.2.250*16", "--prefix", "24"];
    refused(&[&url[..], &range].concat(), &["static_addressing.ranges[0].first_address", "192.0.2.250 to 192.0.3.9"]);
    refused(&["--mtu", "1500"], &["--url"]);
    let long = site.path().join("token");
    fs::write(&long, "x".repeat(20_000)).unwrap();
    let more = [&url[..], &["--token-file", long.to_str().unwrap()]].concat();
    let over = 20_000 + format!(
        r#"{{"version":1,"orchestrator_urls":["wss://192.0.2.7:7443/api/worker/v1/session"],"ca_sha256":"{}","token":""}}"#,
        "0".repeat(64)
    )
    .len()
        - (worker_image::slot::BYTES - worker_image::slot::marker().len());
    refused(&more, &[&format!("{over} bytes too long"), "fewer or shorter orchestrator URLs"]);
    let mut command = site.command(["image", "personalise", "--url", "192.0.2.7:1", "--output", "/nonexistent/x"]);
    let answer = Answer::from(command.env_remove("FOURCORNERS_WORKER_TOKEN").output().unwrap());
    assert!(answer.stderr.contains("--token-file"), "{answer:?}");
}

#[test]
fn what_is_no_worker_image_is_said_to_be_none() {
    let (site, image) = site();
    fs::write(&image, "something else").unwrap();
    for answer in [site.ask(["image", "show", image.to_str().unwrap()]), personalise(&site, &["--url", "192.0.2.7:1"])]
    {
        assert!(!answer.ok() && answer.stderr.contains("this is not a worker image"), "{answer:?}");
    }
    let answer = site.ask(["image", "show", "/nonexistent.iso"]);
    assert!(!answer.ok() && answer.stderr.contains("/nonexistent.iso"), "{answer:?}");
}

#[test]
fn without_its_tools_the_build_names_the_packages() {
    let site = Site::new();
    // Some tools are also looked for in /usr/sbin, where none of these three is.
    let answer = Answer::from(site.command(["image", "build"]).env("PATH", "/nonexistent").output().unwrap());
    let wanted = "apt-get install --no-install-recommends";
    assert!(!answer.ok() && answer.stderr.contains(wanted), "{answer:?}");
    for package in ["grub-common", "xorriso", "mtools"] {
        assert!(answer.stderr.contains(package), "{package} in {}", answer.stderr);
    }
    let answer = Answer::from(site.command(["demo", "--vm"]).env("PATH", "/nonexistent").output().unwrap());
    let wanted = "apt-get install --no-install-recommends qemu-system-x86";
    assert!(!answer.ok() && answer.stderr.contains(wanted), "{answer:?}");
}

#[test]
fn what_goes_wrong_in_building_the_programs_is_heard() {
    if let Some(missing) = worker_image::build::missing_tools(true) {
        return end_to_end::skip(&missing.to_string());
    }
    let site = Site::new();
    let script = site.path().join("worker-image/image/build");
    fs::create_dir_all(script.parent().unwrap()).unwrap();
    fs::write(&script, "#!/bin/sh\necho 'error: no matching package named serde' >&2\nexit 101\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let answer = site.ask(["image", "build", "--source", site.path().to_str().unwrap()]);
    for wanted in ["no matching package named serde", "exit status: 101"] {
        assert!(!answer.ok() && answer.stderr.contains(wanted), "{wanted} in {answer:?}");
    }
}

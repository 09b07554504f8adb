//! The web interface of the built binary, over plain HTTP and TLS, with curl as its client.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use end_to_end::{Site, skip, wait_for};

/// `serve` going on; killed when dropped.
struct Serving {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Serving {
    fn start<const N: usize>(site: &Site, args: [&str; N]) -> Self {
        let mut child = site.command(args).stdout(Stdio::piped()).spawn().unwrap();
        let (send, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).all(|line| send.send(line).is_ok()));
        Self { child, lines, said: Vec::new() }
    }

    /// The first line that holds these words.
    fn line(&mut self, words: &str) -> String {
        wait_for(words, || {
            self.said.extend(self.lines.try_iter());
            self.said.iter().find(|line| line.contains(words)).cloned()
        })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and body of a request; none where curl is not installed.
fn curl<const N: usize>(args: [&str; N]) -> Option<(String, String)> {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "*", "--write-out", "\n%{http_code}"])
        .args(args)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n')?;
    Some((status.to_owned(), body.to_owned()))
}

#[test]
fn the_first_start_prints_a_link_that_makes_the_administrator() {
    let site = Site::new();
    let mut serving = Serving::start(&site, ["serve", "--listen", "127.0.0.1:0"]);
    let link = serving.line("/setup/").trim().to_owned();
    assert!(link.starts_with("http://127.0.0.1:"), "{link}");
    let origin = link.split("/setup/").next().unwrap().to_owned();
    let Some((status, page)) = curl([&link]) else { return skip("curl is not installed") };
    assert!(status == "200" && page.contains("Make the administrator"), "{status} {page}");
    let jar = site.path().join("jar");
    let form = "name=boss&password=a+few+words+more&repeated=a+few+words+more";
    let made =
        curl(["--cookie-jar", jar.to_str().unwrap(), "--header", &format!("Origin: {origin}"), "--data", form, &link]);
    assert_eq!(made.unwrap().0, "303");
    assert_eq!(curl([&link]).unwrap().0, "410");
    let users = curl(["--cookie", jar.to_str().unwrap(), &format!("{origin}/api/v1/users")]).unwrap();
    assert!(users.0 == "200" && users.1.contains("\"boss\""), "{users:?}");
    assert_eq!(curl([&format!("{origin}/api/v1/users")]).unwrap().0, "401");
    drop(serving);

    let mut again = Serving::start(&site, ["serve", "--listen", "127.0.0.1:0"]);
    let where_ = again.line("Web interface: ");
    let origin =
        where_.split_whitespace().find(|word| word.starts_with("http")).unwrap().trim_end_matches('/').to_owned();
    assert_eq!(curl([&format!("{origin}/healthz")]).unwrap(), ("200".to_owned(), "ok\n".to_owned()));
    assert!(!again.said.iter().any(|line| line.contains("/setup/")), "{:?}", again.said);
}

#[test]
fn beyond_loopback_it_speaks_tls_of_its_own_ca() {
    let site = Site::new();
    let mut serving = Serving::start(&site, ["serve", "--listen", "0.0.0.0:0", "--name", "poc.example"]);
    let line = serving.line("Web interface: ");
    let urls: Vec<&str> = line.split_whitespace().filter(|word| word.contains("://")).collect();
    assert!(urls.iter().all(|url| url.starts_with("https://")), "{line}");
    let port = urls[0].trim_end_matches('/').rsplit_once(':').unwrap().1.to_owned();
    serving.line("/setup/");
    let ca = site.data_dir().join("tls/ca.pem");
    let resolve = format!("poc.example:{port}:127.0.0.1");
    for host in ["127.0.0.1", "poc.example"] {
        let url = format!("https://{host}:{port}/healthz");
        let asked = curl(["--cacert", ca.to_str().unwrap(), "--resolve", &resolve, &url]);
        let Some(asked) = asked else { return skip("curl is not installed") };
        assert_eq!(asked, ("200".to_owned(), "ok\n".to_owned()), "{host}");
    }
    let plain = curl([&format!("http://127.0.0.1:{port}/healthz")]).unwrap();
    assert_ne!(plain.0, "200", "plain HTTP is not answered");
}

#[test]
fn beyond_loopback_it_speaks_plain_http_only_when_told_and_says_what_that_means() {
    let site = Site::new();
    let mut serving = Serving::start(&site, ["serve", "--listen", "0.0.0.0:0", "--insecure-http"]);
    let line = serving.line("Web interface: ");
    let urls: Vec<&str> = line.split_whitespace().filter(|word| word.contains("://")).collect();
    assert!(!urls.is_empty() && urls.iter().all(|url| url.starts_with("http://")), "{line}");
    serving.line("cross the network unencrypted");
    let port = urls[0].trim_end_matches('/').rsplit_once(':').unwrap().1;
    let Some(asked) = curl([&format!("http://127.0.0.1:{port}/healthz")]) else { return skip("curl is not installed") };
    assert_eq!(asked, ("200".to_owned(), "ok\n".to_owned()));
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let site = Site::new();
    let missing = site.ask(["serve", "--listen", "127.0.0.1:0", "--cert", "/nowhere/c.pem", "--key", "/nowhere/c.key"]);
    assert!(!missing.ok() && missing.stderr.contains("/nowhere/c.pem: cannot read it"), "{missing:?}");
    let half = site.ask(["serve", "--cert", "/nowhere/c.pem"]);
    assert!(!half.ok() && half.stderr.contains("--key"), "{half:?}");
}

//! One cluster's API over HTTPS: reads are repeated within a bound, changes only where they certainly had no effect.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Method, Response, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::error::{Again, CallError, Kind};
use super::secret::Token;
use super::settings::Timing;
use super::step::Sending;
use super::tls::{self, Fingerprint, Trust};
use crate::HypervisorError;

/// Calls in flight at a time: pveproxy has three workers by default.
const MAX_CALLS_IN_FLIGHT: usize = 16;
/// Reads of looks in flight at a time: a few for each node of a large cluster.
const MAX_LOOKS_IN_FLIGHT: usize = 64;
/// Largest answer that is read, bytes. The resources of a cluster with 10,000 guests are about 5 MB.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Repeats of a call whose error may or may not pass.
const MAX_DOUBTFUL_REPEATS: u32 = 2;
/// Bytes of an unintelligible answer that are shown.
const SHOWN_BYTES: usize = 200;

/// A connection to one cluster.
#[derive(Clone)]
pub(super) struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: reqwest::Client,
    base: Url,
    token: Token,
    timing: Timing,
    in_flight: Semaphore,
    doubtful_repeats: u32,
    calls: Arc<AtomicU64>,
}

/// Parameters of a call.
pub(super) type Form = Vec<(String, String)>;

#[derive(Deserialize)]
struct Envelope<T> {
    data: T,
}

#[derive(Deserialize, Default)]
struct Complaint {
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    errors: Option<serde_json::Map<String, serde_json::Value>>,
}

impl Client {
    pub(super) fn new(endpoint: &str, trust: &Trust, token: Token, timing: Timing) -> Result<Self, HypervisorError> {
        let base = parse_endpoint(endpoint).map_err(malformed_endpoint)?;
        let http = http_client(tls::config(trust)?, &timing)?;
        let in_flight = Semaphore::new(MAX_CALLS_IN_FLIGHT);
        let (doubtful_repeats, calls) = (MAX_DOUBTFUL_REPEATS, Arc::default());
        Ok(Self { inner: Arc::new(Inner { http, base, token, timing, in_flight, doubtful_repeats, calls }) })
    }

    /// The same cluster for looks, which must end in time: they do not queue behind other calls, a refusal is an answer, and repeats where
    /// there is none end with the look.
    pub(super) fn for_looks(&self) -> Self {
        let Inner { http, base, token, timing, calls, .. } = &*self.inner;
        let timing = Timing { answer: timing.look, retry_within: timing.look, ..*timing };
        Self {
            inner: Arc::new(Inner {
                http: http.clone(),
                base: base.clone(),
                token: token.clone(),
                timing,
                in_flight: Semaphore::new(MAX_LOOKS_IN_FLIGHT),
                doubtful_repeats: 0,
                calls: Arc::clone(calls),
            }),
        }
    }

    pub(super) fn timing(&self) -> &Timing {
        &self.inner.timing
    }

    pub(super) fn token_id(&self) -> &str {
        self.inner.token.id()
    }

    /// Requests sent so far.
    pub(super) fn calls(&self) -> u64 {
        self.inner.calls.load(Ordering::Relaxed)
    }

    /// Reads, with repeats.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, &str)]) -> Result<T, CallError> {
        let mut repeats = Repeats::new(&self.inner);
        loop {
            let request = self.request(Method::GET, path).query(query);
            let error = match self.send(&Method::GET, path, request, self.inner.timing.answer).await {
                Ok(data) => return Ok(data),
                Err(error) => error,
            };
            if !repeats.pause(error.again()).await {
                return Err(error);
            }
            tracing::debug!(%error, "read again");
        }
    }

    /// Changes something; repeated, if at all, only where it certainly had no effect.
    pub(super) async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        form: &[(String, String)],
        sending: Sending,
    ) -> Result<T, CallError> {
        let mut repeats = Repeats::new(&self.inner);
        loop {
            let request = self.request(method.clone(), path);
            // PVE takes a DELETE's parameters from the query only.
            let request = if method == Method::DELETE { request.query(form) } else { request.form(form) };
            let error = match self.send(&method, path, request, self.inner.timing.answer).await {
                Ok(data) => return Ok(data),
                Err(error) => error,
            };
            if sending == Sending::Once || !repeats.pause(error.change_again()).await {
                return Err(error);
            }
            tracing::debug!(%error, "tried again");
        }
    }

    /// Uploads an ISO under a name, with its SHA-256 (hexadecimal) for PVE to check; answers the task's UPID.
    pub(super) async fn upload(
        &self,
        path: &[&str],
        file: &Path,
        name: &str,
        sha256: &str,
    ) -> Result<String, CallError> {
        let unreadable = |error: std::io::Error| CallError {
            call: describe(&Method::POST, path),
            kind: Kind::Unreachable(format!("{}: cannot be read: {error}", file.display())),
        };
        let mut repeats = Repeats::new(&self.inner);
        loop {
            let part = reqwest::multipart::Part::file(file).await.map_err(unreadable)?;
            // PVE reads the fields in order and wants the file last.
            let form = reqwest::multipart::Form::new()
                .text("content", "iso")
                .text("checksum-algorithm", "sha256")
                .text("checksum", sha256.to_owned())
                .part("filename", part.file_name(name.to_owned()));
            let request = self.request(Method::POST, path).multipart(form);
            let error = match self.send(&Method::POST, path, request, self.inner.timing.upload).await {
                Ok(upid) => return Ok(upid),
                Err(error) => error,
            };
            if !repeats.pause(error.change_again()).await {
                return Err(error);
            }
        }
    }

    fn request(&self, method: Method, path: &[&str]) -> reqwest::RequestBuilder {
        let mut url = self.inner.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(["api2", "json"]).extend(path);
        }
        let mut value = reqwest::header::HeaderValue::from_str(&self.inner.token.header())
            .unwrap_or_else(|_| reqwest::header::HeaderValue::from_static(""));
        value.set_sensitive(true);
        self.inner.http.request(method, url).header(reqwest::header::AUTHORIZATION, value)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &[&str],
        request: reqwest::RequestBuilder,
        within: Duration,
    ) -> Result<T, CallError> {
        let _permit = self.inner.in_flight.acquire().await;
        self.inner.calls.fetch_add(1, Ordering::Relaxed);
        let fail = |kind| CallError { call: describe(method, path), kind };
        let response = request.timeout(within).send().await.map_err(|error| fail(transport(&error)))?;
        let status = response.status();
        let reason = reason_phrase(&response);
        let body = read_bounded(response).await.map_err(fail)?;
        if !status.is_success() {
            let words = words_of(&body, reason.as_deref(), status.as_u16());
            return Err(fail(Kind::Refused { status: status.as_u16(), words }));
        }
        serde_json::from_slice::<Envelope<T>>(&body)
            .map(|envelope| envelope.data)
            .map_err(|error| fail(Kind::Unintelligible(format!("{error}, in: {}", shown(&body)))))
    }
}

/// The fingerprint of the certificate that the endpoint presents. Nothing secret is sent: this is for a person to compare.
///
/// # Errors
/// The endpoint is malformed or nothing answers there with TLS.
pub async fn presented_fingerprint(endpoint: &str) -> Result<Fingerprint, HypervisorError> {
    let (config, seen) = tls::recording()?;
    let base = parse_endpoint(endpoint).map_err(malformed_endpoint)?;
    let timing = Timing::default();
    let answer = http_client(config, &timing)?.get(base.clone()).timeout(timing.answer).send().await;
    match (seen(), answer) {
        (Some(fingerprint), _) => Ok(fingerprint),
        (None, Err(error)) => Err(CallError { call: base.to_string(), kind: transport(&error) }.into()),
        (None, Ok(_)) => Err(HypervisorError::Unexpected(format!("{base}: answered without a certificate"))),
    }
}

/// The endpoint as a URL, with PVE's port where none is given; an error says what was found and what is expected.
pub(super) fn parse_endpoint(endpoint: &str) -> Result<Url, String> {
    let malformed = |why: &str| format!("found {endpoint:?}, expected https://HOST[:PORT]: {why}");
    let mut url = Url::parse(endpoint).map_err(|error| malformed(&error.to_string()))?;
    if url.scheme() != "https" || url.host_str().is_none() {
        return Err(malformed("only https is spoken"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.path() != "/" {
        return Err(malformed("no user, path or query belongs there"));
    }
    // 443 stands for "no port given" in a URL; PVE's is 8006. Whoever has a proxy on 443 writes it out and it is kept.
    if url.port().is_none() && !endpoint.trim_end_matches('/').ends_with(":443") {
        url.set_port(Some(8006)).map_err(|()| malformed("the port cannot be set"))?;
    }
    Ok(url)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn malformed_endpoint(problem: String) -> HypervisorError {
    HypervisorError::Unexpected(format!("target.endpoint: {problem}"))
}

fn http_client(tls: rustls::ClientConfig, timing: &Timing) -> Result<reqwest::Client, HypervisorError> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(timing.connect)
        .user_agent(concat!("fourcorners/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| HypervisorError::Unexpected(format!("the HTTPS client cannot be set up: {}", chain(&error))))
}

fn describe(method: &Method, path: &[&str]) -> String {
    format!("{method} /{}", path.join("/"))
}

fn transport(error: &reqwest::Error) -> Kind {
    let words = chain(error);
    if error.is_connect() { Kind::Unreachable(words) } else { Kind::Lost(words) }
}

/// An error with its causes: reqwest's own text leaves the cause out.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

async fn read_bounded(mut response: Response) -> Result<Vec<u8>, Kind> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| Kind::Lost(chain(&error)))? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(Kind::Unintelligible(format!("more than {MAX_ANSWER_BYTES} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// PVE 8 puts its message only into the status line.
fn reason_phrase(response: &Response) -> Option<String> {
    let reason = response.extensions().get::<hyper::ext::ReasonPhrase>()?;
    Some(String::from_utf8_lossy(reason.as_bytes()).trim().to_owned())
}

fn words_of(body: &[u8], reason: Option<&str>, status: u16) -> String {
    let complaint: Complaint = serde_json::from_slice(body).unwrap_or_default();
    let message = complaint.message.as_deref().map(str::trim).filter(|message| !message.is_empty());
    let mut words = match (message, reason) {
        (Some(message), _) => message.to_owned(),
        (None, Some(reason)) if !reason.is_empty() => reason.to_owned(),
        (None, _) if body.is_empty() => format!("status {status} without a message"),
        (None, _) => shown(body),
    };
    for (field, problem) in complaint.errors.unwrap_or_default() {
        let problem = problem.as_str().map_or_else(|| problem.to_string(), |text| text.trim().to_owned());
        words.push_str(&format!(" [{field}: {problem}]"));
    }
    words
}

fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES)]).trim().to_owned()
}

/// Pauses between repeats: doubling, with jitter so that many callers do not come back together.
struct Repeats {
    timing: Timing,
    since: Instant,
    next: Duration,
    /// Repeats left where the error may or may not pass.
    doubtful: u32,
}

impl Repeats {
    fn new(inner: &Inner) -> Self {
        let (timing, doubtful) = (inner.timing, inner.doubtful_repeats);
        Self { timing, since: Instant::now(), next: timing.retry_first, doubtful }
    }

    /// Waits before a repeat; false where none is due.
    async fn pause(&mut self, again: Again) -> bool {
        match again {
            Again::Never => return false,
            Again::Perhaps if self.doubtful == 0 => return false,
            Again::Perhaps => self.doubtful -= 1,
            Again::Transient => {}
        }
        let pause = jittered(self.next);
        if self.since.elapsed() + pause > self.timing.retry_within {
            return false;
        }
        tokio::time::sleep(pause).await;
        self.next = (self.next * 2).min(self.timing.retry_longest);
        true
    }
}

/// Between half of it and all of it.
pub(super) fn jittered(pause: Duration) -> Duration {
    let random = u32::from(uuid::Uuid::new_v4().as_bytes()[0]);
    pause / 2 + pause * random / 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_gets_the_usual_port_unless_one_is_given() {
        let of = |endpoint| parse_endpoint(endpoint).map(|url| url.to_string());
        assert_eq!(of("https://pve1").unwrap(), "https://pve1:8006/");
        assert_eq!(of("https://pve1:443").unwrap(), "https://pve1/");
        assert_eq!(of("https://[fd00::1]:8443/").unwrap(), "https://[fd00::1]:8443/");
        for wrong in ["pve1:8006", "http://pve1", "https://a:b@pve1", "https://pve1/x", "https://"] {
            assert!(of(wrong).unwrap_err().contains("expected https://HOST"), "{wrong}");
        }
    }

    #[test]
    fn the_words_are_taken_from_body_or_status_line() {
        let body = br#"{"data":null,"message":"Parameter verification failed.\n","errors":{"vmid":"too small\n"}}"#;
        assert_eq!(words_of(body, None, 400), "Parameter verification failed. [vmid: too small]");
        assert_eq!(words_of(br#"{"data":null}"#, Some("VM 9 already exists"), 500), "VM 9 already exists");
        assert_eq!(words_of(b"<html>busy", None, 503), "<html>busy");
    }

    #[test]
    fn jitter_stays_between_half_and_whole() {
        for _ in 0..100 {
            let pause = jittered(Duration::from_millis(100));
            assert!((50..=100).contains(&pause.as_millis()), "{pause:?}");
        }
    }
}

//! The bootstrap file of a worker VM: where its orchestrator is, and what it needs to enrol.

use std::{fs::File, io::Read, path::Path};

use serde::Deserialize;

use crate::{AgentError, Fingerprint};

/// Version of the file that this agent reads.
const VERSION: u32 = 1;
/// The largest file, bytes: four times the image's slot.
const MAX_BYTES: u64 = 64 << 10;

/// What the file holds. Fields of others (addresses, MTU) are left alone.
#[derive(Deserialize)]
struct Fields {
    version: u32,
    orchestrator_urls: Vec<String>,
    ca_sha256: String,
    token: String,
}

/// Where the orchestrator is, and what it must know and be known by.
pub(crate) struct Bootstrap {
    pub(crate) orchestrator_urls: Vec<String>,
    pub(crate) ca_sha256: Fingerprint,
    pub(crate) token: String,
}

impl Bootstrap {
    /// Reads a file of JSON, or the image's slot: a marker line before the JSON, blanks after it.
    pub(crate) fn read(path: &Path) -> Result<Self, AgentError> {
        let unusable = |problem: String| AgentError::Option {
            option: "--bootstrap",
            problem: format!("{}: {problem}", path.display()),
        };
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
        read.map_err(|error| unusable(error.to_string()))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(unusable(format!("larger than {MAX_BYTES} bytes")));
        }
        parse(&text).map_err(unusable)
    }
}

fn parse(text: &str) -> Result<Bootstrap, String> {
    let json = match text.split_once('\n') {
        Some((marker, rest)) if !marker.trim_start().starts_with('{') && !marker.trim().is_empty() => rest,
        _ => text,
    };
    if json.trim().is_empty() {
        return Err("it is empty: the image is not personalised, so its orchestrator is not known".to_owned());
    }
    let fields: Fields = serde_json::from_str(json).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => format!("a field is missing or of a wrong type: {error}"),
        _ => format!("not the JSON of a bootstrap file (line {}, column {})", error.line(), error.column()),
    })?;
    if fields.version != VERSION {
        return Err(format!("field version: {}; this agent reads {VERSION}", fields.version));
    }
    check(fields)
}

/// Every field is needed: there is no orchestrator without TLS, and none is trusted unpinned.
fn check(fields: Fields) -> Result<Bootstrap, String> {
    let Fields { orchestrator_urls, ca_sha256, token, .. } = fields;
    if let Some(at) = orchestrator_urls.iter().position(|url| !url.starts_with("wss://")) {
        let url = &orchestrator_urls[at];
        return Err(format!("field orchestrator_urls[{at}]: {url:?}; allowed: wss://ADDRESS:PORT/PATH"));
    }
    if token.is_empty() {
        return Err("field token: it is empty; a fleet's enrolment token is needed".to_owned());
    }
    let ca_sha256 = ca_sha256.parse().map_err(|error| format!("field ca_sha256: {error}"))?;
    Ok(Bootstrap { orchestrator_urls, ca_sha256, token })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"version":1,"orchestrator_urls":["wss://192.0.2.7:7443/a"],
        "ca_sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","token":"s3cret","mtu":9000,
        "static_addressing":{"ranges":[],"prefix":24}}"#;

    #[test]
    fn plain_json_and_a_slot_are_read_alike() {
        for text in [JSON.to_owned(), format!("\n{JSON}\n"), format!("SOME-MARKER-1\n{JSON}{}", " ".repeat(9000))] {
            let bootstrap = parse(&text).unwrap();
            assert_eq!(bootstrap.orchestrator_urls, ["wss://192.0.2.7:7443/a"]);
            assert_eq!((bootstrap.ca_sha256, bootstrap.token.as_str()), (Fingerprint::of(b""), "s3cret"));
        }
    }

    #[test]
    fn what_cannot_be_used_is_said_without_the_token() {
        let cases = [
            ("MARKER\n          ".to_owned(), "not personalised"),
            (String::new(), "not personalised"),
            (JSON.replace("\"version\":1", "\"version\":2"), "field version: 2; this agent reads 1"),
            (JSON.replace("\"ca_sha256\"", "\"ca\""), "missing field `ca_sha256`"),
            (JSON.replace("e3b0", ""), "field ca_sha256: \"c442"),
            (JSON.replace("wss:", "ws:"), "field orchestrator_urls[0]: \"ws://192.0.2.7:7443/a\"; allowed: wss://"),
            (JSON.replace("s3cret", ""), "field token: it is empty"),
            (JSON[..80].to_owned(), "not the JSON"),
            ("MARKER\nno json".to_owned(), "not the JSON"),
        ];
        for (text, part) in cases {
            let error = parse(&text).err().unwrap();
            assert!(error.contains(part) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bootstrap");
        let error = Bootstrap::read(&path).err().unwrap().to_string();
        assert!(error.starts_with("--bootstrap: ") && error.contains("bootstrap: No such file"), "{error}");
        std::fs::write(&path, " ".repeat(70_000)).unwrap();
        assert!(Bootstrap::read(&path).err().unwrap().to_string().contains("larger than 65536 bytes"));
    }
}

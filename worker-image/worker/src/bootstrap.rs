//! The bootstrap file of a worker VM: where its orchestrator is, and what it needs to enrol.

use std::{fs::File, io::Read, path::Path};

use serde::Deserialize;

use crate::AgentError;

/// Version of the file that this agent reads.
const VERSION: u32 = 1;
/// The largest file, bytes: four times the image's slot.
const MAX_BYTES: u64 = 64 << 10;

/// What the file holds. Fields of others (addresses, MTU) are left alone.
#[derive(Debug, Deserialize)]
pub(crate) struct Bootstrap {
    version: u32,
    pub(crate) orchestrator_urls: Vec<String>,
    pub(crate) ca_sha256: String,
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
    let bootstrap: Bootstrap = serde_json::from_str(json).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => format!("a field is missing or of a wrong type: {error}"),
        _ => format!("not the JSON of a bootstrap file (line {}, column {})", error.line(), error.column()),
    })?;
    if bootstrap.version != VERSION {
        return Err(format!("field version: {}; this agent reads {VERSION}", bootstrap.version));
    }
    Ok(bootstrap)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"version":1,"orchestrator_urls":["wss://192.0.2.7:7443/a"],"ca_sha256":"ab","token":"s3cret","mtu":9000,
        "static_addressing":{"ranges":[],"prefix":24}}"#;

    #[test]
    fn plain_json_and_a_slot_are_read_alike() {
        for text in [JSON.to_owned(), format!("\n{JSON}\n"), format!("SOME-MARKER-1\n{JSON}{}", " ".repeat(9000))] {
            let bootstrap = parse(&text).unwrap();
            assert_eq!(bootstrap.orchestrator_urls, ["wss://192.0.2.7:7443/a"]);
            assert_eq!((bootstrap.ca_sha256.as_str(), bootstrap.token.as_str()), ("ab", "s3cret"));
        }
    }

    #[test]
    fn what_cannot_be_used_is_said_without_the_token() {
        let cases = [
            ("MARKER\n          ".to_owned(), "not personalised"),
            (String::new(), "not personalised"),
            (JSON.replace("\"version\":1", "\"version\":2"), "field version: 2; this agent reads 1"),
            (JSON.replace("\"ca_sha256\":\"ab\",", ""), "ca_sha256"),
            (JSON[..80].to_owned(), "not the JSON"),
            ("MARKER\nno json".to_owned(), "not the JSON"),
        ];
        for (text, part) in cases {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(part) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bootstrap");
        let error = Bootstrap::read(&path).unwrap_err().to_string();
        assert!(error.starts_with("--bootstrap: ") && error.contains("bootstrap: No such file"), "{error}");
        std::fs::write(&path, " ".repeat(70_000)).unwrap();
        assert!(Bootstrap::read(&path).unwrap_err().to_string().contains("larger than 65536 bytes"));
    }
}

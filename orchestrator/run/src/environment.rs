//! What reproduces a run: versions, host, digest of the program.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Where a system keeps its id, 32 hexadecimal digits.
const MACHINE_ID: &str = "/etc/machine-id";

/// This machine and this program, as JSON by name. What cannot be read is null.
pub(crate) fn orchestrator() -> Value {
    let uname = rustix::system::uname();
    json!({
        "fourcorners_version": env!("CARGO_PKG_VERSION"),
        "worker_protocol_version": worker_protocol::PROTOCOL_VERSION,
        "program_sha256": std::env::current_exe().ok().and_then(|path| sha256(&path).ok()),
        "host": uname.nodename().to_string_lossy(),
        "machine": machine(),
        "kernel": uname.release().to_string_lossy(),
        "architecture": uname.machine().to_string_lossy(),
        "cpu_model": first_value("/proc/cpuinfo", "model name"),
        "cpus": std::thread::available_parallelism().ok().map(std::num::NonZero::get),
        "memory": first_value("/proc/meminfo", "MemTotal"),
    })
}

/// What tells this machine from others; the same for as long as its system is installed. None where the system does not say. Not the
/// machine's id itself, which is not to be shown to others.
fn machine() -> Option<String> {
    let id = fs::read_to_string(MACHINE_ID).ok()?;
    // Before its first boot a system may have an empty one, or a word instead.
    (id.trim().len() == 32).then(|| hex(&Sha256::digest(format!("fourcorners {}", id.trim())))[..16].to_owned())
}

/// The host on which a run of this environment began, where that is known to be another machine than this one.
#[must_use]
pub fn begun_elsewhere(environment: &Value) -> Option<String> {
    elsewhere(environment, machine().as_deref())
}

fn elsewhere(environment: &Value, here: Option<&str>) -> Option<String> {
    let there = environment["machine"].as_str()?;
    (there != here?).then(|| environment["host"].as_str().unwrap_or("another machine").to_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        digest.update(&buffer[..read]);
    }
    Ok(hex(&digest.finalize()))
}

/// The value of the first `key : value` line of a file under /proc.
fn first_value(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_is_told_where_both_say_who_they_are() {
        let there = json!({ "machine": "a", "host": "poc-1" });
        assert_eq!(elsewhere(&there, Some("b")).as_deref(), Some("poc-1"));
        assert_eq!(elsewhere(&there, Some("a")), None);
        assert_eq!(elsewhere(&there, None), None);
        assert_eq!(elsewhere(&json!({ "host": "poc-1" }), Some("b")), None);
    }
}

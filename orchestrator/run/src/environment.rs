//! What reproduces a run: versions, host, digest of the program.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// This machine and this program, as JSON by name. What cannot be read is null.
pub(crate) fn orchestrator() -> Value {
    let uname = rustix::system::uname();
    json!({
        "fourcorners_version": env!("CARGO_PKG_VERSION"),
        "worker_protocol_version": worker_protocol::PROTOCOL_VERSION,
        "program_sha256": std::env::current_exe().ok().and_then(|path| sha256(&path).ok()),
        "host": uname.nodename().to_string_lossy(),
        "kernel": uname.release().to_string_lossy(),
        "architecture": uname.machine().to_string_lossy(),
        "cpu_model": first_value("/proc/cpuinfo", "model name"),
        "cpus": std::thread::available_parallelism().ok().map(std::num::NonZero::get),
        "memory": first_value("/proc/meminfo", "MemTotal"),
    })
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
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The value of the first `key : value` line of a file under /proc.
fn first_value(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

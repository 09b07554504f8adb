//! What this machine's QEMU can do, found out by trying.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::{INSTALL_QEMU, QEMU, machines};
use crate::HypervisorError;
use crate::local::disks;

/// A stock kernel that boots under KVM at all does so in a second or two; one that has not by then hangs.
pub const BOOT_BOUND: Duration = Duration::from_secs(15);
/// QEMU answers a trivial question within this.
const ANSWER_BOUND: Duration = Duration::from_secs(20);
/// What the worker image's init prints first.
const BOOTED: &str = "fourcorners-worker: init is running";
/// Bytes of a console that are looked at.
const MAX_CONSOLE_BYTES: u64 = 1 << 20;
/// Bytes of QEMU's complaint that are shown.
const MAX_COMPLAINT_BYTES: u64 = 2000;
/// Size of the file that is opened on trial, bytes.
const TRIAL_BYTES: u64 = 1 << 20;

/// How VMs are run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Accelerator {
    /// By the CPU (KVM).
    Kvm,
    /// By software (QEMU's TCG).
    Emulation {
        /// Why not by KVM.
        why: String,
    },
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kvm => write!(f, "KVM"),
            Self::Emulation { why } => write!(f, "software emulation ({why})"),
        }
    }
}

/// How QEMU opens data disk files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskIo {
    /// QEMU's `aio`: `io_uring`, `native` or `threads`.
    pub aio: &'static str,
    /// Past this machine's page cache (`cache=none`).
    pub direct: bool,
    /// What better ways were refused, each with QEMU's words.
    pub refused: Vec<String>,
}

/// From best to plain. Without `direct`, this machine's memory serves reads, and figures are of it.
const LADDER: [(&str, bool); 4] = [("io_uring", true), ("native", true), ("threads", true), ("threads", false)];

impl DiskIo {
    #[cfg(test)]
    pub(super) fn best() -> Self {
        Self { aio: LADDER[0].0, direct: true, refused: Vec::new() }
    }

    /// The block node of a data disk's file.
    pub(super) fn file_node(&self, name: &str, path: &Path) -> Value {
        json!({
            "driver": "file",
            "node-name": name,
            "filename": path,
            "aio": self.aio,
            "cache": {"direct": self.direct, "no-flush": false},
            // Zeros are data here; detecting them would turn a zero fill into no I/O at all.
            "detect-zeroes": "off",
        })
    }
}

/// QEMU's version, as it says it.
///
/// # Errors
/// Its program cannot be started; the error says what to install.
pub async fn qemu_version() -> Result<String, NoEmulator> {
    let asked = timeout(ANSWER_BOUND, Command::new(QEMU).arg("--version").kill_on_drop(true).output());
    let output = match asked.await {
        Ok(output) => output.map_err(|error| NoEmulator { why: error.to_string() })?,
        Err(_) => return Err(NoEmulator { why: format!("no answer within {} s", ANSWER_BOUND.as_secs()) }),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// There is no QEMU here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{QEMU} cannot be started: {why}; {INSTALL_QEMU}")]
pub struct NoEmulator {
    /// The system's own words.
    pub(super) why: String,
}

/// Memory that programs may still take, bytes.
pub(super) fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Boots the image under KVM. That `/dev/kvm` opens says little: in a VM without proper nested virtualisation, a kernel hangs there.
pub(super) async fn accelerator(image: &Path) -> Accelerator {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    let tried = match opened {
        Ok(_) => boots_under_kvm(image).await,
        Err(error) => Err(format!("/dev/kvm cannot be opened: {error}")),
    };
    match tried {
        Ok(()) => Accelerator::Kvm,
        Err(why) => Accelerator::Emulation { why },
    }
}

async fn boots_under_kvm(image: &Path) -> Result<(), String> {
    let cd = json!({"driver": "file", "node-name": "image", "filename": image, "read-only": true}).to_string();
    // Under the supervisor, since a hung VM would outlive an orchestrator that is killed meanwhile.
    let mut qemu = machines::supervised(QEMU)
        .args(["-accel", "kvm", "-cpu", "host", "-m", "256M", "-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-vga", "none", "-serial", "stdio", "-blockdev", &cd, "-device", "ide-cd,drive=image,bus=ide.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{QEMU} cannot be started: {error}"))?;
    let (Some(console), Some(complaints)) = (qemu.stdout.take(), qemu.stderr.take()) else {
        return Err("QEMU has no output".into());
    };
    let booted = timeout(BOOT_BOUND, says(console, BOOTED)).await;
    // Ended here and not only when dropped, so that a hung VM is gone before others start: its supervisor ends after it.
    drop(qemu.stdin.take());
    if timeout(ANSWER_BOUND, qemu.wait()).await.is_err() {
        let _ = qemu.kill().await;
    }
    match booted {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("QEMU with KVM ended: {}", words(complaints).await)),
        Err(_) => Err(format!("a stock kernel did not boot under KVM within {} s", BOOT_BOUND.as_secs())),
    }
}

/// Whether the text comes before the end.
async fn says(console: impl AsyncRead + Unpin, wanted: &str) -> bool {
    let mut lines = BufReader::new(console.take(MAX_CONSOLE_BYTES)).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        if String::from_utf8_lossy(&line).contains(wanted) {
            return true;
        }
    }
    false
}

async fn words(complaints: impl AsyncRead + Unpin) -> String {
    let mut text = Vec::new();
    // A part is better than nothing.
    let _ = timeout(ANSWER_BOUND, complaints.take(MAX_COMPLAINT_BYTES).read_to_end(&mut text)).await;
    // On one line, as messages are shown.
    String::from_utf8_lossy(&text).lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Opens a file on the data disks' file system in each way, best first.
pub(super) async fn disk_io(dir: &Path) -> Result<DiskIo, HypervisorError> {
    let dir = disks::nearest_existing(dir);
    let trial = tempfile::NamedTempFile::new_in(dir)
        .and_then(|file| file.as_file().set_len(TRIAL_BYTES).map(|()| file))
        .map_err(HypervisorError::io(format!("{}: cannot create a file on trial", dir.display())))?;
    let path = PathBuf::from(trial.path());
    let mut refused = Vec::new();
    for (aio, direct) in LADDER {
        let way = DiskIo { aio, direct, refused: Vec::new() };
        match opens(&way, &path).await {
            Ok(()) => return Ok(DiskIo { refused, ..way }),
            Err(why) => refused.push(format!("aio={aio}, cache={}: {why}", if direct { "none" } else { "writeback" })),
        }
    }
    Err(HypervisorError::Unexpected(format!(
        "{}: QEMU opens no data disk there: {} ({INSTALL_QEMU})",
        dir.display(),
        refused.join("; ")
    )))
}

/// Starts QEMU without a machine, which opens the file, and has it end.
async fn opens(way: &DiskIo, path: &Path) -> Result<(), String> {
    let mut qemu = Command::new(QEMU)
        .args(["-machine", "none", "-nodefaults", "-no-user-config", "-display", "none", "-qmp", "stdio"])
        .args(["-blockdev", &way.file_node("trial", path).to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{QEMU} cannot be started: {error}"))?;
    if let Some(mut monitor) = qemu.stdin.take() {
        // It may have ended already, with its reason on the other pipe.
        let _ = monitor.write_all(b"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"quit\"}\n").await;
    }
    match timeout(ANSWER_BOUND, qemu.wait_with_output()).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("QEMU did not answer within {} s", ANSWER_BOUND.as_secs())),
    }
}

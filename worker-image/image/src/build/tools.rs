//! The tools that building needs, and how they are run.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::BuildError;

/// Tool and Debian package.
const ALWAYS: [(&str, &str); 6] = [
    ("dpkg-deb", "dpkg"),
    ("grub-mkimage", "grub-common"),
    ("xorriso", "xorriso"),
    ("mformat", "mtools"),
    ("mmd", "mtools"),
    ("mcopy", "mtools"),
];
const TO_DOWNLOAD: (&str, &str) = ("apt-get", "apt");
/// Bytes of a failed tool's output that an error shows.
const OUTPUT_TAIL_BYTES: usize = 1500;

/// Tools that are not installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct MissingTools {
    /// The programs.
    pub tools: Vec<&'static str>,
    /// The Debian packages that hold them.
    pub packages: Vec<&'static str>,
}

impl fmt::Display for MissingTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "building the worker image needs {}, not found in PATH; on Debian: apt-get install --no-install-recommends {}",
            self.tools.join(", "),
            self.packages.join(" ")
        )
    }
}

/// Where a program is found: PATH, and where Debian keeps tools that a plain user's PATH leaves out.
fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let fixed = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(fixed).map(|dir| dir.join(tool)).find(|path| path.is_file())
}

/// The tools that are not installed; none where an image can be built. `download` also needs a way to get packages.
#[must_use]
pub fn missing_tools(download: bool) -> Option<MissingTools> {
    let needed = ALWAYS.into_iter().chain(download.then_some(TO_DOWNLOAD));
    let (tools, mut packages): (Vec<_>, Vec<_>) = needed.filter(|(tool, _)| find(tool).is_none()).unzip();
    packages.dedup();
    (!tools.is_empty()).then_some(MissingTools { tools, packages })
}

pub(super) fn check(download: bool) -> Result<(), MissingTools> {
    missing_tools(download).map_or(Ok(()), Err)
}

/// Runs a tool to its end in `dir`; answers what it printed. Time stamps that it writes are `epoch`, its words English.
pub(super) fn run<A: AsRef<OsStr>>(tool: &str, args: &[A], dir: &Path, epoch: u32) -> Result<String, BuildError> {
    let mut command = Command::new(find(tool).unwrap_or_else(|| tool.into()));
    command.args(args).current_dir(dir);
    command.env("SOURCE_DATE_EPOCH", epoch.to_string()).env("LC_ALL", "C").env("TZ", "UTC");
    let output = command.output().map_err(BuildError::io(Path::new(tool)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let said = said.trim();
    let tail = (said.len().saturating_sub(OUTPUT_TAIL_BYTES)..=said.len()).find_map(|at| said.get(at..)).unwrap_or("");
    let args: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
    Err(BuildError::Tool {
        command: format!("{tool} {}", args.join(" ")),
        status: output.status.to_string(),
        output: tail.into(),
    })
}

//! The files of a run in its data directory: the report that was written when it ended, and its workers' logs.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::{DataDir, RunId};

/// A file of a run that could not be removed.
#[derive(Debug)]
pub(crate) struct Stuck {
    /// What could be before it.
    pub(crate) removed: Vec<PathBuf>,
    /// The file or directory.
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// Removes a run's files; answers them. What is not there any more is as good as removed.
pub(crate) fn remove(dir: &DataDir, run: RunId) -> Result<Vec<PathBuf>, Stuck> {
    let mut removed = Vec::new();
    let logs = match logs_of(&dir.logs(), run) {
        Ok(logs) => logs,
        Err(source) => return Err(Stuck { removed, path: dir.logs(), source }),
    };
    for path in logs.into_iter().chain([dir.report(run)]) {
        match remove_one(&path) {
            Ok(()) => removed.push(path),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(Stuck { removed, path, source }),
        }
    }
    Ok(removed)
}

fn remove_one(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Directories of the run's fleets, by name.
fn logs_of(logs: &Path, run: RunId) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(logs) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if is_fleet_of(&entry.file_name(), run) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// A fleet is called by its run's id and the number of its deployment.
fn is_fleet_of(name: &OsStr, run: RunId) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix(&run.to_string())?.strip_prefix('-'));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_is_told_by_all_of_its_run_s_id() {
        let run: RunId = "0199c2a4-5b6e-7d10-9f3a-2c1d4e5f6a7b".parse().unwrap();
        for (name, is_its) in [
            (format!("{run}-1"), true),
            (format!("{run}-12"), true),
            (format!("{run}-"), false),
            (format!("{run}-x"), false),
            (run.to_string(), false),
            ("0199c2a4-1".to_owned(), false),
        ] {
            assert_eq!(is_fleet_of(OsStr::new(&name), run), is_its, "{name}");
        }
    }
}

//! A journal of its own for what belongs to no run of this database: a file that is gone once all it records is gone.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use hypervisor::{BoxFuture, Intent, Journal, JournalEntry, JournalError, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Directory of these journals in the data directory.
const DIRECTORY: &str = "cleanup";

/// One fleet's journal. Every line is on the disk before the change is made.
pub(crate) struct FileJournal {
    path: PathBuf,
    open: Mutex<Open>,
}

struct Open {
    file: File,
    entries: Vec<JournalEntry>,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Intent(i64, Intent),
    Task(i64, Value),
    Outcome(i64, Outcome),
}

impl FileJournal {
    /// Whether an earlier cleanup of a fleet left its journal.
    pub(crate) fn exists(data_dir: &Path, fleet: &str) -> bool {
        path_of(data_dir, fleet).exists()
    }

    /// The journal of a fleet; what an earlier cleanup wrote is in it.
    pub(crate) fn open(data_dir: &Path, fleet: &str) -> anyhow::Result<Self> {
        let dir = data_dir.join(DIRECTORY);
        fs::create_dir_all(&dir).with_context(|| format!("{}: cannot be created", dir.display()))?;
        let path = path_of(data_dir, fleet);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("{}: cannot be read", path.display()))?,
        };
        let mut entries = Vec::new();
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            match serde_json::from_str(line) {
                Ok(line) => apply(&mut entries, line),
                // The last one may have been cut off by a crash: what it was to allow was not done.
                Err(_) if number + 1 == lines.len() => {}
                Err(error) => anyhow::bail!("{}:{}: {error}", path.display(), number + 1),
            }
        }
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let mut file = file.with_context(|| format!("{}: cannot be opened for writing", path.display()))?;
        if !text.is_empty() && !text.ends_with('\n') {
            writeln!(file).with_context(|| format!("{}: cannot be written", path.display()))?;
        }
        Ok(Self { path, open: Mutex::new(Open { file, entries }) })
    }

    /// All entries.
    pub(crate) fn entries(&self) -> Vec<JournalEntry> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).entries.clone()
    }

    /// Removes the file: nothing that it records is left.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        fs::remove_file(&self.path).with_context(|| format!("{}: cannot be removed", self.path.display()))
    }

    fn write(&self, line: impl FnOnce(i64) -> Line) -> Result<i64, JournalError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: &dyn std::fmt::Display| JournalError(format!("{}: {error}", self.path.display()));
        let next = i64::try_from(open.entries.len()).map_err(|error| failed(&error))?;
        let line = line(next);
        let text = serde_json::to_string(&line).map_err(|error| failed(&error))?;
        writeln!(open.file, "{text}").and_then(|()| open.file.sync_all()).map_err(|error| failed(&error))?;
        apply(&mut open.entries, line);
        Ok(next)
    }
}

fn path_of(data_dir: &Path, fleet: &str) -> PathBuf {
    data_dir.join(DIRECTORY).join(format!("{fleet}.jsonl"))
}

fn apply(entries: &mut Vec<JournalEntry>, line: Line) {
    let mut at = |id: i64, change: &dyn Fn(&mut JournalEntry)| {
        entries.iter_mut().filter(|entry| entry.id == id).for_each(change);
    };
    match line {
        Line::Intent(id, intent) => entries.push(JournalEntry { id, intent, task: None, outcome: None }),
        Line::Task(id, task) => at(id, &|entry| entry.task = Some(task.clone())),
        Line::Outcome(id, outcome) => at(id, &|entry| entry.outcome = Some(outcome.clone())),
    }
}

impl Journal for FileJournal {
    fn intent(&self, intent: Intent) -> BoxFuture<'_, Result<i64, JournalError>> {
        Box::pin(async move { self.write(|id| Line::Intent(id, intent)) })
    }

    fn task(&self, id: i64, task: Value) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move { self.write(|_| Line::Task(id, task)).map(drop) })
    }

    fn outcome(&self, id: i64, succeeded: bool, details: Value) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move { self.write(|_| Line::Outcome(id, Outcome { succeeded, details })).map(drop) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypervisor::Effect;
    use serde_json::json;

    #[tokio::test]
    async fn what_was_written_is_read_back_up_to_a_line_that_was_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let journal = FileJournal::open(dir.path(), "f-7").unwrap();
        let intent = |object: &str| Intent {
            kind: "proxmox.adopt".into(),
            effect: Effect::Create,
            object: object.into(),
            details: json!({ "x": 1 }),
        };
        let first = journal.intent(intent("9000")).await.unwrap();
        let second = journal.intent(intent("9001")).await.unwrap();
        journal.task(second, json!({ "upid": "u" })).await.unwrap();
        journal.outcome(first, true, json!({})).await.unwrap();
        let written = journal.entries();
        let mut file = OpenOptions::new().append(true).open(&journal.path).unwrap();
        write!(file, "{{\"intent\":[2,").unwrap();
        let again = FileJournal::open(dir.path(), "f-7").unwrap();
        assert_eq!(again.entries(), written);
        assert!(written[0].outcome.as_ref().unwrap().succeeded && written[1].task.is_some());
        again.finish().unwrap();
        assert_eq!(FileJournal::open(dir.path(), "f-7").unwrap().entries(), vec![]);
    }
}

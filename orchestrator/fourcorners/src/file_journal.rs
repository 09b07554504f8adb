//! A journal of its own for what belongs to no run of this database: a file that is gone once all it records is gone.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use hypervisor::{BoxFuture, Intent, Journal, JournalEntry, JournalError, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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
    /// The first: endpoint of the cluster that all this is on. Objects of the same names on another are not these.
    Cluster(String),
    Intent(i64, Intent),
    Task(i64, Value),
    Outcome(i64, Outcome),
}

impl FileJournal {
    /// Whether an earlier cleanup of a fleet left its journal.
    pub(crate) fn exists(data_dir: &Path, fleet: &str) -> bool {
        path_of(data_dir, fleet).exists()
    }

    /// Whether what an earlier cleanup of a fleet wrote, if there was one, is of this cluster.
    ///
    /// # Errors
    /// It is of another, does not say of which, or cannot be read.
    pub(crate) fn check(data_dir: &Path, fleet: &str, cluster: &str) -> anyhow::Result<()> {
        read(&path_of(data_dir, fleet), cluster).map(drop)
    }

    /// The journal of a fleet on a cluster; what an earlier cleanup wrote is in it.
    ///
    /// # Errors
    /// [`FileJournal::check`], or it cannot be written.
    pub(crate) fn open(data_dir: &Path, fleet: &str, cluster: &str) -> anyhow::Result<Self> {
        let dir = data_dir.join(DIRECTORY);
        fs::create_dir_all(&dir).with_context(|| format!("{}: cannot be created", dir.display()))?;
        let path = path_of(data_dir, fleet);
        let Kept { bytes, entries, of } = read(&path, cluster)?;
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let mut file = file.with_context(|| format!("{}: cannot be opened for writing", path.display()))?;
        let begin = |file: &mut File| {
            file.set_len(bytes)?;
            match of {
                Some(_) => Ok(()),
                None => writeln!(file, "{}", json!(Line::Cluster(cluster.to_owned()))).and_then(|()| file.sync_all()),
            }
        };
        begin(&mut file).with_context(|| format!("{}: cannot be written", path.display()))?;
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

/// What there is of a journal.
#[derive(Default)]
struct Kept {
    /// Its whole lines. What follows was cut off by a crash: what it was to allow was not done.
    bytes: u64,
    entries: Vec<JournalEntry>,
    /// The cluster that it is of.
    of: Option<String>,
}

/// Reads a journal of this cluster; nothing where there is none.
fn read(path: &Path, cluster: &str) -> anyhow::Result<Kept> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("{}: cannot be read", path.display()))?,
    };
    let mut kept = Kept::default();
    for (number, line) in text.split_inclusive('\n').enumerate().filter(|(_, line)| line.ends_with('\n')) {
        match serde_json::from_str(line).with_context(|| format!("{}:{}", path.display(), number + 1))? {
            Line::Cluster(cluster) => kept.of = Some(cluster),
            line => apply(&mut kept.entries, line),
        }
        kept.bytes += line.len() as u64;
    }
    if kept.entries.is_empty() {
        // It may begin anew, on any cluster.
        return Ok(Kept::default());
    }
    if kept.of.as_deref() != Some(cluster) {
        anyhow::bail!(
            "{}: what an earlier cleanup of this fleet could not remove is on the cluster of {}, and this one is {cluster}; give a plan whose \
             endpoint is that one (--plan), or, where {cluster} is another node of the same cluster, write it into the file's first line",
            path.display(),
            kept.of.as_deref().unwrap_or("an endpoint that it does not tell"),
        );
    }
    Ok(kept)
}

fn apply(entries: &mut Vec<JournalEntry>, line: Line) {
    let mut at = |id: i64, change: &dyn Fn(&mut JournalEntry)| {
        entries.iter_mut().filter(|entry| entry.id == id).for_each(change);
    };
    match line {
        Line::Cluster(_) => {}
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
    use hypervisor::Effect;

    use super::*;

    const HERE: &str = "https://pve1:8006";

    #[tokio::test]
    async fn what_is_of_another_cluster_is_not_taken_for_this_ones() {
        let dir = tempfile::tempdir().unwrap();
        let journal = FileJournal::open(dir.path(), "f-7", HERE).unwrap();
        let (kind, object) = ("proxmox.adopt-vm".to_owned(), "9000".to_owned());
        journal.intent(Intent { kind, effect: Effect::Create, object, details: json!({}) }).await.unwrap();
        FileJournal::check(dir.path(), "f-7", HERE).unwrap();
        FileJournal::check(dir.path(), "f-8", "https://other:8006").unwrap();
        for refused in [
            FileJournal::check(dir.path(), "f-7", "https://other:8006").err(),
            FileJournal::open(dir.path(), "f-7", "https://other:8006").err(),
        ] {
            let refused = refused.unwrap().to_string();
            assert!(refused.contains(HERE) && refused.contains("--plan"), "{refused}");
        }
        // One that does not say is nobody's.
        let text = fs::read_to_string(&journal.path).unwrap();
        fs::write(&journal.path, text.split_once('\n').unwrap().1).unwrap();
        assert!(FileJournal::check(dir.path(), "f-7", HERE).is_err());
    }

    #[tokio::test]
    async fn what_was_written_is_read_back_up_to_a_line_that_was_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let journal = FileJournal::open(dir.path(), "f-7", HERE).unwrap();
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
        let again = FileJournal::open(dir.path(), "f-7", HERE).unwrap();
        assert_eq!(again.entries(), written);
        again.outcome(second, false, json!({})).await.unwrap();
        let again = FileJournal::open(dir.path(), "f-7", HERE).unwrap();
        assert_eq!(again.entries()[1].outcome.as_ref().map(|outcome| outcome.succeeded), Some(false));
        assert!(written[0].outcome.as_ref().unwrap().succeeded && written[1].task.is_some());
        again.finish().unwrap();
        assert_eq!(FileJournal::open(dir.path(), "f-7", HERE).unwrap().entries(), vec![]);
    }
}

//! What can go wrong with the store. Every error names the file and what was being done.

use std::io;
use std::path::{Path, PathBuf};

/// An operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data directory or a file in it cannot be used.
    #[error("{}: cannot be {action}: {source}. The data directory must be readable and writable for this user", path.display())]
    DataDir {
        /// The file or directory.
        path: PathBuf,
        /// `created`, `opened`, `written` …
        action: &'static str,
        /// The kernel's words.
        source: io::Error,
    },
    /// Another orchestrator works on the data directory.
    #[error(
        "{}: another orchestrator{} works on this data directory. Wait for it to end or stop it, or give this one another --data-dir",
        path.display(), holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The holder's process id, where its lock file tells it.
        holder: Option<u32>,
    },
    /// There is no database yet.
    #[error("{}: there is no database here yet: no run was started with this data directory", file.display())]
    Missing {
        /// The database.
        file: PathBuf,
    },
    /// The database was written by a newer version of this program.
    #[error(
        "{}: the database has schema version {found}, this program knows up to {known}. \
         Use the newer program that wrote it, or give another --data-dir; nothing was changed", file.display()
    )]
    NewerVersion {
        /// The database.
        file: PathBuf,
        /// Its schema version.
        found: i64,
        /// The newest version known here.
        known: i64,
    },
    /// The database was written by an older version, and was opened for reading only.
    #[error(
        "{}: the database has schema version {found}, this program needs {known}. \
         `serve` or `run` with this data directory brings it up to date", file.display()
    )]
    OlderVersion {
        /// The database.
        file: PathBuf,
        /// Its schema version.
        found: i64,
        /// The version needed.
        known: i64,
    },
    /// The file is no SQLite database.
    #[error("{}: this is not a SQLite database. Move it away or give another --data-dir; nothing was changed", file.display())]
    NotADatabase {
        /// The file.
        file: PathBuf,
    },
    /// The file is a SQLite database of another program.
    #[error("{}: this SQLite database is not one of Fourcorners. Move it away or give another --data-dir; nothing was changed", file.display())]
    NotOurs {
        /// The file.
        file: PathBuf,
    },
    /// SQLite found the file damaged.
    #[error(
        "{}: the database is damaged ({detail}, while {operation}). Copy it away, then try `sqlite3 FILE .recover`, \
         or give another --data-dir", file.display()
    )]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// What was being done.
        operation: &'static str,
        /// SQLite's words.
        detail: String,
    },
    /// Any other failure of the database.
    #[error("{}: {operation} failed: {source}", file.display())]
    Database {
        /// The file.
        file: PathBuf,
        /// What was being done.
        operation: &'static str,
        /// What the database said.
        source: sqlx::Error,
    },
    /// A run was deleted in part.
    #[error("{source}. {}", half_deleted(removed, *gone))]
    HalfDeleted {
        /// Files and directories of the run that were removed.
        removed: Vec<PathBuf>,
        /// The run is in no list any more, and its rows are removed at the next start; else it is there with all that it measured.
        gone: bool,
        /// What stood in the way.
        source: Box<StoreError>,
    },
    /// What was asked cannot be stored, or what is stored cannot be read.
    #[error("{}: {operation} failed: {reason}", file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// What was being done.
        operation: &'static str,
        /// Why.
        reason: Box<Refusal>,
    },
}

/// Why something cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The store was opened for reading only.
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// A number that SQLite's 64-bit signed integers cannot hold.
    #[error("{field} is {value}; the store holds at most {}", i64::MAX)]
    TooLarge {
        /// What the number is.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A run cannot go from one state to the other.
    #[error("a run cannot go from {from} to {to}")]
    Transition {
        /// State it has.
        from: crate::RunState,
        /// State asked for.
        to: crate::RunState,
    },
    /// No run of that id, prefix or name.
    #[error("no run is called {asked:?}. {}", candidates_line(candidates))]
    NoSuchRun {
        /// What was asked for.
        asked: String,
        /// The latest runs.
        candidates: Vec<String>,
    },
    /// More than one run begins like that.
    #[error("{asked:?} is the beginning of more than one run. {}", candidates_line(candidates))]
    AmbiguousRun {
        /// What was asked for.
        asked: String,
        /// The runs that begin so.
        candidates: Vec<String>,
    },
    /// No more profiles can be kept.
    #[error("there are {} own profiles already, and no more can be kept: delete one first", crate::MAX_PROFILES)]
    TooManyProfiles,
    /// There is no such row.
    #[error("there is no {what} {key}")]
    Absent {
        /// `case`, `journal entry`, `worker` …
        what: &'static str,
        /// Its id or name.
        key: String,
    },
    /// A finished case or run takes nothing more.
    #[error("{what} {key} has ended")]
    Ended {
        /// `case`, `run` or `journal entry`.
        what: &'static str,
        /// Its id.
        key: String,
    },
    /// A worker sent two different samples for one second.
    #[error("worker {worker} sent {phase} second {second} twice, as numbers {first} and {number}")]
    SecondTwice {
        /// Name of the worker.
        worker: String,
        /// `precondition` or `sample`.
        phase: &'static str,
        /// Second of the phase.
        second: u32,
        /// The sample that is stored.
        first: u64,
        /// The other.
        number: u64,
    },
    /// Stored text that is not what it should be.
    #[error("{what} in the database cannot be read: {detail}")]
    Unreadable {
        /// Table and column.
        what: &'static str,
        /// Why.
        detail: String,
    },
    /// A value that cannot be written as JSON.
    #[error("{what} cannot be written as JSON: {detail}")]
    Unwritable {
        /// What the value is.
        what: &'static str,
        /// Why.
        detail: String,
    },
    /// There is a user of that name.
    #[error("there is a user {name:?} already; choose another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Nobody could administrate any more.
    #[error("the user {name} is the last administrator who can log in; make somebody else one first")]
    LastAdmin {
        /// The user.
        name: String,
    },
    /// A user has as many tokens as are allowed.
    #[error("{name} has {allowed} API tokens, which is the most; revoke one first")]
    TooManyTokens {
        /// The user.
        name: String,
        /// The most.
        allowed: u32,
    },
    /// A run that goes on is not deleted.
    #[error("the run is in state {state}; only a run that has ended can be deleted")]
    RunGoesOn {
        /// State it has.
        state: crate::RunState,
    },
    /// With the run, the record of what it left behind would go.
    #[error("the run's journal does not say that these were removed: {}", objects.join(", "))]
    LeftBehind {
        /// Recorded ids, or the calls that may have made something.
        objects: Vec<String>,
    },
    /// The merge was broken off.
    #[error("the merge was broken off: {0}")]
    Merge(String),
}

fn half_deleted(removed: &[PathBuf], gone: bool) -> String {
    let files: Vec<String> = removed.iter().map(|path| path.display().to_string()).collect();
    let files = if files.is_empty() {
        "No file of the run was removed".to_owned()
    } else {
        format!("Removed: {}", files.join(", "))
    };
    let run = if gone { "The run is in no list any more" } else { "The run is still there, with all that it measured" };
    format!("{files}. {run}")
}

fn candidates_line(candidates: &[String]) -> String {
    if candidates.is_empty() { "There are no runs".into() } else { format!("There are: {}", candidates.join(", ")) }
}

/// An error inside the store, before file and operation are named.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Sqlx(#[from] sqlx::Error),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Fault {
    pub(crate) fn unreadable(what: &'static str, error: impl std::fmt::Display) -> Self {
        Self::Refused(Refusal::Unreadable { what, detail: error.to_string() })
    }

    pub(crate) fn absent(what: &'static str, key: impl std::fmt::Display) -> Self {
        Self::Refused(Refusal::Absent { what, key: key.to_string() })
    }

    pub(crate) fn ended(what: &'static str, key: impl std::fmt::Display) -> Self {
        Self::Refused(Refusal::Ended { what, key: key.to_string() })
    }

    /// Names file and operation.
    pub(crate) fn named(self, file: &Path, operation: &'static str) -> StoreError {
        let file = file.to_owned();
        match self {
            Self::Refused(reason) => StoreError::Refused { file, operation, reason: Box::new(reason) },
            Self::Sqlx(source) => match primary_code(&source) {
                Some(SQLITE_CORRUPT) => StoreError::Corrupt { file, operation, detail: source.to_string() },
                Some(SQLITE_NOTADB) => StoreError::NotADatabase { file },
                _ => StoreError::Database { file, operation, source },
            },
        }
    }
}

/// <https://www.sqlite.org/rescode.html#corrupt>
const SQLITE_CORRUPT: u32 = 11;
/// <https://www.sqlite.org/rescode.html#notadb>
const SQLITE_NOTADB: u32 = 26;

/// SQLite's primary result code: the low byte of the extended one.
fn primary_code(error: &sqlx::Error) -> Option<u32> {
    let code: u32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

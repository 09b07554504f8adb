//! The SQLite store: what a run did and measured.
//!
//! One writer connection, whose transactions begin IMMEDIATE, and a pool of readers; WAL, `synchronous=FULL`. A write returns
//! only once it is committed: that is what the acknowledgement of a worker's sample rests on.

mod brief;
mod cases;
mod data_dir;
mod deletion;
mod error;
mod evaluate;
mod export;
mod live;
mod model;
mod open;
mod profiles;
mod read;
mod room;
mod rows;
mod run_files;
mod runs;
mod samples;
mod series;
mod sessions;
mod sql;
mod tokens;
mod users;
mod workload;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::{SqliteConnection, SqlitePool};
use tokio::sync::{Mutex, MutexGuard};

pub use data_dir::{DATABASE_FILE, DataDir, DataDirLock, LOCK_FILE};
pub use error::{Refusal, StoreError};
pub use export::{StoredCase, StoredRun};
pub use live::{LiveCase, StoredEvent};
pub use model::*;
pub use open::BUSY_TIMEOUT;
pub use profiles::{MAX_PROFILES, StoredProfile};
pub use read::LATEST;
pub use room::{LEAST_ROOM_BYTES, room_needed};
pub use samples::StoredSecond;
pub use sessions::{IDLE_LIMIT, MAX_SESSIONS, SESSION_LIMIT, Session};
pub use tokens::{ApiToken, MAX_TOKENS, NewToken, TokenBearer, TokenId};
pub use users::{PASSWORD_LINK_LIMIT, Role, User, UserId};

use error::Fault;

/// SHA-256 of a secret of 256 random bits.
pub type SecretHash = [u8; 32];

/// The store of one data directory. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: PathBuf,
    /// None where the store was opened for reading only.
    writer: Option<Mutex<SqliteConnection>>,
    readers: SqlitePool,
}

impl Store {
    /// The database file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.inner.file
    }

    /// The writer connection, when it is this caller's turn.
    async fn writer(&self) -> Result<MutexGuard<'_, SqliteConnection>, Fault> {
        match &self.inner.writer {
            Some(writer) => Ok(writer.lock().await),
            None => Err(Refusal::ReadOnly.into()),
        }
    }

    /// Names file and operation in an error.
    fn named<T>(&self, operation: &'static str, result: Result<T, Fault>) -> Result<T, StoreError> {
        result.map_err(|fault| fault.named(self.file(), operation))
    }
}

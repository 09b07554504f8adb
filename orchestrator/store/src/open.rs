//! Opening and closing the database.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::sync::Mutex;

use crate::error::Fault;
use crate::{DataDir, Inner, Store, StoreError, sql};

/// How long a statement waits for another process's lock before it fails.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Mode of the database: its owner's.
const PRIVATE: u32 = 0o600;

/// Readers at a time; a further one waits up to [`BUSY_TIMEOUT`].
const MAX_READERS: u32 = 4;

/// `PRAGMA application_id` of the first migration: "FC14".
const APPLICATION_ID: i64 = 0x4643_3134;

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

impl Store {
    /// Opens the database of a data directory for reading and writing; creates directory and database where they do not exist, and
    /// brings an older database up to date. Take [`DataDir::lock`] first.
    ///
    /// # Errors
    /// [`StoreError`] that names the file: a directory that cannot be used, a database of a newer version, of another program, damaged,
    /// or no database at all. None of them changes anything.
    pub async fn open(data_dir: &DataDir) -> Result<Self, StoreError> {
        data_dir.create()?;
        let file = data_dir.database();
        probe_file(&file, true)?;
        if file.exists() {
            inspect(&file).await?.not_newer(&file)?;
        }
        keep_private(&file)?;
        let options = base_options(&file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true);
        let opening = "opening the database";
        let mut writer = options.connect().await.map_err(|error| Fault::from(error).named(&file, opening))?;
        MIGRATIONS
            .run_direct(None, &mut writer, false)
            .await
            .map_err(|error| Fault::from(migrate_error(error)).named(&file, "bringing the database up to date"))?;
        let readers = readers(base_options(&file).foreign_keys(true).read_only(true)).await;
        let readers = readers.map_err(|error| Fault::from(error).named(&file, opening))?;
        Ok(Self { inner: Arc::new(Inner { file, writer: Some(Mutex::new(writer)), readers }) })
    }

    /// Opens the database for reading only, also while another process writes.
    ///
    /// # Errors
    /// As [`Store::open`]; [`StoreError::Missing`] where there is no database, [`StoreError::OlderVersion`] where it must be brought up to
    /// date first.
    pub async fn open_read_only(data_dir: &DataDir) -> Result<Self, StoreError> {
        let file = data_dir.database();
        if !file.try_exists().map_err(|source| StoreError::DataDir { path: file.clone(), action: "read", source })? {
            return Err(StoreError::Missing { file });
        }
        probe_file(&file, false)?;
        let schema = inspect(&file).await?;
        schema.not_newer(&file)?;
        schema.not_older(&file)?;
        let readers = readers(reading_options(&file)).await;
        let readers = readers.map_err(|error| Fault::from(error).named(&file, "opening the database"))?;
        Ok(Self { inner: Arc::new(Inner { file, writer: None, readers }) })
    }

    /// Waits for what is being written or read, and closes the database. Other clones of the store can do nothing with it any more.
    ///
    /// # Errors
    /// [`StoreError::Database`] where the write-ahead log cannot be put back into the database.
    pub async fn close(self) -> Result<(), StoreError> {
        self.inner.readers.close().await;
        let file = self.inner.file.clone();
        let Some(inner) = Arc::into_inner(self.inner) else { return Ok(()) };
        match inner.writer {
            Some(writer) => {
                let closed = writer.into_inner().close().await;
                closed.map_err(|error| Fault::from(error).named(&file, "closing the database"))
            }
            None => Ok(()),
        }
    }
}

/// What kind of database a file is.
struct Schema {
    version: i64,
}

impl Schema {
    fn known() -> i64 {
        MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0)
    }

    fn not_newer(&self, file: &Path) -> Result<(), StoreError> {
        let (found, known) = (self.version, Self::known());
        if found > known {
            return Err(StoreError::NewerVersion { file: file.to_owned(), found, known });
        }
        Ok(())
    }

    fn not_older(&self, file: &Path) -> Result<(), StoreError> {
        let (found, known) = (self.version, Self::known());
        if found < known {
            return Err(StoreError::OlderVersion { file: file.to_owned(), found, known });
        }
        Ok(())
    }
}

/// Opens the file itself: the kernel's reason is clearer than SQLite's "unable to open database file".
fn probe_file(file: &Path, write: bool) -> Result<(), StoreError> {
    let fail = |action| move |source| StoreError::DataDir { path: file.to_owned(), action, source };
    match OpenOptions::new().read(true).write(write).open(file) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) if write => Err(fail("opened for writing")(error)),
        Err(error) => Err(fail("read")(error)),
    }
}

/// Makes a database that its owner alone can read, and one of an earlier version so: hashes of passwords and tokens are in it. SQLite gives
/// the files beside it the same mode.
fn keep_private(file: &Path) -> Result<(), StoreError> {
    let fail = |action| move |source| StoreError::DataDir { path: file.to_owned(), action, source };
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(PRIVATE).open(file);
    opened.map_err(fail("opened for writing"))?;
    for suffix in ["", "-wal", "-shm"] {
        let mut path = file.as_os_str().to_owned();
        path.push(suffix);
        let is_open_to_others = std::fs::metadata(&path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0);
        if is_open_to_others {
            std::fs::set_permissions(&path, Permissions::from_mode(PRIVATE)).map_err(fail("made private"))?;
        }
    }
    Ok(())
}

/// Reads a file's schema version and changes nothing.
async fn inspect(file: &Path) -> Result<Schema, StoreError> {
    let inspected = async {
        let mut connection = reading_options(file).connect().await?;
        let schema = read_schema(&mut connection).await;
        connection.close().await?;
        schema
    };
    match inspected.await.map_err(|error: sqlx::Error| Fault::from(error).named(file, "opening the database"))? {
        Some(schema) => Ok(schema),
        None => Err(StoreError::NotOurs { file: file.to_owned() }),
    }
}

/// None for a database of another program. An empty database is ours at version 0.
async fn read_schema(connection: &mut SqliteConnection) -> Result<Option<Schema>, sqlx::Error> {
    let tables: i64 = sqlx::query_scalar(sql::COUNT_TABLES).fetch_one(&mut *connection).await?;
    if tables == 0 {
        return Ok(Some(Schema { version: 0 }));
    }
    let migrations: i64 = sqlx::query_scalar(sql::HAS_MIGRATIONS).fetch_one(&mut *connection).await?;
    if migrations == 0 {
        return Ok(None);
    }
    let version: i64 = sqlx::query_scalar(sql::SCHEMA_VERSION).fetch_one(&mut *connection).await?;
    let application: i64 = sqlx::query_scalar(sql::APPLICATION_ID).fetch_one(&mut *connection).await?;
    // A first migration that was interrupted leaves the list of migrations, empty.
    Ok((version == 0 || application == APPLICATION_ID).then_some(Schema { version }))
}

fn base_options(file: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(file).busy_timeout(BUSY_TIMEOUT)
}

/// Where nobody may write to the directory, a database in WAL mode that was closed cleanly can only be read as immutable.
fn reading_options(file: &Path) -> SqliteConnectOptions {
    let options = base_options(file).read_only(true);
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    let directory = file.parent().unwrap_or(Path::new("."));
    let sealed = !Path::new(&log).exists() && rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_err();
    options.immutable(sealed)
}

async fn readers(options: SqliteConnectOptions) -> Result<sqlx::SqlitePool, sqlx::Error> {
    SqlitePoolOptions::new().max_connections(MAX_READERS).acquire_timeout(BUSY_TIMEOUT).connect_with(options).await
}

fn migrate_error(error: MigrateError) -> sqlx::Error {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => error,
        other => sqlx::Error::Migrate(Box::new(other)),
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Executor, SqlSafeStr};

    use super::*;

    #[tokio::test]
    async fn every_statement_fits_the_migrated_schema() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&DataDir::new(dir.path())).await.unwrap();
        let mut connection = store.inner.readers.acquire().await.unwrap();
        assert!(sql::ALL.len() > 50, "the list of statements is {} long", sql::ALL.len());
        for (name, statement) in sql::ALL {
            if let Err(error) = (&mut *connection).prepare(statement.into_sql_str()).await {
                panic!("{name}: {error}");
            }
        }
    }

    #[tokio::test]
    async fn connections_are_set_as_promised() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&DataDir::new(dir.path())).await.unwrap();
        let mut writer = store.writer().await.unwrap();
        let text: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *writer).await.unwrap();
        assert_eq!(text, "wal");
        for (pragma, value) in [("PRAGMA synchronous", 2), ("PRAGMA foreign_keys", 1), ("PRAGMA busy_timeout", 10_000)]
        {
            let found: i64 = sqlx::query_scalar(pragma).fetch_one(&mut *writer).await.unwrap();
            assert_eq!(found, value, "{pragma}");
        }
    }
}

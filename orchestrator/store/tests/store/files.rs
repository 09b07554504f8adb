//! The database as a file: opened beside a writer, by SQLite's own tool, and refused with a reason where it is not ours.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Bench, fleet, new_run};
use analysis::case::Ending;
use analysis::export::StorageHealth;
use store::{DATABASE_FILE, DataDir, Level, NewHostSample, Refusal, Store, StoreError};

/// Asks SQLite's own command line tool; none where it is not installed.
pub(crate) fn sqlite3(file: &Path, sql: &str) -> Option<String> {
    let output = Command::new("sqlite3").arg(file).arg(sql).output().ok()?;
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

#[tokio::test]
async fn sqlites_own_tool_finds_nothing_to_complain_about() {
    let (bench, fleet) = (Bench::new().await, fleet());
    let case = bench.start_case(&fleet).await;
    bench.all_ticks(case, &fleet).await;
    bench.finished(case, &fleet[0]).await;
    let details = serde_json::json!({});
    let intent = store::Intent { kind: "create-vm", effect: store::Effect::Create, object: None, details: &details };
    bench.store.journal_intent(bench.run, &intent).await.unwrap();
    let result = bench.store.evaluate_case(case, Ending::Ran).await.unwrap();
    bench.store.finish_case(case, &result).await.unwrap();
    let file = bench.store.file().to_owned();
    let Some(checked) = sqlite3(&file, "PRAGMA integrity_check") else {
        eprintln!("skipped: sqlite3 is not installed");
        return;
    };
    assert_eq!(checked, "ok");
    assert_eq!(sqlite3(&file, "PRAGMA foreign_key_check").unwrap(), "");
    assert_eq!(sqlite3(&file, "PRAGMA journal_mode").unwrap(), "wal");
    assert_eq!(sqlite3(&file, "SELECT count(*) FROM worker_seconds").unwrap(), "16");
    assert_eq!(sqlite3(&file, "SELECT count(*) FROM second_histograms").unwrap(), "0");
    let loose = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0 \
        AND name NOT LIKE 'sqlite%' AND name NOT LIKE '\\_sqlx%' ESCAPE '\\'";
    assert_eq!(sqlite3(&file, loose).unwrap(), "", "every table is STRICT");
}

#[tokio::test]
async fn the_database_is_its_owners_alone_also_one_that_was_not() {
    let bench = Bench::new().await;
    let file = bench.store.file().to_owned();
    let files = || ["", "-wal", "-shm"].map(|suffix| Path::new(&format!("{}{suffix}", file.display())).to_owned());
    let modes = || files().map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777);
    assert_eq!(modes(), [0o600; 3]);
    for path in files() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let _again = Store::open(&bench.data_dir()).await.unwrap();
    assert_eq!(modes(), [0o600; 3]);
}

#[tokio::test]
async fn a_reader_beside_the_writer_sees_what_is_committed_and_cannot_write() {
    let bench = Bench::new().await;
    let reader = Store::open_read_only(&bench.data_dir()).await.unwrap();
    assert_eq!(reader.list_runs(10).await.unwrap().len(), 1);
    let second = new_run(&bench.store, &bench.plan).await;
    assert_eq!(reader.find_run("latest").await.unwrap(), second);
    let error = reader.add_event(second, Level::Info, "no").await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { reason, .. } if matches!(**reason, Refusal::ReadOnly)), "{error}");
    bench.store.close().await.unwrap();
    assert_eq!(reader.list_runs(10).await.unwrap().len(), 2);
    reader.close().await.unwrap();
    let again = Store::open(&DataDir::new(bench.dir.path())).await.unwrap();
    assert_eq!(again.list_runs(10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_directory_without_a_database_is_said_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let error = Store::open_read_only(&DataDir::new(dir.path())).await.unwrap_err();
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    assert!(error.to_string().starts_with(&dir.path().join(DATABASE_FILE).display().to_string()), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_and_left_alone() {
    let bench = Bench::new().await;
    bench.store.close().await.unwrap();
    let file = bench.dir.path().join(DATABASE_FILE);
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
        VALUES (99, 'later', 1, x'00', 0)";
    execute(&file, newer).await;
    let before = std::fs::read(&file).unwrap();
    let data_dir = DataDir::new(bench.dir.path());
    for error in [Store::open(&data_dir).await.unwrap_err(), Store::open_read_only(&data_dir).await.unwrap_err()] {
        assert!(matches!(error, StoreError::NewerVersion { found: 99, known: 10, .. }), "{error}");
        assert!(error.to_string().contains("schema version 99, this program knows up to 10"), "{error}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[tokio::test]
async fn a_database_of_the_first_version_is_brought_up_to_date_with_its_cases() {
    let (bench, fleet) = (Bench::new().await, crate::support::fleet());
    let case = bench.start_case(&fleet).await;
    bench.all_ticks(case, &fleet).await;
    bench.finished(case, &fleet[0]).await;
    bench.store.close().await.unwrap();
    let file = bench.dir.path().join(DATABASE_FILE);
    let data_dir = DataDir::new(bench.dir.path());
    execute(&file, "ALTER TABLE case_workers DROP COLUMN io_wq_cpu").await;
    execute(&file, "ALTER TABLE case_disks DROP COLUMN flushes").await;
    for table in ["host_samples", "password_links", "sessions", "api_tokens", "users", "profiles", "case_series"] {
        execute(&file, sqlx::AssertSqlSafe(format!("DROP TABLE {table}"))).await;
    }
    for index in ["runs_listed", "cases_by_state"] {
        execute(&file, sqlx::AssertSqlSafe(format!("DROP INDEX {index}"))).await;
    }
    for column in ["note", "deleted", "rehearsal", "planned_cases"] {
        execute(&file, sqlx::AssertSqlSafe(format!("ALTER TABLE runs DROP COLUMN {column}"))).await;
    }
    execute(&file, "ALTER TABLE workers DROP COLUMN host").await;
    for column in ["per_disk_json", "brief_disks_json", "storage_json"] {
        execute(&file, sqlx::AssertSqlSafe(format!("ALTER TABLE cases DROP COLUMN {column}"))).await;
    }
    execute(&file, "ALTER TABLE runs DROP COLUMN ended_early_json").await;
    let unchecked = "PRAGMA writable_schema = ON; \
        UPDATE sqlite_schema SET sql = replace(sql, ', ''stopped'')', ')') WHERE name = 'runs'; PRAGMA writable_schema = RESET";
    execute(&file, unchecked).await;
    execute(&file, "DELETE FROM _sqlx_migrations WHERE version > 1").await;
    let older = Store::open_read_only(&data_dir).await.unwrap_err();
    assert!(matches!(older, StoreError::OlderVersion { found: 1, known: 10, .. }), "{older}");
    let store = Store::open(&data_dir).await.unwrap();
    let end = store::RunEnd { state: store::RunState::Stopped, reason: None, planned_cases: 1 };
    store.finish_run(bench.run, &end).await.unwrap();
    if let Some(checked) = sqlite3(&file, "PRAGMA integrity_check") {
        assert_eq!(checked, "ok");
        let text = sqlite3(&file, "SELECT sql FROM sqlite_schema WHERE name = 'runs'").unwrap();
        assert!(text.contains("'cancelled', 'stopped'))") && text.contains("ended_early_json TEXT CHECK"), "{text}");
    }
    let result = store.evaluate_case(case, analysis::case::Ending::Ran).await.unwrap();
    assert_eq!(result.figures.per_disk.len(), 2);
    assert_eq!(result.figures.per_worker[0].generator.as_ref().unwrap().io_wq_cpu, 0.0);
}

#[tokio::test]
async fn seconds_that_an_earlier_version_kept_as_rows_are_read() {
    let (bench, fleet) = (Bench::new().await, crate::support::fleet());
    let case = bench.start_case(&fleet).await;
    bench.all_ticks(case, &fleet).await;
    for worker in &fleet {
        bench.finished(case, worker).await;
    }
    let result = bench.store.evaluate_case(case, analysis::case::Ending::Ran).await.unwrap();
    bench.store.finish_case(case, &result).await.unwrap();
    let file = bench.dir.path().join(DATABASE_FILE);
    execute(&file, "DELETE FROM case_series").await;
    execute(
        &file,
        "INSERT INTO cluster_seconds (case_id, phase, second, read_iops, read_mib_per_s, read_mean_us, read_p50_us, \
        read_p99_us, read_max_us) VALUES (1, 'sample', 3, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5)",
    )
    .await;
    let (precondition, sample) = bench.store.cluster_seconds(case).await.unwrap();
    assert!(precondition.is_empty());
    assert_eq!((sample.len(), sample[0].t, &sample[0].write), (1, 3, &None));
    assert_eq!(sample[0].read.as_ref().unwrap().max_us, 6.5);
}

#[tokio::test]
async fn what_an_earlier_version_kept_with_the_figures_and_by_sample_is_read() {
    let (bench, fleet) = (Bench::new().await, crate::support::fleet());
    let case = bench.start_case(&fleet).await;
    bench.all_ticks(case, &fleet).await;
    let health = StorageHealth {
        status: "HEALTH_OK".into(),
        checks: Vec::new(),
        recovery_bytes_per_second: 0,
        displaced_percent: 0.0,
        scrubbing: 0,
    };
    let at = "2026-03-01T10:00:05.75Z".parse().unwrap();
    let sample = NewHostSample { at, hosts: Vec::new(), storage: Some(health) };
    bench.store.add_host_sample(case, &sample).await.unwrap();
    for worker in &fleet {
        bench.finished(case, worker).await;
    }
    let result = bench.store.evaluate_case(case, analysis::case::Ending::Ran).await.unwrap();
    bench.store.finish_case(case, &result).await.unwrap();
    let now = bench.store.load_report(bench.run, u32::MAX).await.unwrap();
    assert!(!now.cases[0].per_disk.is_empty() && now.cases[0].hosts.len() == 1);
    let file = bench.dir.path().join(DATABASE_FILE);
    let as_before = "UPDATE cases SET figures_json = json_set(figures_json, '$.per_disk', json(per_disk_json)), \
        per_disk_json = NULL, brief_disks_json = NULL, storage_json = NULL";
    execute(&file, as_before).await;
    for disks in [0, u32::MAX] {
        assert_eq!(bench.store.load_report(bench.run, disks).await.unwrap(), now);
    }
    let figures = bench.store.load_figures(bench.run).await.unwrap().cases.remove(0);
    assert_eq!(figures.per_disk, now.cases[0].per_disk);
}

#[tokio::test]
async fn files_that_are_not_ours_are_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (data_dir, file) = (DataDir::new(dir.path()), dir.path().join(DATABASE_FILE));
    let text = b"this is a text of more than a hundred bytes, so that it is long enough to have a header of a database, which it has not";
    std::fs::write(&file, text).unwrap();
    for error in [Store::open(&data_dir).await.unwrap_err(), Store::open_read_only(&data_dir).await.unwrap_err()] {
        assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
        assert!(error.to_string().starts_with(&file.display().to_string()), "{error}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), text);

    std::fs::remove_file(&file).unwrap();
    execute(&file, "CREATE TABLE somebody_elses (x)").await;
    let error = Store::open(&data_dir).await.unwrap_err();
    assert!(matches!(error, StoreError::NotOurs { .. }), "{error}");

    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let error = Store::open(&data_dir).await.unwrap_err();
    assert!(matches!(error, StoreError::DataDir { action: "opened for writing", .. }), "{error}");
    let error = Store::open(&DataDir::new("/sys/kernel")).await.unwrap_err();
    assert!(error.to_string().contains("/sys/kernel/fourcorners.sqlite"), "{error}");
}

#[tokio::test]
async fn a_damaged_database_is_called_damaged() {
    let bench = Bench::new().await;
    for number in 0..200 {
        bench.store.add_event(bench.run, Level::Info, &format!("{number} {}", "x".repeat(400))).await.unwrap();
    }
    let run = bench.run;
    bench.store.close().await.unwrap();
    let file = bench.dir.path().join(DATABASE_FILE);
    let mut bytes = std::fs::read(&file).unwrap();
    // Beyond what opening reads.
    let late = bytes.len() * 3 / 4;
    bytes[late..].fill(0xa5);
    std::fs::write(&file, &bytes).unwrap();
    let store = Store::open(&DataDir::new(bench.dir.path())).await.unwrap();
    let error = store.load_export(run).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { operation: "reading a run", .. }), "{error}");
    assert!(error.to_string().contains("sqlite3 FILE .recover"), "{error}");
}

async fn execute(file: &Path, sql: impl sqlx::SqlSafeStr) {
    use sqlx::{ConnectOptions, Connection};
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file).create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    sqlx::query(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

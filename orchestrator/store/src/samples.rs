//! Writing and reading the workers' samples.

use analysis::case::WorkerSecond;
use sqlx::{Connection, SqliteConnection};
use worker_protocol::{DiskSecond, Ops, Phase, Sample};

use crate::cases::require_running;
use crate::error::{Fault, Refusal};
use crate::rows::{Scalars, int, phase_word};
use crate::{CaseId, Store, StoreError, WorkerSample, sql};

/// Bytes of one disk's second in the database.
pub(crate) const DISK_SECOND_BYTES: usize = 40;

impl Store {
    /// Stores the samples of one tick, all or none. A sample that is stored already is passed over: workers send again what was not
    /// acknowledged. Acknowledge only after this has returned.
    ///
    /// # Errors
    /// [`Refusal::SecondTwice`] where a worker sends another sample of a second that is stored; [`Refusal::Ended`] where the case has its
    /// result; [`StoreError`] where they cannot be committed.
    pub async fn add_samples(&self, case: CaseId, samples: &[WorkerSample<'_>]) -> Result<(), StoreError> {
        self.named("storing samples", self.try_add_samples(case, samples).await)
    }

    async fn try_add_samples(&self, case: CaseId, samples: &[WorkerSample<'_>]) -> Result<(), Fault> {
        let mut writer = self.writer().await?;
        let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
        require_running(&mut tx, case).await?;
        for WorkerSample { worker, sample } in samples {
            insert_sample(&mut tx, case, worker, sample).await?;
        }
        Ok(tx.commit().await?)
    }

    /// The stored samples of one second of a running case with their histograms, by worker; a finished case has none left.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn second_of_case(
        &self,
        case: CaseId,
        phase: Phase,
        second: u32,
    ) -> Result<Vec<StoredSecond>, StoreError> {
        let rows = async {
            let mut connection = self.inner.readers.acquire().await?;
            seconds_of_case(&mut connection, case, phase, second..second.saturating_add(1)).await
        };
        self.named("reading a second", rows.await)
    }
}

/// The samples of seconds `range`, by second and worker.
pub(crate) async fn seconds_of_case(
    connection: &mut SqliteConnection,
    case: CaseId,
    phase: Phase,
    range: std::ops::Range<u32>,
) -> Result<Vec<StoredSecond>, Fault> {
    let rows: Vec<SecondRow> = sqlx::query_as(sql::SELECT_SECONDS)
        .bind(case.0)
        .bind(phase_word(phase))
        .bind(range.start)
        .bind(range.end)
        .fetch_all(connection)
        .await?;
    rows.into_iter().map(SecondRow::into_second).collect()
}

/// One worker's stored sample of a second.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSecond {
    /// Second of the phase.
    pub second: u32,
    /// The sample, all disks together.
    pub sample: WorkerSecond,
    /// The same by disk.
    pub disks: Vec<DiskSecond>,
}

async fn insert_sample(
    connection: &mut SqliteConnection,
    case: CaseId,
    worker: &str,
    sample: &Sample,
) -> Result<(), Fault> {
    let number = int(sample.number, "the sample's number")?;
    let mut query = sqlx::query(sql::INSERT_WORKER_SECOND)
        .bind(case.0)
        .bind(worker)
        .bind(number)
        .bind(phase_word(sample.phase))
        .bind(sample.second)
        .bind(sample.whole);
    for totals in [&sample.ops.read, &sample.ops.write] {
        let scalars = Scalars::of(totals)?;
        query = query
            .bind(scalars.count)
            .bind(scalars.bytes)
            .bind(scalars.errors)
            .bind(scalars.sum_ns)
            .bind(scalars.min_ns)
            .bind(scalars.max_ns)
            .bind(scalars.over_range);
    }
    if query.execute(&mut *connection).await?.rows_affected() == 0 {
        return check_repeated(connection, case, worker, sample).await;
    }
    sqlx::query(sql::INSERT_SECOND_HISTOGRAMS)
        .bind(case.0)
        .bind(worker)
        .bind(number)
        .bind(&sample.ops.read.histogram)
        .bind(&sample.ops.write.histogram)
        .bind(disks_blob(&sample.disks))
        .execute(connection)
        .await?;
    Ok(())
}

/// A sample that was passed over must be one that is stored, not a second one of the same second.
async fn check_repeated(
    connection: &mut SqliteConnection,
    case: CaseId,
    worker: &str,
    sample: &Sample,
) -> Result<(), Fault> {
    let known: Option<u64> = sqlx::query_scalar(sql::SELECT_SAMPLE_OF_NUMBER)
        .bind(case.0)
        .bind(worker)
        .bind(int(sample.number, "the sample's number")?)
        .fetch_optional(&mut *connection)
        .await?;
    if known.is_some() {
        return Ok(());
    }
    let first: u64 = sqlx::query_scalar(sql::SELECT_SAMPLE_OF_SECOND)
        .bind(case.0)
        .bind(worker)
        .bind(phase_word(sample.phase))
        .bind(sample.second)
        .fetch_one(connection)
        .await?;
    Err(Refusal::SecondTwice {
        worker: worker.to_owned(),
        phase: phase_word(sample.phase),
        second: sample.second,
        first,
        number: sample.number,
    }
    .into())
}

fn disks_blob(disks: &[DiskSecond]) -> Vec<u8> {
    let numbers = |disk: &DiskSecond| [disk.read_count, disk.write_count, disk.sum_ns, disk.max_ns, disk.errors];
    disks.iter().flat_map(numbers).flat_map(u64::to_le_bytes).collect()
}

fn disks_of_blob(blob: &[u8]) -> Result<Vec<DiskSecond>, Fault> {
    let (disks, rest) = blob.as_chunks::<DISK_SECOND_BYTES>();
    if !rest.is_empty() {
        return Err(Fault::unreadable("second_histograms.disks", format!("{} bytes", blob.len())));
    }
    Ok(disks.iter().map(disk_of_bytes).collect())
}

fn disk_of_bytes(bytes: &[u8; DISK_SECOND_BYTES]) -> DiskSecond {
    let (words, _) = bytes.as_chunks::<8>();
    let word = |index: usize| u64::from_le_bytes(words[index]);
    DiskSecond { read_count: word(0), write_count: word(1), sum_ns: word(2), max_ns: word(3), errors: word(4) }
}

#[derive(sqlx::FromRow)]
struct SecondRow {
    worker: String,
    number: u64,
    second: u32,
    whole: bool,
    read_count: u64,
    read_bytes: u64,
    read_errors: u64,
    read_sum_ns: u64,
    read_min_ns: u64,
    read_max_ns: u64,
    read_over_range: u64,
    write_count: u64,
    write_bytes: u64,
    write_errors: u64,
    write_sum_ns: u64,
    write_min_ns: u64,
    write_max_ns: u64,
    write_over_range: u64,
    read_histogram: Vec<u8>,
    write_histogram: Vec<u8>,
    disks: Vec<u8>,
}

impl SecondRow {
    fn into_second(self) -> Result<StoredSecond, Fault> {
        let read = worker_protocol::OpTotals {
            count: self.read_count,
            bytes: self.read_bytes,
            errors: self.read_errors,
            sum_ns: self.read_sum_ns,
            min_ns: self.read_min_ns,
            max_ns: self.read_max_ns,
            over_range: self.read_over_range,
            histogram: self.read_histogram,
        };
        let write = worker_protocol::OpTotals {
            count: self.write_count,
            bytes: self.write_bytes,
            errors: self.write_errors,
            sum_ns: self.write_sum_ns,
            min_ns: self.write_min_ns,
            max_ns: self.write_max_ns,
            over_range: self.write_over_range,
            histogram: self.write_histogram,
        };
        let sample =
            WorkerSecond { worker: self.worker, number: self.number, whole: self.whole, ops: Ops { read, write } };
        Ok(StoredSecond { second: self.second, sample, disks: disks_of_blob(&self.disks)? })
    }
}

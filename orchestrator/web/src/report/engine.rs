//! The load engines and their disks as they were set: equal ones of several workers are one row.

use analysis::export::Export;
use serde::Deserialize;
use serde_json::Value;

use crate::format;

/// Workers or disks that a row names before it only counts them.
const NAMED: usize = 3;

/// What the kernel granted the engines, and how the disks were set.
#[derive(Debug, Default)]
pub(crate) struct EngineView {
    pub(crate) engines: Vec<EngineRow>,
    pub(crate) disks: Vec<DiskRow>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EngineRow {
    pub(crate) workers: String,
    pub(crate) threads: u32,
    pub(crate) granted: String,
    pub(crate) refused: String,
    pub(crate) clock: String,
    pub(crate) memlock: String,
    pub(crate) buffers: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DiskRow {
    pub(crate) disks: String,
    pub(crate) kind: String,
    pub(crate) direct: bool,
    pub(crate) threads: u32,
    pub(crate) scheduler: String,
    pub(crate) nomerges: String,
    pub(crate) nr_requests: String,
    pub(crate) max_sectors_kb: String,
    pub(crate) poll_queues: String,
}

/// The engine's report as the worker protocol has it; what another version lacks is left out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Engine {
    threads: u32,
    granted: Vec<String>,
    refused: Vec<String>,
    clock_source: String,
    memlock_bytes: Option<u64>,
    buffer_bytes: u64,
    disks: Vec<Disk>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Disk {
    serial: String,
    kind: Option<String>,
    direct: bool,
    threads: u32,
    scheduler: Option<String>,
    nomerges: Option<u32>,
    nr_requests: Option<u32>,
    max_sectors_kb: Option<u32>,
    poll_queues: Option<u32>,
}

impl EngineView {
    pub(crate) fn of(export: &Export) -> Self {
        let workers = export.run.environment.get("workers").and_then(Value::as_array);
        let (mut engines, mut disks) = (Vec::new(), Vec::new());
        for worker in workers.into_iter().flatten() {
            let name = worker.get("name").and_then(Value::as_str).unwrap_or_default();
            let engine = worker.get("engine").filter(|engine| engine.is_object());
            let Some(engine) = engine.and_then(|engine| Engine::deserialize(engine).ok()) else { continue };
            disks.extend(engine.disks.iter().map(|disk| (format!("{name}/{}", disk.serial), disk_row(disk))));
            engines.push((name.to_owned(), engine_row(&engine)));
        }
        Self {
            engines: grouped(engines, |row, workers| row.workers = workers),
            disks: grouped(disks, |row, disks| row.disks = disks),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.engines.is_empty()
    }
}

/// Equal rows as one, in the order first seen, each with the names that share it.
fn grouped<R: PartialEq>(rows: Vec<(String, R)>, name: impl Fn(&mut R, String)) -> Vec<R> {
    let mut groups: Vec<(R, Vec<String>)> = Vec::new();
    for (who, row) in rows {
        match groups.iter_mut().find(|(known, _)| *known == row) {
            Some((_, names)) => names.push(who),
            None => groups.push((row, vec![who])),
        }
    }
    let named = |(mut row, names): (R, Vec<String>)| {
        name(&mut row, words(&names));
        row
    };
    groups.into_iter().map(named).collect()
}

fn words(names: &[String]) -> String {
    let named = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > NAMED { format!("{named} and {} more", names.len() - NAMED) } else { named }
}

fn engine_row(engine: &Engine) -> EngineRow {
    let list = |items: &[String]| if items.is_empty() { "–".to_owned() } else { items.join(", ") };
    EngineRow {
        workers: String::new(),
        threads: engine.threads,
        granted: list(&engine.granted),
        refused: list(&engine.refused),
        clock: engine.clock_source.clone(),
        memlock: engine.memlock_bytes.map_or_else(|| "unlimited".to_owned(), format::bytes),
        buffers: format::bytes(engine.buffer_bytes),
    }
}

fn disk_row(disk: &Disk) -> DiskRow {
    let or_dash = |value: Option<u32>| value.map_or_else(|| "–".to_owned(), |value| format::count(value.into()));
    let nomerges = match disk.nomerges {
        Some(0) => "0 (merges)".to_owned(),
        Some(1) => "1 (simple merges)".to_owned(),
        Some(2) => "2 (no merges)".to_owned(),
        other => or_dash(other),
    };
    DiskRow {
        disks: String::new(),
        kind: disk.kind.clone().unwrap_or_else(|| "–".to_owned()),
        direct: disk.direct,
        threads: disk.threads,
        scheduler: disk.scheduler.clone().unwrap_or_else(|| "–".to_owned()),
        nomerges,
        nr_requests: or_dash(disk.nr_requests),
        max_sectors_kb: or_dash(disk.max_sectors_kb),
        poll_queues: or_dash(disk.poll_queues),
    }
}

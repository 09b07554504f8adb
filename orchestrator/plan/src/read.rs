//! The plan's fields, each by itself; `check` then holds them against each other.

use crate::check::{self, Parts, PlacedFootprint};
use crate::decode::{
    BOOLEAN, Choice, Count, Decimal, Fields, Refusal, Rule, Seconds, Size, Text, WholeNumber, items, value,
};
use crate::limits;
use crate::model::{Deploy, Footprint, Initialise, MIB, OnWorkerLoss, TestPlan, Workers};
use crate::problem::{Problems, Reported};
use crate::profiles::Profiles;
use crate::proxmox::{Guard, OnRestart};
use crate::target;
use crate::workload::{self, PlacedWorkload};
use crate::yaml::{Kind, Node};

const FIELDS: [&str; 18] = [
    "name",
    "target",
    "guard",
    "canary",
    "workers",
    "footprints",
    "initialise",
    "fill",
    "settle",
    "precondition",
    "sample",
    "profile_set",
    "workloads",
    "deploy",
    "on_worker_loss",
    "on_restart",
    "read_unwritten",
    "seed",
];

/// Virtual CPUs a worker where the plan names none.
pub(crate) const DEFAULT_VCPUS: u32 = 4;

/// Memory a worker where the plan names none: the image and its buffers leave most of it free.
pub(crate) const DEFAULT_MEMORY_BYTES: u64 = 2 << 30;

/// Writes in flight a disk during the fill where the plan says nothing.
pub(crate) const DEFAULT_FILL_OUTSTANDING: u32 = 8;

/// Bytes a write during the fill where the plan says nothing.
pub(crate) const DEFAULT_FILL_BLOCK_BYTES: u64 = MIB;

const PROFILE_SETS: Choice<'static, &str> = Choice(&[("published", "published"), ("deep", "deep")]);

pub(crate) const INITIALISE: Choice<'static, Initialise> =
    Choice(&[("full-write", Initialise::FullWrite), ("zero", Initialise::Zero), ("none", Initialise::None)]);

const DEPLOY: Choice<'static, Deploy> = Choice(&[("once", Deploy::Once), ("per-footprint", Deploy::PerFootprint)]);

const ON_WORKER_LOSS: Choice<'static, OnWorkerLoss> =
    Choice(&[("fail", OnWorkerLoss::Fail), ("continue", OnWorkerLoss::Continue)]);

const RESTARTS: Choice<'static, OnRestart> = Choice(&[("teardown", OnRestart::Teardown)]);

/// What becomes of an interrupted run: there is one answer, and whoever asks for another is told what it is.
struct Restart;

impl Rule for Restart {
    type Value = OnRestart;

    fn allowed(&self) -> String {
        format!(
            "{} (an interrupted run is not taken up again: it is ended as failed, its figures are kept, its workers are removed)",
            RESTARTS.allowed()
        )
    }

    fn read(&self, text: &str) -> Result<OnRestart, Refusal> {
        RESTARTS.read(text)
    }
}

/// How long a canary is waited for where the plan says nothing, seconds: a VM of the image boots in 10 to 20 s, and what it cannot reach in
/// three minutes it does not reach.
const DEFAULT_CANARY_WAIT_SECONDS: u32 = 180;

/// Reads and checks a whole plan; every problem is in `problems`.
pub(crate) fn plan(node: &Node, profiles: &Profiles, problems: &mut Problems) -> Result<TestPlan, Reported> {
    let fields = Fields::of(node, "", &FIELDS, problems)?;
    let name = fields.required("name", &Text(limits::NAME_CHARS), problems);
    let target = target::read(&fields, problems);
    let safety = safety(&fields, problems);
    let workers = workers(&fields, problems);
    let footprints = footprints(&fields, problems);
    let initialise = fields.optional("initialise", &INITIALISE, problems);
    let fill = fill(&fields, problems);
    let settle = fields.optional("settle", &Seconds(limits::PAUSE_SECONDS), problems);
    let precondition = fields.required("precondition", &Seconds(limits::PAUSE_SECONDS), problems);
    let sample = fields.required("sample", &Seconds(limits::SAMPLE_SECONDS), problems);
    let set = fields.optional("profile_set", &PROFILE_SETS, problems).ok().flatten().unwrap_or("published");
    let workloads = workloads(&fields, set, profiles, problems);
    let deploy = fields.optional("deploy", &DEPLOY, problems);
    let on_worker_loss = fields.optional("on_worker_loss", &ON_WORKER_LOSS, problems);
    let on_restart = fields.optional("on_restart", &Restart, problems);
    let read_unwritten = fields.optional("read_unwritten", &BOOLEAN, problems);
    let seed = fields.optional("seed", &WholeNumber(limits::SEED), problems);

    let parts = Parts {
        fields: &fields,
        target: target.as_ref().ok(),
        workers: workers.as_ref().ok(),
        footprints: &footprints.read,
        workloads: &workloads.read,
        initialise: initialise.ok().map(|given| given.unwrap_or(Initialise::FullWrite)),
        read_unwritten: read_unwritten.ok().map(|given| given.unwrap_or(false)),
        fill: fill.ok(),
    };
    check::all(&parts, problems);

    let (fill_outstanding_per_disk, fill_block_bytes) = fill?;
    let Safety { guard, canary, canary_wait_seconds } = safety?;
    Ok(TestPlan {
        name: name?,
        target: target?,
        guard,
        canary,
        canary_wait_seconds,
        workers: workers?,
        footprints: ascending(footprints.all()?),
        initialise: initialise?.unwrap_or(Initialise::FullWrite),
        fill_outstanding_per_disk,
        fill_block_bytes,
        settle_seconds: settle?.unwrap_or(0),
        precondition_seconds: precondition?,
        sample_seconds: sample?,
        workloads: workloads.all()?.into_iter().map(|placed| placed.workload).collect(),
        deploy: deploy?.unwrap_or(Deploy::Once),
        on_worker_loss: on_worker_loss?.unwrap_or(OnWorkerLoss::Fail),
        on_restart: on_restart?.unwrap_or(OnRestart::Teardown),
        read_unwritten: read_unwritten?.unwrap_or(false),
        seed: seed?,
        rehearsal: false,
    })
}

/// What keeps the target from harm.
struct Safety {
    guard: Option<Guard>,
    canary: bool,
    canary_wait_seconds: u32,
}

/// Both on where workers are VMs of somebody's cluster. VMs on this machine may have a canary, which says little that the first worker does
/// not; processes, which boot nothing, none.
fn safety(fields: &Fields<'_>, problems: &mut Problems) -> Result<Safety, Reported> {
    let target = fields.node("target");
    match target.and_then(target::named) {
        Some("proxmox") => {
            let guard = guard(fields, problems);
            let (canary, canary_wait_seconds) = canary(fields, true, problems)?;
            return Ok(Safety { guard: Some(guard?), canary, canary_wait_seconds });
        }
        Some("local") | None => {}
        // Reported with the target.
        Some(_) => return Err(Reported),
    }
    refuse(fields, "guard", "target: {provider: proxmox, …}", problems)?;
    if !target.is_some_and(target::asks_for_vms) {
        refuse(fields, "canary", "target: {provider: proxmox, …} or {provider: local, isolation: vm}", problems)?;
    }
    let (canary, canary_wait_seconds) = canary(fields, false, problems)?;
    Ok(Safety { guard: None, canary, canary_wait_seconds })
}

/// A field that only another target has.
fn refuse(fields: &Fields<'_>, name: &str, targets: &str, problems: &mut Problems) -> Result<(), Reported> {
    let Some(node) = fields.node(name) else { return Ok(()) };
    let allowed = format!("nothing, unless the plan says {targets}");
    Err(problems.add(node.place, name, node.found(), allowed, None))
}

/// Whether a canary goes first, and how long it is waited for, seconds.
fn canary(fields: &Fields<'_>, usual: bool, problems: &mut Problems) -> Result<(bool, u32), Reported> {
    let Some(node) = fields.node("canary") else { return Ok((usual, DEFAULT_CANARY_WAIT_SECONDS)) };
    if !matches!(node.kind, Kind::Mapping(_)) {
        return Ok((value(&Canary, node, "canary", problems)?, DEFAULT_CANARY_WAIT_SECONDS));
    }
    let fields = Fields::of(node, "canary", &["wait"], problems)?;
    Ok((true, fields.required("wait", &Seconds(limits::CANARY_WAIT_SECONDS), problems)?))
}

/// A canary without more to say of it.
struct Canary;

impl Rule for Canary {
    type Value = bool;

    fn allowed(&self) -> String {
        format!("{}, or how long it is waited for: {{wait: 5m}}", BOOLEAN.allowed())
    }

    fn read(&self, text: &str) -> Result<bool, Refusal> {
        BOOLEAN.read(text)
    }
}

fn guard(fields: &Fields<'_>, problems: &mut Problems) -> Result<Guard, Reported> {
    let usual = Guard::default();
    let Some(node) = fields.node("guard") else { return Ok(usual) };
    let fields = Fields::of(node, "guard", &["min_free_percent", "ceph", "io_error", "quorum"], problems)?;
    let min_free_percent = fields.optional("min_free_percent", &Decimal(limits::MIN_FREE_PERCENT), problems);
    let [ceph, io_error, quorum] = ["ceph", "io_error", "quorum"].map(|name| fields.optional(name, &BOOLEAN, problems));
    Ok(Guard {
        min_free_percent: min_free_percent?.unwrap_or(usual.min_free_percent),
        ceph: ceph?.unwrap_or(usual.ceph),
        io_error: io_error?.unwrap_or(usual.io_error),
        quorum: quorum?.unwrap_or(usual.quorum),
    })
}

/// The items of a list that could be read, and whether that is all of them.
struct Readable<T> {
    read: Vec<T>,
    complete: Result<(), Reported>,
}

impl<T> Readable<T> {
    fn none(reported: Reported) -> Self {
        Self { read: Vec::new(), complete: Err(reported) }
    }

    fn of(results: impl Iterator<Item = Result<T, Reported>>) -> Self {
        let mut readable = Self { read: Vec::new(), complete: Ok(()) };
        for result in results {
            match result {
                Ok(item) => readable.read.push(item),
                Err(reported) => readable.complete = Err(reported),
            }
        }
        readable
    }

    fn all(self) -> Result<Vec<T>, Reported> {
        self.complete.map(|()| self.read)
    }
}

fn workers(fields: &Fields<'_>, problems: &mut Problems) -> Result<Workers, Reported> {
    let node = fields.required_node("workers", "the fields count, vcpus, memory, disks", problems)?;
    let fields = Fields::of(node, "workers", &["count", "vcpus", "memory", "disks"], problems)?;
    let count = fields.required("count", &Count(limits::WORKERS), problems);
    let vcpus = fields.optional("vcpus", &Count(limits::VCPUS), problems);
    let memory = fields.optional("memory", &Size { range: limits::MEMORY_BYTES, step: 1 }, problems);
    let disks = fields.required("disks", &Count(limits::DISKS), problems);
    Ok(Workers {
        count: count?,
        vcpus: vcpus?.unwrap_or(DEFAULT_VCPUS),
        memory_bytes: memory?.unwrap_or(DEFAULT_MEMORY_BYTES),
        disks: disks?,
    })
}

fn footprints(fields: &Fields<'_>, problems: &mut Problems) -> Readable<PlacedFootprint> {
    let list = fields
        .required_node("footprints", "a list of sizes, such as [1.6TB, 8TB]", problems)
        .and_then(|node| items(node, "footprints", limits::FOOTPRINTS, "footprints", problems));
    match list {
        Err(reported) => Readable::none(reported),
        Ok(nodes) => Readable::of(nodes.iter().enumerate().map(|(index, node)| footprint(index, node, problems))),
    }
}

fn footprint(index: usize, node: &Node, problems: &mut Problems) -> Result<PlacedFootprint, Reported> {
    let path = format!("footprints[{index}]");
    let bytes = value(&Size { range: limits::FOOTPRINT_BYTES, step: 1 }, node, &path, problems)?;
    let label = match &node.kind {
        Kind::Scalar(text) => text.to_string(),
        Kind::Nothing | Kind::Sequence(_) | Kind::Mapping(_) => String::new(),
    };
    Ok(PlacedFootprint { footprint: Footprint { bytes, label }, place: node.place, path })
}

fn ascending(placed: Vec<PlacedFootprint>) -> Vec<Footprint> {
    let mut footprints: Vec<Footprint> = placed.into_iter().map(|placed| placed.footprint).collect();
    footprints.sort_by_key(|footprint| footprint.bytes);
    footprints
}

/// Writes in flight a disk, and bytes a write.
fn fill(fields: &Fields<'_>, problems: &mut Problems) -> Result<(u32, u64), Reported> {
    let Some(node) = fields.node("fill") else { return Ok((DEFAULT_FILL_OUTSTANDING, DEFAULT_FILL_BLOCK_BYTES)) };
    let fields = Fields::of(node, "fill", &["outstanding_per_disk", "block"], problems)?;
    let outstanding = fields.optional("outstanding_per_disk", &Count(limits::OUTSTANDING), problems);
    let block = fields.optional("block", &FillBlock, problems);
    Ok((outstanding?.unwrap_or(DEFAULT_FILL_OUTSTANDING), block?.unwrap_or(DEFAULT_FILL_BLOCK_BYTES)))
}

/// A power of two that divides 1 MiB.
struct FillBlock;

impl Rule for FillBlock {
    type Value = u64;

    fn allowed(&self) -> String {
        "a power of two from 4KiB to 1MiB, so that every region is whole blocks".to_owned()
    }

    fn read(&self, text: &str) -> Result<u64, Refusal> {
        let bytes = Size { range: limits::FILL_BLOCK_BYTES, step: *limits::FILL_BLOCK_BYTES.start() }.read(text)?;
        if bytes.is_power_of_two() { Ok(bytes) } else { Err(Refusal::default()) }
    }
}

fn workloads(fields: &Fields<'_>, set: &str, profiles: &Profiles, problems: &mut Problems) -> Readable<PlacedWorkload> {
    let list = fields
        .required_node("workloads", "a list of profile names or workloads", problems)
        .and_then(|node| items(node, "workloads", limits::WORKLOADS, "workloads", problems));
    match list {
        Err(reported) => Readable::none(reported),
        Ok(nodes) => Readable::of(
            nodes
                .iter()
                .enumerate()
                .map(|(index, node)| workload::read(node, &format!("workloads[{index}]"), set, profiles, problems)),
        ),
    }
}

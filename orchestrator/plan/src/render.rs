//! A schedule as text, for who has to find a week-end for it.

use std::fmt::Write as _;

use crate::decode::list;
use crate::duration;
use crate::model::{
    AccessPattern, Deploy, Initialise, Isolation, OnWorkerLoss, Rate, RateIops, Target, TestPlan, Workload,
};
use crate::proxmox::{Addressing, Cluster, Guard, Nodes};
use crate::schedule::{FillRateSource, FootprintSchedule, Schedule};
use crate::size::approximate;

impl Schedule {
    /// The schedule of `plan` (which it was made from) as aligned plain text.
    #[must_use]
    pub fn render(&self, plan: &TestPlan) -> String {
        let mut text = String::new();
        for part in [pairs(&setting(plan)), footprints(self), workloads(plan), pairs(&totals(self, plan))] {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{part}\n");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

fn setting(plan: &TestPlan) -> Vec<(&'static str, String)> {
    let workers = &plan.workers;
    let memory = approximate(workers.memory_bytes);
    let seed = plan.seed.map_or("drawn for each run".to_owned(), |seed| seed.to_string());
    let mut rows = vec![("Plan", plan.name.clone())];
    rows.extend(target(plan));
    rows.extend([
        (
            "Workers",
            format!(
                "{} with {}, {memory} memory and {} each",
                workers.count,
                number(workers.vcpus, "vCPU"),
                number(workers.disks, "data disk")
            ),
        ),
        ("Data disks", format!("{} of {}", plan.total_disks(), approximate(plan.disk_bytes()))),
        ("Initialise", initialise(plan)),
        ("Deployment", deployment(plan.deploy).to_owned()),
        ("Lost worker", worker_loss(plan.on_worker_loss).to_owned()),
        ("Seed", seed),
        ("Order", order(plan)),
    ]);
    rows
}

/// Where the workers run, and what keeps them from doing harm there.
fn target(plan: &TestPlan) -> Vec<(&'static str, String)> {
    let target = match &plan.target {
        Target::Local(local) => {
            let place =
                local.disk_dir.as_ref().map_or("the data directory".to_owned(), |dir| dir.display().to_string());
            let what = if local.isolation == Isolation::Process { "processes" } else { "VMs" };
            let target = ("Target", format!("local: {what} on this machine, data disks are files in {place}"));
            return std::iter::once(target).chain(plan.canary.then(|| ("Canary", canary(plan)))).collect();
        }
        Target::Proxmox(target) => target,
    };
    let cluster = match &target.cluster {
        Cluster::Saved { connection } => format!("the cluster saved as {connection}"),
        Cluster::Given { endpoint, token, .. } => format!("the cluster of {endpoint} (token {})", token.id),
    };
    let vlan = target.vlan.map_or(String::new(), |vlan| format!(", VLAN {vlan}"));
    let pool = target.pool.as_ref().map_or(String::new(), |pool| format!(", pool {pool}"));
    let addresses = match target.addressing {
        Addressing::Dhcp => "addresses by DHCP".to_owned(),
        Addressing::Static { first, prefix, gateway } => {
            let gateway = gateway.map_or(String::new(), |gateway| format!(", gateway {gateway}"));
            format!("addresses from {first}/{prefix} on{gateway}")
        }
    };
    let mtu = target.mtu.map_or(String::new(), |mtu| format!(", MTU {mtu}"));
    vec![
        ("Target", format!("proxmox: VMs of {cluster}, {}{pool}", nodes(target.nodes.as_ref()))),
        ("Storage", format!("{} under test, {} for the worker image", target.storage, target.iso_storage)),
        ("Network", format!("{}{vlan}, {addresses}{mtu}", target.bridge)),
        ("Guard", plan.guard.map_or("none".to_owned(), guard)),
        ("Canary", canary(plan)),
    ]
}

fn canary(plan: &TestPlan) -> String {
    if !plan.canary {
        return "none".to_owned();
    }
    format!("one worker a node first, waited for {} at most", duration::exact(plan.canary_wait_seconds.into()))
}

fn nodes(nodes: Option<&Nodes>) -> String {
    match nodes {
        None => "evenly on all nodes that are online".to_owned(),
        Some(Nodes::Evenly(nodes)) => format!("evenly on {}", nodes.join(", ")),
        Some(Nodes::Counts(counts)) => {
            let each: Vec<String> = counts.iter().map(|(node, count)| format!("{count} on {node}")).collect();
            each.join(", ")
        }
    }
}

fn guard(guard: Guard) -> String {
    let Guard { min_free_percent, ceph, io_error, quorum } = guard;
    let mut limits = Vec::new();
    if min_free_percent > 0.0 {
        limits.push(format!("the storage keeps {min_free_percent} % free"));
    }
    let named = [(ceph, "Ceph's health"), (io_error, "no VM of ours in io-error"), (quorum, "quorum")];
    limits.extend(named.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned()));
    if limits.is_empty() { "off".to_owned() } else { limits.join(", ") }
}

fn initialise(plan: &TestPlan) -> String {
    let block = approximate(plan.fill_block_bytes);
    let how = format!("in blocks of {block}, {} outstanding a disk", plan.fill_outstanding_per_disk);
    match plan.initialise {
        Initialise::FullWrite => format!("full write, non-zero incompressible data {how}"),
        Initialise::Zero => format!("zeros {how}; storage that detects zeros may store nothing"),
        Initialise::None if plan.read_unwritten => "none; bytes that were never written are read".to_owned(),
        Initialise::None => "none".to_owned(),
    }
}

fn number(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn order(plan: &TestPlan) -> String {
    let fill = if plan.initialise == Initialise::None { "" } else { "fill, verify, " };
    let settle = if plan.settle_seconds == 0 { "" } else { "settle, " };
    let footprint = format!("{fill}{settle}each workload in turn");
    match plan.deploy {
        Deploy::Once => format!("deploy; for each footprint {footprint}; tear down"),
        Deploy::PerFootprint => format!("for each footprint deploy, {footprint}, tear down"),
    }
}

fn deployment(deploy: Deploy) -> &'static str {
    match deploy {
        Deploy::Once => "once; each next footprint fills only the bytes that are new",
        Deploy::PerFootprint => "anew for each footprint, which is then filled whole",
    }
}

fn worker_loss(on_worker_loss: OnWorkerLoss) -> &'static str {
    match on_worker_loss {
        OnWorkerLoss::Fail => "ends the run; its case is incomplete",
        OnWorkerLoss::Continue => "the run goes on with the others; the case is incomplete",
    }
}

fn footprints(schedule: &Schedule) -> String {
    let header =
        ["Footprint", "Region a disk", "Measured", "New bytes a disk", "Fill writes", "Fill takes", "Cases take"];
    let row = |footprint: &FootprintSchedule| {
        vec![
            footprint.label.clone(),
            approximate(footprint.region_bytes),
            approximate(footprint.effective_bytes),
            approximate(footprint.fill_bytes_per_disk),
            approximate(footprint.fill_bytes),
            about(footprint.fill_seconds),
            duration::exact(footprint.case_seconds),
        ]
    };
    table(&header, schedule.footprints.iter().map(row))
}

fn workloads(plan: &TestPlan) -> String {
    let header = ["Workload", "Block", "Pattern", "Reads", "Outstanding a disk", "Rate", "Precondition", "Sample"];
    let row = |workload: &Workload| {
        vec![
            workload.name.clone(),
            approximate(workload.block_bytes),
            access(workload),
            format!("{} %", workload.read_percent),
            workload.outstanding_per_disk.to_string(),
            workload.rate.map_or("closed loop".to_owned(), load),
            duration::exact(plan.precondition_seconds.into()),
            duration::exact(plan.sample_seconds.into()),
        ]
    };
    table(&header, plan.workloads.iter().map(row))
}

/// Pattern, range and alignment.
fn access(workload: &Workload) -> String {
    let mut text = pattern(workload.pattern);
    if let Some(range) = workload.range {
        text.push_str(&format!(", {} % to {} %", range.from_percent, range.to_percent));
    }
    if let Some(align) = workload.align_bytes {
        text.push_str(&format!(", aligned to {}", approximate(align)));
    }
    text
}

fn load(rate: Rate) -> String {
    let arrivals = if rate.poisson { ", Poisson" } else { "" };
    match rate.iops {
        RateIops::IopsPerDisk(iops) => format!("{iops} IOPS a disk{arrivals}"),
        RateIops::IopsPerWorker(iops) => format!("{iops} IOPS a worker{arrivals}"),
    }
}

fn pattern(pattern: AccessPattern) -> String {
    match pattern {
        AccessPattern::Random => "random".to_owned(),
        AccessPattern::Permutation => "each block once".to_owned(),
        AccessPattern::Sequential { streams: 1 } => "sequential".to_owned(),
        AccessPattern::Sequential { streams } => format!("sequential, {streams} streams"),
        AccessPattern::HotSpot { io_percent, space_percent } => format!("{io_percent} % of I/O in {space_percent} %"),
    }
}

fn totals(schedule: &Schedule, plan: &TestPlan) -> Vec<(&'static str, String)> {
    let each = format!(
        "{} + {}",
        duration::exact(plan.precondition_seconds.into()),
        duration::exact(plan.sample_seconds.into())
    );
    let mut totals = vec![
        ("Fill writes", format!("{} in all", approximate(schedule.fill_bytes))),
        ("Workloads write", writers(plan)),
        ("Cases take", format!("{}: {} × ({each})", duration::exact(schedule.case_seconds), schedule.cases)),
        ("Fill takes", format!("about {} at {}", about(schedule.fill_seconds), rate(schedule))),
        ("Settling takes", duration::exact(schedule.settle_seconds)),
        ("Run takes", format!("about {}", about(schedule.total_seconds))),
    ];
    let unneeded = |name: &str| {
        (name == "Fill takes" && schedule.fill_bytes == 0) || (name == "Settling takes" && schedule.settle_seconds == 0)
    };
    totals.retain(|(name, _)| !unneeded(name));
    totals
}

fn writers(plan: &TestPlan) -> String {
    let writers: Vec<&str> =
        plan.workloads.iter().filter(|workload| workload.read_percent < 100).map(|workload| &*workload.name).collect();
    if writers.is_empty() {
        return "nothing".to_owned();
    }
    format!(
        "unknown in advance, as much as the storage takes in the time of {}",
        list(writers).replace(" or ", " and ")
    )
}

fn rate(schedule: &Schedule) -> String {
    let megabytes = schedule.fill_rate.bytes_per_second().div_ceil(1_000_000);
    let source = match schedule.fill_rate.source() {
        FillRateSource::Assumed => "assumed, most clusters are faster; measured once the run fills",
        FillRateSource::Given => "as given",
        FillRateSource::Measured => "as measured",
    };
    format!("{megabytes} MB/s over all disks ({source})")
}

/// Seconds to a precision that an estimate may claim: whole minutes from an hour up.
fn about(seconds: u64) -> String {
    let step = if seconds >= 3600 { 60 } else { 1 };
    duration::exact(seconds.div_ceil(step) * step)
}

fn pairs(rows: &[(&'static str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:width$}  {value}")).collect();
    lines.join("\n")
}

/// Aligned columns, the first to the left and the others to the right. Cells are ASCII but for what a plan spells.
fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut lines = vec![header.iter().map(|cell| (*cell).to_owned()).collect()];
    lines.extend(rows);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let align = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<String>>().join("  ")
    };
    lines.iter().map(align).collect::<Vec<String>>().join("\n")
}

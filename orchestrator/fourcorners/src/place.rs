//! The place of a run's workers, as a plan asks for it.

use std::path::{Path, PathBuf};

use hypervisor::Hypervisor;
use hypervisor::local::Local;
use hypervisor::vm::{Accelerator, BOOT_BOUND, LocalVm, Throttle, VmOptions};
use plan::{Isolation, LocalTarget, Target, TestPlan};
use serde::Deserialize;

use crate::{image, output};

/// The provider that a plan names. Nothing is looked at or changed yet.
pub(crate) fn of_plan(data_dir: &Path, plan: &TestPlan) -> anyhow::Result<Box<dyn Hypervisor>> {
    let Target::Local(target) = &plan.target;
    let disk_dir = target.disk_dir.clone().unwrap_or_else(|| data_dir.join("disks"));
    match &target.isolation {
        Isolation::Process => processes(data_dir, &disk_dir),
        Isolation::Vm { image, throttle } => {
            let limit =
                |limit: &plan::Throttle| Throttle { iops: limit.iops, bytes_per_second: limit.bytes_per_second };
            machines(data_dir, &disk_dir, image.clone(), throttle.iter().map(limit).collect())
        }
    }
}

/// The provider that a run recorded in its environment when it began; none for one that this program does not know.
pub(crate) fn recorded(data_dir: &Path, place: &serde_json::Value) -> anyhow::Result<Option<Box<dyn Hypervisor>>> {
    let text = |key: &str| place[key].as_str();
    match (text("provider"), text("isolation"), text("disk_dir").map(Path::new)) {
        (Some("local"), Some("process"), Some(disk_dir)) => processes(data_dir, disk_dir).map(Some),
        (Some("local"), Some("vm"), Some(disk_dir)) => machines(data_dir, disk_dir, None, Vec::new()).map(Some),
        _ => Ok(None),
    }
}

fn processes(data_dir: &Path, disk_dir: &Path) -> anyhow::Result<Box<dyn Hypervisor>> {
    // The program itself, also where its file was replaced since it started.
    let program = PathBuf::from("/proc/self/exe");
    Ok(Box::new(Local::new(std::path::absolute(disk_dir)?, logs(data_dir)?, program)))
}

fn machines(
    data_dir: &Path,
    disk_dir: &Path,
    image: Option<PathBuf>,
    throttles: Vec<Throttle>,
) -> anyhow::Result<Box<dyn Hypervisor>> {
    Ok(Box::new(LocalVm::new(VmOptions {
        disk_dir: std::path::absolute(disk_dir)?,
        log_dir: logs(data_dir)?,
        image: std::path::absolute(image.unwrap_or_else(|| image::of_data_dir(data_dir)))?,
        throttles,
        accelerator: None,
    })))
}

/// Says how the workers' VMs are run, where they are VMs on this machine. Finding that out may take seconds.
pub(crate) async fn introduce(plan: &TestPlan, place: &dyn Hypervisor) {
    if !matches!(&plan.target, Target::Local(LocalTarget { isolation: Isolation::Vm { .. }, .. })) {
        return;
    }
    output::note(format!("Looking how this machine runs VMs (at most {} s) ...", BOOT_BOUND.as_secs()));
    let described = place.describe().await;
    // Where there is no emulator or no image, the check that follows says what to do.
    if let (true, Ok(accelerator)) =
        (described["emulator"].is_string(), Accelerator::deserialize(&described["accelerator"]))
    {
        let cost = if accelerator == Accelerator::Kvm { "" } else { ": their CPUs are many times slower" };
        output::note(format!("Worker VMs run under {accelerator}{cost}."));
    }
    if let (Some(image), Some(digest)) = (described["image"].as_str(), described["image_sha256"].as_str()) {
        output::note(format!("They boot {image}, sha256 {digest}."));
    }
}

fn logs(data_dir: &Path) -> std::io::Result<PathBuf> {
    std::path::absolute(data_dir.join("logs"))
}

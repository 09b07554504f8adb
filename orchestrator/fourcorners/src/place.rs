//! The place of a run's workers, as a plan asks for it.

use std::path::{Path, PathBuf};

use hypervisor::Hypervisor;
use hypervisor::local::Local;
use hypervisor::vm::{LocalVm, Throttle, VmOptions};
use plan::{Isolation, Target, TestPlan};
use run::RunOptions;

/// File name of the worker image.
pub(crate) const IMAGE_NAME: &str = "fourcorners-worker.iso";

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

/// How a run is carried out there. A canary goes first where workers are machines on other hosts; of this machine alone it would say
/// nothing that the first worker does not, so it is left to `check --boot`.
pub(crate) fn options(plan: &TestPlan) -> RunOptions {
    let canary = match &plan.target {
        Target::Local(_) => false,
    };
    RunOptions { canary, ..RunOptions::default() }
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
        image: std::path::absolute(image.unwrap_or_else(shipped_image))?,
        throttles,
        accelerator: None,
    })))
}

fn logs(data_dir: &Path) -> std::io::Result<PathBuf> {
    std::path::absolute(data_dir.join("logs"))
}

/// The image beside the program (the field kit), else where the build puts it.
pub(crate) fn shipped_image() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(IMAGE_NAME)));
    beside.filter(|image| image.exists()).unwrap_or_else(|| PathBuf::from("target").join(IMAGE_NAME))
}

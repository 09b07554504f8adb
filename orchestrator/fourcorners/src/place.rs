//! The place of a run's workers, as a plan asks for it.

use std::path::{Path, PathBuf};

use hypervisor::Hypervisor;
use hypervisor::local::Local;
use hypervisor::vm::{LocalVm, Throttle, VmOptions};
use plan::{Isolation, Target, TestPlan};

/// File name of the worker image.
pub(crate) const IMAGE_NAME: &str = "fourcorners-worker.iso";

/// The provider that a plan names. Nothing is looked at or changed yet.
pub(crate) fn of_plan(data_dir: &Path, plan: &TestPlan) -> anyhow::Result<Box<dyn Hypervisor>> {
    let Target::Local(target) = &plan.target;
    let disk_dir = target.disk_dir.clone().unwrap_or_else(|| data_dir.join("disks"));
    match &target.isolation {
        Isolation::Process => Ok(Box::new(processes(data_dir, disk_dir)?)),
        Isolation::Vm { image, throttle } => {
            let throttles = throttle
                .iter()
                .map(|limit| Throttle { iops: limit.iops, bytes_per_second: limit.bytes_per_second })
                .collect();
            Ok(Box::new(LocalVm::new(VmOptions {
                disk_dir: std::path::absolute(disk_dir)?,
                log_dir: std::path::absolute(data_dir.join("logs"))?,
                image: std::path::absolute(image.clone().unwrap_or_else(shipped_image))?,
                throttles,
                accelerator: None,
            })))
        }
    }
}

/// Workers as processes of this program, their data disks in a directory.
pub(crate) fn processes(data_dir: &Path, disk_dir: PathBuf) -> anyhow::Result<Local> {
    // The program itself, also where its file was replaced since it started.
    let program = PathBuf::from("/proc/self/exe");
    Ok(Local::new(std::path::absolute(disk_dir)?, std::path::absolute(data_dir.join("logs"))?, program))
}

/// The image beside the program (the field kit), else where the build puts it.
pub(crate) fn shipped_image() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(IMAGE_NAME)));
    beside.filter(|image| image.exists()).unwrap_or_else(|| PathBuf::from("target").join(IMAGE_NAME))
}

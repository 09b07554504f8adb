//! The machine: file systems, drivers, identity, random numbers, power.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Write;
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::system::{RebootCommand, finit_module, reboot, sethostname, sysinfo, uname};

/// Mounts what every program expects; answers what failed.
pub(crate) fn mount_all() -> Vec<String> {
    let kinds = [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/run"), ("tmpfs", "/tmp")];
    let mut problems: Vec<String> = kinds
        .into_iter()
        .filter_map(|(kind, at)| {
            let mounted = mount(kind, at, kind, MountFlags::NOSUID, None::<&CStr>);
            mounted.err().map(|error| format!("cannot mount {at}: {error}"))
        })
        .collect();
    problems.extend(fs::create_dir_all("/run/lease").err().map(|error| format!("cannot create /run/lease: {error}")));
    problems.extend(sethostname(b"fourcorners-worker").err().map(|error| format!("cannot set the host name: {error}")));
    problems
}

/// Loads the image's modules, each after those it needs; answers what failed.
pub(crate) fn load_modules() -> Vec<String> {
    let list = match fs::read_to_string("/lib/modules/at-boot") {
        Ok(list) => list,
        Err(error) => return vec![format!("cannot read the list of modules: {error}")],
    };
    let mut absent = false;
    let mut problems = Vec::new();
    for file in list.lines() {
        match load(file) {
            Ok(()) => {}
            // A driver for another hypervisor finds nothing to drive, and those that need it miss its symbols.
            Err(LoadError::Kernel(Errno::NODEV)) => absent = true,
            Err(LoadError::Kernel(Errno::NOENT)) if absent => {}
            Err(error) => problems.push(format!("cannot load {file}: {error:?}")),
        }
    }
    problems
}

#[derive(Debug)]
#[expect(dead_code, reason = "the console shows it through Debug")]
enum LoadError {
    File(std::io::Error),
    Kernel(Errno),
}

fn load(file: &str) -> Result<(), LoadError> {
    // Without this, disks go on appearing after the driver is loaded, and nobody can say when there are no more.
    let parameters = if file == "scsi_mod.ko" { c"scan=sync" } else { c"" };
    let opened = File::open(format!("/lib/modules/{file}")).map_err(LoadError::File)?;
    match finit_module(opened, parameters, 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(LoadError::Kernel(error)),
    }
}

/// Who this machine is.
pub(crate) struct Identity {
    /// SMBIOS UUID, lower case; none where the hypervisor gives none.
    pub(crate) uuid: Option<String>,
    pub(crate) vendor: String,
    pub(crate) cpus: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
}

pub(crate) fn identity() -> Identity {
    let dmi = |name: &str| fs::read_to_string(format!("/sys/class/dmi/id/{name}")).map(|text| text.trim().to_owned());
    let info = sysinfo();
    let memory = u64::from(info.mem_unit).saturating_mul(info.totalram);
    Identity {
        uuid: dmi("product_uuid").ok().filter(|uuid| !uuid.is_empty()).map(|uuid| uuid.to_lowercase()),
        vendor: [dmi("sys_vendor"), dmi("product_name")].into_iter().flatten().collect::<Vec<_>>().join(" "),
        cpus: thread::available_parallelism().map_or(1, usize::from),
        memory_mib: memory >> 20,
        kernel: uname().release().to_string_lossy().into_owned(),
    }
}

/// Waits for the kernel's random numbers on a thread that ends when they are ready. The blocking call is what makes the kernel
/// gather entropy (from timing jitter) where there is no hardware source; asking whether it is ready would not.
pub(crate) fn entropy() -> JoinHandle<()> {
    thread::spawn(|| while getrandom(&mut [0_u8; 1], GetRandomFlags::empty()).is_err() {})
}

/// Turns the machine off; if the kernel refuses, ends: then the kernel panics and starts again.
pub(crate) fn power_off() -> ! {
    rustix::fs::sync();
    let refused = reboot(RebootCommand::PowerOff);
    let _ = writeln!(std::io::stderr(), "cannot power off: {refused:?}");
    std::process::exit(1)
}

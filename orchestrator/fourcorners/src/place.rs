//! The place of a run's workers, as a plan asks for it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use hypervisor::local::Local;
use hypervisor::proxmox::Timing;
use hypervisor::vm::{Accelerator, BOOT_BOUND, LocalVm, Throttle, VmOptions};
use hypervisor::{Finding, Hypervisor, Severity};
use plan::size::approximate;
use plan::{Isolation, LocalTarget, Target, TestPlan};
use run::fleet::Authority;
use run::{Place, RunOptions, WorkerImage};
use serde::Deserialize;
use store::{DataDir, LEAST_ROOM_BYTES, room_needed};

use crate::cli::WorkerArgs;

use crate::{image, output, proxmox};

/// The place of one run, with where its workers dial and what they boot.
pub(crate) struct Scene {
    pub(crate) hypervisor: Box<dyn Hypervisor>,
    listening: Listening,
    image: Option<WorkerImage>,
}

impl Scene {
    /// Nothing is looked at or changed yet, but that there is an image, and room for the results.
    pub(crate) fn of_plan(data_dir: &Path, plan: &TestPlan, args: &WorkerArgs) -> anyhow::Result<Self> {
        let listening = listening(plan, args)?;
        for finding in own_findings(data_dir, plan) {
            if finding.severity == Severity::Blocker {
                bail!("{}; {}", finding.message, finding.remedy);
            }
            output::note(output::finding(&finding));
        }
        Ok(Self { hypervisor: of_plan(data_dir, plan, Timing::default())?, listening, image: image(data_dir, plan) })
    }

    pub(crate) fn place(&self, authority: &Arc<Authority>) -> Place<'_> {
        Place {
            hypervisor: self.hypervisor.as_ref(),
            worker_address: self.listening.address,
            told: self.listening.told.clone(),
            authority: Arc::clone(authority),
            image: self.image.clone(),
        }
    }
}

/// The provider that a plan names; a cluster is waited for as `timing` says. Nothing is looked at or changed yet.
pub(crate) fn of_plan(data_dir: &Path, plan: &TestPlan, timing: Timing) -> anyhow::Result<Box<dyn Hypervisor>> {
    match &plan.target {
        Target::Local(target) => local(data_dir, target),
        Target::Proxmox(target) => Ok(Box::new(proxmox::of_target(data_dir, target, plan.guard, timing)?)),
    }
}

fn local(data_dir: &Path, target: &LocalTarget) -> anyhow::Result<Box<dyn Hypervisor>> {
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

/// How a run is carried out there.
pub(crate) fn options(plan: &TestPlan) -> RunOptions {
    RunOptions { canary: plan.canary, ..RunOptions::default() }
}

/// The image that is brought to where the workers boot it; none where they boot nothing, or the place makes their images itself.
fn image(data_dir: &Path, plan: &TestPlan) -> Option<WorkerImage> {
    let Target::Proxmox(target) = &plan.target else { return None };
    let path = target.image.clone().unwrap_or_else(|| image::of_data_dir(data_dir));
    Some(WorkerImage { path, mtu: target.mtu, addresses: proxmox::first_address(target) })
}

/// What of the orchestrator itself stands in a plan's way, whatever its place says.
pub(crate) fn own_findings(data_dir: &Path, plan: &TestPlan) -> Vec<Finding> {
    let available = DataDir::new(data_dir).available_bytes();
    let room = match available {
        Ok(available) => room_finding(data_dir, available, room_needed(plan)),
        // The directory cannot be used: whoever opens it says why.
        Err(_) => None,
    };
    image_finding(data_dir, plan).into_iter().chain(room).collect()
}

/// A data directory that has little room: a run ends where a sample cannot be stored.
fn room_finding(data_dir: &Path, available: u64, needed: u64) -> Option<Finding> {
    let severity = match available {
        too_little if too_little < LEAST_ROOM_BYTES => Severity::Blocker,
        little if little < needed => Severity::Warning,
        _ => return None,
    };
    Some(Finding {
        severity,
        message: format!(
            "{}: the data directory has {} free, the results of this plan take up to {}",
            data_dir.display(),
            approximate(available),
            approximate(needed)
        ),
        remedy: "free some space, delete runs that are not needed, or give another --data-dir".to_owned(),
    })
}

/// What stands in the way of bringing the image; nothing was read of it yet.
fn image_finding(data_dir: &Path, plan: &TestPlan) -> Option<Finding> {
    let image = image(data_dir, plan)?;
    (!image.path.is_file()).then(|| of_image(format!("{}: there is no worker image", image.path.display())))
}

/// Why a file is not the image that it is taken for. Reads it whole.
pub(crate) fn unfit_image(data_dir: &Path, plan: &TestPlan) -> Option<Finding> {
    let image = image(data_dir, plan).filter(|image| image.path.is_file())?;
    worker_image::recognise(&image.path).err().map(|error| of_image(error.to_string()))
}

fn of_image(message: String) -> Finding {
    let remedy = "make it with `fourcorners image build`, or name one with target.image".to_owned();
    Finding { severity: Severity::Blocker, message, remedy }
}

/// What stands in the way of workers that are to reach this orchestrator.
pub(crate) fn reach_finding(plan: &TestPlan, args: &WorkerArgs) -> Option<Finding> {
    let error = listening(plan, args).err()?;
    let remedy = "start the orchestrator again with an address that they reach".to_owned();
    Some(Finding { severity: Severity::Blocker, message: error.to_string(), remedy })
}

/// Port for workers on other machines where none is given: one that a firewall can be opened for.
const WORKER_PORT: u16 = 8441;

/// Where the orchestrator listens for workers, and where they are told to dial.
#[derive(Debug, Clone)]
struct Listening {
    address: SocketAddr,
    told: Vec<SocketAddr>,
}

/// Where to listen for a plan's workers: on loopback for those on this machine, on all addresses for others, unless the command line says.
fn listening(plan: &TestPlan, args: &WorkerArgs) -> anyhow::Result<Listening> {
    let is_remote = matches!(plan.target, Target::Proxmox(_));
    let usual = if is_remote {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, WORKER_PORT))
    } else {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    };
    let address = args.worker_listen.unwrap_or(usual);
    let told: Vec<SocketAddr> = args.worker_address.iter().map(|told| told.0).collect();
    let reach: Vec<IpAddr> =
        if told.is_empty() { vec![address.ip()] } else { told.iter().map(SocketAddr::ip).collect() };
    if is_remote && reach.iter().all(IpAddr::is_loopback) {
        bail!(
            "the workers are on other machines and cannot reach {}; listen at an address of this machine \
             (--worker-listen 0.0.0.0:{WORKER_PORT}), or say where they reach it (--worker-address)",
            reach.first().unwrap_or(&address.ip())
        );
    }
    Ok(Listening { address, told })
}

/// The provider that a run recorded in its environment when it began; none for one that this program does not know.
pub(crate) fn recorded(data_dir: &Path, place: &serde_json::Value) -> anyhow::Result<Option<Box<dyn Hypervisor>>> {
    let text = |key: &str| place[key].as_str();
    match (text("provider"), text("isolation"), text("disk_dir").map(Path::new)) {
        (Some("local"), Some("process"), Some(disk_dir)) => processes(data_dir, disk_dir).map(Some),
        (Some("local"), Some("vm"), Some(disk_dir)) => machines(data_dir, disk_dir, None, Vec::new()).map(Some),
        (Some("proxmox"), ..) => Ok(Some(Box::new(proxmox::recorded(data_dir, &place["settings"])?))),
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
    std::path::absolute(DataDir::new(data_dir).logs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Profiles;

    fn listening_of(example: &str, listen: Option<&str>, told: &[&str]) -> anyhow::Result<Listening> {
        let plan = plan::parse(example, plan::example(example).unwrap(), &Profiles::shipped()).unwrap();
        let worker_address = told.iter().map(|told| told.parse().unwrap()).collect();
        let args = WorkerArgs { worker_listen: listen.map(|listen| listen.parse().unwrap()), worker_address };
        listening(&plan, &args)
    }

    #[test]
    fn little_room_for_results_is_a_warning_and_none_a_blocker() {
        let found = |available| room_finding(Path::new("data"), available, 3 << 30);
        assert_eq!(found(3 << 30), None);
        let little = found((3 << 30) - 1).unwrap();
        assert_eq!(little.severity, Severity::Warning);
        assert_eq!(
            little.message,
            "data: the data directory has 2.99GiB free, the results of this plan take up to 3GiB"
        );
        assert_eq!(found(LEAST_ROOM_BYTES).unwrap().severity, Severity::Warning);
        assert_eq!(found(LEAST_ROOM_BYTES - 1).unwrap().severity, Severity::Blocker);
    }

    #[test]
    fn a_plans_mtu_goes_into_the_workers_image_which_takes_any_that_a_plan_may_name() {
        let plan = |mtu: &str| {
            let yaml = plan::example("proxmox").unwrap().replacen("  bridge:", &format!("{mtu}  bridge:"), 1);
            plan::parse("proxmox", &yaml, &Profiles::shipped()).unwrap()
        };
        let mtu = |text: &str| image(Path::new("data"), &plan(text)).unwrap().mtu;
        assert_eq!((mtu(""), mtu("  mtu: 1400\n")), (None, Some(1400)));
        let (plans, images) = (plan::limits::MTU, worker_image::MTU_RANGE);
        assert_eq!((*plans.start(), *plans.end()), (u64::from(*images.start()), u64::from(*images.end())));
    }

    #[test]
    fn workers_elsewhere_are_not_told_loopback() {
        let at = |listening: Listening| listening.address.to_string();
        assert_eq!(at(listening_of("demo", None, &[]).unwrap()), "127.0.0.1:0");
        assert_eq!(at(listening_of("proxmox", None, &[]).unwrap()), "0.0.0.0:8441");
        assert_eq!(at(listening_of("proxmox", Some("[::]:7"), &[]).unwrap()), "[::]:7");
        for told in [&[][..], &["127.0.0.2"]] {
            let error = listening_of("proxmox", Some("127.0.0.1:7"), told).unwrap_err().to_string();
            assert!(error.contains("127.0.0.") && error.contains("--worker-listen"), "{error}");
        }
        let forwarded = listening_of("proxmox", Some("127.0.0.1:7"), &["192.0.2.1", "[2001:db8::1]:9"]).unwrap();
        assert_eq!(forwarded.told, ["192.0.2.1:0".parse().unwrap(), "[2001:db8::1]:9".parse().unwrap()]);
    }
}

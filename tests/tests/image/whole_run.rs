//! A whole run on VMs of the local provider, of which one is reset in the middle of a sample.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use analysis::export::{Case, Export};
use end_to_end::{Site, skip};
use hypervisor::vm::{Accelerator, LocalVm, Throttle, VmOptions};
use run::{Brake, Place, Progress, Request, RunOptions, execute};
use store::{DataDir, RunState, Store};
use tokio::sync::watch;

use crate::machine::BOUND;
use crate::site::{authority, image, lacking};

/// Two workers, whose disks give 100 I/Os a second each: what is measured does not depend on this machine's CPU.
const PLAN: &str = "name: reset\ntarget: {provider: local}\nworkers: {count: 2, vcpus: 1, memory: 256MiB, disks: 1}\n\
                    footprints: [8MiB]\nprecondition: 1s\nsample: 10s\nworkloads: [4k-random-read, 4k-random-write]\n\
                    on_worker_loss: continue\n";
const IOPS: u64 = 100;

/// UUID of a VM by its name, from QEMU's command line: what the run drew for it.
fn uuid_of(name: &str, site: &Path) -> Option<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().find_map(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let after = |option: &str| words.get(words.iter().position(|word| word == option)? + 1);
        let is_ours = words.first()?.ends_with("qemu-system-x86_64") && line_names(&words, site);
        (is_ours && after("-name")?.ends_with(name)).then(|| after("-uuid").map(ToString::to_string))?
    })
}

fn line_names(words: &[std::borrow::Cow<'_, str>], site: &Path) -> bool {
    words.iter().any(|word| word.contains(&*site.to_string_lossy()))
}

/// Waits until a few seconds of the first case's window are stored for both workers.
async fn sampling(progress: &mut watch::Receiver<Progress>) {
    let sampling =
        progress.wait_for(|progress| progress.state == RunState::Sampling.as_str() && progress.iops.is_some());
    tokio::time::timeout(BOUND, sampling).await.expect("the sample begins").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_reset_in_the_middle_of_a_sample_costs_its_part_and_not_the_run() {
    if let Some(reason) = lacking(&[]) {
        return skip(&reason);
    }
    let site = Site::new();
    let dir = site.path();
    let provider = LocalVm::new(VmOptions {
        disk_dir: dir.join("disks"),
        log_dir: dir.join("logs"),
        image: image().to_owned(),
        throttles: vec![Throttle { iops: Some(IOPS), bytes_per_second: None }],
        accelerator: Some(Accelerator::Emulation { why: "the test says so".into() }),
    });
    let store = Store::open(&DataDir::new(site.data_dir())).await.unwrap();
    let place = Place {
        hypervisor: &provider,
        worker_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        told: Vec::new(),
        authority: authority(&dir.join("tls")),
        image: None,
    };
    let plan = plan::parse("plan.yaml", PLAN, &plan::Profiles::shipped()).unwrap();
    let request = Request { plan, plan_yaml: PLAN.into(), options: RunOptions::default() };
    let (progress, mut seen) = watch::channel(Progress::default());
    let started = Instant::now();
    let running = execute(&store, &place, &request, progress, Brake::default());
    let resetting = async {
        sampling(&mut seen).await;
        println!("two VMs enrolled, filled and loading {:.1} s after the run's start", started.elapsed().as_secs_f64());
        provider.reset(&uuid_of("worker-2", dir).unwrap()).await.unwrap();
    };
    let (run, ()) = tokio::join!(running, resetting);
    let export = store.load_export(run.unwrap()).await.unwrap();
    check(&export);

    let console = |name: &str| {
        let fleet = std::fs::read_dir(dir.join("logs")).unwrap().flatten().next().unwrap();
        String::from_utf8_lossy(&std::fs::read(fleet.path().join(name)).unwrap()).into_owned()
    };
    let boots = |name: &str| console(name).matches("init is running").count();
    println!("worker-2 booted {} times", boots("worker-2.console.log"));
    assert_eq!(boots("worker-1.console.log"), 1, "the other was left alone");
}

fn check(export: &Export) {
    let events: Vec<&str> = export.run.events.iter().map(|event| event.message.as_str()).collect();
    let events = events.join("\n");
    assert_eq!(export.run.state, "done", "{:?}\n{events}", export.run.reason);
    assert!(!export.run.complete, "{events}");
    assert!(events.contains("worker worker-2 is not used any more: "), "{events}");
    let states: Vec<(&str, &str)> = export.cases.iter().map(|case| (&*case.workload, &*case.state)).collect();
    assert_eq!(states, [("4k-random-read", "incomplete"), ("4k-random-write", "incomplete")], "{events}");
    let reason = |case: &Case| case.reason.clone().unwrap_or_default();
    let (first, second) = (reason(&export.cases[0]), reason(&export.cases[1]));
    assert!(first.starts_with("worker-2: ") && first.contains("of the window common to all workers"), "{first}");
    assert_eq!(second, "1 of 2 workers were there", "the run goes on without it");
    println!("{events}");
}

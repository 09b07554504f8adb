//! Whole plans on real VMs: the built binary, the real worker image, QEMU.
//!
//! Minutes on two cores without KVM, most of them boots and samples.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use analysis::export::{Case, Export, Op, PerDisk};
use end_to_end::vm::{Image, image, kit};
use end_to_end::{Answer, Site, skip, wait_for, wait_within};
use rustix::process::Signal;
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// Boots, fills and samples of one plan, emulated on a busy machine.
const PLAN_BOUND: Duration = Duration::from_secs(900);
/// Exit status of a cancelled run.
const CANCELLED: i32 = 130;
/// One at a time: each wants all CPUs.
static ALONE: Mutex<()> = Mutex::new(());

/// The image, or a line that says why the test is skipped.
fn image_or_skip() -> Option<&'static Image> {
    image().inspect_err(|reason| skip(reason)).ok()
}

#[test]
fn three_vms_with_four_disks_each_run_a_plan_and_leave_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(image) = image_or_skip() else { return };
    let site = Site::new();
    let yaml = format!(
        "name: three VMs\ntarget: {{provider: local, isolation: vm, image: '{}'}}\n\
         workers: {{count: 3, vcpus: 1, memory: 256MiB, disks: 4}}\nfootprints: [96MiB, 384MiB]\n\
         precondition: 1s\nsample: 5s\nworkloads: [published/4k-random-read, published/8k-random-70-30]\ncanary: {{wait: 15m}}\n",
        image.path.display()
    );
    let running = site.start(&yaml);
    wait_within(PLAN_BOUND, "the first sample", || site.state().filter(|state| state == "sampling"));
    assert_eq!((site.emulators().len(), site.disk_files().len()), (3, 13), "12 data disks and the fleet's image");
    let answer = running.end_within(PLAN_BOUND);
    assert!(answer.ok(), "{answer:?}");
    nothing_is_left(&site);

    let json = site.export();
    let export: Export = serde_json::from_value(json.clone()).unwrap();
    assert!(export.run.complete && export.run.state == "done", "{:?}", export.run.reason);
    assert_eq!(export.cases.len(), 4);
    export.cases.iter().for_each(figures);
    environment(&json["run"]["environment"], &export, image);
    enrolments(&export, &answer);
    let flown = export.run.events.iter().find(|event| event.message.starts_with("canary: enrolled as ")).unwrap();
    assert!(flown.message.ends_with("removed; MTU to the orchestrator 1500"), "{}", flown.message);
    let report = fs::read_to_string(site.data_dir().join(format!("reports/{}.html", export.run.id))).unwrap();
    for wanted in [image.report["sha256"].as_str().unwrap(), "s after its start", "place.accelerator.kind"] {
        assert!(report.contains(wanted), "{wanted} is missing in the report");
    }
}

/// By an interrupt at once, after a kill by the next start: VMs, disks, and the image with the fleet's token in it.
#[test]
fn an_orchestrator_that_is_interrupted_or_killed_leaves_no_vm_no_disk_and_no_token() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(image) = image_or_skip() else { return };
    let site = Site::new();
    let plan = |target: &str, sample: &str| {
        format!(
            "name: cut short\ntarget: {target}\nworkers: {{count: 1, vcpus: 1, memory: 256MiB, disks: 1}}\nfootprints: [16MiB]\n\
             precondition: 1s\nsample: {sample}\nworkloads: [published/4k-random-read]\n"
        )
    };
    let on_a_vm = plan(&format!("{{provider: local, isolation: vm, image: '{}'}}", image.path.display()), "5m");
    let sampling = || {
        let running = site.start(&on_a_vm);
        wait_within(PLAN_BOUND, "the first sample", || site.state().filter(|state| state == "sampling"));
        assert_eq!((site.emulators().len(), site.disk_files().len()), (1, 2), "a data disk and the fleet's image");
        running
    };
    let interrupted = sampling();
    interrupted.signal(Signal::INT);
    assert_eq!(interrupted.end().code, Some(CANCELLED));
    assert_eq!(site.state().as_deref(), Some("cancelled"));
    nothing_is_left(&site);

    let killed = sampling();
    killed.signal(Signal::KILL);
    assert_eq!(killed.end().code, None);
    wait_for("the VM's end", || site.emulators().is_empty().then_some(()));
    assert_eq!(site.disk_files().len(), 2, "nobody could remove them yet");
    let next = site.run(&plan("{provider: local}", "1s"));
    assert!(next.ok() && next.stderr.contains("ended as failed and cleaned up"), "{next:?}");
    nothing_is_left(&site);
}

fn nothing_is_left(site: &Site) {
    assert_eq!(site.emulators(), []);
    let disks = site.data_dir().join("disks");
    assert_eq!(fs::read_dir(&disks).map_or(0, Iterator::count), 0, "disks, images and directories are gone");
}

/// A case of the plan above.
fn figures(case: &Case) {
    let name = format!("{} {}", case.footprint, case.workload);
    assert_eq!(case.state, "complete", "{name}: {:?}", case.reason);
    let region = if case.footprint_bytes == 96 * MIB { 8 * MIB } else { 32 * MIB };
    assert_eq!((case.region_bytes, case.effective_bytes), (region, region * 12), "{name}");
    assert_eq!((case.workers.expected, case.workers.measured), (3, 3), "{name}");
    let fill = case.fill.as_ref().unwrap();
    let new_bytes = if case.footprint_bytes == 96 * MIB { 96 * MIB } else { 288 * MIB };
    assert_eq!((fill.bytes, fill.verified_blocks), (new_bytes, 12_000), "{name}: only the new bytes are filled");
    let all = case.ops.all.as_ref().unwrap();
    assert_eq!((all.bytes, all.errors), (all.count * case.block_bytes, 0), "{name}");
    close(case.window_seconds, 5.0, 1e-9, &name);
    close(all.iops, as_f64(all.count) / 5.0, 1e-9, &name);
    let counts: Vec<u64> = case.per_disk.iter().map(|disk| of_disk(disk).count).collect();
    assert!(counts.len() == 12 && counts.iter().all(|count| *count > 0), "{name}: {counts:?}");
    let by_worker: u64 = case.per_worker.iter().map(|worker| worker.ops.all.as_ref().unwrap().count).sum();
    assert_eq!((counts.iter().sum(), by_worker), (all.count, all.count), "{name}");
    assert_eq!(case.seconds.len(), 5, "{name}");
}

/// What reproduces the run, and that every disk that was measured is one that its worker found in its own machine.
fn environment(environment: &Value, export: &Export, image: &Image) {
    let place = &environment["place"];
    assert_eq!((place["provider"].as_str(), place["isolation"].as_str()), (Some("local"), Some("vm")));
    assert_eq!(place["image_sha256"], image.report["sha256"]);
    assert!(place["emulator"].as_str().unwrap().contains("QEMU"), "{place}");
    match place["accelerator"]["kind"].as_str().unwrap() {
        "kvm" => {}
        "emulation" => {
            assert!(!place["accelerator"]["why"].as_str().unwrap().is_empty());
            let warned = export.run.warnings.iter().any(|warning| warning.contains("software emulation"));
            assert!(warned, "{:?}", export.run.warnings);
        }
        other => unreachable!("accelerator {other}"),
    }
    let mut found = BTreeSet::new();
    for worker in environment["workers"].as_array().unwrap() {
        let hello = &worker["hello"];
        assert_eq!(hello["kernel"], image.report["manifest"]["kernel"], "it booted the image");
        assert!(hello["every_disk"].as_bool().unwrap() && hello["macs"].as_array().unwrap().len() == 1, "{hello}");
        for disk in hello["disks"].as_array().unwrap() {
            assert_eq!(disk["size_bytes"], 32 * MIB);
            assert!(disk["path"].as_str().unwrap().starts_with("/dev/sd"), "{disk}");
            found.insert((worker["name"].as_str().unwrap().to_owned(), disk["serial"].as_str().unwrap().to_owned()));
        }
    }
    for case in &export.cases {
        let measured: BTreeSet<_> = case.per_disk.iter().map(|disk| (disk.worker.clone(), disk.disk.clone())).collect();
        assert_eq!(measured, found, "{} {}", case.footprint, case.workload);
    }
}

/// How long each VM took to boot and enrol is an event, and was printed.
fn enrolments(export: &Export, answer: &Answer) {
    for worker in ["worker-1", "worker-2", "worker-3"] {
        let start = format!("worker {worker} enrolled ");
        let message = export.run.events.iter().find_map(|event| event.message.strip_prefix(&start)).unwrap();
        let seconds = message.strip_suffix(" s after its start").unwrap();
        assert!(seconds.parse::<f64>().unwrap() > 1.0, "a VM does not boot in a second: {message}");
        assert!(answer.stderr.contains(&format!("{worker} {seconds} s")), "{seconds} in {}", answer.stderr);
    }
    assert!(answer.stderr.contains("Worker VMs run under"), "{}", answer.stderr);
    assert!(answer.stderr.contains("From start to enrolment: worker-1 "), "{}", answer.stderr);
}

/// The known truth: QEMU lets each VM's first disk do 400 I/Os a second and its second 20 MiB a second, exactly.
#[test]
fn throttled_disks_are_measured_at_what_they_can_do_within_one_percent() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(image) = image_or_skip() else { return };
    let site = Site::new();
    // 16 I/Os of 32 KiB a disk keep QEMU's queues full through pauses of an emulated CPU. The burst that QEMU allows at the start, a tenth
    // of a second's worth, is over long before the window.
    let answer = site.run(&format!(
        "name: known truth\n\
         target: {{provider: local, isolation: vm, image: '{}', throttle: [{{iops: 400}}, {{bytes_per_second: 20MiB}}]}}\n\
         workers: {{count: 2, vcpus: 1, memory: 256MiB, disks: 2}}\nfootprints: [64MiB]\nprecondition: 5s\nsample: 30s\n\
         workloads: [{{name: 32k, block: 32KiB, pattern: random, read_percent: 100, outstanding_per_disk: 16}}]\n",
        image.path.display()
    ));
    assert!(answer.ok(), "{answer:?}");
    nothing_is_left(&site);
    let export: Export = serde_json::from_value(site.export()).unwrap();
    let [case] = &export.cases[..] else { unreachable!("{} cases", export.cases.len()) };
    assert_eq!((case.state.as_str(), case.per_disk.len()), ("complete", 4), "{:?}", case.reason);
    close(case.window_seconds, 30.0, 1e-9, "window");
    for disk in &case.per_disk {
        let name = format!("{} {}", disk.worker, disk.disk);
        let op = of_disk(disk);
        println!("{name}: {:.2} IOPS, {:.3} MiB/s", op.iops, op.mib_per_s);
        // Serials end with the disk's number in its worker.
        if disk.disk.ends_with("d1") {
            close(op.iops, 400.0, 0.01, &name);
        } else {
            close(op.mib_per_s, 20.0, 0.01, &name);
        }
        // All 16 wait for their turn, all the time (Little's law).
        close(op.iops * op.latency_us.as_ref().unwrap().mean / 1e6, 16.0, 0.02, &name);
    }
    // 20 MiB/s are 640 I/Os of 32 KiB; 400 of them are 12.5 MiB/s.
    for worker in &case.per_worker {
        let all = worker.ops.all.as_ref().unwrap();
        close(all.iops, 400.0 + 640.0, 0.01, &worker.worker);
        close(all.mib_per_s, 12.5 + 20.0, 0.01, &worker.worker);
    }
    let all = case.ops.all.as_ref().unwrap();
    println!("cluster: {:.2} IOPS, {:.3} MiB/s", all.iops, all.mib_per_s);
    close(all.iops, 2.0 * (400.0 + 640.0), 0.01, "cluster");
    close(all.mib_per_s, 2.0 * (12.5 + 20.0), 0.01, "cluster");
}

/// As from the field kit: the program and its image side by side, and nothing else.
#[test]
fn the_demo_runs_on_vms_of_the_image_beside_the_program() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(image) = image_or_skip() else { return };
    let site = Site::new();
    let program = kit(site.path(), image);
    let answer = Command::new(program).arg("--data-dir").arg(site.data_dir()).args(["demo", "--vm"]).output();
    let answer = Answer::from(answer.unwrap());
    assert!(answer.ok(), "{answer:?}");
    nothing_is_left(&site);
    let boot = format!(
        "They boot {}, sha256 {}.",
        site.path().join("fourcorners-worker.iso").display(),
        image.report["sha256"].as_str().unwrap()
    );
    for wanted in [boot.as_str(), "Worker VMs run under", "From start to enrolment: worker-1 "] {
        assert!(answer.stderr.contains(wanted), "{wanted} in {}", answer.stderr);
    }
    assert!(!answer.stderr.contains("made now"), "the image that is there is used: {}", answer.stderr);
    let export: Export = serde_json::from_value(site.export()).unwrap();
    assert!(export.run.complete, "{:?}", export.run.reason);
    assert_eq!(export.cases.len(), 10);
    assert!(export.cases.iter().all(|case| case.state == "complete" && case.per_disk.len() == 4));
}

fn of_disk(disk: &PerDisk) -> &Op {
    disk.ops.all.as_ref().unwrap()
}

#[track_caller]
fn close(found: f64, expected: f64, relative: f64, what: &str) {
    assert!((found - expected).abs() <= relative * expected.abs(), "{what}: {found}, expected {expected}");
}

#[expect(clippy::cast_precision_loss, reason = "counts of a short run")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

//! A low limit of locked memory, and none at all. One test, because the limit is the process's.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail")]

mod support;

use load_engine::{Workload, prepare};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use support::{TestDisk, fill_job, load_job, run_whole, verify_job};

const MIB: u64 = 1 << 20;

#[test]
fn a_memlock_limit_of_64_kib_costs_registered_buffers_only_and_one_of_0_is_named() {
    setrlimit(Resource::Memlock, Rlimit { current: Some(65_536), maximum: Some(65_536) }).unwrap();
    // Engine threads inherit this thread's capabilities; with CAP_IPC_LOCK the limit would not count.
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    sets.permitted.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).unwrap();
    let disk = TestDisk::new(8 * MIB);
    run_whole(fill_job(vec![disk.spec("disk")]));
    assert_eq!(run_whole(verify_job(vec![disk.spec("disk")], 500)).outcome.disks[0].verified_blocks, 500);
    let workload = Workload { outstanding: 32, read_percent: 50, ..Workload::default() };
    let job = load_job(vec![disk.spec("disk")], workload, 0, 1);
    let report = prepare(job.clone()).unwrap().report().clone();
    assert_eq!(report.memlock_bytes, Some(65_536));
    assert!(report.warnings.iter().any(|warning| warning.contains("locked-memory limit")), "{:?}", report.warnings);
    assert!(report.refused.iter().any(|refused| refused.starts_with("registered buffers: ")), "{:?}", report.refused);
    let outcome = run_whole(job.clone()).outcome;
    assert!(outcome.disks[0].ops.read.count > 0 && outcome.disks[0].ops.write.count > 0);

    setrlimit(Resource::Memlock, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    match prepare(job) {
        // Kernels before 6.14 do not count rings.
        Ok(prepared) => assert_eq!(prepared.report().memlock_bytes, Some(0)),
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("locked-memory limit is 0 bytes") && error.contains("ulimit -l"), "{error}");
        }
    }
}

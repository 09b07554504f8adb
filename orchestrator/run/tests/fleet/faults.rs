//! Agents that are refused, killed, orphaned or given disks that are not theirs.

use std::{
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use crate::agents::{DISK_BYTES, LEAD, PATIENCE, Site, TOKEN, contents, fill, job, load, site, start, url};
use clap::Parser;
use run::fleet::{FleetEvent, FleetLimits};
use worker::{AgentError, Config};

#[tokio::test]
async fn a_refused_agent_ends_with_the_reason() {
    let site = site(1, 1, FleetLimits::default()).await;
    let good = || site.config(0, site.fleet.address());
    let cases = [
        (Config { token: "wrong".into(), ..good() }, "wrong enrolment token"),
        (Config { uuid: Some("nobody".into()), ..good() }, "no worker with UUID \"nobody\""),
        (Config { disks: Some(Vec::new()), ..good() }, "disk d0 is missing"),
    ];
    for (config, part) in cases {
        let error = start(config).await.unwrap().unwrap_err();
        assert!(matches!(&error, AgentError::Refused(reason) if reason.contains(part)), "{error}");
    }
}

#[tokio::test]
async fn a_second_agent_with_the_same_uuid_gives_up_in_bound() {
    let mut site = site(1, 1, FleetLimits::default()).await;
    let _first = site.enrol(1).await;
    let config = Config { give_up_after: Duration::from_secs(1), ..site.config(0, site.fleet.address()) };
    let since = Instant::now();
    let error = start(config).await.unwrap().unwrap_err();
    assert!(matches!(&error, AgentError::GaveUp { last, .. } if last.contains("another worker")), "{error}");
    assert!(since.elapsed() < Duration::from_secs(10));
    site.fleet.probe("w0").await.expect("the first is still served");
}

#[tokio::test]
async fn an_agent_without_an_orchestrator_gives_up_in_bound() {
    let site = site(1, 1, FleetLimits::default()).await;
    let config = Config { give_up_after: Duration::from_secs(1), ..site.config(0, site.fleet.address()) };
    let agent = start(config);
    site.fleet.wait_enrolled(PATIENCE).await.unwrap();
    let Site { fleet, events, directory, .. } = site;
    drop((fleet, events));
    let error = tokio::time::timeout(PATIENCE, agent).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(&error, AgentError::GaveUp { seconds: 1.., .. }), "{error}");
    drop(directory);
}

#[tokio::test]
async fn an_agent_waits_for_an_orchestrator_that_comes_up_late() {
    let late = site(1, 1, FleetLimits::default()).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let _agent = start(late.config(0, address));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let way = tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = tokio::net::TcpStream::connect(late.fleet.address()).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => panic!("the session holds"),
            enrolled = late.fleet.wait_enrolled(PATIENCE) => drop(enrolled.unwrap()),
        }
    });
    way.await.unwrap();
}

#[tokio::test]
async fn a_disk_that_is_not_as_assigned_fails_by_name_before_a_byte_is_written() {
    let mut site = site(1, 2, FleetLimits::default()).await;
    let _agents = site.enrol(1).await;
    let files = [site.file(0, 0), site.file(0, 1)];
    let before = files.each_ref().map(|file| contents(file));

    let mut unknown = job(1, 2, fill());
    unknown.disks[1].serial = "d9".into();
    let mut larger = job(2, 2, fill());
    larger.disks[1].size_bytes = DISK_BYTES + 4096;
    let mut outside = job(3, 2, fill());
    outside.disks[1].region_start = 4096;
    let cases = [
        (unknown, "d9", "this worker has no disk of that serial; it has d0, d1"),
        (larger, "d1", "has 33554432 bytes; the orchestrator expects 33558528"),
        (outside, "d1", "does not lie inside its 33554432 bytes"),
    ];
    for (prepare, disk, part) in cases {
        site.fleet.prepare("w0", prepare.clone()).unwrap();
        let failed = site.failed().await;
        assert_eq!(failed.disk.as_deref(), Some(disk));
        assert!(failed.error.contains(disk) && failed.error.contains(part), "{failed:?}");
        site.fleet.ack_job("w0", prepare.job).unwrap();
    }
    assert_eq!(files.each_ref().map(|file| contents(file)), before);

    std::fs::File::options().write(true).open(&files[0]).unwrap().set_len(DISK_BYTES / 2).unwrap();
    site.fleet.prepare("w0", job(4, 2, fill())).unwrap();
    let truncated = site.failed().await;
    assert!(truncated.error.contains("disk d0") && truncated.error.contains("16777216"), "{truncated:?}");
    site.fleet.ack_job("w0", 4).unwrap();
    std::fs::remove_file(&files[1]).unwrap();
    let mut other = job(5, 2, fill());
    other.disks.remove(0);
    site.fleet.prepare("w0", other).unwrap();
    let deleted = site.failed().await;
    assert!(deleted.error.contains("disk d1") && deleted.error.contains("No such file"), "{deleted:?}");
    assert!(std::fs::read(&files[0]).unwrap().iter().all(|&byte| byte == 0));
}

#[derive(Debug, clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: worker::Args,
}

/// Separates the arguments of the agent in the environment of its process.
const SEPARATOR: &str = "\n";
const ARGUMENTS: &str = "AGENT_ARGUMENTS";

/// Not a test of its own: this program, started by a test below, is the agent's process.
#[tokio::test]
async fn agent_process() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let cli = Cli::parse_from(std::iter::once("agent").chain(arguments.split(SEPARATOR)));
    if let Err(error) = worker::run(cli.args).await {
        eprintln!("agent: {error}");
        std::process::exit(7);
    }
    std::process::exit(0);
}

/// Kills what a failed test leaves behind.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// The agent of `w0`, with more in its environment.
    pub(crate) fn agent(site: &Site, environment: &[(&str, &str)]) -> Self {
        let (url, ca) = (url(site.fleet.address()), site.fleet.ca_fingerprint().to_string());
        let disk = format!("d0={}", site.file(0, 0).display());
        let arguments = [
            "--url",
            &url,
            "--ca-sha256",
            &ca,
            "--uuid",
            "uuid-0",
            "--disk",
            &disk,
            "--threads",
            "1",
            "--exit-on-stdin-close",
        ];
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["faults::agent_process", "--exact", "--nocapture"])
            .env(ARGUMENTS, arguments.join(SEPARATOR))
            .env(worker::TOKEN_VARIABLE, TOKEN)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    async fn exit(&mut self) -> (ExitStatus, String) {
        let since = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                let mut said = String::new();
                std::io::Read::read_to_string(&mut self.0.stderr.take().unwrap(), &mut said).unwrap();
                return (status, said);
            }
            assert!(since.elapsed() < PATIENCE, "the process ends");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A fleet of one worker, in a process of its own, under a long load.
async fn under_load(limits: FleetLimits) -> (Site, Process) {
    let mut site = site(1, 1, limits).await;
    let process = Process::agent(&site, &[]);
    site.fleet.wait_enrolled(PATIENCE).await.unwrap();
    site.run(&["w0"], &job(1, 1, fill())).await;
    site.prepare(&["w0"], &job(2, 1, load(0, 600))).await;
    site.fleet.start_all(2, &["w0"], LEAD).await.unwrap();
    site.event_where(|event| matches!(event, FleetEvent::Sample { .. }).then_some(())).await;
    (site, process)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_is_lost_with_its_job_in_bound() {
    let (mut site, mut process) =
        under_load(FleetLimits { grace: Duration::from_secs(1), ..FleetLimits::default() }).await;
    let since = Instant::now();
    process.0.kill().unwrap();
    let job = site
        .event_where(|event| match event {
            FleetEvent::Lost { job, .. } => Some(*job),
            _ => None,
        })
        .await;
    assert_eq!(job, Some(2));
    let took = since.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orphaned_worker_stops_its_load_and_ends() {
    let (site, mut process) = under_load(FleetLimits::default()).await;
    drop(process.0.stdin.take());
    let (status, said) = process.exit().await;
    assert_eq!(status.code(), Some(7));
    assert!(said.contains("standard input was closed"), "{said}");
    drop(site);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_told_to_shut_down_ends_well_also_under_load() {
    let (site, mut process) = under_load(FleetLimits::default()).await;
    assert_eq!(site.fleet.shutdown_all(PATIENCE).await, Vec::<String>::new());
    let (status, said) = process.exit().await;
    assert!(status.success(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupts_leave_a_worker_alone_and_terminate_ends_it() {
    let (site, mut process) = under_load(FleetLimits::default()).await;
    let signal = |name: &str| {
        let pid = process.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal("-INT");
    tokio::time::sleep(Duration::from_millis(300)).await;
    site.fleet.probe("w0").await.expect("Ctrl-C on the terminal is the orchestrator's to act on");
    signal("-TERM");
    let (status, said) = process.exit().await;
    assert_eq!(status.code(), Some(7));
    assert!(said.contains("ended by a signal"), "{said}");
}

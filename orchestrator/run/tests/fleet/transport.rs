//! The workers' listener under fire, who is recognised, and machines with all their disks.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use futures_util::{SinkExt, StreamExt, stream};
use run::fleet::{Expected, ExpectedDisk, FleetEvent, FleetLimits, REFUSAL_BURST};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_tungstenite::tungstenite::Message;
use worker::{Agent, AgentError, Config, Machine};
use worker_protocol::{Hello, OrchestratorMessage, WorkerMessage};

use crate::{
    agents::{self, DISK_BYTES, Site, contents, fill, job, site, site_of, start, url},
    faults::Process,
    peer::{Bench, PATIENCE, Peer, bench, bench_of, hello, quick},
};

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
const SWAPPED: &str = "33221100-5544-7766-8899-aabbccddeeff";

async fn worker_enrols(bench: &Bench) {
    let _served = timeout(PATIENCE, bench.peer(0, "boot")).await.expect("the worker gets in").serve();
    bench.fleet.wait_enrolled(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn what_is_not_tls_is_refused_and_the_fleet_goes_on() {
    let mut bench = bench(1, quick()).await;
    let cases: [(&[u8], &str); 5] = [
        (b"GET /api/worker/v1/session HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n", "it does not speak TLS"),
        (&[0xff; 4096], "it does not speak TLS"),
        // A record larger than any may be.
        (b"\x16\x03\x01\xff\xff\x01", "it does not speak TLS"),
        // A handshake message of 16 MiB, in a record of its own.
        (b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\x03", "TLS"),
        (b"", "it closed in the TLS handshake"),
    ];
    for (bytes, part) in cases {
        let mut raw = TcpStream::connect(bench.address()).await.unwrap();
        raw.write_all(bytes).await.unwrap();
        if bytes.is_empty() {
            raw.shutdown().await.unwrap();
        }
        let refused = bench.refused().await;
        assert!(refused.contains(part), "{refused}");
        let mut said = Vec::new();
        let _ = timeout(PATIENCE, raw.read_to_end(&mut said)).await.expect("closed in time");
        assert!(said.len() < 100, "at most a TLS alert: {said:?}");
    }
    worker_enrols(&bench).await;
}

#[tokio::test]
async fn a_stranger_cannot_make_the_orchestrator_hold_a_large_message() {
    let mut bench = bench(1, FleetLimits::default()).await;
    let mut peer = Peer::dial(bench.address(), bench.clock).await;
    // Within the limit of a message, but far beyond that of a Hello; the orchestrator hangs up before it has all of it.
    let _ = peer.socket.send(Message::binary(vec![0x91; 3 << 20])).await;
    let refused = bench.refused().await;
    assert!(refused.contains("bytes before it enrolled"), "{refused}");
    worker_enrols(&bench).await;
}

#[tokio::test]
async fn a_crowd_of_silent_connections_keeps_no_worker_out() {
    let limits = FleetLimits {
        max_unenrolled: 16,
        hello_timeout: Duration::from_secs(600),
        crowded_timeout: Duration::from_millis(200),
        ..FleetLimits::default()
    };
    let mut bench = bench(1, limits).await;
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(TcpStream::connect(bench.address()).await.unwrap());
    }
    worker_enrols(&bench).await;
    assert_eq!(bench.refused().await, "no valid Hello within 0.2 s, while others waited");
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connections_are_survived() {
    const ATTEMPTS: usize = 10_000;
    let mut bench = bench(1, FleetLimits::default()).await;
    let address = bench.address();
    let worker = bench.peer(0, "boot").await;
    assert_eq!(bench.enrolled().await.0, "w0");
    let (before, since) = (open_files(), Instant::now());
    let attempt = |number: usize| async move {
        let Ok(mut raw) = TcpStream::connect(address).await else { return false };
        // Some say nothing, some garbage, some the beginning of a TLS handshake.
        let words: [&[u8]; 3] = [b"", b"garbage garbage garbage\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"];
        raw.write_all(words[number % 3]).await.is_ok()
    };
    let made = stream::iter(0..ATTEMPTS).map(attempt).buffer_unordered(64).filter(|made| std::future::ready(*made));
    let made = timeout(PATIENCE * 3, made.count()).await.expect("10,000 attempts in time");
    assert!(made > ATTEMPTS / 2, "{made} connections were made");

    let served = worker.serve();
    let offset = bench.fleet.probe("w0").await.expect("the worker that was here is served");
    assert!(offset.rtt_ns < 2_000_000_000, "{offset:?}");
    let _another = timeout(PATIENCE, bench.peer(0, "boot")).await.expect("and may come anew").serve();
    while open_files() > before + 8 {
        assert!(since.elapsed() < PATIENCE * 4, "{} files are open, {before} before", open_files());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut told = 0;
    while let Ok(event) = bench.events.try_recv() {
        told += u64::from(matches!(event, FleetEvent::Refused { .. }));
    }
    assert!(told > 0 && told <= u64::from(REFUSAL_BURST) + since.elapsed().as_secs() + 1, "{told} refusals were told");
    drop(served);
}

/// A worker known by a UUID and by MAC addresses.
fn machine(name: &str, uuid: &str, macs: &[&str]) -> Expected {
    let disk = ExpectedDisk { serial: "d0".into(), size_bytes: crate::peer::DISK_BYTES, scsi_address: None };
    let macs = macs.iter().map(|&mac| mac.to_owned()).collect();
    Expected { name: name.into(), uuid: uuid.into(), macs, disks: vec![disk] }
}

async fn answer(bench: &Bench, uuid: &str, macs: &[&str], boot: &str) -> (Peer, String) {
    let mut peer = Peer::dial(bench.address(), bench.clock).await;
    let macs = macs.iter().map(|&mac| mac.to_owned()).collect();
    peer.send(&WorkerMessage::Hello(Hello { uuid: uuid.into(), macs, ..hello(0, boot) })).await;
    let said = match peer.next().await {
        Some(OrchestratorMessage::Welcome(welcome)) => welcome.worker,
        Some(OrchestratorMessage::Reject(reject)) => reject.reason,
        other => panic!("neither welcomed nor rejected: {other:?}"),
    };
    (peer, said)
}

#[tokio::test]
async fn workers_are_recognised_by_uuid_in_either_byte_order_or_by_mac() {
    let fleet = vec![machine("a", UUID, &["02:AB:00:00:00:01"]), machine("b", "other", &["02:ab:00:00:00:02"])];
    let mut bench = bench_of(fleet, FleetLimits::default()).await;
    let (_a, said) = answer(&bench, SWAPPED, &[], "a").await;
    assert_eq!(said, "a");
    let (_b, said) = answer(&bench, "", &["52:54:00:00:00:09", "02:ab:00:00:00:02"], "b").await;
    assert_eq!(said, "b");
    let (_, second) = answer(&bench, UUID, &[], "second").await;
    assert!(second.contains("another worker with the identity of a"), "{second}");
    let (_, second) = answer(&bench, "unknown", &["02:ab:00:00:00:01"], "second").await;
    assert!(second.contains("another worker with the identity of a"), "{second}");
    let (_, stranger) = answer(&bench, "unknown", &["52:54:00:00:00:09"], "c").await;
    assert_eq!(stranger, "no worker with UUID \"unknown\" or MAC address 52:54:00:00:00:09 belongs to this fleet");
    let (_, torn) = answer(&bench, UUID, &["02:ab:00:00:00:02"], "d").await;
    assert!(torn.contains("is that of a, but a MAC address of 02:ab:00:00:00:02 is that of b"), "{torn}");
    let (_, foreign) = answer(&bench, UUID, &["52:54:00:00:00:09"], "e").await;
    assert_eq!(foreign, format!("its UUID {UUID:?} is that of a, but of its MAC addresses 52:54:00:00:00:09 none is"));
    let (_, both) = answer(&bench, "", &["02:ab:00:00:00:01", "02:ab:00:00:00:02"], "f").await;
    assert!(both.ends_with("02:ab:00:00:00:01, 02:ab:00:00:00:02 are those of a and of b"), "{both}");
    for _ in 0..6 {
        bench.refused().await;
    }
}

/// The agent's end, where it cannot get to an orchestrator.
async fn gave_up(config: Config) -> String {
    let config = Config { give_up_after: Duration::from_millis(500), ..config };
    match timeout(PATIENCE * 2, start(config)).await.expect("it gives up").unwrap() {
        Err(AgentError::GaveUp { last, .. }) => last,
        other => panic!("it gives up; instead {other:?}"),
    }
}

/// An address on which nobody listens.
async fn nowhere() -> std::net::SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn another_ca_is_refused_with_both_fingerprints_and_unlike_a_dead_address() {
    let mut site = site(1, 1, FleetLimits::default()).await;
    let (ours, given) = (site.fleet.ca_fingerprint(), worker::Fingerprint::of(b"another CA"));
    let dead = nowhere().await;
    let config = Config { ca_sha256: given, ..site.config(0, site.fleet.address()) };
    let last = gave_up(Config { urls: vec![url(dead), url(site.fleet.address())], ..config }).await;
    let (first, second) = last.split_once("; ").unwrap();
    assert!(first.starts_with(&format!("wss://{dead}/")) && first.contains("connection refused"), "{first}");
    assert!(second.contains(&format!("wss://{}/", site.fleet.address())), "{second}");
    assert!(second.contains("certificate mismatch") && second.contains(&given.to_string()), "{second}");
    assert!(second.contains(&ours.to_string()) && !second.contains("connection refused"), "{second}");
    let reason = site.event_where(|event| match event {
        FleetEvent::Refused { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(reason.await, "it does not trust this orchestrator's CA: it was given another fingerprint");
}

#[tokio::test]
async fn of_several_addresses_the_one_that_answers_is_used() {
    let site = site(1, 1, FleetLimits::default()).await;
    let urls = vec![url(nowhere().await), url(nowhere().await), url(site.fleet.address())];
    let _agent = start(Config { urls, ..site.config(0, site.fleet.address()) });
    site.fleet.wait_enrolled(PATIENCE).await.unwrap();
    assert_eq!(site.fleet.urls(), [url(site.fleet.address())]);
}

#[tokio::test]
async fn addresses_that_keep_silent_hold_no_other_up() {
    let site = site(1, 1, FleetLimits::default()).await;
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    // Each is waited for longer (8 s) than a third of what all of them may take together.
    let mut urls: Vec<String> = silent.iter().map(|listener| url(listener.local_addr().unwrap())).collect();
    urls.push(url(site.fleet.address()));
    let _agent = start(Config { urls, ..site.config(0, site.fleet.address()) });
    site.fleet.wait_enrolled(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_peer_that_never_answers_the_handshake_is_told_from_one_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = site(1, 1, FleetLimits::default()).await;
    let last = gave_up(site.config(0, listener.local_addr().unwrap())).await;
    assert!(last.contains("the TLS handshake did not come within 8 s") && last.contains("MTU"), "{last}");
}

#[tokio::test]
async fn plain_addresses_are_not_dialled() {
    let site = site(1, 1, FleetLimits::default()).await;
    let urls = vec![url(site.fleet.address()).replace("wss:", "ws:")];
    let error = Agent::new(Config { urls, ..site.config(0, site.fleet.address()) }).err().unwrap().to_string();
    assert!(error.starts_with("--url: ") && error.contains("expected wss://"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_proxy_is_asked() {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let names = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "WSS_PROXY"];
    let site = site(1, 1, FleetLimits::default()).await;
    let _process = Process::agent(&site, &names.map(|name| (name, address.as_str())));
    site.fleet.wait_enrolled(agents::PATIENCE).await.unwrap();
    let asked = timeout(Duration::from_millis(100), proxy.accept()).await;
    assert!(asked.is_err(), "{asked:?}");
}

/// A machine whose `/sys` and `/dev` lie in the site's directory: a UUID that nobody expects, one network card, and SCSI disks
/// `sda`, `sdb` … that are the files of worker 0.
fn fake_machine(site: &Site, disks: usize) -> Machine {
    let (sys, dev) = (site.directory.path().join("sys"), site.directory.path().join("dev"));
    let write = |path: &Path, text: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(&sys.join("class/dmi/id/product_uuid"), "Not Settable\n");
    write(&sys.join("class/net/eth0/type"), "1\n");
    write(&sys.join("class/net/eth0/address"), "02:ab:00:00:00:01\n");
    std::fs::create_dir_all(&dev).unwrap();
    for disk in 0..disks {
        let name = ["sda", "sdb", "sdc"][disk];
        let device = sys.join(format!("devices/7:0:{disk}:0"));
        write(&device.join("type"), "0\n");
        write(&sys.join(format!("block/{name}/size")), &format!("{}\n", DISK_BYTES / 512));
        std::os::unix::fs::symlink(&device, sys.join(format!("block/{name}/device"))).unwrap();
        std::os::unix::fs::symlink(site.file(0, disk), dev.join(name)).unwrap();
    }
    // The second disk has a serial.
    write(&sys.join("devices/7:0:1:0/vpd_pg80"), "\0\u{80}\0\u{2}d1".replace('\u{80}', "p").as_str());
    Machine::at(sys, dev)
}

async fn machine_site(disks: usize) -> (Site, Config) {
    let disk = |serial: &str, address: Option<&str>| ExpectedDisk {
        serial: serial.into(),
        size_bytes: DISK_BYTES,
        scsi_address: address.map(str::to_owned),
    };
    let expected = Expected {
        name: "w0".into(),
        uuid: UUID.into(),
        macs: vec!["02:AB:00:00:00:01".into()],
        disks: vec![disk("d0", Some("0:0:0:0")), disk("d1", None)],
    };
    let site = site_of(vec![expected], disks, FleetLimits::default()).await;
    let config =
        Config { uuid: None, disks: None, machine: fake_machine(&site, disks), ..site.config(0, site.fleet.address()) };
    (site, config)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_enrols_by_mac_and_its_disks_are_used_by_serial_or_address() {
    let (mut site, config) = machine_site(2).await;
    let _agent = start(config);
    let enrolled = site.fleet.wait_enrolled(PATIENCE).await.unwrap();
    assert!(enrolled[0].hello.every_disk && enrolled[0].hello.disks.len() == 2);
    let mut prepare = job(1, 2, fill());
    prepare.disks[0].scsi_address = Some("0:0:0:0".into());
    let reports = site.run(&["w0"], &prepare).await;
    let finished = reports["w0"].finished.as_ref().unwrap();
    let serials: Vec<&str> = finished.disks.iter().map(|disk| disk.serial.as_str()).collect();
    assert_eq!(serials, ["d0", "d1"], "the orchestrator's names");
    for disk in 0..2 {
        assert!(contents(&site.file(0, disk)).0.iter().any(|&byte| byte != 0), "disk {disk} is filled");
    }
}

#[tokio::test]
async fn a_machine_with_a_disk_too_many_is_refused_before_a_byte_is_written() {
    let (site, config) = machine_site(3).await;
    let before = contents(&site.file(0, 2));
    let error = start(config).await.unwrap().unwrap_err();
    let AgentError::Refused(reason) = &error else { panic!("{error}") };
    let path = site.directory.path().join("dev/sdc");
    assert_eq!(*reason, format!("disk scsi-0:0:2:0 ({}) of {DISK_BYTES} bytes is one too many", path.display()));
    let missing = site.fleet.wait_enrolled(PATIENCE).await.unwrap_err();
    assert_eq!(missing.missing[0].why.as_ref(), Some(reason));
    assert_eq!(contents(&site.file(0, 2)), before);
}

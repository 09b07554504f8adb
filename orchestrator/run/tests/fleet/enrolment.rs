//! Who gets into the fleet, who does not, and what hostile or dead peers do to it: nothing.

use std::time::{Duration, Instant};

use crate::peer::{AHEAD_NS, Bench, PATH_MTU_BYTES, PATIENCE, Peer, TOKEN, bench, fill, hello, quick};
use crate::tls;
use futures_util::{SinkExt, StreamExt};
use run::fleet::{FleetEvent, FleetLimits};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_tungstenite::{client_async, tungstenite::Message};
use worker_protocol::{Hello, MAX_HELLO_BYTES, OrchestratorMessage, PROTOCOL_VERSION, Reject, WorkerMessage, encode};

async fn rejection(bench: &Bench, hello: Hello) -> Reject {
    let mut peer = Peer::dial(bench.address(), bench.clock).await;
    peer.send(&WorkerMessage::Hello(hello)).await;
    let Some(OrchestratorMessage::Reject(reject)) = peer.next().await else { panic!("a Reject") };
    assert_eq!(peer.next().await, None, "the session ends after a Reject");
    reject
}

#[tokio::test]
async fn all_enrol_and_their_clocks_are_known() {
    let mut bench = bench(2, FleetLimits::default()).await;
    let peers = [bench.peer(0, "boot-0").await, bench.peer(1, "boot-1").await];
    let served = peers.map(Peer::serve);
    let enrolled = bench.fleet.wait_enrolled(PATIENCE).await.unwrap();
    assert_eq!(enrolled.iter().map(|worker| worker.worker.as_str()).collect::<Vec<_>>(), ["w0", "w1"]);
    for worker in enrolled {
        assert_eq!(worker.hello.token, "", "the token goes no further");
        assert_eq!(worker.path_mtu_bytes, Some(PATH_MTU_BYTES), "known with the clock");
        let error = worker.offset.offset_ns.abs_diff(i64::try_from(AHEAD_NS).unwrap());
        assert!(error <= worker.offset.uncertainty_ns(), "{error} ns off; {:?}", worker.offset);
    }
    assert_eq!(bench.enrolled().await, ("w0".into(), false));
    assert_eq!(bench.enrolled().await, ("w1".into(), false));
    drop(served);
}

#[tokio::test]
async fn clocks_are_measured_again_and_again_and_on_request() {
    let bench = bench(1, quick()).await;
    let _served = bench.peer(0, "boot").await.serve();
    bench.fleet.wait_enrolled(PATIENCE).await.unwrap();
    let asked = bench.fleet.probe("w0").await.unwrap();
    let since = Instant::now();
    while bench.fleet.clock_history("w0").unwrap().len() < 5 {
        assert!(since.elapsed() < PATIENCE, "measured every 200 ms");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let history = bench.fleet.clock_history("w0").unwrap();
    assert!(history.contains(&asked) && history.is_sorted_by_key(|offset| offset.at_ns));
    let later = bench.fleet.to_worker_ns("w0", 1_000_000_000).unwrap();
    assert!(later.abs_diff(AHEAD_NS + 1_000_000_000) <= bench.fleet.offset("w0").unwrap().uncertainty_ns());
}

#[tokio::test]
async fn strangers_are_refused_with_a_reason_and_the_fleet_goes_on() {
    let mut bench = bench(1, FleetLimits::default()).await;
    let cases = [
        (Hello { token: "wrong".into(), ..hello(0, "b") }, "wrong enrolment token".to_owned()),
        (Hello { uuid: "nobody".into(), ..hello(0, "b") }, "no worker with UUID \"nobody\"".to_owned()),
        (
            Hello { protocol_version: 99, ..hello(0, "b") },
            format!("the worker speaks protocol version 99, this orchestrator version {PROTOCOL_VERSION}"),
        ),
    ];
    for (hello, part) in cases {
        let reject = rejection(&bench, hello).await;
        assert!(reject.permanent && reject.reason.contains(&part), "{reject:?}");
        let refused = bench.refused().await;
        assert!(refused.contains(&part) && !refused.contains(TOKEN), "{refused}");
    }
    let error = bench.fleet.wait_enrolled(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(error.missing[0].worker, "w0");
    assert!(error.to_string().contains("w0 (never heard of it)"), "{error}");
    assert!(error.to_string().contains("wrong enrolment token"), "{error}");
    let _served = bench.peer(0, "boot").await.serve();
    bench.fleet.wait_enrolled(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn wrong_disks_are_refused_by_name_and_end_the_wait() {
    let bench = bench(1, FleetLimits::default()).await;
    let with = |change: fn(&mut Hello)| {
        let mut hello = hello(0, "boot");
        change(&mut hello);
        hello
    };
    let missing = rejection(&bench, with(|hello| hello.disks.clear())).await;
    assert_eq!(missing.reason, "disk d0 is missing");
    let used = rejection(&bench, with(|hello| hello.disks[0].in_use = Some("mounted on /".into()))).await;
    assert_eq!(used.reason, "disk d0 (/dev/d0) is in use: mounted on /");
    let size = rejection(&bench, with(|hello| hello.disks[0].size_bytes = 5)).await;
    assert_eq!(size.reason, "disk d0 (/dev/d0) has 5 bytes; expected 1073741824");
    let error = bench.fleet.wait_enrolled(PATIENCE * 10).await.unwrap_err();
    assert_eq!(error.missing[0].why.as_deref(), Some(size.reason.as_str()), "known at once, not after the timeout");
}

#[tokio::test]
async fn a_second_worker_with_a_known_uuid_is_refused_while_the_first_is_here() {
    let mut bench = bench(1, FleetLimits::default()).await;
    let mut first = bench.peer(0, "first").await;
    let reject = rejection(&bench, hello(0, "second")).await;
    assert!(!reject.permanent && reject.reason.contains("another worker with the identity of w0"), "{reject:?}");
    bench.refused().await;
    bench.fleet.prepare("w0", fill(1)).unwrap();
    assert!(matches!(first.next().await, Some(OrchestratorMessage::Prepare(_))), "the first goes on");
}

#[tokio::test]
async fn the_same_process_takes_its_older_session_over() {
    let mut bench = bench(1, FleetLimits::default()).await;
    let mut older = bench.peer(0, "boot").await;
    assert_eq!(bench.enrolled().await, ("w0".into(), false));
    let _newer = bench.peer(0, "boot").await.serve();
    assert_eq!(bench.event().await, bench_enrolled_again(), "and no Disconnected");
    assert_eq!(older.next().await, None);
    bench.fleet.wait_enrolled(PATIENCE).await.unwrap();
}

fn bench_enrolled_again() -> FleetEvent {
    let hello = Box::new(Hello { token: String::new(), ..hello(0, "boot") });
    FleetEvent::Enrolled { worker: "w0".into(), hello, resumed: true }
}

#[tokio::test]
async fn other_paths_are_not_found() {
    let bench = bench(1, FleetLimits::default()).await;
    let stream = tls::connect(bench.address()).await;
    let error = client_async(format!("wss://{}/elsewhere", bench.address()), stream).await.unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
}

#[tokio::test]
async fn malformed_first_messages_are_refused() {
    let mut bench = bench(1, FleetLimits::default()).await;
    let no_hello =
        WorkerMessage::ClockReply(worker_protocol::ClockReply { probe: 1, worker_ns: 1, path_mtu_bytes: None });
    let cases = [
        (Message::text("hello"), "a text message"),
        (Message::binary(vec![0xc1; 40]), "expected a Hello"),
        (Message::binary(encode(&no_hello).unwrap()), "expected a Hello"),
        (Message::binary(vec![0x91; MAX_HELLO_BYTES + 1]), "bytes in a Hello"),
    ];
    for (message, part) in cases {
        let mut peer = Peer::dial(bench.address(), bench.clock).await;
        peer.socket.send(message).await.unwrap();
        let refused = bench.refused().await;
        assert!(refused.contains(part), "{refused}");
        assert_eq!(peer.next().await, None);
    }
    let mut raw = tls::connect(bench.address()).await;
    raw.write_all(b"\x16\x03\x01\x02\x00 not HTTP at all\r\n\r\n").await.unwrap();
    raw.flush().await.unwrap();
    let refused = bench.refused().await;
    assert!(refused.contains("not a worker's WebSocket"), "{refused}");
}

/// MessagePack of `{"type": NAME, "protocol_version": 1}`.
fn message_of_type(name: &str) -> Vec<u8> {
    let length = u32::try_from(name.len()).unwrap().to_be_bytes();
    [&b"\x82\xa4type\xdb"[..], &length, name.as_bytes(), b"\xb0protocol_version\x01"].concat()
}

#[tokio::test]
async fn what_a_stranger_sends_makes_no_long_line_and_no_second_one() {
    let mut bench = bench(1, FleetLimits::default()).await;
    let nobody = |uuid: &str, mac: &str| {
        encode(&WorkerMessage::Hello(Hello { uuid: uuid.into(), macs: vec![mac.into(); 99], ..hello(0, "b") })).unwrap()
    };
    let cases = [
        (message_of_type(&"x".repeat(250_000)), "expected a Hello: "),
        (message_of_type("\n\u{1b}[2Jforged"), "expected a Hello: "),
        (nobody(&"\u{1f}".repeat(1_000), &"\u{1b}".repeat(1_000)), "no worker with UUID"),
        (nobody("nobody", "\n2026-01-01 forged\u{202e}"), "no worker with UUID"),
    ];
    for (bytes, part) in cases {
        let mut peer = Peer::dial(bench.address(), bench.clock).await;
        peer.socket.send(Message::binary(bytes)).await.unwrap();
        let refused = bench.refused().await;
        assert!(refused.contains(part) && refused.len() < 1024, "{} bytes: {refused:?}", refused.len());
        assert!(!refused.contains(|character: char| character.is_control() || character == '\u{202e}'), "{refused:?}");
    }
    let error = bench.fleet.wait_enrolled(Duration::from_millis(100)).await.unwrap_err().to_string();
    assert!(error.len() < 4 * 1024 && !error.contains('\u{1b}'), "{error:?}");
}

#[tokio::test]
async fn malformed_frames_of_an_enrolled_worker_end_its_session_only() {
    let mut bench = bench(2, FleetLimits::default()).await;
    let mut other = bench.peer(1, "other").await;
    for garbage in [Message::binary(vec![0xc1; 9]), Message::text("?"), Message::binary(vec![0x91; 1 << 20])] {
        let mut peer = bench.peer(0, "boot").await;
        peer.socket.send(garbage).await.unwrap();
        let why = bench.disconnected().await;
        assert!(why.contains("the worker sent"), "{why}");
        assert_eq!(peer.next().await, None);
    }
    let mut twice = bench.peer(0, "boot").await;
    twice.send(&WorkerMessage::Hello(hello(0, "boot"))).await;
    assert_eq!(bench.disconnected().await, "the worker sent a second Hello in one session");
    bench.fleet.prepare("w1", fill(1)).unwrap();
    assert!(matches!(other.next().await, Some(OrchestratorMessage::Prepare(_))));
}

/// The header of a masked binary frame of `length` bytes.
fn frame_header(length: u64) -> Vec<u8> {
    let mut header = vec![0x82, 0xff];
    header.extend_from_slice(&length.to_be_bytes());
    header.extend_from_slice(&[1, 2, 3, 4]);
    header
}

#[tokio::test]
async fn an_oversized_frame_is_refused_by_its_header() {
    let mut bench = bench(1, FleetLimits::default()).await;
    for length in [worker_protocol::MAX_MESSAGE_BYTES as u64 + 1, 1 << 40, u64::MAX >> 1, u64::MAX] {
        let mut peer = bench.peer(0, "boot").await;
        let raw = peer.socket.get_mut();
        raw.write_all(&frame_header(length)).await.unwrap();
        raw.flush().await.unwrap();
        let why = bench.disconnected().await;
        assert!(!why.contains("heard"), "at once, not by silence: {why}");
        assert_eq!(peer.next().await, None);
    }
}

#[tokio::test]
async fn a_half_open_peer_is_dropped_and_lost_in_bound() {
    let mut bench = bench(1, quick()).await;
    let since = Instant::now();
    // It holds the connection open, but neither reads nor writes any more.
    let silent = bench.peer(0, "boot").await;
    assert_eq!(bench.disconnected().await, "nothing heard for 1 s");
    let (job, why) = bench.lost().await;
    assert_eq!(job, None);
    assert!(why.contains("away for more than 0.3 s"), "{why}");
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    drop(silent);
}

#[tokio::test]
async fn idle_connections_are_bounded_and_a_worker_still_gets_in() {
    let limits = FleetLimits { max_unenrolled: 16, hello_timeout: Duration::from_millis(300), ..quick() };
    let bench = bench(1, limits).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(TcpStream::connect(bench.address()).await.unwrap());
    }
    // Sixteen leave with each timeout, so the worker waits for 300 / 16 timeouts at most.
    let worker = timeout(PATIENCE, bench.peer(0, "boot")).await.expect("the worker gets its turn");
    let _served = worker.serve();
    bench.fleet.wait_enrolled(PATIENCE).await.unwrap();
    for mut connection in idle {
        let closed = timeout(PATIENCE, connection.read(&mut [0; 16])).await.expect("closed in time");
        assert!(matches!(closed, Ok(0) | Err(_)), "nothing is said to who says nothing");
    }
}

#[tokio::test]
async fn a_refused_peer_that_will_not_leave_is_logged_with_its_reason() {
    let mut bench = bench(1, quick()).await;
    let mut peer = Peer::dial(bench.address(), bench.clock).await;
    peer.send(&WorkerMessage::Hello(Hello { token: "wrong".into(), ..hello(0, "boot") })).await;
    assert_eq!(bench.refused().await, "wrong enrolment token");
}

#[tokio::test]
async fn handshakes_that_stop_half_way_are_dropped() {
    let mut bench = bench(1, quick()).await;
    let mut half_tls = TcpStream::connect(bench.address()).await.unwrap();
    // The header of a TLS record with a ClientHello, and not a byte of it.
    half_tls.write_all(b"\x16\x03\x01\x01\x00").await.unwrap();
    assert_eq!(bench.refused().await, "no valid Hello within 1 s");
    let mut slow = tls::connect(bench.address()).await;
    slow.write_all(b"GET /api/worker/v1/session HTTP/1.1\r\nHost: x\r\n").await.unwrap();
    slow.flush().await.unwrap();
    assert_eq!(bench.refused().await, "no valid Hello within 1 s");
    let mut without_hello = Peer::dial(bench.address(), bench.clock).await;
    assert_eq!(bench.refused().await, "no valid Hello within 1 s");
    assert!(!matches!(without_hello.socket.next().await, Some(Ok(Message::Binary(_)))));
}

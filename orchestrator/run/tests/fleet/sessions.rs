//! Commands and reports across sessions that break: nothing is lost, nothing is told twice.

use std::time::Duration;

use crate::peer::{AHEAD_NS, Bench, PATIENCE, Peer, bench, fill, finished, hello, holding, quick, ready, sample};
use run::fleet::{CommandError, FleetEvent, FleetLimits};
use worker_protocol::{
    DiskAssignment, Hello, JobAck, JobRef, OrchestratorMessage, Prepare, Progress, SampleAck, StartAt, WorkerMessage,
};

fn patient() -> FleetLimits {
    FleetLimits { grace: PATIENCE * 2, ..FleetLimits::default() }
}

/// Brings job 1 of w0 to its start.
async fn started(bench: &mut Bench, peer: &mut Peer) {
    bench.fleet.prepare("w0", fill(1)).unwrap();
    assert_eq!(peer.next().await, Some(OrchestratorMessage::Prepare(fill(1))));
    peer.send(&ready(1)).await;
    bench.event_where(|event| matches!(event, FleetEvent::Ready { .. }).then_some(())).await;
    bench.fleet.start_at("w0", 1, 77).unwrap();
    assert_eq!(peer.next().await, Some(OrchestratorMessage::StartAt(StartAt { job: 1, worker_ns: 77 })));
}

async fn back(bench: &Bench, hello: Hello) -> Peer {
    let mut peer = Peer::dial(bench.address(), bench.clock).await;
    peer.send(&WorkerMessage::Hello(hello)).await;
    assert!(matches!(peer.next().await, Some(OrchestratorMessage::Welcome(_))));
    peer
}

async fn next_number(bench: &mut Bench) -> u64 {
    bench
        .event_where(|event| match event {
            FleetEvent::Sample { sample, .. } => Some(sample.number),
            _ => None,
        })
        .await
}

#[tokio::test]
async fn samples_come_once_each_over_a_broken_session() {
    let mut bench = bench(1, patient()).await;
    let mut peer = bench.peer(0, "boot").await;
    started(&mut bench, &mut peer).await;
    for number in 0..5 {
        peer.send(&sample(1, number)).await;
        assert_eq!(next_number(&mut bench).await, number);
    }
    bench.fleet.ack_samples("w0", 1, 2).unwrap();
    drop(peer);
    bench.disconnected().await;

    // The acknowledgement was lost with the session: it is said again, and so is the start.
    let mut peer = back(&bench, holding(0, "boot", 1, 0)).await;
    assert_eq!(peer.next().await, Some(OrchestratorMessage::SampleAck(SampleAck { job: 1, up_to: 2 })));
    assert_eq!(peer.next().await, Some(OrchestratorMessage::StartAt(StartAt { job: 1, worker_ns: 77 })));
    for number in 0..8 {
        peer.send(&sample(1, number)).await;
    }
    peer.send(&finished(1)).await;
    peer.send(&finished(1)).await;
    for number in 5..8 {
        assert_eq!(next_number(&mut bench).await, number, "no duplicate of 0 to 4");
    }
    assert!(matches!(bench.event().await, FleetEvent::Finished { .. }));
    bench.fleet.ack_job("w0", 1).unwrap();
    drop(peer);
    let after = bench.event().await;
    assert!(matches!(after, FleetEvent::Disconnected { .. }), "one Finished only: {after:?}");

    let mut peer = back(&bench, holding(0, "boot", 1, 8)).await;
    assert_eq!(peer.next().await, Some(OrchestratorMessage::JobAck(JobAck { job: 1 })));
    peer.send(&finished(1)).await;
    assert_eq!(peer.next().await, Some(OrchestratorMessage::JobAck(JobAck { job: 1 })), "said again when asked again");
}

#[tokio::test]
async fn a_gap_stays_a_gap() {
    let mut bench = bench(1, patient()).await;
    let mut peer = bench.peer(0, "boot").await;
    started(&mut bench, &mut peer).await;
    for number in [0, 3] {
        peer.send(&sample(1, number)).await;
        assert_eq!(next_number(&mut bench).await, number);
    }
}

#[tokio::test]
async fn what_is_commanded_while_a_worker_is_away_reaches_it_when_it_is_back() {
    let mut bench = bench(1, patient()).await;
    drop(bench.peer(0, "boot").await);
    bench.disconnected().await;
    bench.fleet.prepare("w0", fill(1)).unwrap();
    let mut peer = back(&bench, hello(0, "boot")).await;
    assert_eq!(peer.next().await, Some(OrchestratorMessage::Prepare(fill(1))));
    peer.send(&ready(1)).await;
    bench.event_where(|event| matches!(event, FleetEvent::Ready { .. }).then_some(())).await;
    drop(peer);
    bench.disconnected().await;
    bench.fleet.start_at("w0", 1, 9).unwrap();
    bench.fleet.stop("w0", 1).unwrap();
    let mut peer = back(&bench, holding(0, "boot", 1, 0)).await;
    assert_eq!(peer.next().await, Some(OrchestratorMessage::StartAt(StartAt { job: 1, worker_ns: 9 })));
    assert_eq!(peer.next().await, Some(OrchestratorMessage::Stop(JobRef { job: 1 })));
}

#[tokio::test]
async fn a_job_nobody_knows_is_aborted() {
    let bench = bench(1, patient()).await;
    let mut peer = back(&bench, holding(0, "boot", 41, 0)).await;
    assert_eq!(peer.next().await, Some(OrchestratorMessage::Abort(JobRef { job: 41 })));
}

#[tokio::test]
async fn a_worker_that_comes_back_as_another_process_has_lost_its_job() {
    let mut bench = bench(1, patient()).await;
    let mut peer = bench.peer(0, "first").await;
    started(&mut bench, &mut peer).await;
    drop(peer);
    bench.disconnected().await;
    let _peer = back(&bench, hello(0, "second")).await;
    let lost = bench.event().await;
    assert!(matches!(&lost, FleetEvent::Lost { job: Some(1), why, .. } if why.contains("restarted")), "{lost:?}");
    assert_eq!(bench.enrolled().await, ("w0".into(), false));
    bench.fleet.prepare("w0", fill(2)).unwrap();
}

#[tokio::test]
async fn the_same_process_without_its_job_has_failed_it() {
    let mut bench = bench(1, patient()).await;
    let mut peer = bench.peer(0, "boot").await;
    started(&mut bench, &mut peer).await;
    drop(peer);
    bench.disconnected().await;
    let _peer = back(&bench, hello(0, "boot")).await;
    let error = bench
        .event_where(|event| match event {
            FleetEvent::Failed { failed, .. } => Some(failed.error.clone()),
            _ => None,
        })
        .await;
    assert!(error.contains("without the job"), "{error}");
}

#[tokio::test]
async fn a_worker_away_beyond_its_grace_is_lost_and_may_return_without_its_job() {
    let mut bench = bench(1, quick()).await;
    let mut peer = bench.peer(0, "boot").await;
    started(&mut bench, &mut peer).await;
    drop(peer);
    let (job, why) = bench.lost().await;
    assert_eq!(job, Some(1));
    assert!(why.contains("away for more than 0.3 s; "), "{why}");
    assert!(matches!(bench.fleet.ack_job("w0", 1), Err(CommandError::Lost { .. })));
    let mut peer = back(&bench, holding(0, "boot", 1, 0)).await;
    assert_eq!(peer.next().await, Some(OrchestratorMessage::Abort(JobRef { job: 1 })));
    assert_eq!(bench.enrolled().await, ("w0".into(), false));
}

#[tokio::test]
async fn a_worker_known_to_be_gone_is_lost_at_once() {
    let mut bench = bench(1, patient()).await;
    let mut peer = bench.peer(0, "boot").await;
    started(&mut bench, &mut peer).await;
    bench.fleet.worker_exited("w0", "killed by signal 9").await.unwrap();
    assert_eq!(bench.lost().await, (Some(1), "killed by signal 9".into()));
    assert_eq!(peer.next().await, None, "its session, if it has one, ends");
    let error = bench.fleet.prepare("w0", fill(2)).unwrap_err();
    assert_eq!(error.to_string(), "worker w0 is lost: killed by signal 9");
    let missing = bench.fleet.wait_enrolled(PATIENCE * 10).await.unwrap_err();
    assert_eq!(missing.missing[0].why.as_deref(), Some("killed by signal 9"));
}

#[tokio::test]
async fn commands_out_of_order_are_errors() {
    let mut bench = bench(2, patient()).await;
    let mut peer = bench.peer(0, "boot").await;
    let fleet = &bench.fleet;
    assert_eq!(fleet.prepare("w9", fill(1)), Err(CommandError::UnknownWorker("w9".into())));
    assert_eq!(fleet.prepare("w1", fill(1)), Err(CommandError::NotEnrolled("w1".into())));
    assert_eq!(fleet.stop("w0", 1), Err(CommandError::NotHeld { worker: "w0".into(), job: 1 }));
    fleet.prepare("w0", fill(1)).unwrap();
    assert_eq!(fleet.prepare("w0", fill(2)), Err(CommandError::Busy { worker: "w0".into(), held: 1 }));
    let not_ready = fleet.start_at("w0", 1, 5).unwrap_err().to_string();
    assert_eq!(not_ready, "job 1 on worker w0 is not ready");
    assert_eq!(fleet.ack_job("w0", 1).unwrap_err().to_string(), "job 1 on worker w0 has not ended");
    assert!(matches!(fleet.ack_samples("w0", 1, 0), Err(CommandError::NotDelivered { up_to: 0, .. })));
    fleet.abort("w0", 1).unwrap();
    peer.send(&sample(1, 0)).await;
    peer.send(&WorkerMessage::Progress(Progress { job: 1, bytes_done: 1, bytes_total: 2 })).await;
    fleet.prepare("w0", fill(2)).unwrap();
    peer.send(&ready(2)).await;
    assert_eq!(bench.enrolled().await.0, "w0");
    let next = bench.event().await;
    assert!(matches!(next, FleetEvent::Ready { .. }), "nothing of an aborted job is told: {next:?}");
}

#[tokio::test]
async fn a_barrier_converts_one_moment_for_each_worker_or_starts_none() {
    let mut bench = bench(2, patient()).await;
    let mut served = Vec::new();
    for index in 0..2 {
        let mut peer = bench.peer(index, "boot").await;
        let worker = format!("w{index}");
        bench.fleet.prepare(&worker, fill(1)).unwrap();
        assert!(matches!(peer.next().await, Some(OrchestratorMessage::Prepare(_))));
        if index == 0 {
            let lead = Duration::from_millis(1);
            let error = bench.fleet.start_all(1, &["w0"], lead).await.unwrap_err();
            assert_eq!(error.to_string(), "job 1 on worker w0 is not ready");
        }
        peer.send(&ready(1)).await;
        bench.event_where(|event| matches!(event, FleetEvent::Ready { .. }).then_some(())).await;
        served.push(peer.serve());
    }
    let before = bench.clock.now_ns();
    let plan = bench.fleet.start_all(1, &["w0", "w1"], Duration::from_millis(500)).await.unwrap();
    let lead = plan.start_ns - before;
    assert!(lead >= 500_000_000, "{lead} ns");
    for (messages, planned) in served.iter_mut().zip(&plan.workers) {
        let start = messages.recv().await.unwrap();
        assert_eq!(start, OrchestratorMessage::StartAt(StartAt { job: 1, worker_ns: planned.worker_ns }));
        let error = planned.worker_ns.abs_diff(plan.start_ns + AHEAD_NS);
        assert!(error <= planned.offset.uncertainty_ns(), "{error} ns off");
    }
    let again = bench.fleet.start_all(1, &["w0", "w1"], Duration::ZERO).await.unwrap_err();
    assert_eq!(again.to_string(), "job 1 on worker w0 has its start already");
}

#[tokio::test]
async fn a_caller_that_takes_no_events_loses_sessions_not_samples() {
    let mut bench = bench(1, FleetLimits { grace: PATIENCE, ..quick() }).await;
    let mut peer = bench.peer(0, "boot").await;
    started(&mut bench, &mut peer).await;
    let mut sent = 0;
    // It sends more than the queue holds, without regard to acknowledgements, until it is cut off.
    let cut = async {
        loop {
            let message = sample(1, sent);
            let bytes = worker_protocol::encode(&message).unwrap();
            if futures_util::SinkExt::send(&mut peer.socket, tokio_tungstenite::tungstenite::Message::binary(bytes))
                .await
                .is_err()
            {
                break;
            }
            sent += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, cut).await.expect("the session of a slow caller ends");
    let told = u64::try_from(bench.events.len()).unwrap();
    for number in 0..told {
        assert_eq!(next_number(&mut bench).await, number);
    }
    assert_eq!(bench.disconnected().await, "events are not taken fast enough");
    let mut peer = back(&bench, holding(0, "boot", 1, 0)).await;
    peer.send(&sample(1, told)).await;
    assert_eq!(next_number(&mut bench).await, told, "what was not told is told now");
}

#[tokio::test]
async fn a_worker_that_takes_no_messages_loses_its_session_and_hears_them_later() {
    let mut bench = bench(1, patient()).await;
    let peer = bench.peer(0, "boot").await;
    let serial = "x".repeat(300_000);
    let disk =
        DiskAssignment { serial, scsi_address: None, size_bytes: 1, region_start: 0, region_bytes: 1, data_seed: 0 };
    let large = |job| Prepare { disks: vec![disk.clone()], ..fill(job) };
    for job in 0..200 {
        bench.fleet.prepare("w0", large(job)).unwrap();
        bench.fleet.abort("w0", job).unwrap();
    }
    bench.disconnected().await;
    bench.fleet.prepare("w0", fill(500)).unwrap();
    drop(peer);
    let mut peer = back(&bench, hello(0, "boot")).await;
    assert_eq!(peer.next().await, Some(OrchestratorMessage::Prepare(fill(500))));
}

#[tokio::test]
async fn shutdown_is_told_to_all_and_names_who_stays() {
    let bench = bench(2, patient()).await;
    let mut obedient = bench.peer(0, "boot").await;
    let stubborn = bench.peer(1, "boot").await;
    let ends = tokio::spawn(async move {
        assert_eq!(obedient.next().await, Some(OrchestratorMessage::Shutdown));
        obedient.socket.close(None).await.unwrap();
    });
    let staying = bench.fleet.shutdown_all(Duration::from_secs(2)).await;
    assert_eq!(staying, ["w1"]);
    ends.await.unwrap();
    drop(stubborn);
    let mut returned = back(&bench, hello(1, "boot")).await;
    assert_eq!(returned.next().await, Some(OrchestratorMessage::Shutdown), "told again when it is back");
}

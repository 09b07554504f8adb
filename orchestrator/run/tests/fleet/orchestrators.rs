//! Agents against orchestrators that misbehave: the agent dials again, or ends with a reason.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_tungstenite::{WebSocketStream, accept_async, tungstenite::Message};
use worker::{AgentError, Config, DiskArg, Machine};
use worker_protocol::{
    Activity, DiskAssignment, Failed, Fill, Fingerprint, Hello, JobAck, MAX_MESSAGE_BYTES, OrchestratorMessage,
    PROTOCOL_VERSION, Prepare, Reject, StartAt, Welcome, Work, WorkerMessage, decode_from_worker, encode,
};

use crate::agents::{PATIENCE, TOKEN, start, url};
use crate::tls::{TestCa, Valid};

/// An orchestrator played by the test.
struct Orchestrator {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    pinned: Fingerprint,
    file: tempfile::NamedTempFile,
}

type Session = WebSocketStream<TlsStream<TcpStream>>;

impl Orchestrator {
    async fn new() -> Self {
        let ca = TestCa::new(Valid::Now);
        Self::with(ca.acceptor(Valid::Now, &[&ca]), ca.fingerprint()).await
    }

    /// One with a certificate of its own kind; its workers are given `pinned`.
    async fn with(acceptor: TlsAcceptor, pinned: Fingerprint) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        Self { listener, acceptor, pinned, file }
    }

    fn config(&self) -> Config {
        Config {
            urls: vec![url(self.listener.local_addr().unwrap())],
            ca_sha256: self.pinned,
            uuid: Some("uuid".into()),
            token: TOKEN.into(),
            disks: Some(vec![DiskArg { serial: "d0".into(), path: self.file.path().to_owned() }]),
            machine: Machine::this(),
            threads: 1,
            own_kernel: false,
            give_up_after: PATIENCE,
            keepalive_timeout: Duration::from_millis(600),
        }
    }

    /// The next connection and its Hello.
    async fn hello(&self) -> (Session, Hello) {
        let (stream, _) = timeout(PATIENCE, self.listener.accept()).await.expect("the agent dials").unwrap();
        let mut session = accept_async(self.acceptor.accept(stream).await.unwrap()).await.unwrap();
        match next(&mut session).await {
            Some(WorkerMessage::Hello(hello)) => (session, hello),
            other => panic!("a Hello; got {other:?}"),
        }
    }

    async fn welcomed(&self) -> (Session, Hello) {
        let (mut session, hello) = self.hello().await;
        say(&mut session, welcome(PROTOCOL_VERSION)).await;
        (session, hello)
    }
}

fn welcome(protocol_version: u32) -> OrchestratorMessage {
    OrchestratorMessage::Welcome(Welcome { protocol_version, worker: "w0".into() })
}

async fn say(session: &mut Session, message: OrchestratorMessage) {
    session.send(Message::binary(encode(&message).unwrap())).await.unwrap();
}

async fn next(session: &mut Session) -> Option<WorkerMessage> {
    loop {
        match timeout(PATIENCE, session.next()).await.expect("a message in time")? {
            Ok(Message::Binary(bytes)) => return Some(decode_from_worker(&bytes).unwrap()),
            Ok(Message::Ping(_) | Message::Pong(_)) => (),
            Ok(_) | Err(_) => return None,
        }
    }
}

#[tokio::test]
async fn another_version_is_refused_by_name() {
    let orchestrator = Orchestrator::new().await;
    let agent = start(orchestrator.config());
    let (mut session, _) = orchestrator.hello().await;
    say(&mut session, welcome(99)).await;
    let error = agent.await.unwrap().unwrap_err().to_string();
    assert!(error.contains(&format!("protocol version 99, this worker version {PROTOCOL_VERSION}")), "{error}");
}

#[tokio::test]
async fn a_refusal_that_is_not_final_is_tried_again() {
    let orchestrator = Orchestrator::new().await;
    let agent = start(orchestrator.config());
    for permanent in [false, false, true] {
        let (mut session, _) = orchestrator.hello().await;
        let reason = "not you".to_owned();
        say(&mut session, OrchestratorMessage::Reject(Reject { protocol_version: 1, reason, permanent })).await;
    }
    let error = agent.await.unwrap().unwrap_err();
    assert!(matches!(&error, AgentError::Refused(reason) if reason == "not you"), "{error}");
}

#[tokio::test]
async fn a_session_that_goes_wrong_is_followed_by_another_of_the_same_process() {
    let orchestrator = Orchestrator::new().await;
    let agent = start(orchestrator.config());
    let (mut session, first) = orchestrator.welcomed().await;
    let wrong = [
        Message::binary(vec![0xc1; 20]),
        Message::binary(vec![0x91; 100_000]),
        Message::binary(vec![0; MAX_MESSAGE_BYTES + 1]),
        Message::text("?"),
        Message::Close(None),
    ];
    for message in wrong {
        // The agent may hang up before it has taken the whole of it.
        let _ = session.send(message).await;
        let again = orchestrator.welcomed().await;
        assert_eq!(again.1.boot_id, first.boot_id);
        session = again.0;
    }
    // Silent, but open: only the agent's own bound ends it.
    let (mut last, _) = timeout(PATIENCE, orchestrator.welcomed()).await.expect("dials again after silence");
    say(&mut last, OrchestratorMessage::Shutdown).await;
    agent.await.unwrap().unwrap();
    drop(session);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_told_in_each_session_until_it_is_acknowledged() {
    let orchestrator = Orchestrator::new().await;
    let config = Config { keepalive_timeout: PATIENCE, ..orchestrator.config() };
    let agent = start(config);
    let (mut session, hello) = orchestrator.welcomed().await;
    assert_eq!(hello.activity, None);
    let disk = DiskAssignment {
        serial: "d9".into(),
        scsi_address: None,
        size_bytes: 1 << 20,
        region_start: 0,
        region_bytes: 4096,
        data_seed: 1,
    };
    let work = Work::Fill(Fill { block_bytes: 4096, outstanding_per_disk: 1, zero: false });
    let prepare =
        |job| OrchestratorMessage::Prepare(Prepare { job, disks: vec![disk.clone()], work: work.clone(), seed: 1 });
    say(&mut session, prepare(1)).await;
    let first = next(&mut session).await.unwrap();
    assert!(
        matches!(&first, WorkerMessage::Failed(Failed { job: 1, disk: Some(disk), .. }) if disk == "d9"),
        "{first:?}"
    );
    // A job beside it, and the start of one that was never prepared.
    say(&mut session, prepare(2)).await;
    say(&mut session, OrchestratorMessage::StartAt(StartAt { job: 3, worker_ns: 0 })).await;
    let errors = [next(&mut session).await.unwrap(), next(&mut session).await.unwrap()].map(|message| match message {
        WorkerMessage::Failed(failed) => (failed.job, failed.error),
        other => panic!("a Failed; got {other:?}"),
    });
    let expected = [(2, "this worker still holds job 1"), (3, "it was never prepared here")];
    assert_eq!(errors, expected.map(|(job, error)| (job, error.to_owned())));

    drop(session);
    let (mut session, hello) = orchestrator.welcomed().await;
    assert_eq!(hello.activity, Some(Activity { job: 1, finished: true, next_unacknowledged: 0 }));
    let mut again = Vec::new();
    for _ in 0..3 {
        match next(&mut session).await.unwrap() {
            WorkerMessage::Failed(failed) => again.push(failed.job),
            other => panic!("a Failed; got {other:?}"),
        }
    }
    again.sort_unstable();
    assert_eq!(again, [1, 2, 3]);
    for job in again {
        say(&mut session, OrchestratorMessage::JobAck(JobAck { job })).await;
    }
    say(&mut session, OrchestratorMessage::ClockProbe(worker_protocol::ClockProbe { probe: 5 })).await;
    assert!(matches!(next(&mut session).await, Some(WorkerMessage::ClockReply(reply)) if reply.probe == 5));
    drop(session);
    let (mut session, hello) = orchestrator.welcomed().await;
    assert_eq!(hello.activity, None, "acknowledged and forgotten");
    say(&mut session, OrchestratorMessage::Shutdown).await;
    agent.await.unwrap().unwrap();
    assert!(std::fs::read(orchestrator.file.path()).unwrap().iter().all(|&byte| byte == 0));
}

/// The agent's reason to give up on an orchestrator that keeps no session.
async fn gave_up(orchestrator: Orchestrator) -> String {
    let agent = start(Config { give_up_after: Duration::from_millis(500), ..orchestrator.config() });
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = orchestrator.listener.accept().await.unwrap();
            assert!(orchestrator.acceptor.accept(stream).await.is_err(), "the agent must not trust it");
        }
    });
    let ended = timeout(PATIENCE, agent).await.expect("it gives up").unwrap();
    assert!(!serving.is_finished(), "{:?}", serving.await);
    match ended {
        Err(AgentError::GaveUp { last, .. }) => last,
        other => panic!("it gives up; instead {other:?}"),
    }
}

#[tokio::test]
async fn dates_and_names_of_certificates_do_not_matter() {
    for valid in [Valid::Now, Valid::NoLonger, Valid::NotYet] {
        let ca = TestCa::new(valid);
        let orchestrator = Orchestrator::with(ca.acceptor(valid, &[&ca]), ca.fingerprint()).await;
        let agent = start(orchestrator.config());
        let (mut session, _) = orchestrator.welcomed().await;
        say(&mut session, OrchestratorMessage::Shutdown).await;
        agent.await.unwrap().unwrap_or_else(|error| panic!("{valid:?}: {error}"));
    }
}

#[tokio::test]
async fn the_pinned_ca_shown_before_another_ones_certificate_convinces_nobody() {
    let (ours, theirs) = (TestCa::new(Valid::Now), TestCa::new(Valid::Now));
    for valid in [Valid::Now, Valid::NoLonger, Valid::NotYet] {
        let shown: [&[&TestCa]; 3] = [&[&ours], &[&theirs, &ours], &[&ours, &theirs]];
        for shown in shown {
            let last = gave_up(Orchestrator::with(theirs.acceptor(valid, shown), ours.fingerprint()).await).await;
            assert!(last.contains("certificate mismatch") && last.contains("is not issued by it"), "{last}");
            assert!(last.contains(&ours.fingerprint().to_string()), "{last}");
        }
    }
}

#[tokio::test]
async fn a_certificate_that_comes_alone_or_with_another_ca_is_a_mismatch_that_names_both() {
    let (ours, theirs) = (TestCa::new(Valid::Now), TestCa::new(Valid::Now));
    let alone = gave_up(Orchestrator::with(ours.acceptor(Valid::Now, &[]), ours.fingerprint()).await).await;
    assert!(alone.contains("certificate mismatch") && alone.contains(&ours.fingerprint().to_string()), "{alone}");
    let other = gave_up(Orchestrator::with(theirs.acceptor(Valid::Now, &[&theirs]), ours.fingerprint()).await).await;
    let (given, shown) = (ours.fingerprint().to_string(), theirs.fingerprint().to_string());
    assert!(other.contains(&given) && other.contains(&shown), "{other}");
}

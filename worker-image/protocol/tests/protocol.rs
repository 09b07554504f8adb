//! The messages on the wire: round trips, tolerance for newer peers, and hostile bytes.

mod every_message;

use every_message::{Values, orchestrator_messages, worker_messages};
use proptest::prelude::*;
use serde::Serialize;
use worker_protocol::{
    DecodeError, EncodeError, Finished, Hello, MAX_DISKS, MAX_HELLO_BYTES, MAX_MESSAGE_BYTES, Ops, OrchestratorMessage,
    PROTOCOL_VERSION, WorkerMessage, decode_from_orchestrator, decode_from_worker, encode, encode_first, hello_version,
};

fn values() -> impl Strategy<Value = Values> {
    let bytes = prop::collection::vec(any::<u8>(), 0..300);
    (any::<u64>(), any::<u32>(), any::<i64>(), -1e300_f64..1e300, ".{0,40}", bytes, any::<bool>()).prop_map(
        |(wide, narrow, signed, real, text, bytes, flag)| Values { wide, narrow, signed, real, text, bytes, flag },
    )
}

proptest! {
    #[test]
    fn every_message_comes_back_as_it_went(values in values()) {
        for message in worker_messages(&values) {
            prop_assert_eq!(decode_from_worker(&encode(&message).unwrap()).unwrap(), message);
        }
        for message in orchestrator_messages(&values) {
            prop_assert_eq!(decode_from_orchestrator(&encode(&message).unwrap()).unwrap(), message);
        }
    }

    #[test]
    fn random_bytes_are_an_error_or_a_message(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let _ = decode_from_worker(&bytes);
        let _ = decode_from_orchestrator(&bytes);
        let _ = hello_version(&bytes);
    }

    #[test]
    fn mutated_messages_never_panic(
        values in values(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let worker = worker_messages(&values).into_iter().map(|message| encode(&message));
        let orchestrator = orchestrator_messages(&values).into_iter().map(|message| encode(&message));
        for bytes in worker.chain(orchestrator) {
            let mut bytes = bytes.unwrap();
            let cut = cut.index(bytes.len());
            prop_assert!(decode_from_worker(&bytes[..cut]).is_err(), "a message that ends early");
            prop_assert!(decode_from_orchestrator(&bytes[..cut]).is_err(), "a message that ends early");
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            let _ = decode_from_worker(&bytes);
            let _ = decode_from_orchestrator(&bytes);
        }
    }
}

#[test]
fn unknown_fields_are_ignored() {
    #[derive(Serialize)]
    struct Newer {
        r#type: &'static str,
        job: u64,
        worker_ns: u64,
        probe: u64,
        priority: Vec<Option<&'static str>>,
    }
    let newer =
        |r#type| encode(&Newer { r#type, job: 4, worker_ns: 5, probe: 6, priority: vec![Some("high"), None] }).unwrap();
    assert!(matches!(
        decode_from_orchestrator(&newer("start_at")),
        Ok(OrchestratorMessage::StartAt(start)) if (start.job, start.worker_ns) == (4, 5)
    ));
    assert!(matches!(decode_from_orchestrator(&newer("shutdown")), Ok(OrchestratorMessage::Shutdown)));
    assert!(matches!(
        decode_from_worker(&newer("clock_reply")),
        Ok(WorkerMessage::ClockReply(reply)) if (reply.probe, reply.worker_ns) == (6, 5)
    ));
}

/// A worker that was built before the engine told of flushes, io-wq and buffers is still understood.
#[test]
fn fields_that_an_older_worker_does_not_know_have_defaults() {
    #[derive(Serialize)]
    struct OlderDisk {
        serial: &'static str,
        ops: Ops,
    }
    #[derive(Serialize)]
    struct OlderFinished {
        r#type: &'static str,
        job: u64,
        started_worker_ns: u64,
        ended_worker_ns: u64,
        complete: bool,
        disks: Vec<OlderDisk>,
    }
    let disks = vec![OlderDisk { serial: "d1", ops: Ops::default() }];
    let older =
        OlderFinished { r#type: "finished", job: 3, started_worker_ns: 1, ended_worker_ns: 2, complete: true, disks };
    let Ok(WorkerMessage::Finished(finished)) = decode_from_worker(&encode(&older).unwrap()) else {
        panic!("a Finished")
    };
    assert_eq!((finished.io_wq_cpu, finished.steal, finished.disks[0].flushes), (0.0, None, 0));
    assert_eq!((finished.disks[0].device, finished.disks[0].pacing), (None, None));

    #[derive(Serialize)]
    struct OlderEngine {
        threads: u32,
    }
    #[derive(Serialize)]
    struct OlderReady {
        r#type: &'static str,
        job: u64,
        engine: OlderEngine,
    }
    let older = OlderReady { r#type: "ready", job: 3, engine: OlderEngine { threads: 2 } };
    let Ok(WorkerMessage::Ready(ready)) = decode_from_worker(&encode(&older).unwrap()) else { panic!("a Ready") };
    assert_eq!((ready.engine.threads, ready.engine.buffer_bytes), (2, 0));

    #[derive(Serialize)]
    struct OlderReply {
        r#type: &'static str,
        probe: u64,
        worker_ns: u64,
    }
    let older = OlderReply { r#type: "clock_reply", probe: 3, worker_ns: 5 };
    let Ok(WorkerMessage::ClockReply(reply)) = decode_from_worker(&encode(&older).unwrap()) else { panic!("a reply") };
    assert_eq!((reply.worker_ns, reply.path_mtu_bytes), (5, None));
}

#[test]
fn an_unknown_message_is_refused_by_name() {
    #[derive(Serialize)]
    struct Unknown {
        r#type: &'static str,
    }
    let bytes = encode(&Unknown { r#type: "defragment" }).unwrap();
    let error = decode_from_worker(&bytes).unwrap_err().to_string();
    assert!(error.contains("defragment"), "{error}");
    assert!(decode_from_orchestrator(&bytes).is_err());
}

#[test]
fn a_missing_field_is_refused_by_name() {
    #[derive(Serialize)]
    struct Short {
        r#type: &'static str,
        job: u64,
    }
    let error = decode_from_orchestrator(&encode(&Short { r#type: "start_at", job: 1 }).unwrap()).unwrap_err();
    assert!(error.to_string().contains("worker_ns"), "{error}");
}

#[test]
fn a_message_of_the_other_side_is_refused() {
    let values = Values::default();
    for message in worker_messages(&values) {
        assert!(decode_from_orchestrator(&encode(&message).unwrap()).is_err(), "{message:?}");
    }
    for message in orchestrator_messages(&values) {
        assert!(decode_from_worker(&encode(&message).unwrap()).is_err(), "{message:?}");
    }
}

#[test]
fn deep_nesting_is_an_error() {
    for opening in [0x91_u8, 0x81, 0xdd, 0xc7] {
        for depth in [100, 2_000, MAX_MESSAGE_BYTES] {
            let bytes = vec![opening; depth];
            assert!(decode_from_worker(&bytes).is_err());
            assert!(decode_from_orchestrator(&bytes).is_err());
            assert!(hello_version(&bytes).is_err());
        }
    }
    // Nested in a field that nobody knows: {"x": [[[…
    let mut bytes = vec![0x81, 0xa1, b'x'];
    bytes.extend(std::iter::repeat_n(0x91, 1 << 20));
    assert!(decode_from_worker(&bytes).is_err());
    assert!(hello_version(&bytes).is_err());
}

#[test]
fn huge_lengths_are_an_error() {
    for marker in [0xdd_u8, 0xdf, 0xdb, 0xc6, 0xc9] {
        let claims_4_gib = [marker, 0xff, 0xff, 0xff, 0xff, 1, 2, 3];
        assert!(decode_from_worker(&claims_4_gib).is_err());
        assert!(decode_from_orchestrator(&claims_4_gib).is_err());
        // The same as the value of a field: {"disks": <4 GiB of something>
        let mut field = vec![0x82, 0xa5];
        field.extend_from_slice(b"disks");
        field.extend_from_slice(&claims_4_gib);
        assert!(decode_from_worker(&field).is_err());
        assert!(hello_version(&field).is_err());
    }
}

#[test]
fn size_limits_hold_on_both_sides() {
    let oversized = vec![0xc0; MAX_MESSAGE_BYTES + 1];
    assert!(matches!(decode_from_worker(&oversized), Err(DecodeError::TooLarge(size)) if size == oversized.len()));
    assert!(matches!(decode_from_orchestrator(&oversized), Err(DecodeError::TooLarge(_))));
    assert!(matches!(hello_version(&oversized[..=MAX_HELLO_BYTES]), Err(DecodeError::BeyondLimit { .. })));
    let values = Values { bytes: vec![7; MAX_MESSAGE_BYTES], ..Values::default() };
    let finished = worker_messages(&values).into_iter().find(|message| matches!(message, WorkerMessage::Finished(_)));
    assert!(matches!(encode(&finished.unwrap()), Err(EncodeError::TooLarge(_))));
}

#[test]
fn too_many_disks_are_refused() {
    let values = Values::default();
    let over = MAX_DISKS + 1;
    for mut message in worker_messages(&values) {
        match &mut message {
            WorkerMessage::Hello(Hello { disks, .. }) => *disks = vec![disks[0].clone(); over],
            WorkerMessage::Finished(Finished { disks, .. }) => *disks = vec![disks[0].clone(); over],
            WorkerMessage::Sample(sample) => sample.disks = vec![sample.disks[0]; over],
            _ => continue,
        }
        let error = decode_from_worker(&encode(&message).unwrap()).unwrap_err();
        assert!(matches!(error, DecodeError::BeyondLimit { what: "disks", found, .. } if found == over), "{error}");
    }
    for message in orchestrator_messages(&values) {
        let OrchestratorMessage::Prepare(mut prepare) = message else { continue };
        prepare.disks = vec![prepare.disks[0].clone(); over];
        let bytes = encode(&OrchestratorMessage::Prepare(prepare)).unwrap();
        assert!(matches!(decode_from_orchestrator(&bytes), Err(DecodeError::BeyondLimit { .. })));
    }
}

#[test]
fn the_first_message_fills_a_packet_and_reads_as_itself() {
    let values = Values { bytes: vec![7; 10], ..Values::default() };
    for message in worker_messages(&values) {
        let bytes = encode_first(&message).unwrap();
        assert!(bytes.len() > 9216, "{} bytes", bytes.len());
        assert_eq!(decode_from_worker(&bytes).unwrap(), message);
    }
    for message in orchestrator_messages(&values) {
        assert_eq!(decode_from_orchestrator(&encode_first(&message).unwrap()).unwrap(), message);
    }
}

#[test]
fn a_full_hello_fits_its_limit() {
    let values = Values { text: "x".repeat(255), ..Values::default() };
    let Some(WorkerMessage::Hello(mut hello)) = worker_messages(&values).into_iter().next() else {
        panic!("the first message is the Hello")
    };
    hello.disks = vec![hello.disks[0].clone(); MAX_DISKS];
    let bytes = encode_first(&WorkerMessage::Hello(hello)).unwrap();
    assert!(bytes.len() <= MAX_HELLO_BYTES, "{} bytes", bytes.len());
}

#[test]
fn the_version_of_a_newer_hello_is_readable() {
    #[derive(Serialize)]
    struct Newer {
        r#type: &'static str,
        protocol_version: u32,
        identity: (u8, &'static str),
    }
    let bytes = encode(&Newer { r#type: "hello", protocol_version: PROTOCOL_VERSION + 1, identity: (1, "x") }).unwrap();
    assert_eq!(hello_version(&bytes).unwrap(), PROTOCOL_VERSION + 1);
    assert!(decode_from_worker(&bytes).is_err());
}

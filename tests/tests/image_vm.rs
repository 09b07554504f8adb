//! The worker image with its real agent on real QEMU VMs under software emulation: every firmware, every trouble on the way to the
//! orchestrator, and what a machine does when it crashes or is asked to shut down.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "image/machine.rs"]
mod machine;
#[path = "image/site.rs"]
mod site;
#[path = "image/whole_run.rs"]
mod whole_run;
#[path = "image/wire.rs"]
mod wire;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use end_to_end::skip;
use machine::{BOUND, UEFI_CODE, UEFI_VARS, Vm, disks, user_network};
use run::fleet::FleetEvent;
use serde_json::json;
use site::{MAC, Orchestrator, TOKEN, UUID, authority, bootstrap, held_port, lacking, personal, url};
use tokio::net::TcpListener;
use wire::{OTHER_MACHINE, Rules, Seen, Wire};
use worker_image::{AddressRange, Bootstrap, StaticAddressing};

/// How long the late orchestrator of a test is late.
const LATE: Duration = Duration::from_secs(30);

async fn listener() -> TcpListener {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap()
}

fn say_how_long(what: &str, vm: &Vm) {
    println!("{what}: {:.1} s from power-on to enrolment", vm.started.elapsed().as_secs_f64());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uefi_vm_of_256_mib_with_31_controllers_enrols_and_says_what_its_kernel_granted() {
    if let Some(reason) = lacking(&[UEFI_CODE, UEFI_VARS]) {
        return skip(&reason);
    }
    const DISKS: u32 = 31;
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(&dir.path().join("tls"));
    let listener = listener().await;
    let image = personal(dir.path(), &bootstrap(&[listener.local_addr().unwrap().port()], &authority));
    let orchestrator = Orchestrator::start(listener, &authority, DISKS);
    let vars = dir.path().join("vars.fd");
    std::fs::copy(UEFI_VARS, &vars).unwrap();
    let mut more = user_network(MAC);
    more.extend(disks(dir.path(), DISKS));
    for (code, more_of_it) in [(UEFI_CODE, ",readonly=on"), (vars.to_str().unwrap(), "")] {
        more.extend(["-drive".into(), format!("if=pflash,format=raw,file={code}{more_of_it}")]);
    }
    let vm = Vm::boot(&image, dir.path(), "q35", UUID, &more).await;
    let enrolled = orchestrator.enrolled(|| vm.console()).await;
    say_how_long("UEFI, 1 CPU, 256 MiB, 31 disks on 31 controllers", &vm);
    let hello = &enrolled.hello;
    assert_eq!((hello.cpus, hello.disks.len(), hello.every_disk), (1, DISKS as usize, true));
    assert!(hello.memory_bytes <= 256 << 20, "{hello:?}");

    let engine = orchestrator.prepare(DISKS).await;
    println!("kernel {}: granted {:?}, refused {:?}", hello.kernel, engine.granted, engine.refused);
    assert!(hello.kernel.starts_with("6.1."), "the flags below are this kernel's: {}", hello.kernel);
    let granted = |flag: &str| engine.granted.iter().any(|granted| granted.contains(flag));
    assert!(granted("DEFER_TASKRUN") && granted("SINGLE_ISSUER"), "{engine:?}");
    assert!(!granted("NO_SQARRAY"), "{engine:?}");
    assert!(engine.refused.iter().any(|refused| refused.contains("NO_SQARRAY")), "{engine:?}");
    assert_eq!(engine.disks.len(), DISKS as usize);
    assert!(engine.disks.iter().all(|disk| disk.direct), "{engine:?}");
}

/// One VM goes through all of them. It is given the addresses of two listeners: somebody else's, and its own, which comes up late.
#[tokio::test(flavor = "multi_thread")]
async fn every_trouble_on_the_way_is_shown_and_outlived() {
    if let Some(reason) = lacking(&[]) {
        return skip(&reason);
    }
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (authority(&dir.path().join("ours")), authority(&dir.path().join("theirs")));
    let foreign = listener().await;
    let foreign_port = foreign.local_addr().unwrap().port();
    let (late, port) = held_port();
    let image = personal(dir.path(), &bootstrap(&[foreign_port, port], &ours));
    let _stranger = Orchestrator::start(foreign, &theirs, 1);
    let wire = Wire::new(&dir.path().join("wire"), Rules { no_dhcp: true, ..Rules::default() });
    let mut more = wire.arguments(1, "virtio-net-pci", MAC, 2);
    more.extend(disks(dir.path(), 1));
    let mut vm = Vm::boot(&image, dir.path(), "pc", UUID, &more).await;

    vm.set_link("card1", false);
    let at = vm.shows(0, &[MAC, "NO LINK: the network adapter is not connected", &url(port), &url(foreign_port)]).await;
    vm.set_link("card1", true);
    // Without an address the agent starts all the same, and adds what it sees.
    let at = vm.shows(at, &["NO DHCP server answers", &format!("{}: no route: ", url(port))]).await;
    wire.set(Rules::default());
    let mismatch = format!(
        "{}: certificate mismatch: this worker was given the CA with SHA-256 {}, but the other end shows {}",
        url(foreign_port),
        ours.fingerprint(),
        theirs.fingerprint()
    );
    let refused = format!("{}: connection refused: the machine is there", url(port));
    let at = vm.shows(at, &["10.0.2.15/24 (DHCP, router 10.0.2.2, MTU 1500)", &mismatch, &refused]).await;
    let late_since = Instant::now();

    wire.set(Rules { silent_port: Some(port), ..Rules::default() });
    let at = vm.shows(at, &[&format!("{}: no answer within 5 s", url(port))]).await;
    // Not even a certificate comes through.
    wire.set(Rules { largest_frame: Some(800), ..Rules::default() });
    let stuck = |port: u16, what: &str| {
        format!(
            "{}: connected, but {what} did not come within 8 s: large packets may get lost on the way (MTU)",
            url(port)
        )
    };
    let at = vm.shows(at, &[&stuck(foreign_port, "the TLS handshake")]).await;
    // The usual case: a tunnel on the way that takes 50 bytes of each packet. Handshakes are smaller than that.
    wire.set(Rules { largest_frame: Some(1450 + 14), ..Rules::default() });
    tokio::time::sleep_until((late_since + LATE).into()).await;
    let orchestrator = Orchestrator::start(late.listen(64).unwrap(), &ours, 1);
    let at = vm.shows(at, &[&stuck(port, "an answer to Hello")]).await;
    assert!(wire.seen().contains(&Seen::TooLarge), "it was the VM's own packets that got lost");
    assert!(orchestrator.fleet.enrolled().is_empty());
    wire.set(Rules::default());
    orchestrator.enrolled(|| vm.console()).await;
    vm.shows(at, &[&format!("enrolled as w1 at {}", url(port))]).await;

    let console = vm.console();
    assert!(console.contains("not signed: Secure Boot has to be off"), "{console}");
    assert!(!console.contains(TOKEN), "the token is never shown: {console}");
    assert_eq!(console.matches("init is running").count(), 1, "it never restarted: {console}");
    assert!(!console.contains("the agent ended"), "nor did its agent: {console}");
    println!("{console}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_comes_back_from_a_kernel_panic_and_shuts_down_when_asked() {
    if let Some(reason) = lacking(&[]) {
        return skip(&reason);
    }
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(&dir.path().join("tls"));
    let listener = listener().await;
    let image = personal(dir.path(), &bootstrap(&[listener.local_addr().unwrap().port()], &authority));
    let orchestrator = Orchestrator::start(listener, &authority, 1);
    let mut more = user_network(MAC);
    more.extend(disks(dir.path(), 1));
    let mut vm = Vm::boot(&image, dir.path(), "pc", UUID, &more).await;
    let first = orchestrator.enrolled(|| vm.console()).await.hello.boot_id;
    say_how_long("BIOS, 1 CPU, 256 MiB", &vm);

    let crashed = Instant::now();
    vm.monitor("inject-nmi", &json!({}));
    let at = vm.shows(0, &["Kernel panic - not syncing: NMI"]).await;
    orchestrator.enrols_again(&first).await;
    println!("kernel panic: enrolled again {:.1} s after it", crashed.elapsed().as_secs_f64());
    orchestrator
        .event("the loss of the first process", |event| matches!(event, FleetEvent::Lost { .. }).then_some(()))
        .await;
    vm.shows(at, &["init is running", "enrolled as w1"]).await;

    vm.monitor("system_powerdown", &json!({}));
    vm.ends().await;
    let console = vm.console();
    let last = &console[console.rfind("the power button was pressed: stopping the agent").unwrap()..];
    for wanted in ["ended by a signal", "the agent has ended", "powering off"] {
        assert!(last.contains(wanted), "{wanted} is missing in {last}");
    }
    assert!(!last.contains("starts again"), "{last}");
}

/// Four cards at once: two with static addresses, of which one is another machine's, and two for DHCP.
#[tokio::test(flavor = "multi_thread")]
async fn static_addresses_are_probed_first_and_all_cards_ask_at_once() {
    if let Some(reason) = lacking(&[]) {
        return skip(&reason);
    }
    let dir = tempfile::tempdir().unwrap();
    let authority = authority(&dir.path().join("tls"));
    let listener = listener().await;
    let (free, taken) = (Ipv4Addr::new(10, 0, 2, 77), Ipv4Addr::new(10, 0, 2, 78));
    let range = AddressRange { first_mac: MAC.parse().unwrap(), first_address: free, count: 2 };
    let addressing = StaticAddressing { ranges: vec![range], prefix: 24, gateway: Some(Ipv4Addr::new(10, 0, 2, 2)) };
    let bootstrap = Bootstrap {
        mtu: Some(1400),
        static_addressing: Some(addressing),
        ..bootstrap(&[listener.local_addr().unwrap().port()], &authority)
    };
    let image = personal(dir.path(), &bootstrap);
    let orchestrator = Orchestrator::start(listener, &authority, 0);
    let no_dhcp = Rules { no_dhcp: true, ..Rules::default() };
    let wires: Vec<Wire> = (1..=4)
        .map(|card| {
            let rules = if card == 2 { Rules { taken: vec![taken], ..no_dhcp.clone() } } else { no_dhcp.clone() };
            Wire::new(&dir.path().join(card.to_string()), rules)
        })
        .collect();
    let cards = (1..).zip(&wires);
    let more: Vec<String> = cards
        .flat_map(|(card, wire)| {
            let model = if card == 4 { "vmxnet3" } else { "virtio-net-pci" };
            wire.arguments(card, model, &format!("52:54:00:00:00:0{card}"), card.max(2))
        })
        .collect();
    let mut vm = Vm::boot(&image, dir.path(), "pc", UUID, &more).await;

    orchestrator.enrolled(|| vm.console()).await;
    say_how_long("no DHCP, static address", &vm);
    let other: Vec<String> = OTHER_MACHINE.iter().map(|byte| format!("{byte:02x}")).collect();
    let conflict = format!("CONFLICT: {} has {taken}: not used", other.join(":"));
    let at = vm.shows(0, &[&format!("{free}/24 (static, router 10.0.2.2, MTU 1400)"), &conflict]).await;
    assert_eq!(wires[0].seen()[..2], [Seen::Probe(free), Seen::Used(free)], "asked for before it is used");
    assert!(!wires[0].seen().contains(&Seen::Dhcp));
    assert_eq!(wires[1].seen(), [Seen::Probe(taken)], "nothing but the question");
    // Both ask before either has an answer.
    vm.shows(0, &["NO DHCP server answers"]).await;
    assert_eq!((wires[2].seen(), wires[3].seen()), (vec![Seen::Dhcp], vec![Seen::Dhcp]));
    for wire in &wires {
        wire.set(Rules::default());
    }
    // The other machine has gone as well.
    let addresses = [
        format!("{taken}/24 (static"),
        "10.0.3.15/24 (DHCP".into(),
        "10.0.4.15/24 (DHCP, router 10.0.4.2, MTU 1400)".into(),
    ];
    vm.shows(at, &addresses.each_ref().map(String::as_str)).await;
    assert_eq!(orchestrator.fleet.enrolled().len(), 1, "the session is still up, within {BOUND:?}");
}

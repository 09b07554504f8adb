//! A cable between a VM's network card and QEMU's user-mode network, in this process: it loses what a test tells it to, answers for
//! addresses that another machine is to have, and notes what the VM sent. No privileges, no interface of this machine.

use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// MAC of the machine that has [`Rules::taken`].
pub(crate) const OTHER_MACHINE: [u8; 6] = [0x52, 0x54, 0, 0xff, 0xff, 1];

/// The largest frame: jumbo, with its header.
const MAX_FRAME_BYTES: usize = 9300;
/// How often a quiet cable looks whether it is over; a frame that QEMU does not take within this is lost, as on any network.
const POLL: Duration = Duration::from_millis(100);

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DHCP_SERVER: u16 = 67;
const DHCP_CLIENT: u16 = 68;

/// What the cable loses, and who else is on the network.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    /// Larger frames are lost both ways, bytes with the Ethernet header of 14.
    pub(crate) largest_frame: Option<usize>,
    /// DHCP is lost.
    pub(crate) no_dhcp: bool,
    /// TCP to this port is lost.
    pub(crate) silent_port: Option<u16>,
    /// Another machine has these addresses and says so when asked.
    pub(crate) taken: Vec<Ipv4Addr>,
}

/// What the VM did on the cable, each thing once, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It asked for an address by DHCP.
    Dhcp,
    /// It asked who has an address, without using it (RFC 5227).
    Probe(Ipv4Addr),
    /// It used an address as its own, in ARP or IPv4.
    Used(Ipv4Addr),
    /// A frame of its own was larger than allowed, and was lost.
    TooLarge,
}

/// A cable that is plugged in.
pub(crate) struct Wire {
    dir: PathBuf,
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Inner {
    rules: Mutex<Rules>,
    seen: Mutex<Vec<Seen>>,
    over: AtomicBool,
}

impl Wire {
    /// Its sockets are made in `dir`, whose path must be short (107 bytes with a name).
    pub(crate) fn new(dir: &Path, rules: Rules) -> Self {
        std::fs::create_dir(dir).unwrap();
        let inner = Arc::new(Inner { rules: Mutex::new(rules), ..Inner::default() });
        let end = |name: &str| {
            let socket = UnixDatagram::bind(dir.join(name)).unwrap();
            socket.set_read_timeout(Some(POLL)).unwrap();
            socket.set_write_timeout(Some(POLL)).unwrap();
            Arc::new(socket)
        };
        let (vm, world) = (end("vm"), end("world"));
        let (vm_qemu, world_qemu) = (dir.join("vm-qemu"), dir.join("world-qemu"));
        let threads = vec![
            std::thread::spawn({
                let (inner, vm, world, vm_qemu) =
                    (Arc::clone(&inner), Arc::clone(&vm), Arc::clone(&world), vm_qemu.clone());
                move || inner.carry(&vm, |frame| inner.out_of_vm(frame, &world, &world_qemu, &vm, &vm_qemu))
            }),
            std::thread::spawn({
                let inner = Arc::clone(&inner);
                move || inner.carry(&world, |frame| inner.toward_vm(frame, &vm, &vm_qemu))
            }),
        ];
        Self { dir: dir.to_owned(), inner, threads }
    }

    /// QEMU's options for network card `number` of this model and MAC, whose world is `10.0.NETWORK.0/24`.
    pub(crate) fn arguments(&self, number: u8, model: &str, mac: &str, network: u8) -> Vec<String> {
        let path = |name: &str| self.dir.join(name).display().to_string();
        let cable = |id: &str, end: &str| {
            let (local, remote) = (path(&format!("{end}-qemu")), path(end));
            format!("dgram,id={id}{number},local.type=unix,local.path={local},remote.type=unix,remote.path={remote}")
        };
        [
            ("-netdev", format!("user,id=user{number},net=10.0.{network}.0/24")),
            ("-netdev", cable("world", "world")),
            ("-netdev", format!("hubport,id=left{number},hubid={number},netdev=user{number}")),
            ("-netdev", format!("hubport,id=right{number},hubid={number},netdev=world{number}")),
            ("-netdev", cable("vm", "vm")),
            ("-device", format!("{model},id=card{number},netdev=vm{number},mac={mac},romfile=,addr={:#x}", number + 3)),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    }

    pub(crate) fn set(&self, rules: Rules) {
        *self.inner.rules.lock().unwrap() = rules;
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.inner.seen.lock().unwrap().clone()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.inner.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of the cable's shows as a test that gets no further.
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn carry(&self, from: &UnixDatagram, mut pass: impl FnMut(&[u8])) {
        let mut buffer = vec![0; MAX_FRAME_BYTES];
        while !self.over.load(Ordering::Relaxed) {
            if let Ok(bytes) = from.recv(&mut buffer) {
                pass(&buffer[..bytes]);
            }
        }
    }

    fn out_of_vm(&self, frame: &[u8], world: &UnixDatagram, to: &Path, vm: &UnixDatagram, back: &Path) {
        let rules = self.rules.lock().unwrap().clone();
        let Some(frame) = Frame::read(frame) else { return };
        self.note(&frame);
        if let Some((address, answer)) = frame.asks_for().and_then(|asked| Some((asked, frame.answer()?)))
            && rules.taken.contains(&address)
        {
            // Lost where QEMU does not take it: the VM asks again.
            let _ = vm.send_to(&answer, back);
            return;
        }
        if frame.is_too_large(&rules) {
            self.note_once(Seen::TooLarge);
        } else if !frame.is_lost(&rules) {
            let _ = world.send_to(frame.bytes, to);
        }
    }

    fn toward_vm(&self, frame: &[u8], vm: &UnixDatagram, to: &Path) {
        let rules = self.rules.lock().unwrap().clone();
        if let Some(frame) = Frame::read(frame)
            && !frame.is_too_large(&rules)
            && !frame.is_lost(&rules)
        {
            let _ = vm.send_to(frame.bytes, to);
        }
    }

    fn note(&self, frame: &Frame<'_>) {
        let used = frame.sender().filter(|sender| !sender.is_unspecified());
        let probed = frame.asks_for().filter(|_| used.is_none());
        let dhcp = (frame.udp_port() == Some(DHCP_SERVER)).then_some(Seen::Dhcp);
        for seen in [used.map(Seen::Used), probed.map(Seen::Probe), dhcp].into_iter().flatten() {
            self.note_once(seen);
        }
    }

    fn note_once(&self, seen: Seen) {
        let mut all = self.seen.lock().unwrap();
        if !all.contains(&seen) {
            all.push(seen);
        }
    }
}

/// An Ethernet frame, as far as a cable needs to understand it (RFC 826, 791, 768, 9293).
struct Frame<'a> {
    bytes: &'a [u8],
    kind: u16,
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let kind = u16::from_be_bytes([*bytes.get(12)?, *bytes.get(13)?]);
        Some(Self { bytes, kind, payload: bytes.get(14..)? })
    }

    fn address(&self, at: usize) -> Option<Ipv4Addr> {
        let octets: [u8; 4] = self.payload.get(at..at + 4)?.try_into().ok()?;
        Some(octets.into())
    }

    /// The address that its sender claims.
    fn sender(&self) -> Option<Ipv4Addr> {
        match self.kind {
            ARP => self.address(14),
            IPV4 => self.address(12),
            _ => None,
        }
    }

    /// The address of an ARP request.
    fn asks_for(&self) -> Option<Ipv4Addr> {
        let is_request = self.kind == ARP && self.payload.get(6..8)? == [0, 1];
        is_request.then(|| self.address(24)).flatten()
    }

    /// The ARP answer of [`OTHER_MACHINE`].
    fn answer(&self) -> Option<Vec<u8>> {
        let asker = self.bytes.get(6..12)?;
        let mut answer = [asker, &OTHER_MACHINE, self.bytes.get(12..20)?, &[0, 2], &OTHER_MACHINE].concat();
        answer.extend(self.payload.get(24..28)?);
        answer.extend(self.payload.get(8..18)?);
        answer.resize(60, 0);
        Some(answer)
    }

    /// Destination port of a packet of this protocol.
    fn port(&self, protocol: u8) -> Option<u16> {
        let header = usize::from(self.payload.first()? & 15) * 4;
        let is_it = self.kind == IPV4 && *self.payload.get(9)? == protocol;
        let port: [u8; 2] = self.payload.get(header + 2..header + 4)?.try_into().ok()?;
        is_it.then(|| u16::from_be_bytes(port))
    }

    fn udp_port(&self) -> Option<u16> {
        self.port(UDP)
    }

    fn is_too_large(&self, rules: &Rules) -> bool {
        rules.largest_frame.is_some_and(|largest| self.bytes.len() > largest)
    }

    fn is_lost(&self, rules: &Rules) -> bool {
        let dhcp = matches!(self.udp_port(), Some(DHCP_SERVER | DHCP_CLIENT));
        let silent = rules.silent_port.is_some() && self.port(TCP) == rules.silent_port;
        rules.no_dhcp && dhcp || silent
    }
}

#[test]
fn an_arp_question_is_understood_and_answered() {
    let vm = [0x52, 0x54, 0, 0, 0, 1];
    let request =
        [&[0xff; 6][..], &vm, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &vm, &[0; 4], &[0; 6], &[10, 0, 2, 78]].concat();
    let frame = Frame::read(&request).unwrap();
    assert_eq!((frame.sender(), frame.asks_for()), (Some(Ipv4Addr::UNSPECIFIED), Some(Ipv4Addr::new(10, 0, 2, 78))));
    let answer = frame.answer().unwrap();
    let answer = Frame::read(&answer).unwrap();
    assert_eq!((answer.sender(), answer.asks_for()), (Some(Ipv4Addr::new(10, 0, 2, 78)), None));
    assert_eq!((&answer.bytes[..6], &answer.bytes[6..12], answer.payload[7]), (&vm[..], &OTHER_MACHINE[..], 2));
    assert_eq!((&answer.payload[8..14], &answer.payload[18..24]), (&OTHER_MACHINE[..], &vm[..]));
}

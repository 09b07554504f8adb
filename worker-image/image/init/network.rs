//! Addresses: DHCP on all interfaces at once, or static ones that are probed before they are used, and again while they are.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use worker_image::{Bootstrap, Mac, StaticAddress, StaticAddressing};

use crate::processes::{self, Ended};

/// How often interfaces, links and leases are looked at.
const INTERVAL: Duration = Duration::from_millis(500);
/// A static address in use elsewhere is probed again after this long: the other machine may go.
const CONFLICT_RETRY: Duration = Duration::from_secs(10);
/// The first probe waits a random part of this: machines that start together would not hear each other's probes.
const PROBE_DELAY: Duration = Duration::from_secs(1);
/// A static address is probed again this long after its first use (and a random part of [`CONFIRM_SPREAD`] more, so that of two machines
/// that took it together only one lets go) …
const CONFIRM_AFTER: Duration = Duration::from_secs(3);
const CONFIRM_SPREAD: Duration = Duration::from_secs(8);
/// … and then as often as this.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// A client or probe that ended at once is started again after this long.
const RESTART: Duration = Duration::from_secs(2);
/// Without an answer for this long, the console says that there is no DHCP.
const NO_DHCP_AFTER: Duration = Duration::from_secs(6);
/// Bytes of a probe's output that are read.
const PROBE_OUTPUT_BYTES: u64 = 4096;
/// Before the further lines of an interface.
const INDENT: &str = "\n             ";
/// Route metric of the first interface; the others follow, so that default routes do not fight.
const FIRST_METRIC: usize = 100;

/// Where the kernel shows interfaces, where busybox is, and where leases are left.
struct Host {
    sys: PathBuf,
    busybox: PathBuf,
    leases: PathBuf,
}

/// All interfaces.
pub(crate) struct Network {
    host: Host,
    addressing: Option<StaticAddressing>,
    mtu: Option<u32>,
    interfaces: BTreeMap<String, Interface>,
    looked: Option<Instant>,
}

struct Interface {
    name: String,
    mac: Option<Mac>,
    wanted: Option<StaticAddress>,
    /// Wins over what a DHCP server says, bytes.
    mtu: Option<u32>,
    metric: usize,
    link: bool,
    /// How often the link came or went.
    link_changes: Option<String>,
    child: Option<u32>,
    output: Option<std::process::ChildStdout>,
    /// [`Interface::link_changes`] when the probe under way began.
    probed_at: Option<String>,
    state: State,
    problem: Option<String>,
}

enum State {
    /// Nothing runs for it until then.
    Idle { until: Instant },
    /// A DHCP client runs; since when without a lease.
    Dhcp { since: Instant },
    /// A static address is being probed; who answered the last time, if any.
    Probing { before: Option<String> },
    /// Another machine answered for the static address.
    Conflict { by: String, until: Instant },
    /// It has an address from a DHCP server.
    Leased(Lease),
    /// It has its static address, which is probed again then.
    Static { lease: Lease, probe_at: Instant },
}

/// An address in use.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lease {
    address: String,
    prefix: String,
    router: Option<String>,
    /// What the network says, bytes.
    mtu: Option<u32>,
    how: &'static str,
}

/// What a probe of an address found.
#[derive(Debug, PartialEq, Eq)]
enum Probe {
    /// Nobody answered, and everybody could.
    Free,
    /// This one answered.
    Taken(String),
    /// The link was not there throughout: it tells nothing.
    Unheard,
    /// It failed, in this way.
    Failed(String),
}

impl Probe {
    /// From how `arping -D` ended, what it said, and whether the link was up from its start to its end. It knows only answers (1) and
    /// none (0), and says "none" where it could not send, too.
    fn of(status: Option<i32>, how: &str, said: &str, link_throughout: bool) -> Self {
        match status {
            Some(1) => Self::Taken(answered_by(said)),
            Some(0) if link_throughout => Self::Free,
            _ if !link_throughout => Self::Unheard,
            _ => Self::Failed(format!("the probe of the static address failed ({how})")),
        }
    }
}

/// Reads what the DHCP script left: address, prefix, router, MTU; a dash for what is not known.
fn lease(text: &str) -> Option<Lease> {
    let mut fields = text.split_whitespace();
    let (address, prefix, router) = (fields.next()?, fields.next()?, fields.next()?);
    let known = |field: &str| (field != "-").then(|| field.to_owned());
    Some(Lease {
        address: known(address)?,
        prefix: known(prefix).unwrap_or_else(|| "?".into()),
        router: known(router),
        mtu: fields.next().and_then(|mtu| mtu.parse().ok()),
        how: "DHCP",
    })
}

/// Who answered a probe: `Unicast reply from 192.0.2.7 [52:54:00:00:00:07] 0.5ms`.
fn answered_by(output: &str) -> String {
    let inside = output.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(mac, _)| mac);
    inside.unwrap_or("another machine").to_owned()
}

/// A random part of `most`; `salt` tells machines apart whose random numbers are alike this early.
fn random_part(most: Duration, salt: &impl std::hash::Hash) -> Duration {
    let thousandths = RandomState::new().hash_one(salt) % 1000;
    most * u32::try_from(thousandths).unwrap_or(0) / 1000
}

impl Host {
    fn of_image() -> Self {
        Self { sys: "/sys/class/net".into(), busybox: "/bin/busybox".into(), leases: "/run/lease".into() }
    }

    /// Interfaces that stand for a device.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.sys).into_iter().flatten().flatten();
        let devices = entries.filter(|entry| entry.path().join("device").exists());
        devices.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn attribute(&self, interface: &str, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.sys.join(interface).join(name)).ok()?;
        Some(text.trim().to_owned())
    }

    fn lease(&self, interface: &str) -> Option<Lease> {
        lease(&fs::read_to_string(self.leases.join(interface)).ok()?)
    }

    fn busybox(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.busybox);
        command.arg(program).args(args).stderr(Stdio::null());
        command
    }

    /// Runs one of busybox's commands; it ends by itself within milliseconds.
    fn run(&self, program: &str, args: &[&str]) -> Result<(), String> {
        let output = self.busybox(program, args).env("PATH", "/bin").stderr(Stdio::piped()).output();
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                Err(format!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
            }
            Err(error) => Err(format!("{program}: {error}")),
        }
    }
}

impl Network {
    pub(crate) fn new(bootstrap: Option<&Bootstrap>) -> Self {
        // Programs on this machine may talk to each other; nothing depends on it.
        let _ = processes::start(Command::new("/bin/ifconfig").args(["lo", "127.0.0.1", "up"]));
        Self {
            host: Host::of_image(),
            addressing: bootstrap.and_then(|bootstrap| bootstrap.static_addressing.clone()),
            mtu: bootstrap.and_then(|bootstrap| bootstrap.mtu),
            interfaces: BTreeMap::new(),
            looked: None,
        }
    }

    /// Some interface can be used.
    pub(crate) fn has_address(&self) -> bool {
        self.interfaces.values().any(Interface::has_address)
    }

    /// Looks for new interfaces and moves each one on.
    pub(crate) fn tick(&mut self) {
        if self.looked.is_some_and(|looked| looked.elapsed() < INTERVAL) {
            return;
        }
        let now = Instant::now();
        self.looked = Some(now);
        for name in self.host.names() {
            if !self.interfaces.contains_key(&name) {
                let metric = FIRST_METRIC + self.interfaces.len();
                let interface = Interface::new(&self.host, &name, self.addressing.as_ref(), metric, self.mtu, now);
                self.interfaces.insert(name, interface);
            }
        }
        for interface in self.interfaces.values_mut() {
            interface.tick(&self.host, now);
        }
    }

    /// Takes note of a client or probe that ended.
    pub(crate) fn ended(&mut self, ended: &Ended) {
        for interface in self.interfaces.values_mut() {
            if interface.child == Some(ended.pid) {
                interface.ended(&self.host, ended.exit_status(), &ended.how(), Instant::now());
            }
        }
    }

    /// A line an interface, for the status.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.interfaces.values().map(|interface| interface.line(&self.host)).collect()
    }
}

impl Interface {
    fn new(
        host: &Host,
        name: &str,
        addressing: Option<&StaticAddressing>,
        metric: usize,
        mtu: Option<u32>,
        now: Instant,
    ) -> Self {
        let mac: Option<Mac> = host.attribute(name, "address").and_then(|mac| mac.parse().ok());
        let interface = Self {
            name: name.to_owned(),
            mac,
            wanted: mac.and_then(|mac| addressing?.for_mac(mac)),
            mtu,
            metric,
            link: false,
            link_changes: None,
            child: None,
            output: None,
            probed_at: None,
            state: State::Idle { until: now },
            problem: host.run("ip", &["link", "set", "dev", name, "up"]).err(),
        };
        interface.set_mtu(host);
        interface
    }

    /// A card that refuses it is used as it is; its line says so ([`Self::mtu_warning`]).
    fn set_mtu(&self, host: &Host) {
        if let Some(mtu) = self.mtu {
            let _ = host.run("ip", &["link", "set", "dev", &self.name, "mtu", &mtu.to_string()]);
        }
    }

    fn has_address(&self) -> bool {
        self.link && matches!(self.state, State::Leased(_) | State::Static { .. })
    }

    fn tick(&mut self, host: &Host, now: Instant) {
        self.look_at_link(host, now);
        match &self.state {
            State::Idle { until } | State::Conflict { until, .. } if self.link && now >= *until => {
                self.begin(host, now);
            }
            State::Static { probe_at, .. } if self.link && self.child.is_none() && now >= *probe_at => {
                if let (Some(wanted), Err(problem)) = (self.wanted, self.probe(host)) {
                    self.still_static(host, wanted, Probe::Failed(problem), now);
                }
            }
            State::Dhcp { .. } => {
                if let Some(lease) = host.lease(&self.name) {
                    self.state = State::Leased(lease);
                }
            }
            State::Leased(current) => match host.lease(&self.name) {
                None => self.state = State::Dhcp { since: now },
                Some(lease) if lease != *current => self.state = State::Leased(lease),
                Some(_) => {}
            },
            _ => {}
        }
    }

    /// Where the link has come (back), a static address is probed (again): nobody was asked meanwhile.
    fn look_at_link(&mut self, host: &Host, now: Instant) {
        let (link, changes) = self.link_now(host);
        let came = link && (!self.link || changes != self.link_changes);
        (self.link, self.link_changes) = (link, changes);
        if !came || self.wanted.is_none() {
            return;
        }
        let soon = now + random_part(PROBE_DELAY, &self.mac);
        match &mut self.state {
            State::Idle { until } => *until = soon.max(*until),
            State::Static { probe_at, .. } => *probe_at = soon.min(*probe_at),
            _ => {}
        }
    }

    /// Whether the link is up, and how often it has changed.
    fn link_now(&self, host: &Host) -> (bool, Option<String>) {
        // The number first: what changes in between is a change after it.
        let changes = host.attribute(&self.name, "carrier_changes");
        (host.attribute(&self.name, "carrier").is_some_and(|carrier| carrier == "1"), changes)
    }

    /// Asks for an address, or probes the one it is to use.
    fn begin(&mut self, host: &Host, now: Instant) {
        let started = match self.wanted {
            Some(_) => self.probe(host),
            None => self.ask(host),
        };
        match started {
            Ok(()) => {
                self.problem = None;
                self.state = match (&self.wanted, &self.state) {
                    (None, _) => State::Dhcp { since: now },
                    (Some(_), State::Conflict { by, .. }) => State::Probing { before: Some(by.clone()) },
                    (Some(_), _) => State::Probing { before: None },
                };
            }
            Err(problem) => self.fail(problem, now),
        }
    }

    /// Duplicate address detection: the sender's address is 0.0.0.0, so that nobody's tables change.
    fn probe(&mut self, host: &Host) -> Result<(), String> {
        let address = self.wanted_address();
        let mut arping = host.busybox("arping", &["-D", "-c", "3", "-w", "3", "-I", &self.name, &address]);
        self.probed_at.clone_from(&self.link_changes);
        self.start(arping.stdout(Stdio::piped()))
    }

    /// Starts the DHCP client.
    fn ask(&mut self, host: &Host) -> Result<(), String> {
        let mut client = host.busybox("udhcpc", &["-f", "-i", &self.name, "-s", "/etc/dhcp-lease", "-O", "mtu"]);
        client.args(["-t", "4", "-T", "1", "-A", "2"]);
        client.env("METRIC", self.metric.to_string()).stdout(Stdio::null());
        if let Some(mtu) = self.mtu {
            client.env("FIXED_MTU", mtu.to_string());
        }
        self.start(&mut client)
    }

    fn start(&mut self, command: &mut Command) -> Result<(), String> {
        let mut child = processes::start(command).map_err(|error| format!("busybox cannot be started: {error}"))?;
        self.child = Some(child.id());
        self.output = child.stdout.take();
        Ok(())
    }

    fn fail(&mut self, problem: String, now: Instant) {
        self.problem = Some(problem);
        self.state = State::Idle { until: now + RESTART };
    }

    /// The client or probe ended with this status, if by itself; `how` is for a person.
    fn ended(&mut self, host: &Host, status: Option<i32>, how: &str, now: Instant) {
        self.child = None;
        let mut said = Vec::new();
        if let Some(output) = self.output.take() {
            // What cannot be read tells nothing; the exit status decides.
            let _ = output.take(PROBE_OUTPUT_BYTES).read_to_end(&mut said);
        }
        let Some(wanted) = self.wanted else {
            return self.fail(format!("the DHCP client ended ({how})"), now);
        };
        let (link, changes) = self.link_now(host);
        let probe = Probe::of(status, how, &String::from_utf8_lossy(&said), link && changes == self.probed_at);
        if matches!(self.state, State::Static { .. }) {
            self.still_static(host, wanted, probe, now);
        } else {
            self.probed(host, wanted, probe, now);
        }
    }

    /// After a probe before the address is used.
    fn probed(&mut self, host: &Host, wanted: StaticAddress, probe: Probe, now: Instant) {
        match probe {
            Probe::Free => match self.use_static(host, wanted) {
                Ok(lease) => {
                    let spread = random_part(CONFIRM_SPREAD, &self.mac);
                    self.state = State::Static { lease, probe_at: now + CONFIRM_AFTER + spread };
                }
                Err(problem) => self.fail(problem, now),
            },
            Probe::Taken(by) => self.conflict(by, now),
            Probe::Unheard => self.state = State::Idle { until: now + random_part(PROBE_DELAY, &self.mac) },
            Probe::Failed(problem) => self.fail(problem, now),
        }
    }

    /// After a probe while the address is used. It is kept unless somebody answers.
    fn still_static(&mut self, host: &Host, wanted: StaticAddress, probe: Probe, now: Instant) {
        let State::Static { probe_at, .. } = &mut self.state else { return };
        *probe_at = match probe {
            Probe::Free => now + PROBE_INTERVAL,
            Probe::Unheard | Probe::Failed(_) => now + RESTART,
            Probe::Taken(by) => {
                // Its routes go with it.
                let address = format!("{}/{}", wanted.address, wanted.prefix);
                self.problem = host.run("ip", &["addr", "del", &address, "dev", &self.name]).err();
                return self.conflict(by, now);
            }
        };
    }

    fn conflict(&mut self, by: String, now: Instant) {
        let retry = CONFLICT_RETRY + random_part(CONFLICT_RETRY, &self.mac);
        self.state = State::Conflict { by, until: now + retry };
    }

    fn use_static(&self, host: &Host, wanted: StaticAddress) -> Result<Lease, String> {
        let StaticAddress { address, prefix, gateway } = wanted;
        let name = self.name.as_str();
        host.run("ip", &["addr", "replace", &format!("{address}/{prefix}"), "broadcast", "+", "dev", name])?;
        self.set_mtu(host);
        if let Some(gateway) = gateway {
            let (gateway, metric) = (gateway.to_string(), self.metric.to_string());
            host.run("ip", &["route", "replace", "default", "via", &gateway, "dev", name, "metric", &metric])?;
        }
        // A machine that probes the same address now hears of it; the probes to come do not depend on it.
        let mut announcement = host.busybox("arping", &["-U", "-c", "2", "-w", "2", "-I", name, &address.to_string()]);
        let _ = processes::start(announcement.stdout(Stdio::null()));
        Ok(Lease {
            address: address.to_string(),
            prefix: prefix.to_string(),
            router: gateway.map(|gateway| gateway.to_string()),
            mtu: None,
            how: "static",
        })
    }

    fn line(&self, host: &Host) -> String {
        let mac = self.mac.map_or_else(|| "no MAC".to_owned(), |mac| mac.to_string());
        let what = match (&self.problem, &self.state) {
            (Some(problem), _) => format!("PROBLEM: {problem}"),
            _ if !self.link => "NO LINK: the network adapter is not connected".into(),
            (_, State::Idle { .. }) => "is being set up".into(),
            (_, State::Dhcp { since }) if since.elapsed() > NO_DHCP_AFTER => "NO DHCP server answers".into(),
            (_, State::Dhcp { .. }) => "asks for an address (DHCP)".into(),
            (_, State::Probing { before: None }) => format!("probes its static address {}", self.wanted_address()),
            (_, State::Conflict { by, .. } | State::Probing { before: Some(by) }) => {
                format!("CONFLICT: {by} has {}: not used", self.wanted_address())
            }
            (_, State::Leased(lease) | State::Static { lease, .. }) => {
                let router = lease.router.as_deref().map_or_else(String::new, |router| format!(", router {router}"));
                let mtu = host.attribute(&self.name, "mtu").unwrap_or_default();
                format!("{}/{} ({}{router}, MTU {mtu})", lease.address, lease.prefix, lease.how)
            }
        };
        let warning = self.mtu_warning(host).map_or_else(String::new, |warning| format!("{INDENT}{warning}"));
        format!("{} {mac}{INDENT}{what}{warning}", self.name)
    }

    /// Where the interface has another MTU than it was told to have.
    fn mtu_warning(&self, host: &Host) -> Option<String> {
        let leased = || match &self.state {
            State::Leased(lease) => lease.mtu,
            _ => None,
        };
        let (wanted, from) = self.mtu.map(|mtu| (mtu, "the image")).or_else(|| Some((leased()?, "DHCP")))?;
        let has = host.attribute(&self.name, "mtu").filter(|has| *has != wanted.to_string())?;
        Some(format!("WARNING: the adapter refused MTU {wanted} (from {from}); it has {has}"))
    }

    fn wanted_address(&self) -> String {
        self.wanted.map(|wanted| wanted.address.to_string()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_without_router_or_prefix_is_a_lease() {
        let full = lease("10.0.2.15 24 10.0.2.2 1400\n").unwrap();
        assert_eq!(
            (full.address.as_str(), full.prefix.as_str(), full.router.as_deref()),
            ("10.0.2.15", "24", Some("10.0.2.2"))
        );
        assert_eq!(lease("10.0.2.15 - - -").unwrap().router, None);
        assert_eq!(lease(""), None);
        assert_eq!(lease("10.0.2.15"), None);
    }

    #[test]
    fn only_silence_on_a_link_that_was_up_throughout_frees_an_address() {
        let said = "Unicast reply from 192.0.2.50 [52:55:0a:00:02:03] 0.412ms";
        let of = |status, link| Probe::of(status, "so", said, link);
        assert_eq!(of(Some(0), true), Probe::Free);
        assert_eq!(
            (of(Some(0), false), of(Some(2), false), of(None, false)),
            (Probe::Unheard, Probe::Unheard, Probe::Unheard)
        );
        for status in [Some(2), Some(127), None] {
            assert!(matches!(of(status, true), Probe::Failed(_)), "{status:?} is no answer of another machine");
        }
        for link in [true, false] {
            assert_eq!(of(Some(1), link), Probe::Taken("52:55:0a:00:02:03".into()), "an answer is one");
        }
    }

    /// An interface `eth0` with a static address, and what stands for kernel and busybox.
    struct Bench {
        dir: tempfile::TempDir,
        host: Host,
        interface: Interface,
        now: Instant,
    }

    impl Bench {
        fn new(mtu: Option<u32>, refusals: &[(&str, &str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let eth0 = dir.path().join("sys/eth0");
            fs::create_dir_all(&eth0).unwrap();
            let files = [("address", "52:54:00:00:10:00"), ("mtu", "1500"), ("carrier", "1"), ("carrier_changes", "1")];
            for (name, text) in files {
                fs::write(eth0.join(name), format!("{text}\n")).unwrap();
            }
            for (name, words) in refusals {
                fs::write(dir.path().join(format!("refuse-{name}")), words).unwrap();
            }
            let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/init/busybox-of-tests.sh");
            std::os::unix::fs::symlink(stand_in, dir.path().join("busybox")).unwrap();
            let host =
                Host { sys: dir.path().join("sys"), busybox: dir.path().join("busybox"), leases: dir.path().into() };
            let range = worker_image::AddressRange {
                first_mac: "52:54:00:00:10:00".parse().unwrap(),
                first_address: [192, 0, 2, 50].into(),
                count: 1,
            };
            let addressing = StaticAddressing { ranges: vec![range], prefix: 24, gateway: Some([192, 0, 2, 1].into()) };
            let now = Instant::now();
            let interface = Interface::new(&host, "eth0", Some(&addressing), FIRST_METRIC, mtu, now);
            Self { dir, host, interface, now }
        }

        fn link(&self, up: bool, changes: u32) {
            fs::write(self.host.sys.join("eth0/carrier"), if up { "1" } else { "0" }).unwrap();
            fs::write(self.host.sys.join("eth0/carrier_changes"), changes.to_string()).unwrap();
        }

        fn after(&mut self, time: Duration) {
            self.now += time;
            self.interface.tick(&self.host, self.now);
        }

        /// The probe that is under way ends with this status.
        fn probe_ends(&mut self, status: i32) {
            assert!(self.interface.child.is_some(), "a probe is under way");
            self.interface.ended(&self.host, Some(status), "ended", self.now);
        }

        /// Probed and in use.
        fn in_use(mtu: Option<u32>, refusals: &[(&str, &str)]) -> Self {
            let mut bench = Self::new(mtu, refusals);
            bench.after(Duration::ZERO);
            bench.after(PROBE_DELAY);
            bench.probe_ends(0);
            bench
        }

        fn asked(&self, part: &str) -> usize {
            let asked = fs::read_to_string(self.dir.path().join("asked")).unwrap();
            asked.lines().filter(|line| line.contains(part)).count()
        }

        fn line(&self) -> String {
            self.interface.line(&self.host)
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_address_is_used_only_if_the_link_was_up_throughout_its_probe() {
        for (up, changes) in [(false, 2), (true, 3)] {
            let mut bench = Bench::new(None, &[]);
            bench.after(Duration::ZERO);
            bench.after(PROBE_DELAY);
            bench.link(up, changes);
            bench.probe_ends(0);
            assert!(!bench.interface.has_address() && bench.asked("addr replace") == 0, "{}", bench.line());
            bench.link(true, 3);
            bench.after(SECOND);
            bench.after(SECOND);
            bench.probe_ends(0);
            assert!(bench.interface.has_address() && bench.asked("addr replace") == 1, "{}", bench.line());
        }
    }

    #[test]
    fn a_probe_that_fails_is_no_conflict() {
        let mut bench = Bench::new(None, &[]);
        bench.after(Duration::ZERO);
        bench.after(PROBE_DELAY);
        bench.probe_ends(2);
        assert!(bench.line().contains("PROBLEM: the probe of the static address failed (ended)"), "{}", bench.line());
        bench.after(RESTART);
        bench.probe_ends(0);
        assert!(bench.line().contains("192.0.2.50/24 (static, router 192.0.2.1, MTU 1500)"), "{}", bench.line());
    }

    #[test]
    fn an_address_in_use_is_probed_again_soon_then_now_and_again_and_when_the_link_comes_back() {
        let mut bench = Bench::in_use(None, &[]);
        bench.after(CONFIRM_AFTER - SECOND);
        assert!(bench.interface.child.is_none());
        bench.after(CONFIRM_SPREAD + SECOND);
        bench.probe_ends(0);
        bench.after(PROBE_INTERVAL - SECOND);
        assert!(bench.interface.child.is_none());
        bench.after(SECOND);
        bench.probe_ends(0);
        // Gone and back between two looks.
        bench.link(true, 3);
        bench.after(SECOND);
        bench.after(PROBE_DELAY);
        bench.probe_ends(2);
        assert!(bench.interface.has_address(), "a probe that fails takes nothing away");
        bench.after(RESTART);
        bench.probe_ends(1);
        assert_eq!(bench.asked("addr del 192.0.2.50/24 dev eth0"), 1);
        assert!(!bench.interface.has_address(), "{}", bench.line());
        assert!(bench.line().contains("CONFLICT: another machine has 192.0.2.50: not used"), "{}", bench.line());
        bench.after(CONFLICT_RETRY * 2);
        bench.probe_ends(0);
        assert!(bench.interface.has_address(), "the other machine has gone: {}", bench.line());
    }

    #[test]
    fn a_refused_mtu_is_a_warning_and_the_address_and_its_route_are_used() {
        let bench = Bench::in_use(Some(9000), &[("mtu", "mtu greater than device maximum")]);
        assert!(bench.interface.has_address(), "{}", bench.line());
        assert_eq!((bench.asked("addr replace"), bench.asked("route replace default via 192.0.2.1")), (1, 1));
        let line = bench.line();
        assert!(line.contains("(static, router 192.0.2.1, MTU 1500)"), "{line}");
        assert!(line.contains("WARNING: the adapter refused MTU 9000 (from the image); it has 1500"), "{line}");
        assert!(line.lines().all(|line| line.len() <= 80), "{line}");
        let bench = Bench::in_use(Some(1500), &[]);
        assert!(!bench.line().contains("WARNING"), "{}", bench.line());
    }

    #[test]
    fn what_dhcp_says_of_the_mtu_is_warned_of_where_it_is_refused() {
        let mut bench = Bench::new(None, &[]);
        bench.interface.wanted = None;
        bench.after(Duration::ZERO);
        fs::write(bench.dir.path().join("eth0"), "10.0.2.15 24 10.0.2.2 1400\n").unwrap();
        bench.after(SECOND);
        bench.after(SECOND);
        assert!(bench.interface.has_address(), "{}", bench.line());
        assert!(bench.line().contains("refused MTU 1400 (from DHCP); it has 1500"), "{}", bench.line());
        fs::write(bench.host.sys.join("eth0/mtu"), "1400\n").unwrap();
        assert!(!bench.line().contains("WARNING"), "{}", bench.line());
    }

    #[test]
    fn an_address_that_cannot_be_set_is_tried_again() {
        let mut bench = Bench::in_use(None, &[("ip", "ip: RTNETLINK answers: Operation not permitted")]);
        assert!(bench.line().contains("PROBLEM: ip addr replace"), "{}", bench.line());
        fs::remove_file(bench.dir.path().join("refuse-ip")).unwrap();
        bench.after(RESTART);
        bench.probe_ends(0);
        assert!(bench.interface.has_address(), "{}", bench.line());
    }

    #[test]
    fn a_conflict_names_the_machine_that_answered() {
        let output = "ARPING 10.0.2.3 from 0.0.0.0 eth0\nUnicast reply from 10.0.2.3 [52:55:0a:00:02:03] 0.412ms\n";
        assert_eq!(answered_by(output), "52:55:0a:00:02:03");
        assert_eq!(answered_by(""), "another machine");
    }
}

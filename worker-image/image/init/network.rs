//! Addresses: DHCP on all interfaces at once, or static ones that are probed before they are used.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use worker_image::{Bootstrap, Mac, StaticAddress, StaticAddressing};

use crate::processes::{self, Ended};

/// How often interfaces, links and leases are looked at.
const INTERVAL: Duration = Duration::from_millis(500);
/// A static address in use elsewhere is probed again after this long: the other machine may go.
const CONFLICT_RETRY: Duration = Duration::from_secs(10);
/// A client or probe that ended at once is started again after this long.
const RESTART: Duration = Duration::from_secs(2);
/// Without an answer for this long, the console says that there is no DHCP.
const NO_DHCP_AFTER: Duration = Duration::from_secs(6);
/// Bytes of a probe's output that are read.
const PROBE_OUTPUT_BYTES: u64 = 4096;
/// Route metric of the first interface; the others follow, so that default routes do not fight.
const FIRST_METRIC: usize = 100;

/// All interfaces.
pub(crate) struct Network {
    addressing: Option<StaticAddressing>,
    mtu: Option<u32>,
    interfaces: BTreeMap<String, Interface>,
    looked: Option<Instant>,
}

struct Interface {
    mac: Option<Mac>,
    wanted: Option<StaticAddress>,
    metric: usize,
    link: bool,
    child: Option<u32>,
    output: Option<std::process::ChildStdout>,
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
    /// It has an address.
    Ready(Lease),
}

/// An address in use.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lease {
    address: String,
    prefix: String,
    router: Option<String>,
    how: &'static str,
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
        how: "DHCP",
    })
}

/// Who answered a probe: `Unicast reply from 192.0.2.7 [52:54:00:00:00:07] 0.5ms`.
fn answered_by(output: &str) -> String {
    let inside = output.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(mac, _)| mac);
    inside.unwrap_or("another machine").to_owned()
}

impl Network {
    pub(crate) fn new(bootstrap: Option<&Bootstrap>) -> Self {
        // Programs on this machine may talk to each other; nothing depends on it.
        let _ = processes::start(Command::new("/bin/ifconfig").args(["lo", "127.0.0.1", "up"]));
        Self {
            addressing: bootstrap.and_then(|bootstrap| bootstrap.static_addressing.clone()),
            mtu: bootstrap.and_then(|bootstrap| bootstrap.mtu),
            interfaces: BTreeMap::new(),
            looked: None,
        }
    }

    /// Some interface can be used.
    pub(crate) fn has_address(&self) -> bool {
        self.interfaces.values().any(|interface| interface.link && matches!(interface.state, State::Ready(_)))
    }

    /// Looks for new interfaces and moves each one on.
    pub(crate) fn tick(&mut self) {
        if self.looked.is_some_and(|looked| looked.elapsed() < INTERVAL) {
            return;
        }
        self.looked = Some(Instant::now());
        for name in names() {
            if !self.interfaces.contains_key(&name) {
                let interface =
                    Interface::new(&name, self.addressing.as_ref(), FIRST_METRIC + self.interfaces.len(), self.mtu);
                self.interfaces.insert(name, interface);
            }
        }
        for (name, interface) in &mut self.interfaces {
            interface.tick(name, self.mtu);
        }
    }

    /// Takes note of a client or probe that ended.
    pub(crate) fn ended(&mut self, ended: &Ended) {
        for (name, interface) in &mut self.interfaces {
            if interface.child == Some(ended.pid) {
                interface.ended(name, ended, self.mtu);
            }
        }
    }

    /// A line an interface, for the status.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.interfaces.iter().map(|(name, interface)| interface.line(name)).collect()
    }
}

/// Interfaces that stand for a device.
fn names() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let devices = entries.filter(|entry| entry.path().join("device").exists());
    devices.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn attribute(interface: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/{name}")).ok()?;
    Some(text.trim().to_owned())
}

/// Runs one of busybox's commands; it ends by itself within milliseconds.
fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new("/bin/busybox").arg(program).args(args).env("PATH", "/bin").output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

impl Interface {
    fn new(name: &str, addressing: Option<&StaticAddressing>, metric: usize, mtu: Option<u32>) -> Self {
        let mac: Option<Mac> = attribute(name, "address").and_then(|mac| mac.parse().ok());
        let wanted = mac.and_then(|mac| addressing?.for_mac(mac));
        let up = run("ip", &["link", "set", "dev", name, "up"]);
        let sized = mtu.map_or(Ok(()), |mtu| run("ip", &["link", "set", "dev", name, "mtu", &mtu.to_string()]));
        Self {
            mac,
            wanted,
            metric,
            link: false,
            child: None,
            output: None,
            state: State::Idle { until: Instant::now() },
            problem: up.and(sized).err(),
        }
    }

    fn tick(&mut self, name: &str, mtu: Option<u32>) {
        self.link = attribute(name, "carrier").is_some_and(|carrier| carrier == "1");
        match &self.state {
            State::Idle { until } if self.link && Instant::now() >= *until => self.begin(name, mtu),
            State::Conflict { until, .. } if self.link && Instant::now() >= *until => self.begin(name, mtu),
            State::Dhcp { .. } => {
                if let Some(lease) = read_lease(name) {
                    self.state = State::Ready(lease);
                }
            }
            State::Ready(current) if self.wanted.is_none() => match read_lease(name) {
                None => self.state = State::Dhcp { since: Instant::now() },
                Some(lease) if lease != *current => self.state = State::Ready(lease),
                Some(_) => {}
            },
            _ => {}
        }
    }

    /// Asks for an address, or probes the one it is to use.
    fn begin(&mut self, name: &str, mtu: Option<u32>) {
        let mut command = Command::new("/bin/busybox");
        match self.wanted {
            Some(StaticAddress { address, .. }) => {
                // Duplicate address detection: the sender's address is 0.0.0.0, so that nobody's tables change.
                command
                    .args(["arping", "-D", "-c", "3", "-w", "3", "-I", name, &address.to_string()])
                    .stdout(Stdio::piped());
            }
            None => {
                command.args([
                    "udhcpc",
                    "-f",
                    "-i",
                    name,
                    "-s",
                    "/etc/dhcp-lease",
                    "-O",
                    "mtu",
                    "-t",
                    "4",
                    "-T",
                    "1",
                    "-A",
                    "2",
                ]);
                command.env("METRIC", self.metric.to_string()).stdout(Stdio::null());
                if let Some(mtu) = mtu {
                    command.env("FIXED_MTU", mtu.to_string());
                }
            }
        }
        match processes::start(command.stderr(Stdio::null())) {
            Ok(mut child) => {
                self.child = Some(child.id());
                self.output = child.stdout.take();
                self.problem = None;
                self.state = match (&self.wanted, &self.state) {
                    (None, _) => State::Dhcp { since: Instant::now() },
                    (Some(_), State::Conflict { by, .. }) => State::Probing { before: Some(by.clone()) },
                    (Some(_), _) => State::Probing { before: None },
                };
            }
            Err(error) => self.fail(format!("busybox cannot be started: {error}")),
        }
    }

    fn fail(&mut self, problem: String) {
        self.problem = Some(problem);
        self.state = State::Idle { until: Instant::now() + RESTART };
    }

    fn ended(&mut self, name: &str, ended: &Ended, mtu: Option<u32>) {
        self.child = None;
        let mut said = Vec::new();
        if let Some(output) = self.output.take() {
            // What cannot be read tells nothing; the exit status decides.
            let _ = output.take(PROBE_OUTPUT_BYTES).read_to_end(&mut said);
        }
        match (self.wanted, ended.well()) {
            (Some(address), true) => match self.use_static(name, address, mtu) {
                Ok(lease) => self.state = State::Ready(lease),
                Err(problem) => self.fail(problem),
            },
            (Some(_), false) => {
                let by = answered_by(&String::from_utf8_lossy(&said));
                self.state = State::Conflict { by, until: Instant::now() + CONFLICT_RETRY };
            }
            (None, _) => self.fail(format!("the DHCP client ended ({})", ended.how())),
        }
    }

    fn use_static(&self, name: &str, wanted: StaticAddress, mtu: Option<u32>) -> Result<Lease, String> {
        let StaticAddress { address, prefix, gateway } = wanted;
        run("ip", &["addr", "add", &format!("{address}/{prefix}"), "broadcast", "+", "dev", name])?;
        if let Some(mtu) = mtu {
            run("ip", &["link", "set", "dev", name, "mtu", &mtu.to_string()])?;
        }
        if let Some(gateway) = gateway {
            let (gateway, metric) = (gateway.to_string(), self.metric.to_string());
            run("ip", &["route", "add", "default", "via", &gateway, "dev", name, "metric", &metric])?;
        }
        Ok(Lease {
            address: address.to_string(),
            prefix: prefix.to_string(),
            router: gateway.map(|gateway| gateway.to_string()),
            how: "static",
        })
    }

    fn line(&self, name: &str) -> String {
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
            (_, State::Ready(lease)) => {
                let router = lease.router.as_deref().map_or_else(String::new, |router| format!(", router {router}"));
                let mtu = attribute(name, "mtu").unwrap_or_default();
                format!("{}/{} ({}{router}, MTU {mtu})", lease.address, lease.prefix, lease.how)
            }
        };
        format!("{name} {mac}\n             {what}")
    }

    fn wanted_address(&self) -> String {
        self.wanted.map(|wanted| wanted.address.to_string()).unwrap_or_default()
    }
}

fn read_lease(name: &str) -> Option<Lease> {
    lease(&fs::read_to_string(format!("/run/lease/{name}")).ok()?)
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
    fn a_conflict_names_the_machine_that_answered() {
        let output = "ARPING 10.0.2.3 from 0.0.0.0 eth0\nUnicast reply from 10.0.2.3 [52:55:0a:00:02:03] 0.412ms\n";
        assert_eq!(answered_by(output), "52:55:0a:00:02:03");
        assert_eq!(answered_by(""), "another machine");
    }
}

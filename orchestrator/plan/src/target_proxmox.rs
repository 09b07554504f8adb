//! The plan's `target: {provider: proxmox, …}`. What is allowed is what the provider's settings allow.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::decode::{BOOLEAN, Choice, Count, Fields, Name, Refusal, Rule, Text, items, value};
use crate::limits;
use crate::problem::{Problems, Reported, excerpt};
use crate::proxmox::{
    Addressing, Aio, Cluster, DiskOptions, Format, Nodes, ProxmoxTarget, SecretSource, TaskLimits, TokenSource, Trust,
    VmidRange,
};
use crate::target::PATH_CHARS;
use crate::yaml::{Key, Kind, Node};

const FIELDS: [&str; 18] = [
    "provider",
    "connection",
    "endpoint",
    "token",
    "tls",
    "nodes",
    "storage",
    "iso_storage",
    "bridge",
    "vlan",
    "pool",
    "vmids",
    "name_prefix",
    "disks",
    "limits",
    "image",
    "addressing",
    "mtu",
];

/// Names in a cluster.
const CLUSTER_NAME: Name = Name(limits::CLUSTER_NAME_CHARS);

const AIO: Choice<'static, Aio> =
    Choice(&[("io_uring", Aio::IoUring), ("native", Aio::Native), ("threads", Aio::Threads)]);

const FORMAT: Choice<'static, Format> = Choice(&[("raw", Format::Raw), ("qcow2", Format::Qcow2)]);

/// Reads the target, whose provider is known to be this one.
pub(crate) fn read(node: &Node, problems: &mut Problems) -> Result<ProxmoxTarget, Reported> {
    let fields = Fields::of(node, "target", &FIELDS, problems)?;
    let cluster = cluster(&fields, problems);
    let nodes = fields.node("nodes").map(|node| nodes(node, problems)).transpose();
    let [storage, iso_storage, bridge] =
        ["storage", "iso_storage", "bridge"].map(|name| fields.required(name, &CLUSTER_NAME, problems));
    let vlan = fields.optional("vlan", &Small(limits::VLAN), problems);
    let pool = fields.optional("pool", &CLUSTER_NAME, problems);
    let vmids = vmids(&fields, problems);
    let name_prefix = fields.optional("name_prefix", &NamePrefix, problems);
    let disks = disks(&fields, problems);
    let limits = task_limits(&fields, problems);
    let image = fields.optional("image", &Text(1..=PATH_CHARS), problems);
    let addressing = fields.node("addressing").map(|node| addressing(node, problems)).transpose();
    let mtu = fields.optional("mtu", &Count(limits::MTU), problems);
    Ok(ProxmoxTarget {
        cluster: cluster?,
        nodes: nodes?,
        storage: storage?,
        iso_storage: iso_storage?,
        bridge: bridge?,
        vlan: vlan?,
        pool: pool?,
        vmids: vmids?,
        name_prefix: name_prefix?.unwrap_or_else(|| "fourcorners".to_owned()),
        disks: disks?,
        limits: limits?,
        image: image?.map(PathBuf::from),
        addressing: addressing?.unwrap_or(Addressing::Dhcp),
        mtu: mtu?,
    })
}

fn cluster(fields: &Fields<'_>, problems: &mut Problems) -> Result<Cluster, Reported> {
    if fields.node("connection").is_none() {
        let endpoint = match fields.node("endpoint") {
            Some(node) => value(&Endpoint, node, "target.endpoint", problems),
            None => Err(fields.missing("connection", NO_CLUSTER, problems)),
        };
        // Without an endpoint, one problem says all.
        let token = if fields.node("endpoint").is_some() { token(fields, problems) } else { Err(Reported) };
        let tls = tls(fields, problems);
        return Ok(Cluster::Given { endpoint: endpoint?, token: token?, tls: tls? });
    }
    let connection = fields.required("connection", &Name(limits::CONNECTION_NAME_CHARS), problems);
    for name in ["endpoint", "token", "tls"] {
        if let Some(node) = fields.node(name) {
            let allowed = "nothing beside connection, which brings its own";
            return Err(problems.add(node.place, &fields.path_of(name), node.found(), allowed, None));
        }
    }
    Ok(Cluster::Saved { connection: connection? })
}

/// What a target without a cluster is told.
const NO_CLUSTER: &str = "the name of a connection that `fourcorners connect` saved, or endpoint and token";

fn token(fields: &Fields<'_>, problems: &mut Problems) -> Result<TokenSource, Reported> {
    let names = ["id", "secret_env", "secret_file"];
    let node = fields.required_node("token", "the fields id and secret_env or secret_file", problems)?;
    let fields = Fields::of(node, "target.token", &names, problems)?;
    let id = fields.required("id", &TokenId, problems);
    let variable = fields.optional("secret_env", &Variable, problems);
    let file = fields.optional("secret_file", &Text(1..=PATH_CHARS), problems);
    let secret = match (variable?, file?) {
        (Some(variable), None) => SecretSource::SecretEnv(variable),
        (None, Some(file)) => SecretSource::SecretFile(file.into()),
        (None, None) => return Err(problems.add(node.place, "target.token", "no secret", ONE_SECRET, None)),
        (Some(_), Some(_)) => return Err(problems.add(node.place, "target.token", "two secrets", ONE_SECRET, None)),
    };
    Ok(TokenSource { id: id?, secret })
}

const ONE_SECRET: &str = "secret_env (an environment variable) or secret_file (a file that only you may read)";

fn tls(fields: &Fields<'_>, problems: &mut Problems) -> Result<Trust, Reported> {
    let Some(node) = fields.node("tls") else { return Ok(Trust::System) };
    let fields = Fields::of(node, "target.tls", &["ca_file", "fingerprint"], problems)?;
    let file = fields.optional("ca_file", &Text(1..=PATH_CHARS), problems);
    let fingerprint = fields.optional("fingerprint", &Fingerprint, problems);
    match (file?, fingerprint?) {
        (None, None) => Ok(Trust::System),
        (Some(file), None) => Ok(Trust::CaFile(file.into())),
        (None, Some(fingerprint)) => Ok(Trust::Fingerprint(fingerprint)),
        (Some(_), Some(_)) => {
            let allowed = "one of them: ca_file trusts what it issued, fingerprint one certificate";
            Err(problems.add(node.place, "target.tls", "ca_file and fingerprint", allowed, None))
        }
    }
}

/// A list of names, or names with counts.
fn nodes(node: &Node, problems: &mut Problems) -> Result<Nodes, Reported> {
    let path = "target.nodes";
    if let Kind::Mapping(entries) = &node.kind {
        return counts(node, entries, problems);
    }
    let Kind::Sequence(_) = node.kind else {
        let allowed = "a list of node names, or node names with a count of workers each";
        return Err(problems.add(node.place, path, node.found(), allowed, None));
    };
    let listed = items(node, path, limits::NODES, "node names", problems)?;
    let mut seen = BTreeSet::new();
    let mut one = |(index, node): (usize, &Node)| {
        let field = format!("{path}[{index}]");
        let name = value(&CLUSTER_NAME, node, &field, problems)?;
        match seen.insert(name.clone()) {
            true => Ok(name),
            false => Err(problems.add(node.place, &field, format!("{} again", excerpt(&name)), "each node once", None)),
        }
    };
    let read: Vec<_> = listed.iter().enumerate().map(&mut one).collect();
    read.into_iter().collect::<Result<_, _>>().map(Nodes::Evenly)
}

fn counts(node: &Node, entries: &[(Key, Node)], problems: &mut Problems) -> Result<Nodes, Reported> {
    let path = "target.nodes";
    let mut counts = BTreeMap::new();
    let mut complete = Ok(());
    for (key, count) in entries {
        let count = value(&Count(limits::WORKERS_ON_NODE), count, &format!("{path}.{}", key.name), problems);
        let known = CLUSTER_NAME.read(&key.name).is_ok();
        match count {
            Ok(count) if known && !counts.contains_key(&*key.name) => {
                counts.insert(key.name.to_string(), count);
            }
            Ok(_) => {
                let allowed = format!("each node once, by {}", CLUSTER_NAME.allowed());
                complete = Err(problems.add(key.place, path, excerpt(&key.name), allowed, None));
            }
            Err(reported) => complete = Err(reported),
        }
    }
    complete?;
    if counts.len() > *limits::NODES.end() || counts.values().all(|count| *count == 0) {
        let allowed = format!("{} to {} nodes, one of them with a worker", limits::NODES.start(), limits::NODES.end());
        let found = format!(
            "{} without a worker, {} in all",
            counts.values().filter(|count| **count == 0).count(),
            counts.len()
        );
        return Err(problems.add(node.place, path, found, allowed, None));
    }
    Ok(Nodes::Counts(counts))
}

fn vmids(fields: &Fields<'_>, problems: &mut Problems) -> Result<VmidRange, Reported> {
    let Some(node) = fields.node("vmids") else { return Ok(VmidRange::default()) };
    let fields = Fields::of(node, "target.vmids", &["first", "last"], problems)?;
    let [first, last] = ["first", "last"].map(|name| fields.required(name, &Count(limits::VMID), problems));
    let range = VmidRange { first: first?, last: last? };
    if range.first > range.last {
        let found = format!("{} to {}", range.first, range.last);
        return Err(problems.add(node.place, "target.vmids", found, "first not above last", None));
    }
    Ok(range)
}

fn disks(fields: &Fields<'_>, problems: &mut Problems) -> Result<DiskOptions, Reported> {
    let Some(node) = fields.node("disks") else { return Ok(DiskOptions::default()) };
    let fields = Fields::of(node, "target.disks", &["discard", "ssd", "aio", "format"], problems)?;
    let [discard, ssd] = ["discard", "ssd"].map(|name| fields.optional(name, &BOOLEAN, problems));
    let aio = fields.optional("aio", &AIO, problems);
    let format = fields.optional("format", &FORMAT, problems);
    Ok(DiskOptions { discard: discard?.unwrap_or(false), ssd: ssd?.unwrap_or(false), aio: aio?, format: format? })
}

fn task_limits(fields: &Fields<'_>, problems: &mut Problems) -> Result<TaskLimits, Reported> {
    let usual = TaskLimits::default();
    let Some(node) = fields.node("limits") else { return Ok(usual) };
    let names = ["cluster", "node", "storage"];
    let fields = Fields::of(node, "target.limits", &names, problems)?;
    let [cluster, node, storage] = names.map(|name| fields.optional(name, &Count(limits::TASKS), problems));
    Ok(TaskLimits {
        cluster: cluster?.unwrap_or(usual.cluster),
        node: node?.unwrap_or(usual.node),
        storage: storage?.unwrap_or(usual.storage),
    })
}

/// `dhcp`, or the first address of a network without it.
fn addressing(node: &Node, problems: &mut Problems) -> Result<Addressing, Reported> {
    let path = "target.addressing";
    let Kind::Mapping(_) = &node.kind else {
        let dhcp = Choice(&[("dhcp", Addressing::Dhcp)]);
        return match &node.kind {
            Kind::Scalar(text) if &**text == "dhcp" => value(&dhcp, node, path, problems),
            _ => Err(problems.add(node.place, path, node.found(), "dhcp or the fields first, prefix, gateway", None)),
        };
    };
    let fields = Fields::of(node, path, &["first", "prefix", "gateway"], problems)?;
    let first = fields.required("first", &Address, problems);
    let prefix = fields.required("prefix", &Small(limits::PREFIX_BITS), problems);
    let gateway = fields.optional("gateway", &Address, problems);
    let prefix = u8::try_from(prefix?).unwrap_or(u8::MAX);
    Ok(Addressing::Static { first: first?, prefix, gateway: gateway? })
}

/// A whole number that fits `u16`.
struct Small(std::ops::RangeInclusive<u64>);

impl Rule for Small {
    type Value = u16;

    fn allowed(&self) -> String {
        Count(self.0.clone()).allowed()
    }

    fn read(&self, text: &str) -> Result<u16, Refusal> {
        u16::try_from(Count(self.0.clone()).read(text)?).map_err(|_| Refusal::default())
    }
}

/// `https://HOST[:PORT]`.
struct Endpoint;

impl Rule for Endpoint {
    type Value = String;

    fn allowed(&self) -> String {
        "https://HOST or https://HOST:PORT of a node (8006 if no port is given), without user, path or query".to_owned()
    }

    fn read(&self, text: &str) -> Result<String, Refusal> {
        let authority = text.strip_prefix("https://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let (host, port) = authority.and_then(host_and_port).ok_or_else(Refusal::default)?;
        let port_ok = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0) && !port.starts_with('+'));
        if is_host(host) && port_ok { Ok(text.to_owned()) } else { Err(Refusal::default()) }
    }
}

/// Host and port of an authority; an IPv6 address is in brackets.
fn host_and_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if authority.starts_with('[') {
        let end = authority.find(']')? + 1;
        let (host, rest) = authority.split_at(end);
        return if rest.is_empty() { Some((host, None)) } else { Some((host, Some(rest.strip_prefix(':')?))) };
    }
    match authority.split_once(':') {
        Some((host, port)) => Some((host, Some(port))),
        None => Some((authority, None)),
    }
}

/// An IP address, or a name whose last part does not look like a number (a URL would read that as an address).
fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let named = host.split('.').all(label) && !host.contains("xn--");
    let numeric = host.rsplit('.').next().is_some_and(|last| last.starts_with(|first: char| first.is_ascii_digit()));
    host.parse::<Ipv4Addr>().is_ok() || (named && !numeric)
}

/// `user@realm!name`.
struct TokenId;

impl Rule for TokenId {
    type Value = String;

    fn allowed(&self) -> String {
        "the token's id, user@realm!name; its secret does not belong into a plan".to_owned()
    }

    fn read(&self, text: &str) -> Result<String, Refusal> {
        let (user, name) = text.split_once('!').ok_or_else(Refusal::default)?;
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=');
        let complete = user.split_once('@').is_some_and(|(user, realm)| !user.is_empty() && !realm.is_empty());
        if plain && complete && !name.is_empty() { Ok(text.to_owned()) } else { Err(Refusal::default()) }
    }
}

/// Name of an environment variable.
struct Variable;

impl Rule for Variable {
    type Value = String;

    fn allowed(&self) -> String {
        "the name of an environment variable: letters, digits and _, the first no digit".to_owned()
    }

    fn read(&self, text: &str) -> Result<String, Refusal> {
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let begins = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        if plain && begins { Ok(text.to_owned()) } else { Err(Refusal::default()) }
    }
}

/// SHA-256 of a certificate, as PVE writes it.
struct Fingerprint;

impl Rule for Fingerprint {
    type Value = String;

    fn allowed(&self) -> String {
        "the 32 bytes of a SHA-256 as AB:CD:… or abcd…".to_owned()
    }

    fn read(&self, text: &str) -> Result<String, Refusal> {
        let digits: String = text.chars().filter(|character| *character != ':').collect();
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(Refusal::default());
        }
        let pairs: Vec<&str> = (0..32).map(|at| &digits[2 * at..2 * at + 2]).collect();
        Ok(pairs.join(":").to_ascii_uppercase())
    }
}

/// An IPv4 address.
struct Address;

impl Rule for Address {
    type Value = Ipv4Addr;

    fn allowed(&self) -> String {
        "an IPv4 address, such as 192.0.2.50".to_owned()
    }

    fn read(&self, text: &str) -> Result<Ipv4Addr, Refusal> {
        text.parse().map_err(|_| Refusal::default())
    }
}

/// Beginning of VM names.
struct NamePrefix;

impl Rule for NamePrefix {
    type Value = String;

    fn allowed(&self) -> String {
        let chars = limits::NAME_PREFIX_CHARS;
        format!("{} to {} letters, digits and hyphens, the first no hyphen", chars.start(), chars.end())
    }

    fn read(&self, text: &str) -> Result<String, Refusal> {
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') && !text.starts_with('-');
        if plain && limits::NAME_PREFIX_CHARS.contains(&text.len()) {
            Ok(text.to_owned())
        } else {
            Err(Refusal::default())
        }
    }
}

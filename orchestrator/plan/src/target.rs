//! The plan's `target:` of the local provider, and which provider it is.

use std::path::PathBuf;

use crate::decode::{Choice, Fields, Size, Text, WholeNumber, items, value};
use crate::limits;
use crate::model::{Isolation, LocalTarget, Target, Throttle};
use crate::problem::{Problems, Reported};
use crate::target_proxmox;
use crate::yaml::{Kind, Node};

/// Longest path of a file or directory, characters.
pub(crate) const PATH_CHARS: usize = 4096;

const PROVIDERS: Choice<'static, ()> = Choice(&[("local", ()), ("proxmox", ())]);

const LOCAL_FIELDS: [&str; 5] = ["provider", "disk_dir", "isolation", "image", "throttle"];

/// Whether workers are VMs.
const ISOLATION: Choice<'static, bool> = Choice(&[("process", false), ("vm", true)]);

/// Reads the target.
pub(crate) fn read(fields: &Fields<'_>, problems: &mut Problems) -> Result<Target, Reported> {
    let node = fields.required_node("target", "{provider: local} or {provider: proxmox, …}", problems)?;
    match named(node) {
        Some("proxmox") => target_proxmox::read(node, problems).map(|target| Target::Proxmox(Box::new(target))),
        Some("local") | None => local(node, problems),
        // What the other fields mean is not known.
        Some(_) => Err(unknown(node, problems)),
    }
}

fn unknown(node: &Node, problems: &mut Problems) -> Reported {
    let entries = if let Kind::Mapping(entries) = &node.kind { entries.as_slice() } else { &[] };
    for (_, provider) in entries.iter().filter(|(key, _)| &*key.name == "provider") {
        // Not one of them: reported there.
        let _ = value(&PROVIDERS, provider, "target.provider", problems);
    }
    Reported
}

/// The provider as the plan spells it: which fields the others are depends on it.
pub(crate) fn named(target: &Node) -> Option<&str> {
    spelled(target, "provider")
}

/// Whether a local target's workers are VMs, as the plan spells it.
pub(crate) fn asks_for_vms(target: &Node) -> bool {
    spelled(target, "isolation") == Some("vm")
}

/// A field of the target as the plan spells it.
fn spelled<'a>(target: &'a Node, field: &str) -> Option<&'a str> {
    let Kind::Mapping(entries) = &target.kind else { return None };
    match &entries.iter().find(|(key, _)| &*key.name == field)?.1.kind {
        Kind::Scalar(text) => Some(text),
        Kind::Nothing | Kind::Sequence(_) | Kind::Mapping(_) => None,
    }
}

fn local(node: &Node, problems: &mut Problems) -> Result<Target, Reported> {
    let fields = Fields::of(node, "target", &LOCAL_FIELDS, problems)?;
    let provider = fields.required("provider", &PROVIDERS, problems);
    let disk_dir = fields.optional("disk_dir", &Text(1..=PATH_CHARS), problems);
    let isolation = isolation(&fields, problems);
    provider?;
    Ok(Target::Local(LocalTarget { disk_dir: disk_dir?.map(PathBuf::from), isolation: isolation? }))
}

fn isolation(fields: &Fields<'_>, problems: &mut Problems) -> Result<Isolation, Reported> {
    let vm = fields.optional("isolation", &ISOLATION, problems)?.unwrap_or(false);
    let image = fields.optional("image", &Text(1..=PATH_CHARS), problems);
    let throttle = throttles(fields, problems);
    if vm {
        return Ok(Isolation::Vm { image: image?.map(PathBuf::from), throttle: throttle? });
    }
    for name in ["image", "throttle"] {
        if let Some(node) = fields.node(name) {
            let allowed = "nothing, unless the plan says isolation: vm";
            return Err(problems.add(node.place, &fields.path_of(name), node.found(), allowed, None));
        }
    }
    Ok(Isolation::Process)
}

/// One group of limits for every disk, or a list of them.
fn throttles(fields: &Fields<'_>, problems: &mut Problems) -> Result<Vec<Throttle>, Reported> {
    let Some(node) = fields.node("throttle") else { return Ok(Vec::new()) };
    let path = fields.path_of("throttle");
    if let Kind::Sequence(_) = node.kind {
        let nodes = items(node, &path, limits::THROTTLES, "groups of limits", problems)?;
        let read = nodes.iter().enumerate().map(|(index, node)| throttle(node, &format!("{path}[{index}]"), problems));
        return read.collect::<Vec<_>>().into_iter().collect();
    }
    Ok(vec![throttle(node, &path, problems)?])
}

fn throttle(node: &Node, path: &str, problems: &mut Problems) -> Result<Throttle, Reported> {
    let fields = Fields::of(node, path, &["iops", "bytes_per_second"], problems)?;
    let iops = fields.optional("iops", &WholeNumber(limits::THROTTLE_IOPS), problems);
    let rate = Size { range: limits::THROTTLE_BYTES_PER_SECOND, step: 1 };
    let bytes_per_second = fields.optional("bytes_per_second", &rate, problems);
    let throttle = Throttle { iops: iops?, bytes_per_second: bytes_per_second? };
    if throttle.iops.is_none() && throttle.bytes_per_second.is_none() {
        return Err(problems.add(node.place, path, "no limit", "iops, bytes_per_second or both", None));
    }
    Ok(throttle)
}

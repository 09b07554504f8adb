//! From a plan's Proxmox target, or a run's record of one, to the provider.

use std::path::{Path, PathBuf};

use anyhow::Context;
use hypervisor::proxmox::{Guard, Proxmox, Settings, Timing, Token, TokenSource, Trust};
use plan::proxmox::{self as planned, Addressing, Cluster, ProxmoxTarget, SecretSource};
use run::FirstAddress;

use crate::connections::Connections;

/// The provider that a target names.
pub(crate) fn of_target(
    data_dir: &Path,
    target: &ProxmoxTarget,
    guard: Option<Guard>,
    timing: Timing,
) -> anyhow::Result<Proxmox> {
    let settings = settings(data_dir, target)?;
    let token = token(data_dir, &settings)?;
    Ok(Proxmox::new(settings, guard.unwrap_or_default(), token, timing)?)
}

/// The provider that a run recorded. What guards a load is of no matter any more. Where a connection to that cluster is saved now, its
/// certificate is the one to trust: the recorded one may have been renewed.
pub(crate) fn recorded(data_dir: &Path, settings: &serde_json::Value) -> anyhow::Result<Proxmox> {
    let mut settings: Settings =
        serde_json::from_value(settings.clone()).context("the cluster's settings as recorded")?;
    if let Ok(Some(saved)) = Connections::of(data_dir).leading_to(&settings.endpoint, &settings.token.id) {
        settings.tls = saved.tls;
    }
    let token = token(data_dir, &settings)?;
    Ok(Proxmox::new(settings, Guard::default(), token, Timing::default())?)
}

/// First address of workers on a network without DHCP.
pub(crate) fn first_address(target: &ProxmoxTarget) -> Option<FirstAddress> {
    match target.addressing {
        Addressing::Dhcp => None,
        Addressing::Static { first, prefix, gateway } => Some(FirstAddress { first, prefix, gateway }),
    }
}

/// A target's settings, complete and without a secret. Paths become absolute: they are recorded, and read from elsewhere.
fn settings(data_dir: &Path, target: &ProxmoxTarget) -> anyhow::Result<Settings> {
    let (endpoint, token, tls) = match &target.cluster {
        Cluster::Saved { connection } => {
            let saved = Connections::of(data_dir).load(connection)?;
            (saved.endpoint, TokenSource { id: saved.token, secret_env: None, secret_file: None }, saved.tls)
        }
        Cluster::Given { endpoint, token, tls } => (endpoint.clone(), token_source(token)?, trust(tls)?),
    };
    Ok(Settings {
        endpoint,
        token,
        tls,
        nodes: target.nodes.clone(),
        storage: target.storage.clone(),
        iso_storage: target.iso_storage.clone(),
        bridge: target.bridge.clone(),
        vlan: target.vlan,
        pool: target.pool.clone(),
        vmids: target.vmids,
        name_prefix: target.name_prefix.clone(),
        disks: target.disks,
        limits: target.limits,
    })
}

fn token_source(token: &planned::TokenSource) -> anyhow::Result<TokenSource> {
    let (secret_env, secret_file) = match &token.secret {
        SecretSource::SecretEnv(variable) => (Some(variable.clone()), None),
        SecretSource::SecretFile(path) => (None, Some(absolute(path)?)),
    };
    Ok(TokenSource { id: token.id.clone(), secret_env, secret_file })
}

fn trust(trust: &planned::Trust) -> anyhow::Result<Trust> {
    Ok(match trust {
        planned::Trust::System => Trust::default(),
        planned::Trust::CaFile(path) => Trust { ca_file: Some(absolute(path)?), fingerprint: None },
        planned::Trust::Fingerprint(text) => {
            let fingerprint =
                text.parse().map_err(|problem: String| anyhow::anyhow!("target.tls.fingerprint: {problem}"))?;
            Trust { ca_file: None, fingerprint: Some(fingerprint) }
        }
    })
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}: not a path", path.display()))
}

/// The token, its secret from where the settings say, else from the saved connections.
fn token(data_dir: &Path, settings: &Settings) -> anyhow::Result<Token> {
    let source = &settings.token;
    if source.secret_env.is_none() && source.secret_file.is_none() {
        return Connections::of(data_dir).token_for(&settings.endpoint, &source.id);
    }
    Ok(source.read(|_| None)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::{Profiles, Target};

    fn target(fields: &str) -> ProxmoxTarget {
        let yaml = format!(
            "name: x\ntarget: {{provider: proxmox, storage: ceph, iso_storage: local, bridge: vmbr0, {fields}}}\n\
             workers: {{count: 6, disks: 2}}\nfootprints: [1GiB]\nprecondition: 0s\nsample: 1s\nworkloads: [4k-random-read]\n"
        );
        match plan::parse("plan.yaml", &yaml, &Profiles::shipped()).unwrap().target {
            Target::Proxmox(target) => *target,
            Target::Local(_) => unreachable!("the plan says proxmox"),
        }
    }

    const GIVEN: &str = "token: {id: 'fc@pve!poc', secret_env: PVE_SECRET}";

    #[test]
    fn a_plan_s_fields_are_the_provider_s_settings_and_have_its_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let plain = settings(dir.path(), &target(&format!("endpoint: 'https://pve1', {GIVEN}"))).unwrap();
        let same: Settings = serde_json::from_value(serde_json::json!({
            "endpoint": "https://pve1", "token": {"id": "fc@pve!poc", "secret_env": "PVE_SECRET"},
            "storage": "ceph", "iso_storage": "local", "bridge": "vmbr0",
        }))
        .unwrap();
        assert_eq!(plain, same);
        let guard = Guard { min_free_percent: 20.0, ceph: true, io_error: true, quorum: true };
        assert_eq!(Guard::default(), guard);

        let all = target(&format!(
            "endpoint: 'https://[fd00::1]:443', {GIVEN}, tls: {{fingerprint: '{}'}}, nodes: {{a: 4, b: 2}}, vlan: 120, pool: poc, \
             vmids: {{first: 700, last: 800}}, name_prefix: it, disks: {{discard: true, ssd: true, aio: io_uring, format: qcow2}}, \
             limits: {{cluster: 3, node: 2, storage: 1}}",
            "ab".repeat(32)
        ));
        let all = settings(dir.path(), &all).unwrap();
        let same: Settings = serde_json::from_value(serde_json::json!({
            "endpoint": "https://[fd00::1]:443", "token": {"id": "fc@pve!poc", "secret_env": "PVE_SECRET"},
            "tls": {"fingerprint": "ab".repeat(32)}, "nodes": {"a": 4, "b": 2}, "vlan": 120, "pool": "poc",
            "vmids": {"first": 700, "last": 800}, "name_prefix": "it", "storage": "ceph", "iso_storage": "local", "bridge": "vmbr0",
            "disks": {"discard": true, "ssd": true, "aio": "io_uring", "format": "qcow2"},
            "limits": {"cluster": 3, "node": 2, "storage": 1},
        }))
        .unwrap();
        assert_eq!(all, same);
        assert_eq!(all.problems(), vec![]);
    }

    #[test]
    fn what_a_plan_allows_the_provider_takes() {
        let dir = tempfile::tempdir().unwrap();
        for endpoint in [
            "https://pve1",
            "https://pve1/",
            "https://pve-1.example.org:8006",
            "https://192.0.2.1:443",
            "https://[fd00::1]",
            "https://a1.b2c",
            "https://PVE1:65535",
        ] {
            let read = settings(dir.path(), &target(&format!("endpoint: '{endpoint}', {GIVEN}"))).unwrap();
            assert_eq!(read.problems(), vec![], "{endpoint}");
        }
        for nodes in ["[a]", "[pve1, pve2]", "{a: 6, b: 0}"] {
            let read =
                settings(dir.path(), &target(&format!("endpoint: 'https://a', {GIVEN}, nodes: {nodes}"))).unwrap();
            assert_eq!(read.problems(), vec![], "{nodes}");
        }
    }

    #[test]
    fn relative_paths_are_made_absolute() {
        let dir = tempfile::tempdir().unwrap();
        let read = target("endpoint: 'https://a', token: {id: 'a@b!c', secret_file: s}, tls: {ca_file: ca.pem}");
        let read = settings(dir.path(), &read).unwrap();
        assert!(read.tls.ca_file.unwrap().is_absolute() && read.token.secret_file.unwrap().is_absolute());
    }
}

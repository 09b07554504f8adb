//! What the provider needs of the plan's `target: {provider: proxmox, …}`, with the secret's source resolved; the values are the plan's types.

use std::time::Duration;

use plan::proxmox::{DiskOptions, Nodes, TaskLimits, VmidRange};
use serde::{Deserialize, Serialize};

use super::secret::TokenSource;
use super::tls::Trust;

/// Where and how workers are made on a Proxmox VE cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `https://HOST[:8006]` of any node.
    pub endpoint: String,
    /// API token.
    pub token: TokenSource,
    /// Trust in the certificate.
    #[serde(default)]
    pub tls: Trust,
    /// Nodes to use: a list (workers are spread evenly), or a count of workers per node; all online nodes where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    /// Storage under test: the data disks' place.
    pub storage: String,
    /// Storage for the worker image, content type `iso`.
    pub iso_storage: String,
    /// Bridge (or SDN vnet) of the workers' network card.
    pub bridge: String,
    /// VLAN tag, 1 to 4094.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Resource pool that the workers join; it must exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Range that worker VMIDs come from.
    #[serde(default)]
    pub vmids: VmidRange,
    /// Beginning of the VMs' names; `PREFIX-FLEET-WORKER`.
    #[serde(default = "default_prefix")]
    pub name_prefix: String,
    /// Options of the data disks.
    #[serde(default)]
    pub disks: DiskOptions,
    /// Tasks of ours at a time.
    #[serde(default)]
    pub limits: TaskLimits,
}

fn default_prefix() -> String {
    "fourcorners".into()
}

/// Bounds of waiting. The defaults suit real clusters; tests shorten them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Longest time to connect.
    pub connect: Duration,
    /// Longest time for one answer.
    pub answer: Duration,
    /// Longest time for an upload.
    pub upload: Duration,
    /// Longest time of one look of the guard, whatever hangs; not longer than the time between two looks.
    pub look: Duration,
    /// How long, from its look's start, a breach that is known waits for what else the look tells.
    pub known_breach: Duration,
    /// First pause before a retry; each next one is twice as long.
    pub retry_first: Duration,
    /// Longest pause before a retry.
    pub retry_longest: Duration,
    /// Longest time that retries of one call go on.
    pub retry_within: Duration,
    /// First pause between two looks at a task; it grows to `poll_longest`.
    pub poll_first: Duration,
    /// Longest pause between two looks at a task.
    pub poll_longest: Duration,
    /// Longest time that a task may run.
    pub task: Duration,
    /// How long a call whose answer was lost may take to show its effect.
    pub in_flight: Duration,
    /// How old the view of VMIDs in use may be when one is taken from it.
    pub vmid_view: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            upload: Duration::from_secs(15 * 60),
            look: Duration::from_secs(10),
            known_breach: Duration::from_secs(5),
            retry_first: Duration::from_millis(250),
            retry_longest: Duration::from_secs(8),
            retry_within: Duration::from_secs(60),
            poll_first: Duration::from_millis(100),
            poll_longest: Duration::from_secs(2),
            task: Duration::from_secs(30 * 60),
            in_flight: Duration::from_secs(10),
            vmid_view: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// What is wrong with the settings by themselves: (field, problem), in order of the fields.
    #[must_use]
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        let mut check = |field, wrong: bool, problem: String| {
            if wrong {
                problems.push((field, problem));
            }
        };
        if let Err(problem) = super::client::parse_endpoint(&self.endpoint) {
            check("endpoint", true, problem);
        }
        if let Err(problem) = super::secret::check_id(&self.token.id) {
            check("token.id", true, problem);
        }
        let twice = |first, second| format!("{first} and {second} are both set; keep one of them");
        let TokenSource { secret_env, secret_file, .. } = &self.token;
        check("token", secret_env.is_some() && secret_file.is_some(), twice("secret_env", "secret_file"));
        let Trust { ca_file, fingerprint } = &self.tls;
        check("tls", ca_file.is_some() && fingerprint.is_some(), twice("ca_file", "fingerprint"));
        let named =
            |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        check("storage", !named(&self.storage), format!("found {:?}, expected a storage's name", self.storage));
        check(
            "iso_storage",
            !named(&self.iso_storage),
            format!("found {:?}, expected a storage's name", self.iso_storage),
        );
        check(
            "bridge",
            !named(&self.bridge),
            format!("found {:?}, expected a bridge's name, such as vmbr0", self.bridge),
        );
        if let Some(vlan) = self.vlan {
            check("vlan", !(1..=4094).contains(&vlan), format!("found {vlan}, allowed are 1 to 4094"));
        }
        let VmidRange { first, last } = self.vmids;
        check(
            "vmids",
            first < 100 || last > 999_999_999 || first > last,
            format!("found {first} to {last}, allowed are 100 to 999999999 with first <= last"),
        );
        let prefix = &self.name_prefix;
        let dns = prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') && !prefix.starts_with('-');
        check(
            "name_prefix",
            prefix.is_empty() || prefix.len() > 20 || !dns,
            format!("found {prefix:?}, allowed are 1 to 20 letters, digits and hyphens, the first no hyphen"),
        );
        let TaskLimits { cluster, node, storage } = self.limits;
        check(
            "limits",
            [cluster, node, storage].iter().any(|limit| !(1..=64).contains(limit)),
            format!("found cluster {cluster}, node {node}, storage {storage}; allowed are 1 to 64 each"),
        );
        match &self.nodes {
            Some(Nodes::Evenly(nodes)) => {
                let mut unique = nodes.clone();
                unique.sort();
                unique.dedup();
                let wrong = nodes.is_empty() || unique.len() != nodes.len() || !nodes.iter().all(|node| named(node));
                check("nodes", wrong, format!("found {nodes:?}, expected at least one node, each once"));
            }
            Some(Nodes::Counts(counts)) => {
                let wrong = counts.values().all(|count| *count == 0) || !counts.keys().all(|node| named(node));
                check(
                    "nodes",
                    wrong,
                    format!("found {counts:?}, expected node names with counts, one of them at least 1"),
                );
            }
            None => {}
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> serde_json::Value {
        serde_json::json!({
            "endpoint": "https://pve1:8006", "token": {"id": "fc@pve!poc", "secret_env": "PVE_SECRET"},
            "storage": "ceph", "iso_storage": "local", "bridge": "vmbr0",
        })
    }

    #[test]
    fn defaults_are_sound_and_each_mistake_is_named_by_its_field() {
        let plain: Settings = serde_json::from_value(settings()).unwrap();
        assert_eq!(plain.problems(), vec![]);
        assert_eq!(plain.vmids, VmidRange { first: 90_000, last: 99_999 });
        for (field, value) in [
            ("endpoint", serde_json::json!("pve1")),
            ("token.id", serde_json::json!({"id": "fc"})),
            ("token", serde_json::json!({"id": "a@pve!b", "secret_env": "X", "secret_file": "/x"})),
            ("tls", serde_json::json!({"ca_file": "/x", "fingerprint": "00".repeat(32)})),
            ("storage", serde_json::json!("a b")),
            ("iso_storage", serde_json::json!("")),
            ("bridge", serde_json::json!("vmbr0,tag=1")),
            ("vlan", serde_json::json!(4095)),
            ("vmids", serde_json::json!({"first": 99, "last": 200})),
            ("vmids", serde_json::json!({"first": 300, "last": 200})),
            ("name_prefix", serde_json::json!("-x")),
            ("limits", serde_json::json!({"cluster": 0})),
            ("nodes", serde_json::json!([])),
            ("nodes", serde_json::json!(["a", "a"])),
            ("nodes", serde_json::json!({"a": 0})),
        ] {
            let mut wrong = settings();
            wrong[field.split('.').next().unwrap()] = value;
            let problems = serde_json::from_value::<Settings>(wrong).unwrap().problems();
            assert_eq!(problems.iter().map(|(field, _)| *field).collect::<Vec<_>>(), vec![field]);
        }
    }

    #[test]
    fn placement_is_a_list_or_counts() {
        let mut some = settings();
        some["nodes"] = serde_json::json!({"pve1": 4, "pve2": 2});
        let read: Settings = serde_json::from_value(some.clone()).unwrap();
        assert_eq!(read.nodes, Some(Nodes::Counts([("pve1".into(), 4), ("pve2".into(), 2)].into())));
        some["nodes"] = serde_json::json!("pve1");
        assert!(serde_json::from_value::<Settings>(some).unwrap_err().to_string().contains("list of node names"));
    }
}

//! What the API answers, as far as it is used. PVE writes booleans as 0 and 1 and some numbers as strings.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A boolean as PVE writes it; absent is false.
pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Bool(value) => value,
        Value::Number(number) => number.as_f64().is_some_and(|number| number != 0.0),
        Value::String(text) => matches!(text.as_str(), "1" | "true" | "yes" | "on"),
        _ => false,
    })
}

/// A count, which may come as a string; absent, null or negative is none.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => {
            number.as_u64().or_else(|| number.as_f64().and_then(|number| format!("{number:.0}").parse().ok()))
        }
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    })
}

/// A fraction or another decimal number, which may come as a string.
pub(super) fn decimal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    })
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Version {
    pub(super) version: String,
}

impl Version {
    pub(super) fn major(&self) -> Option<u32> {
        self.version.split('.').next()?.parse().ok()
    }
}

/// An entry of `/cluster/resources`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Resource {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) node: Option<String>,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) status: Option<String>,
    #[serde(default)]
    pub(super) tags: Option<String>,
    #[serde(default, deserialize_with = "count")]
    pub(super) vmid: Option<u64>,
    #[serde(default, deserialize_with = "decimal")]
    pub(super) cpu: Option<f64>,
    #[serde(default, deserialize_with = "decimal")]
    pub(super) maxcpu: Option<f64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) mem: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) maxmem: Option<u64>,
    /// Bytes that a guest's network cards have sent.
    #[serde(default, deserialize_with = "count")]
    pub(super) netout: Option<u64>,
}

impl Resource {
    /// A guest of either kind: a VM or a container.
    pub(super) fn is_guest(&self) -> bool {
        matches!(self.kind.as_str(), "qemu" | "lxc")
    }

    /// A guest's id.
    pub(super) fn guest_id(&self) -> Option<u32> {
        self.vmid.filter(|_| self.is_guest()).and_then(|id| u32::try_from(id).ok())
    }

    pub(super) fn is_running(&self) -> bool {
        self.status.as_deref() == Some("running")
    }
}

/// An entry of `/cluster/status`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ClusterStatus {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) name: String,
    #[serde(default, deserialize_with = "flag")]
    pub(super) quorate: bool,
    #[serde(default, deserialize_with = "flag")]
    pub(super) online: bool,
}

/// A storage as one node sees it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct StorageStatus {
    #[serde(default)]
    pub(super) storage: String,
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) content: String,
    #[serde(default, deserialize_with = "flag")]
    pub(super) enabled: bool,
    #[serde(default, deserialize_with = "flag")]
    pub(super) active: bool,
    #[serde(default, deserialize_with = "flag")]
    pub(super) shared: bool,
    #[serde(default, deserialize_with = "count")]
    pub(super) total: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) avail: Option<u64>,
}

impl StorageStatus {
    pub(super) fn holds(&self, content: &str) -> bool {
        self.content.split(',').any(|kind| kind.trim() == content)
    }
}

/// A volume on a storage.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Volume {
    pub(super) volid: String,
    #[serde(default, deserialize_with = "count")]
    pub(super) vmid: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) size: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) ctime: Option<u64>,
}

/// A network interface of a node.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Interface {
    pub(super) iface: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default, deserialize_with = "flag")]
    pub(super) active: bool,
    #[serde(default, deserialize_with = "flag")]
    pub(super) bridge_vlan_aware: bool,
    #[serde(default)]
    pub(super) bridge_vids: Option<String>,
}

impl Interface {
    pub(super) fn is_bridge(&self) -> bool {
        matches!(self.kind.as_str(), "bridge" | "OVSBridge" | "vnet")
    }
}

/// An entry of `/pools`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Pool {
    pub(super) poolid: String,
}

/// What a storage's configuration says of the Ceph pool behind it.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct StorageConfig {
    #[serde(default)]
    pub(super) storage: String,
    #[serde(default)]
    pub(super) pool: Option<String>,
    /// Where the data is, if `pool` has its metadata only.
    #[serde(rename = "data-pool", default)]
    pub(super) data_pool: Option<String>,
    /// Monitors of a Ceph that is not PVE's own.
    #[serde(default)]
    pub(super) monhost: Option<String>,
}

impl StorageConfig {
    /// It is on a Ceph cluster that is not PVE's own: PVE knows its monitors and nothing else of it.
    pub(super) fn is_foreign_ceph(&self) -> bool {
        self.monhost.as_ref().is_some_and(|monitors| !monitors.trim().is_empty())
    }
}

/// A Ceph pool.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct CephPool {
    pub(super) pool_name: String,
    #[serde(default, deserialize_with = "count")]
    pub(super) size: Option<u64>,
    #[serde(rename = "type", default)]
    pub(super) kind: String,
}

/// `/cluster/ceph/status`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct CephStatus {
    pub(super) health: CephHealthStatus,
    #[serde(default)]
    pub(super) pgmap: CephPgMap,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct CephHealthStatus {
    pub(super) status: String,
    #[serde(default)]
    pub(super) checks: serde_json::Map<String, Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct CephPgMap {
    #[serde(default, deserialize_with = "count")]
    pub(super) recovering_bytes_per_sec: Option<u64>,
    #[serde(default, deserialize_with = "decimal")]
    pub(super) degraded_ratio: Option<f64>,
    #[serde(default, deserialize_with = "decimal")]
    pub(super) misplaced_ratio: Option<f64>,
    #[serde(default)]
    pub(super) pgs_by_state: Vec<CephPgState>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct CephPgState {
    pub(super) state_name: String,
    #[serde(default, deserialize_with = "count")]
    pub(super) count: Option<u64>,
}

/// A VM of one node, as `GET /nodes/{node}/qemu?full=1` lists it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct NodeVm {
    #[serde(default, deserialize_with = "count")]
    pub(super) vmid: Option<u64>,
    #[serde(default)]
    pub(super) qmpstatus: Option<String>,
}

/// A point of `GET /nodes/{node}/rrddata`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct NodeHistory {
    /// Its end, seconds since 1970.
    #[serde(default, deserialize_with = "count")]
    pub(super) time: Option<u64>,
    #[serde(default, deserialize_with = "decimal")]
    pub(super) iowait: Option<f64>,
    #[serde(default, deserialize_with = "decimal")]
    pub(super) pressureiosome: Option<f64>,
    #[serde(default, deserialize_with = "decimal")]
    pub(super) pressureiofull: Option<f64>,
}

/// A setting of a VM, as `GET …/pending` lists it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Setting {
    pub(super) key: String,
    /// As it is now.
    #[serde(default)]
    pub(super) value: Value,
    /// As the VM's next start makes it.
    #[serde(default)]
    pub(super) pending: Value,
}

/// A task as its status endpoint or the task list shows it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct TaskStatus {
    #[serde(default)]
    pub(super) upid: String,
    #[serde(default)]
    pub(super) status: String,
    #[serde(default)]
    pub(super) exitstatus: Option<String>,
}

/// A line of a task's log.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct LogLine {
    #[serde(default)]
    pub(super) t: String,
}

//! The privileges that a token needs, and which of them it lacks: pure functions.

use std::collections::BTreeMap;

use super::settings::Settings;
use crate::{Finding, Severity};

/// Path -> privilege -> whether it propagates to what is below, as `GET /access/permissions` answers.
pub(super) type Permissions = BTreeMap<String, BTreeMap<String, serde_json::Value>>;

/// Privileges on the workers' pool, or on all VMs where there is none.
const VM: [&str; 10] = [
    "VM.Allocate",
    "VM.Audit",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.PowerMgmt",
];

/// Privileges on one path, and the role that the recipe in docs/proxmox.md makes of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) path: String,
    pub(super) role: &'static str,
    pub(super) privileges: Vec<&'static str>,
    pub(super) severity: Severity,
    /// What cannot be done without.
    purpose: &'static str,
}

/// Everything that a run needs.
pub(super) fn needed(settings: &Settings) -> Vec<Need> {
    let need = |path: String, role, privileges: &[&'static str], purpose| Need {
        path,
        role,
        privileges: privileges.to_vec(),
        severity: Severity::Blocker,
        purpose,
    };
    let mut needs =
        vec![need("/".into(), "FourcornersAudit", &["Sys.Audit"], "to read quorum, nodes and Ceph's health")];
    match &settings.pool {
        Some(pool) => {
            let privileges = [&VM[..], &["Pool.Audit"]].concat();
            needs.push(need(
                format!("/pool/{pool}"),
                "FourcornersVm",
                &privileges,
                "to create, run and destroy worker VMs",
            ));
        }
        None => needs.push(need("/vms".into(), "FourcornersVm", &VM, "to create, run and destroy worker VMs")),
    }
    let data = format!("/storage/{}", settings.storage);
    let space = ["Datastore.AllocateSpace", "Datastore.Audit"];
    needs.push(need(data.clone(), "FourcornersData", &space, "to make data disks"));
    let iso = ["Datastore.Allocate", "Datastore.AllocateTemplate", "Datastore.Audit"];
    let of_image = "to upload the worker image and to remove it";
    needs.push(need(format!("/storage/{}", settings.iso_storage), "FourcornersIso", &iso, of_image));
    let bridge = format!("/sdn/zones/localnetwork/{}", settings.bridge);
    let attach = "to attach workers to the bridge; without it PVE does not even list bridges";
    needs.push(need(bridge, "FourcornersNet", &["SDN.Use"], attach));
    if settings.iso_storage != settings.storage {
        needs.push(Need {
            severity: Severity::Warning,
            ..need(
                data,
                "FourcornersData",
                &["Datastore.Allocate"],
                "to see volumes of VMIDs that are not ours, and to remove data disks that a broken-off creation left; \
                 without it they are reported instead",
            )
        });
    }
    needs
}

/// Whether the token holds a privilege on a path: what is said of the path itself, else of the nearest path above that propagates.
pub(super) fn holds(permissions: &Permissions, path: &str, privilege: &str) -> bool {
    if let Some(here) = permissions.get(path) {
        return here.contains_key(privilege);
    }
    let mut above = path;
    while above != "/" {
        above = match above.rfind('/') {
            Some(0) | None => "/",
            Some(at) => &above[..at],
        };
        if let Some(there) = permissions.get(above) {
            return there.get(privilege).is_some_and(|propagates| *propagates != 0 && *propagates != false);
        }
    }
    false
}

/// Whether the bridge may be used, with the VLAN's tag where there is one: PVE asks for the tag's own path then. It may be a vnet of an SDN
/// zone instead.
pub(super) fn may_use_bridge(permissions: &Permissions, bridge: &str, vlan: Option<u16>) -> bool {
    let tag = vlan.map_or_else(String::new, |vlan| format!("/{vlan}"));
    let end = format!("/{bridge}");
    let mut vnets = permissions.keys().filter(|path| path.starts_with("/sdn/zones/") && path.ends_with(&end));
    holds(permissions, &format!("/sdn/zones/localnetwork/{bridge}{tag}"), "SDN.Use")
        || vnets.any(|path| holds(permissions, &format!("{path}{tag}"), "SDN.Use"))
}

/// A finding for each path on which the token lacks something.
pub(super) fn lacking(permissions: &Permissions, settings: &Settings, token: &str) -> Vec<Finding> {
    let lacking = |need: &Need| -> Vec<&'static str> {
        if need.role == "FourcornersNet" && may_use_bridge(permissions, &settings.bridge, settings.vlan) {
            return Vec::new();
        }
        need.privileges.iter().copied().filter(|privilege| !holds(permissions, &need.path, privilege)).collect()
    };
    let needs = needed(settings);
    let lacks = needs.iter().map(|need| (need, lacking(need))).filter(|(_, lacks)| !lacks.is_empty());
    lacks.map(|(need, lacks)| finding(need, &lacks, token)).collect()
}

/// A finding where the token lacks something everywhere: on which pool, storages and bridge it is needed is not known yet.
pub(super) fn lacking_everywhere(permissions: &Permissions, token: &str) -> Vec<Finding> {
    let of = |privileges: &[&'static str], severity, purpose: &str| {
        let held = |privilege: &str| permissions.values().any(|here| here.contains_key(privilege));
        let lacks: Vec<&str> = privileges.iter().copied().filter(|privilege| !held(privilege)).collect();
        (!lacks.is_empty()).then(|| Finding {
            severity,
            message: format!("token {token} lacks {} on every path, needed {purpose}", lacks.join(", ")),
            remedy: "grant it as the recipe in docs/proxmox.md does, to the token and to its user".into(),
        })
    };
    let blocker = Severity::Blocker;
    let all = [
        of(&["Sys.Audit"], blocker, "to read quorum, nodes and Ceph's health"),
        of(&VM, blocker, "to create, run and destroy worker VMs"),
        of(&["Datastore.AllocateSpace", "Datastore.Audit"], blocker, "to make data disks"),
        of(&["Datastore.AllocateTemplate"], blocker, "to upload the worker image"),
        of(&["Datastore.Allocate"], blocker, "to remove the worker image"),
        of(&["SDN.Use"], blocker, "to attach workers to a bridge; without it PVE does not even list bridges"),
        of(&["Pool.Audit"], Severity::Warning, "where workers join a pool"),
    ];
    all.into_iter().flatten().collect()
}

fn finding(need: &Need, lacks: &[&str], token: &str) -> Finding {
    let (path, role) = (&need.path, need.role);
    let user = token.split('!').next().unwrap_or_default();
    let (comma, space) = (lacks.join(", "), lacks.join(" "));
    Finding {
        severity: need.severity,
        message: format!("token {token} lacks {comma} on {path}, needed {}", need.purpose),
        remedy: format!(
            "on a node: pveum role modify {role} --append 1 --privs \"{space}\" (role add, without --append, where there is none); \
             pveum acl modify {path} --roles {role} --tokens '{token}'; and the same with --users '{user}' where the token's \
             privileges are separated"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permissions(entries: &[(&str, &[&str], u8)]) -> Permissions {
        let privileges = |names: &[&str], propagates: u8| {
            names.iter().map(|name| ((*name).to_owned(), serde_json::json!(propagates))).collect()
        };
        entries.iter().map(|(path, names, propagates)| ((*path).to_owned(), privileges(names, *propagates))).collect()
    }

    #[test]
    fn what_is_held_somewhere_is_not_lacking_everywhere() {
        let held =
            |privileges: &[&str]| privileges.iter().map(|held| ((*held).to_owned(), serde_json::json!(1))).collect();
        let mut permissions = Permissions::from([("/".to_owned(), held(&["Sys.Audit"]))]);
        let findings = lacking_everywhere(&permissions, "a@pve!b");
        assert_eq!(findings.len(), 6, "{findings:#?}");
        permissions.insert("/pool/poc".into(), held(&[&VM[..], &["Pool.Audit"]].concat()));
        permissions.insert("/storage/x".into(), held(&["Datastore.Allocate", "Datastore.AllocateTemplate"]));
        permissions.insert("/storage/y".into(), held(&["Datastore.AllocateSpace", "Datastore.Audit"]));
        let findings = lacking_everywhere(&permissions, "a@pve!b");
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert!(findings[0].message.contains("a@pve!b lacks SDN.Use"), "{findings:#?}");
    }

    #[test]
    fn the_nearest_path_decides_and_only_what_propagates_counts_below() {
        let held = permissions(&[("/", &["A", "B"], 1), ("/storage", &["A"], 0), ("/vms", &["B"], 1)]);
        assert!(holds(&held, "/", "A") && holds(&held, "/nodes/x", "A"));
        assert!(holds(&held, "/storage", "A"));
        assert!(!holds(&held, "/storage/ceph", "A"), "it does not propagate");
        assert!(!holds(&held, "/vms/100", "A"), "an ACL on /vms replaces that of /");
        assert!(holds(&held, "/vms/100", "B"));
        assert!(!holds(&permissions(&[]), "/", "A"));
    }

    #[test]
    fn a_vnet_of_an_sdn_zone_counts_as_the_bridge() {
        assert!(may_use_bridge(&permissions(&[("/sdn/zones/lab/poc", &["SDN.Use"], 1)]), "poc", None));
        assert!(may_use_bridge(&permissions(&[("/sdn", &["SDN.Use"], 1)]), "vmbr0", None));
        assert!(!may_use_bridge(&permissions(&[("/sdn/zones/lab/poc2", &["SDN.Use"], 1)]), "poc", None));
    }

    #[test]
    fn a_vlan_needs_the_privilege_on_its_tag() {
        let bridge = "/sdn/zones/localnetwork/vmbr0";
        let propagated = permissions(&[(bridge, &["SDN.Use"], 1)]);
        assert!(may_use_bridge(&propagated, "vmbr0", Some(120)));
        let bridge_alone = permissions(&[(bridge, &["SDN.Use"], 0)]);
        assert!(may_use_bridge(&bridge_alone, "vmbr0", None) && !may_use_bridge(&bridge_alone, "vmbr0", Some(120)));
        let tag = permissions(&[("/sdn/zones/localnetwork/vmbr0/120", &["SDN.Use"], 1)]);
        assert!(may_use_bridge(&tag, "vmbr0", Some(120)) && !may_use_bridge(&tag, "vmbr0", Some(121)));
    }

    /// The page that the engineer copies from.
    const PAGE: &str = include_str!("../../../../docs/proxmox.md");

    #[test]
    fn the_recipe_grants_exactly_what_is_needed_and_where() {
        let settings: Settings = serde_json::from_value(serde_json::json!({
            "endpoint": "https://pve1", "token": { "id": "a@pve!b" },
            "storage": "ceph", "iso_storage": "local", "bridge": "vmbr0", "pool": "poc",
        }))
        .unwrap();
        let mut needed_by_role: BTreeMap<&str, (String, Vec<&str>)> = BTreeMap::new();
        for need in needed(&settings) {
            let (path, privileges) = needed_by_role.entry(need.role).or_insert((need.path.clone(), Vec::new()));
            assert_eq!(*path, need.path, "one role on one path");
            privileges.extend(need.privileges);
            privileges.sort_unstable();
        }
        for (role, (path, privileges)) in needed_by_role {
            let line = PAGE.lines().find(|line| line.starts_with(&format!("pveum role add {role} "))).unwrap();
            let mut granted: Vec<&str> = line.split('"').nth(1).unwrap().split(' ').collect();
            granted.sort_unstable();
            assert_eq!(granted, privileges, "{role}");
            let grant = PAGE.lines().find(|line| line.trim_end().ends_with(&format!("--roles {role}"))).unwrap();
            assert_eq!(grant.split_whitespace().nth(3), Some(path.as_str()), "{role}");
        }
    }
}

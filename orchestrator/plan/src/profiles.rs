//! Workload profiles, and the plans and profiles that ship inside the binary.

use std::collections::BTreeMap;

use crate::model::Workload;
use crate::problem::{PlanErrors, Problems};
use crate::{workload, yaml};

/// A workload profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Set and name (`published/4k-random-read`).
    pub id: String,
    /// What it is for, one line.
    pub description: String,
    /// The workload as a plan gets it.
    pub workload: Workload,
}

/// Profiles by id.
#[derive(Debug, Clone, Default)]
pub struct Profiles {
    by_id: BTreeMap<String, Profile>,
}

/// Declares files of `profiles/` as (path below it without `.yaml`, content).
macro_rules! shipped {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../profiles/", $path, ".yaml")))),*]
    };
}

const SHIPPED_PROFILES: &[(&str, &str)] = shipped![
    "published/4k-random-read",
    "published/4k-random-write",
    "published/8k-random-70-30",
    "published/32k-sequential-read",
    "published/32k-sequential-write",
    "deep/4k-random-read",
    "deep/4k-random-write",
    "deep/8k-random-70-30",
    "deep/32k-sequential-read",
    "deep/32k-sequential-write",
];

const EXAMPLES: &[(&str, &str)] = shipped![
    "plans/demo",
    "plans/demo-vm",
    "plans/first-look",
    "plans/peak",
    "plans/proxmox",
    "plans/published-hci",
    "plans/reference"
];

/// The plan of the demo: two workers with two data disks each, two footprints, the five published profiles.
pub const DEMO_PLAN: &str = include_str!("../../../profiles/plans/demo.yaml");

/// The plan of the demo on VMs: the same, smaller, for machines without KVM.
pub const DEMO_VM_PLAN: &str = include_str!("../../../profiles/plans/demo-vm.yaml");

/// Names of the example plans.
pub fn examples() -> impl Iterator<Item = &'static str> {
    EXAMPLES.iter().map(|(path, _)| path.trim_start_matches("plans/"))
}

/// The YAML of an example plan (`published-hci`).
#[must_use]
pub fn example(name: &str) -> Option<&'static str> {
    EXAMPLES.iter().find(|(path, _)| path.strip_prefix("plans/") == Some(name)).map(|(_, yaml)| *yaml)
}

/// The YAML of a shipped profile (`published/4k-random-read`).
#[must_use]
pub fn shipped_profile(id: &str) -> Option<&'static str> {
    SHIPPED_PROFILES.iter().find(|(path, _)| *path == id).map(|(_, yaml)| *yaml)
}

impl Profile {
    /// Reads a profile file as one of `set`.
    ///
    /// # Errors
    ///
    /// All problems of the file together.
    pub fn read(set: &str, source_name: &str, yaml: &str) -> Result<Self, PlanErrors> {
        let mut problems = Problems::default();
        let profile =
            yaml::read(yaml, &mut problems).and_then(|node| workload::read_profile(&node, set, &mut problems));
        problems.conclude(profile, source_name, yaml)
    }
}

impl Profiles {
    /// The profiles that ship with the binary.
    #[must_use]
    pub fn shipped() -> Self {
        let mut profiles = Self::default();
        for (path, yaml) in SHIPPED_PROFILES {
            let set = path.split('/').next().unwrap_or_default();
            profiles.add(set, path, yaml).expect("the tests read every shipped profile");
        }
        profiles
    }

    /// Reads a profile file into `set`; one with the same id is replaced.
    ///
    /// # Errors
    ///
    /// All problems of the file together.
    pub fn add(&mut self, set: &str, source_name: &str, yaml: &str) -> Result<(), PlanErrors> {
        let profile = Profile::read(set, source_name, yaml)?;
        self.by_id.insert(profile.id.clone(), profile);
        Ok(())
    }

    /// The profile with this id (`published/4k-random-read`).
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Profile> {
        self.by_id.get(id)
    }

    /// All profiles by ascending id.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.by_id.values()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.by_id.keys().map(String::as_str)
    }
}

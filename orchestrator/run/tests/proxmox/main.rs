//! Whole runs on a Proxmox VE cluster as fakepve plays it, its VMs followed by agents in this process. Skipped where fakepve is not
//! installed.

#![expect(clippy::unwrap_used, reason = "a test's panic is its failure")]

mod crash;
#[path = "../../../hypervisor/tests/proxmox/fakes.rs"]
#[expect(dead_code, clippy::panic, reason = "shared with the provider's tests, which use all of it")]
mod fakes;
mod followed;
mod whole;

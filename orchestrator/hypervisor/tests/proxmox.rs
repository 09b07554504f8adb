//! The Proxmox VE provider against fakepve, which validates PVE 9's schema. Skipped where fakepve is not installed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "proxmox/client.rs"]
mod client;
#[path = "proxmox/crash.rs"]
mod crash;
#[path = "proxmox/fakes.rs"]
mod fakes;
#[path = "proxmox/faults.rs"]
mod faults;
#[path = "proxmox/foreign.rs"]
mod foreign;
#[path = "proxmox/preflight.rs"]
mod preflight;
#[path = "proxmox/watch.rs"]
mod watch;
#[path = "proxmox/workers.rs"]
mod workers;

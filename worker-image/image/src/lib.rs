//! The bootable worker image.
//!
//! [`build()`] makes one read-only ISO from Debian packages; every worker VM of every fleet boots it. [`personalise()`] copies it
//! and writes a fleet's [`Bootstrap`] into the slot that the ISO reserves for it. The image's first program, `worker-init`,
//! is a binary of this package and reads the slot with [`slot::decode`].

mod addressing;
mod bootstrap;
pub mod build;
mod cpio;
mod files;
mod inspect;
mod personalise;
pub mod slot;

pub use addressing::{AddressRange, MAX_RANGES, Mac, MacError, StaticAddress, StaticAddressing};
pub use bootstrap::{BOOTSTRAP_VERSION, Bootstrap, BootstrapError, MAX_URLS, MTU_RANGE};
pub use build::{BuildError, BuildOptions, BuildReport, build};
pub use inspect::{Inspection, inspect, recognise};
pub use personalise::{MAX_ISO_BYTES, PersonaliseError, personalise, personalise_into};

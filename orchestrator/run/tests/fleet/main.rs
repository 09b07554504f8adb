//! The fleet against peers that keep to the protocol, peers that do not, and real agents on real files.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's panic is its failure")]

mod agents;
mod enrolment;
mod faults;
mod jobs;
mod orchestrators;
mod peer;
mod sessions;
mod tls;
mod transport;

//! Fourcorners: a virtual-cluster storage test orchestrator.
fn main() {}

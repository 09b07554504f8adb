//! The worker agent: dials the orchestrator and drives the load engine.

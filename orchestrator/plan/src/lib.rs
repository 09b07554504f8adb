//! Test plans: YAML to a validated [`TestPlan`], its schedule and its time estimate. No I/O: callers read the file.

mod model;

pub use model::*;

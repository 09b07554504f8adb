//! Test plans: YAML to a validated [`TestPlan`], its schedule and its time estimate. No I/O: callers read the file.

mod check;
mod decode;
pub mod duration;
pub mod edit;
pub mod limits;
mod model;
mod problem;
mod profiles;
pub mod proxmox;
mod read;
mod rehearsal;
mod render;
mod schedule;
pub mod size;
mod target;
mod target_proxmox;
mod workload;
mod yaml;

pub use model::*;
pub use problem::{PlanErrors, Problem};
pub use profiles::{DEMO_PLAN, DEMO_VM_PLAN, Profile, Profiles, example, examples, shipped_profile};
pub use schedule::{
    ASSUMED_FILL_BYTES_PER_SECOND, FillRate, FillRateSource, FootprintSchedule, Progress, Schedule, Step, StepKind,
    schedule,
};

use problem::{Place, Problems};

/// Reads and checks a plan. `source_name` is how messages name the file.
///
/// # Errors
///
/// All problems that were found, in the order of the file. Malformed YAML ends the reading where it stands.
pub fn parse(source_name: &str, yaml: &str, profiles: &Profiles) -> Result<TestPlan, PlanErrors> {
    let mut problems = Problems::default();
    let plan = yaml::read(yaml, &mut problems).and_then(|node| read::plan(&node, profiles, &mut problems));
    problems.conclude(plan, source_name, yaml)
}

/// [`parse`] for a file's bytes as they are: what is not UTF-8 is a problem with its place, too.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_bytes(source_name: &str, bytes: &[u8], profiles: &Profiles) -> Result<TestPlan, PlanErrors> {
    match std::str::from_utf8(bytes) {
        Ok(yaml) => parse(source_name, yaml, profiles),
        Err(error) => {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            Err(not_utf8(source_name, &String::from_utf8_lossy(valid)))
        }
    }
}

fn not_utf8(source_name: &str, valid: &str) -> PlanErrors {
    let last_line = valid.rsplit('\n').next().unwrap_or_default();
    let place = Place {
        line: valid.matches('\n').count() + 1,
        column: last_line.chars().count() + 1,
        offset: valid.len(),
        length: 0,
    };
    let mut problems = Problems::default();
    problems.add(place, "", "a byte that is not UTF-8", "UTF-8 text", None);
    problems.into_errors(source_name, valid)
}

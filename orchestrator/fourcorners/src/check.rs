//! `check`: validates a plan and shows what it would do.

use std::path::Path;
use std::process::ExitCode;

use hypervisor::{Deployment, Finding, Severity};
use plan::{FillRate, TestPlan};
use serde_json::json;

use crate::cli::CheckArgs;
use crate::{output, place, plan_file};

pub(crate) async fn check(data_dir: &Path, args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let file = match plan_file::read(&args.plan)? {
        Ok(file) => file,
        Err(errors) => {
            if args.output.json {
                output::result(&format!("{}\n", json!({ "valid": false, "errors": errors })))?;
            } else {
                plan_file::show_errors(&errors);
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let schedule = plan::schedule(&file.plan, FillRate::assumed());
    let findings = findings(data_dir, &file.plan).await?;
    let text = if args.output.json {
        json!({ "valid": true, "plan": file.plan, "schedule": schedule, "findings": findings }).to_string()
    } else {
        let findings = findings.iter().map(as_text);
        std::iter::once(schedule.render(&file.plan)).chain(findings).collect::<Vec<_>>().join("\n")
    };
    output::result(&format!("{text}\n"))?;
    let blocked = findings.iter().any(|finding| finding.severity == Severity::Blocker);
    Ok(if blocked { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What the place of the workers says to the plan; nothing is changed.
pub(crate) async fn findings(data_dir: &Path, plan: &TestPlan) -> anyhow::Result<Vec<Finding>> {
    let deployment = Deployment {
        workers: plan.workers.count,
        disks_per_worker: plan.workers.disks,
        disk_bytes: plan.disk_bytes(),
        vcpus: plan.workers.vcpus,
        memory_bytes: plan.workers.memory_bytes,
    };
    Ok(place::of_plan(data_dir, plan)?.preflight(&deployment).await?)
}

fn as_text(finding: &Finding) -> String {
    let weight = match finding.severity {
        Severity::Blocker => "blocker",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    format!("{weight}: {}\n    what to do: {}", finding.message, finding.remedy)
}

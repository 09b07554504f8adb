//! `check`: validates a plan and shows what it would do.

use std::path::Path;
use std::process::ExitCode;

use hypervisor::proxmox::Timing;
use hypervisor::{Deployment, Finding, Severity};
use plan::{FillRate, TestPlan};
use serde_json::json;

use crate::cli::CheckArgs;
use crate::{execute, output, place, plan_file};

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
    let findings = findings(data_dir, &file.plan, Timing::default()).await?;
    let blocked = findings.iter().any(|finding| finding.severity == Severity::Blocker);
    let mut text =
        std::iter::once(schedule.render(&file.plan)).chain(findings.iter().map(output::finding)).collect::<Vec<_>>();
    let mut answer = json!({ "valid": true, "plan": file.plan, "schedule": schedule, "findings": findings });
    let mut sound = !blocked;
    if args.boot && !blocked {
        let request = execute::request(file.plan, file.yaml);
        let report = execute::canary(data_dir, &request, &args.workers).await?;
        sound = report.failure().is_none();
        text.extend(report.lines());
        answer["canary"] = json!(report);
    }
    let text = if args.output.json { answer.to_string() } else { text.join("\n") };
    output::result(&format!("{text}\n"))?;
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the place of the workers says to the plan; nothing is changed. A cluster is waited for as `timing` says.
pub(crate) async fn findings(data_dir: &Path, plan: &TestPlan, timing: Timing) -> anyhow::Result<Vec<Finding>> {
    let mut findings = place::of_plan(data_dir, plan, timing)?.preflight(&deployment(plan)).await?;
    findings.splice(0..0, place::image_finding(data_dir, plan));
    Ok(findings)
}

/// What the plan needs of the place.
pub(crate) fn deployment(plan: &TestPlan) -> Deployment {
    Deployment {
        workers: plan.workers.count,
        disks_per_worker: plan.workers.disks,
        disk_bytes: plan.disk_bytes(),
        vcpus: plan.workers.vcpus,
        memory_bytes: plan.workers.memory_bytes,
    }
}

//! `check`: validates a plan and shows what it would do.

use std::path::Path;
use std::process::ExitCode;

use hypervisor::proxmox::Timing;
use hypervisor::{Deployment, Finding, Severity};
use plan::{FillRate, TestPlan};
use serde_json::{Value, json};

use crate::cli::CheckArgs;
use crate::{execute, output, place, plan_file};

pub(crate) async fn check(data_dir: &Path, args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let mut answer = json!({ "valid": false });
    let looked = look(data_dir, args, &mut answer).await;
    if args.output.json {
        // Whoever reads JSON gets it also where the look broke off, with all that was found out before.
        if let Err(error) = &looked {
            answer["error"] = json!(output::chain(error));
        }
        output::result(&format!("{answer}\n"))?;
    }
    looked
}

/// Says what it finds, or leaves it in `answer` alone where that is what was asked for.
async fn look(data_dir: &Path, args: &CheckArgs, answer: &mut Value) -> anyhow::Result<ExitCode> {
    let file = match plan_file::read(&args.plan)? {
        Ok(file) => file,
        Err(errors) => {
            answer["errors"] = json!(errors);
            if !args.output.json {
                plan_file::show_errors(&errors);
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let schedule = plan::schedule(&file.plan, FillRate::assumed());
    *answer = json!({ "valid": true, "plan": file.plan, "schedule": schedule });
    let mut findings = findings(data_dir, &file.plan, Timing::default()).await?;
    // Reads the image whole, which is too much for each look of a page.
    findings.splice(0..0, place::unfit_image(data_dir, &file.plan));
    answer["findings"] = json!(findings);
    let blocked = findings.iter().any(|finding| finding.severity == Severity::Blocker);
    let mut text =
        std::iter::once(schedule.render(&file.plan)).chain(findings.iter().map(output::finding)).collect::<Vec<_>>();
    let mut sound = !blocked;
    if args.boot && !blocked {
        let request = execute::request(file.plan, file.yaml);
        let report = execute::canary(data_dir, &request, &args.workers).await?;
        sound = report.failure().is_none();
        text.extend(report.lines());
        answer["canary"] = json!(report);
    }
    if !args.output.json {
        output::result(&format!("{}\n", text.join("\n")))?;
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the place of the workers says to the plan; nothing is changed. A cluster is waited for as `timing` says.
pub(crate) async fn findings(data_dir: &Path, plan: &TestPlan, timing: Timing) -> anyhow::Result<Vec<Finding>> {
    let mut findings = place::of_plan(data_dir, plan, timing)?.preflight(&deployment(plan)).await?;
    findings.splice(0..0, place::own_findings(data_dir, plan));
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

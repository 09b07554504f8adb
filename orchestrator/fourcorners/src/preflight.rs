//! What the place of the workers says to a plan, for the page on which it is written: a cluster is not asked at each keystroke, but
//! once a plan's part that concerns it, one such question at a time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use plan::{Target, TestPlan};
use serde_json::json;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};
use web::{Finding, Findings, Wanted};

use crate::cli::WorkerArgs;
use crate::clusters::{KEPT, finding, interactive};
use crate::{check, output, place};

/// The longest that a cluster is asked about a plan.
const BOUND: Duration = Duration::from_secs(60);

/// Answers that are kept: those to the plans that were written last.
const MAX_KEPT: usize = 16;

/// Answers to plans. Clones share them.
#[derive(Clone)]
pub(crate) struct Preflights {
    inner: Arc<Inner>,
}

struct Inner {
    data_dir: PathBuf,
    workers: WorkerArgs,
    /// The newest last.
    kept: Mutex<Vec<Kept>>,
    /// One question at a time, whoever asks.
    turn: Arc<Turn<()>>,
}

struct Kept {
    question: String,
    since: Instant,
    findings: Findings,
}

impl Preflights {
    pub(crate) fn new(data_dir: &Path, workers: &WorkerArgs) -> Self {
        let (kept, turn) = (Mutex::default(), Arc::default());
        Self { inner: Arc::new(Inner { data_dir: data_dir.to_owned(), workers: workers.clone(), kept, turn }) }
    }

    /// What stands in the way of a plan. This machine is asked each time: that costs nothing.
    pub(crate) async fn findings(&self, plan: &TestPlan, wanted: Wanted) -> Findings {
        if matches!(plan.target, Target::Local(_)) {
            return Findings { list: self.ask(plan).await, ..Findings::default() };
        }
        let question = question(plan);
        let known = self.known(&question);
        match (wanted, known) {
            (Wanted::Known | Wanted::Recent, Some((findings, true))) => findings,
            (Wanted::Known, known) => {
                // Where another question is under way, the page asks again, with the text that it has by then.
                if let Ok(turn) = Arc::clone(&self.inner.turn).try_lock_owned() {
                    let (preflights, plan) = (self.clone(), plan.clone());
                    tokio::spawn(async move { preflights.ask_cluster(&plan, question, turn).await });
                }
                Findings { pending: true, ..known.map(|(findings, _)| findings).unwrap_or_default() }
            }
            (Wanted::Recent | Wanted::Anew, _) => {
                let turn = Arc::clone(&self.inner.turn).lock_owned().await;
                self.ask_cluster(plan, question, turn).await
            }
        }
    }

    /// What was answered, and whether that counts as new.
    fn known(&self, question: &str) -> Option<(Findings, bool)> {
        let kept = self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().find(|kept| kept.question == question)?;
        Some((known.findings.clone(), known.since.elapsed() < KEPT))
    }

    async fn ask_cluster(&self, plan: &TestPlan, question: String, turn: OwnedMutexGuard<()>) -> Findings {
        let findings = Findings { list: self.ask(plan).await, looked: Some(Timestamp::now()), pending: false };
        let mut kept = self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| kept.question != question);
        if kept.len() >= MAX_KEPT {
            kept.remove(0);
        }
        kept.push(Kept { question, since: Instant::now(), findings: findings.clone() });
        drop(kept);
        drop(turn);
        findings
    }

    async fn ask(&self, plan: &TestPlan) -> Vec<Finding> {
        let asked = check::findings(&self.inner.data_dir, plan, interactive());
        let blocker =
            |message: String, remedy: &str| Finding { severity: "blocker", message, remedy: remedy.to_owned() };
        let mut list = match tokio::time::timeout(BOUND, asked).await {
            Ok(Ok(findings)) => findings.into_iter().map(finding).collect(),
            Ok(Err(error)) => {
                vec![blocker(output::chain(&error), "Change the target of the plan, or make it reachable.")]
            }
            Err(_) => vec![blocker(
                format!("the place of the workers did not answer everything within {} s", BOUND.as_secs()),
                "Check the network and the load of the nodes, then ask again.",
            )],
        };
        list.splice(0..0, place::reach_finding(plan, &self.inner.workers).map(finding));
        list
    }
}

/// All of a plan that a cluster's answer depends on; what else is typed asks it nothing.
fn question(plan: &TestPlan) -> String {
    format!("{} {:?}", json!([plan.target, plan.guard]), check::deployment(plan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Profiles;

    #[test]
    fn only_what_concerns_the_cluster_is_a_new_question() {
        let of = |change: &dyn Fn(&str) -> String| {
            let yaml = change(plan::example("proxmox").unwrap());
            question(&plan::parse("plan", &yaml, &Profiles::shipped()).unwrap())
        };
        let same = of(&str::to_owned);
        for (from, to) in
            [("sample: 60m", "sample: 7s"), ("name: Published", "name: Other"), ("  - 4k-random-read\n", "")]
        {
            assert_eq!(of(&|yaml| yaml.replacen(from, to, 1)), same, "{from}");
        }
        for (from, to) in [
            ("count: 16", "count: 15"),
            ("8TB", "9TB"),
            ("vmbr0", "vmbr1"),
            ("min_free_percent: 20", "min_free_percent: 21"),
            ("connection: lab", "connection: other"),
        ] {
            assert_ne!(of(&|yaml| yaml.replacen(from, to, 1)), same, "{from}");
        }
    }
}

//! How long the server takes for each page and call of the API, with a store as full as it gets in a year and a run of 22 hours open.
//!
//! `cargo bench --workspace --locked --bench pages -- --rounds 15`
//!
//! It makes a store with 1,000 runs of ten cases, a run of 15 cases on 16 workers × 10 disks over 22 hours, one like it that goes on, and
//! asks every GET route of the router, and what the page of a new test asks while it is typed, in this process, for what they show. It fails where an answer takes longer than the limit.
//! docs/benchmarks.md says what is counted.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on stops where it is")]

#[expect(dead_code, reason = "the bench needs some of the samples")]
#[path = "../../tests/samples/mod.rs"]
mod samples;
#[expect(dead_code, reason = "the bench needs the users alone")]
#[path = "../../tests/samples/source.rs"]
mod source;

mod ask;
mod fill;
mod keeper;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use store::{Role, RunFilter};
use web::{AllowedHosts, App, Hub, Parts, StoreSource};

use ask::{Asked, Client, Question};
use fill::Filled;
use keeper::Keeper;

/// No answer may take longer, milliseconds.
const LIMIT_MS: f64 = 100.0;
/// Rounds where none are asked for.
const ROUNDS: usize = 15;

#[tokio::main]
async fn main() -> ExitCode {
    let rounds = match rounds(std::env::args().skip(1)) {
        Ok(rounds) => rounds,
        Err(why) => {
            eprintln!("{why}\nusage: cargo bench --bench pages -- [--rounds N]");
            return ExitCode::FAILURE;
        }
    };
    let began = Instant::now();
    let (_directory, store) = source::new_store().await;
    let hub = Arc::new(Hub::default());
    let filled = fill::fill(&store, &hub).await;
    let megabytes = std::fs::metadata(store.file()).map_or(0, |file| file.len() >> 20);
    let runs = store.list_runs(u32::MAX).await.unwrap().len();
    println!("{runs} runs in a database of {megabytes} MiB, made in {:.0} s", began.elapsed().as_secs_f64());

    source::add_user(&store, "admin", Role::Admin).await;
    let listening = "127.0.0.1:8440".parse().unwrap();
    let runs = Arc::new(StoreSource::new(store.clone(), Arc::clone(&hub)));
    let (workshop, hosts) = (Arc::new(Keeper::new(hub)), AllowedHosts::listening_on(listening));
    let parts = Parts { runs, workshop, store: store.clone(), hosts, listening, secure: false };
    let client = Client::log_in(web::router(App::new(parts).unwrap())).await;
    let middle = store.filter_runs(&RunFilter::all(500)).await.unwrap().pop().unwrap().id;
    let mut questions: Vec<Question> =
        paths(&filled, &middle.to_string(), &client).await.into_iter().map(Question::Get).collect();
    for (name, yaml) in
        [("demo", plan::DEMO_PLAN), ("22 hours", fill::PLAN), ("cluster", plan::example("proxmox").unwrap())]
    {
        let fields = vec![("yaml", yaml.to_owned()), ("cache", "64GiB".to_owned())];
        questions.push(Question::Post { path: "/new/check", name, fields });
    }
    let slow = measure(&client, &questions, rounds).await;
    if slow.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("slower than {LIMIT_MS} ms: {}", slow.join(", "));
    ExitCode::FAILURE
}

/// `--rounds N`; cargo adds `--bench`.
fn rounds(mut arguments: impl Iterator<Item = String>) -> Result<usize, String> {
    let mut rounds = ROUNDS;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {}
            "--rounds" => {
                let number = arguments.next().and_then(|number| number.parse().ok()).filter(|number| *number > 0);
                rounds = number.ok_or("--rounds: found no number above 0")?;
            }
            other => return Err(format!("found {other:?}")),
        }
    }
    Ok(rounds)
}

/// Every GET route as a browser asks for it, and some of them with what makes them work hardest. A route that is new is asked for with a
/// name that nothing has.
async fn paths(filled: &Filled, middle: &str, client: &Client) -> Vec<String> {
    let Filled { ended, going_on, small } = filled;
    let mut all = Vec::new();
    for route in web::routes().into_iter().filter(|route| route.method == "GET") {
        let path = |id: &dyn std::fmt::Display| {
            let path = route.path.replace("{id}", &id.to_string()).replace("{place}", "8").replace("{set}", "deep");
            let path = path.replace("{name}", "4k-random-read").replace("{secret}", "x");
            path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect::<Vec<_>>().join("/")
        };
        match route.path.as_str() {
            "/" => {
                let filters =
                    ["/?text=case&state=complete".to_owned(), format!("/?before={middle}"), "/?text=nowhere".into()];
                all.extend(std::iter::once("/".to_owned()).chain(filters));
            }
            path if path.contains("/clusters/") => all.push(path.replace("{name}", keeper::CONNECTION)),
            "/assets/{hash}/{name}" => all.push(client.asset("report.js").await),
            "/compare" => {
                all.extend(["/compare".to_owned(), format!("/compare?run={ended}&run={small}&run={going_on}")]);
            }
            "/new" => all.extend(["/new".to_owned(), format!("/new?run={ended}")]),
            path if path.ends_with("/live") || path.ends_with("/feed") => {
                all.push(path.replace("{id}", &going_on.to_string()));
            }
            runs if runs.starts_with("/runs/{id}") || runs.starts_with("/api/v1/runs/{id}") => {
                all.extend([path(ended), path(going_on), path(small)]);
            }
            _ => all.push(path(small)),
        }
    }
    all
}

/// Asks for all in turn, round by round, and prints a line for each; answers those that are too slow.
async fn measure(client: &Client, questions: &[Question], rounds: usize) -> Vec<String> {
    let mut times: Vec<Vec<Asked>> = vec![Vec::new(); questions.len()];
    for _ in 0..rounds {
        for (question, times) in questions.iter().zip(&mut times) {
            times.push(client.ask(question).await);
        }
    }
    println!("\n{:>9}  {:>9}  {:>9}  {:>11}  status  path", "median ms", "max ms", "whole ms", "bytes");
    let mut slow = Vec::new();
    for (question, times) in questions.iter().zip(times) {
        let (median, most) = spread(times.iter().map(Asked::answer_ms));
        let (whole, _) = spread(times.iter().map(|asked| asked.whole_ms));
        let Asked { status, bytes, .. } = times[0];
        let mark = if most > LIMIT_MS { " <" } else { "" };
        println!("{median:>9.1}  {most:>9.1}  {whole:>9.1}  {bytes:>11}  {status:>6}  {question}{mark}");
        if most > LIMIT_MS {
            slow.push(question.to_string());
        }
    }
    slow
}

/// Median and largest.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    (sorted[sorted.len() / 2], sorted[sorted.len() - 1])
}

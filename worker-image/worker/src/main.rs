//! The worker agent as a program of its own: the static binary of the worker image. `fourcorners worker` is the same agent.

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

/// Generates load as an orchestrator says.
#[derive(Parser)]
#[command(name = "worker", version)]
struct Cli {
    #[command(flatten)]
    args: worker::Args,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("FOURCORNERS_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // A VM's clock may be wrong, and its console says nothing of colours.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .without_time()
        .init();
    match worker::run(cli.args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

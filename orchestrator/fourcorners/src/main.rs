//! Fourcorners: a virtual-cluster storage test orchestrator. One binary, a file a subcommand.

// They panic where the other end has gone; `output` does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod ask;
mod check;
mod cleanup;
mod cli;
mod closing;
mod clusters;
mod connect;
mod connections;
mod execute;
mod export;
mod file_journal;
mod image;
mod interrupt;
mod live;
mod manager;
mod output;
mod place;
mod plan_file;
mod preflight;
mod progress;
mod proxmox;
mod recover;
mod runs;
mod secrets;
mod serve;
mod table;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};
use tracing_subscriber::EnvFilter;

/// Exit status of a run that ended, but is not complete.
const NOT_COMPLETE: u8 = 3;
/// Exit status of a cancelled run, as a shell reports an interrupt.
const CANCELLED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    // Quiet by default: what a person must see is printed by the subcommands; FOURCORNERS_LOG=debug shows more.
    let filter = EnvFilter::try_from_env("FOURCORNERS_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        // It would report an unwritable standard error there, and panic.
        .log_internal_errors(false)
        .init();
    match dispatch(cli).await {
        Ok(code) => code,
        Err(error) => {
            output::note(format!("error: {}", output::chain(&error)));
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let data_dir = cli.data_dir;
    match cli.command {
        Command::Demo(args) => execute::demo(&data_dir, &args).await,
        Command::Check(args) => check::check(&data_dir, &args).await,
        Command::Run(args) => execute::run(&data_dir, &args).await,
        Command::Connect(args) => connect::connect(&data_dir, &args).await,
        Command::Connections(command) => connect::dispatch(&data_dir, command).await,
        Command::Cleanup(args) => cleanup::cleanup(&data_dir, &args).await,
        Command::Runs(args) => runs::list(&data_dir, &args).await,
        Command::Show(args) => runs::show(&data_dir, &args).await,
        Command::Export(args) => export::export(&data_dir, &args).await,
        Command::Serve(args) => serve::serve(&data_dir, &args).await,
        Command::Image(command) => image::dispatch(&data_dir, command).await,
        Command::Worker(args) => {
            worker::run(args).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

//! `image`: the worker image: made, made personal, shown.

mod build;
mod personalise;
mod places;
mod show;

use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;

pub(crate) use build::ensure;
pub(crate) use places::of_data_dir;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the bootable worker image from Debian packages; no root is needed
    Build(build::BuildArgs),
    /// Write to a copy of the image what its workers must know: orchestrator, fingerprint, token, addresses
    ///
    /// Runs do this by themselves, each fleet with a token drawn for it. An image made by hand is for trying a hypervisor or a network: its
    /// VM reaches the orchestrator while a run is up and is refused there; it joins no run.
    Personalise(personalise::PersonaliseArgs),
    /// Show an image's digests and what its slot says, the token masked
    Show(show::ShowArgs),
}

pub(crate) async fn dispatch(data_dir: &Path, command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Build(args) => build::build(data_dir, &args).await?,
        Command::Personalise(args) => personalise::personalise(data_dir, args).await?,
        Command::Show(args) => show::show(data_dir, &args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs what reads and writes files for a while.
async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> anyhow::Result<T>
where
    T: Send + 'static,
    E: Into<anyhow::Error> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await?.map_err(Into::into)
}

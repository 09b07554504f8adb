//! `image-build`: makes the worker ISO from Debian packages and prints its digest. `worker-image/image/build` calls it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use worker_image::build::epoch_of_environment;
use worker_image::{BuildOptions, build};

/// Makes the worker ISO from Debian packages.
#[derive(Parser)]
struct Arguments {
    /// The static worker agent.
    #[arg(long)]
    worker: PathBuf,
    /// The static init (binary `worker-init` of this package).
    #[arg(long)]
    init: PathBuf,
    /// The ISO to write.
    #[arg(long, short)]
    out: PathBuf,
    /// Where downloaded packages are kept.
    #[arg(long)]
    cache_dir: PathBuf,
    /// Use the .deb files of this directory, and no network.
    #[arg(long)]
    debs: Option<PathBuf>,
    /// Time of all files in the image, seconds since 1970; by default when the kernel was built.
    #[arg(long)]
    source_date_epoch: Option<u32>,
    /// Print the whole report as JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let source_date_epoch = match arguments.source_date_epoch.map_or_else(epoch_of_environment, |epoch| Ok(Some(epoch)))
    {
        Ok(epoch) => epoch,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let options = BuildOptions {
        worker: arguments.worker,
        init: arguments.init,
        out: arguments.out,
        cache_dir: arguments.cache_dir,
        debs: arguments.debs,
        source_date_epoch,
    };
    match build(&options) {
        Ok(report) if arguments.json => {
            println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
            ExitCode::SUCCESS
        }
        Ok(report) => {
            println!("{}: {} bytes, kernel {}", report.iso.display(), report.size_bytes, report.manifest.kernel);
            println!("sha256 {}", report.sha256);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

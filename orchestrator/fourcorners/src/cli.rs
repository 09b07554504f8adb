//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Measures shared storage the way a proof of concept needs it: worker VMs or processes, filled disks, preconditioned and timed
/// workloads, and one merged four-corner report that compares footprints.
#[derive(Debug, Parser)]
#[command(name = "fourcorners", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Directory of the database, the data disks of local workers, logs and reports
    #[arg(long, global = true, env = "FOURCORNERS_DATA_DIR", default_value = "fourcorners-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the built-in example on this machine: 2 workers × 2 disks, two footprints, five workloads, under 2 minutes
    Demo(DemoArgs),
    /// Validate a plan; show its schedule, region per disk, bytes written and estimated time
    Check(CheckArgs),
    /// Run a plan
    Run(RunArgs),
    /// List the runs
    Runs(JsonArgs),
    /// Show a run's results
    Show(ShowArgs),
    /// Write a run's results to a file
    Export(ExportArgs),
    /// Serve the web interface
    Serve(ServeArgs),
    /// Be a worker (started by the orchestrator)
    Worker(worker::Args),
}

#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// Machine-readable output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) after: AfterArgs,
}

/// What to do when a run has ended.
#[derive(Debug, Args)]
pub(crate) struct AfterArgs {
    /// Show the run and its report in a browser: prints a link that lets in once, now and when the run has ended
    #[arg(long)]
    pub(crate) serve: bool,
    /// Address of the web interface; TLS where it is not loopback
    #[arg(long, default_value = "127.0.0.1:8440", value_name = "ADDRESS:PORT", requires = "serve")]
    pub(crate) listen: SocketAddr,
    /// Machine-readable output: the export document on standard output, progress on standard error
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The plan (YAML)
    pub(crate) plan: PathBuf,
    #[command(flatten)]
    pub(crate) output: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The plan (YAML)
    pub(crate) plan: PathBuf,
    #[command(flatten)]
    pub(crate) after: AfterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Id of the run, the beginning of one, or `latest`
    #[arg(default_value = "latest")]
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) output: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Id of the run, the beginning of one, or `latest`
    pub(crate) run: String,
    /// Format of the file
    #[arg(long, value_enum, default_value_t = Format::Json)]
    pub(crate) format: Format,
    /// File to write; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

/// Formats of `export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Everything, as docs/export.md describes
    Json,
    /// A row a case and operation
    Csv,
    /// The report, one file that needs no network
    Html,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address of the web interface; 0.0.0.0 or [::] for all of this machine's
    #[arg(long, default_value = "127.0.0.1:8440", value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) door: DoorArgs,
    /// Print a link that makes another administrator, where the password of the last one is lost
    #[arg(long)]
    pub(crate) new_admin: bool,
}

/// What the web interface's listener speaks, and under which names. On loopback it speaks plain HTTP, elsewhere TLS.
#[derive(Debug, Default, Args)]
pub(crate) struct DoorArgs {
    /// Certificate and its chain (PEM), instead of one of the orchestrator's own CA
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Speak plain HTTP, though others can read and change what crosses the network
    #[arg(long, conflicts_with = "cert")]
    pub(crate) insecure_http: bool,
    /// Also answer to this name, as browsers have it in their address bar; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Vec<String>,
}

//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cleanup::CleanupArgs;
use crate::connect::{self, ConnectArgs};

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
    /// Save how a Proxmox VE cluster is reached; its certificate, the token and what that may do are looked at first
    Connect(ConnectArgs),
    /// List, show and forget saved connections
    #[command(subcommand)]
    Connections(connect::Command),
    /// List and remove what earlier runs left, by the journal and by the marks in the clusters
    Cleanup(CleanupArgs),
    /// List the runs
    Runs(JsonArgs),
    /// Show a run's results
    Show(ShowArgs),
    /// Write a run's results to a file
    Export(ExportArgs),
    /// Serve the web interface
    Serve(ServeArgs),
    /// Make the bootable image of worker VMs, make it personal, look into it
    #[command(subcommand)]
    Image(crate::image::Command),
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
    /// Run the workers as VMs that boot the worker image (QEMU), which is made first where there is none; 3 to 6 minutes without KVM
    #[arg(long)]
    pub(crate) vm: bool,
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
    /// Also boot a canary: one worker on each host in use, with one disk of 1 GiB that is written and read back; all of it is removed again
    #[arg(long)]
    pub(crate) boot: bool,
    #[command(flatten)]
    pub(crate) workers: WorkerArgs,
    #[command(flatten)]
    pub(crate) output: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The plan (YAML)
    pub(crate) plan: PathBuf,
    /// Rehearse it: a canary, then the plan at its smallest (seconds a case), marked so that its figures are taken for no result
    #[arg(long)]
    pub(crate) rehearse: bool,
    #[command(flatten)]
    pub(crate) workers: WorkerArgs,
    #[command(flatten)]
    pub(crate) after: AfterArgs,
}

/// How workers reach the orchestrator.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct WorkerArgs {
    /// Address on which the orchestrator listens for workers; 0.0.0.0:8441 for workers on other machines, any port of loopback for those on
    /// this one
    #[arg(long, env = "FOURCORNERS_WORKER_LISTEN", value_name = "ADDRESS:PORT")]
    pub(crate) worker_listen: Option<SocketAddr>,
    /// Address that workers dial, several in turn; all that this machine has where absent. Without a port, that of --worker-listen
    #[arg(long, env = "FOURCORNERS_WORKER_ADDRESS", value_name = "ADDRESS[:PORT]", value_delimiter = ',')]
    pub(crate) worker_address: Vec<ToldAddress>,
}

/// An address with a port or without: then it is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ToldAddress(pub(crate) SocketAddr);

impl FromStr for ToldAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let address = text.parse().or_else(|_| plain.map(|ip| SocketAddr::new(ip, 0)));
        address
            .map(Self)
            .map_err(|_| format!("found {text:?}; allowed: an IP address, or one with a port ([…] around IPv6)"))
    }
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
    #[command(flatten)]
    pub(crate) workers: WorkerArgs,
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

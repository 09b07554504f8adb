//! The command line of the `worker` subcommand.

use std::{
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{AgentError, Config, GIVE_UP_AFTER, KEEPALIVE_TIMEOUT};

/// Environment variable that holds the enrolment token where no `--token-file` is given.
pub const TOKEN_VARIABLE: &str = "FOURCORNERS_WORKER_TOKEN";

/// The largest token, bytes.
const MAX_TOKEN_BYTES: usize = 4096;

/// Options of a worker.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The orchestrator's address for workers, ws://HOST:PORT/api/worker/v1/session
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// Identity under which the orchestrator expects this worker
    #[arg(long)]
    pub uuid: String,
    /// A disk that may be used, and overwritten, as the orchestrator says; once for each
    #[arg(long = "disk", value_name = "SERIAL=PATH")]
    pub disks: Vec<DiskArg>,
    /// File that holds the enrolment token; else it comes from the environment variable FOURCORNERS_WORKER_TOKEN
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Engine threads; one for each CPU by default
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// The kernel is this worker's own (a VM): I/O scheduler and merging are set for measuring, threads are pinned
    #[arg(long)]
    pub own_kernel: bool,
    /// End when standard input is closed, which is when the process that started this one ends
    #[arg(long)]
    pub exit_on_stdin_close: bool,
    /// Give up after this many seconds without an orchestrator and without news from a job
    #[arg(long, value_name = "SECONDS", default_value_t = GIVE_UP_AFTER.as_secs())]
    pub give_up_after: u64,
}

/// A disk of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskArg {
    /// Serial by which the orchestrator assigns it.
    pub serial: String,
    /// Block device or regular file.
    pub path: PathBuf,
}

impl std::str::FromStr for DiskArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((serial, path)) if !serial.is_empty() && !path.is_empty() => {
                Ok(Self { serial: serial.to_owned(), path: PathBuf::from(path) })
            }
            _ => Err("expected SERIAL=PATH, both not empty".to_owned()),
        }
    }
}

impl Args {
    /// The agent's configuration, the token read from where it is.
    ///
    /// # Errors
    /// [`AgentError::Option`] where no token is to be had.
    pub fn into_config(self) -> Result<Config, AgentError> {
        let token = match &self.token_file {
            Some(file) => token_from(file)?,
            None => std::env::var(TOKEN_VARIABLE).map_err(|_| AgentError::Option {
                option: "--token-file",
                problem: format!("not given, and the environment variable {TOKEN_VARIABLE} is not set"),
            })?,
        };
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = self.threads.unwrap_or_else(|| u32::try_from(cpus).unwrap_or(u32::MAX));
        Ok(Config {
            url: self.url,
            uuid: self.uuid,
            token: token.trim().to_owned(),
            disks: self.disks,
            threads,
            own_kernel: self.own_kernel,
            give_up_after: Duration::from_secs(self.give_up_after),
            keepalive_timeout: KEEPALIVE_TIMEOUT,
        })
    }
}

fn token_from(file: &Path) -> Result<String, AgentError> {
    let unusable = |problem: String| AgentError::Option {
        option: "--token-file",
        problem: format!("{}: {problem}", file.display()),
    };
    let mut token = String::new();
    let limit = MAX_TOKEN_BYTES as u64 + 1;
    std::fs::File::open(file)
        .and_then(|open| open.take(limit).read_to_string(&mut token))
        .map_err(|error| unusable(error.to_string()))?;
    if token.trim().is_empty() || token.len() > MAX_TOKEN_BYTES {
        return Err(unusable(format!("expected a token of 1 to {MAX_TOKEN_BYTES} bytes")));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(more: &[&str]) -> Result<Args, clap::Error> {
        let base = ["worker", "--url", "ws://127.0.0.1:1/x", "--uuid", "u"];
        Cli::try_parse_from(base.iter().chain(more)).map(|cli| cli.args)
    }

    #[test]
    fn a_disk_is_serial_and_path() {
        let args = parse(&["--disk", "d0=/a/b=c", "--disk", "d1=e"]).unwrap();
        let disk = |serial: &str, path: &str| DiskArg { serial: serial.into(), path: path.into() };
        assert_eq!(args.disks, [disk("d0", "/a/b=c"), disk("d1", "e")]);
        for bad in ["d0", "=p", "d0=", ""] {
            let error = parse(&["--disk", bad]).unwrap_err().to_string();
            assert!(error.contains("SERIAL=PATH"), "{error}");
        }
    }

    #[test]
    fn the_token_comes_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let empty = parse(&["--token-file", path]).unwrap().into_config().err().unwrap().to_string();
        assert!(empty.contains(path) && empty.contains("1 to 4096"), "{empty}");
        std::fs::write(path, "secret\n").unwrap();
        assert_eq!(parse(&["--token-file", path]).unwrap().into_config().unwrap().token, "secret");
        std::fs::write(path, "x".repeat(5_000)).unwrap();
        assert!(parse(&["--token-file", path]).unwrap().into_config().is_err());
    }
}

//! The command line of the `worker` subcommand.

use std::{
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{AgentError, Config, Fingerprint, GIVE_UP_AFTER, KEEPALIVE_TIMEOUT, Machine, bootstrap::Bootstrap};

/// Environment variable that holds the enrolment token where no `--token-file` is given.
pub const TOKEN_VARIABLE: &str = "FOURCORNERS_WORKER_TOKEN";

/// The largest token, bytes.
const MAX_TOKEN_BYTES: usize = 4096;

/// Options of a worker.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// An address of the orchestrator for workers, wss://HOST:PORT/api/worker/v1/session; more are tried in turn
    #[arg(long = "url", value_name = "URL", required_unless_present = "bootstrap", requires = "ca_sha256")]
    pub urls: Vec<String>,
    /// SHA-256 of the orchestrator's CA certificate (DER), 64 hexadecimal digits; nothing else is trusted
    #[arg(long, value_name = "FINGERPRINT")]
    pub ca_sha256: Option<Fingerprint>,
    /// Bootstrap file of a worker VM (JSON, or the image's slot), in place of addresses, fingerprint and token. Implies --own-kernel and
    /// never gives up
    #[arg(long, value_name = "FILE", conflicts_with_all = ["urls", "ca_sha256", "token_file"])]
    pub bootstrap: Option<PathBuf>,
    /// Identity under which the orchestrator expects this worker; without it, this machine's SMBIOS UUID and MAC addresses
    #[arg(long)]
    pub uuid: Option<String>,
    /// A disk that may be used, and overwritten, as the orchestrator says; once for each. Without any and without --uuid, all disks of
    /// this machine are shown to the orchestrator, which takes the worker only if it expects every one of them
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
    /// [`AgentError::Option`] where no token is to be had, or the bootstrap file cannot be used.
    pub fn into_config(self) -> Result<Config, AgentError> {
        let is_machine = self.bootstrap.is_some();
        let orchestrator = match &self.bootstrap {
            Some(file) => Bootstrap::read(file)?,
            None => self.orchestrator()?,
        };
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let all_disks = self.uuid.is_none() && self.disks.is_empty();
        Ok(Config {
            urls: orchestrator.orchestrator_urls,
            ca_sha256: orchestrator.ca_sha256,
            token: orchestrator.token,
            uuid: self.uuid,
            disks: (!all_disks).then_some(self.disks),
            machine: Machine::this(),
            threads: self.threads.unwrap_or_else(|| u32::try_from(cpus).unwrap_or(u32::MAX)),
            own_kernel: self.own_kernel || is_machine,
            give_up_after: if is_machine { Duration::MAX } else { Duration::from_secs(self.give_up_after) },
            keepalive_timeout: KEEPALIVE_TIMEOUT,
        })
    }

    fn orchestrator(&self) -> Result<Bootstrap, AgentError> {
        let missing = |option, problem: String| AgentError::Option { option, problem };
        let token = match &self.token_file {
            Some(file) => token_from(file)?,
            None => std::env::var(TOKEN_VARIABLE).map_err(|_| {
                let problem = format!("not given, and the environment variable {TOKEN_VARIABLE} is not set");
                missing("--token-file", problem)
            })?,
        };
        let ca_sha256 = self.ca_sha256.ok_or_else(|| missing("--ca-sha256", "not given".to_owned()))?;
        Ok(Bootstrap { orchestrator_urls: self.urls.clone(), ca_sha256, token: token.trim().to_owned() })
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

    const PRINT: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn parse(more: &[&str]) -> Result<Args, clap::Error> {
        let base = ["worker", "--url", "wss://127.0.0.1:1/x", "--ca-sha256", PRINT, "--uuid", "u"];
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

    #[test]
    fn a_bootstrap_file_is_all_that_a_machine_needs() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let json = format!(
            r#"{{"version":1,"orchestrator_urls":["wss://192.0.2.7:7/a","wss://192.0.2.8:7/a"],"ca_sha256":"{PRINT}","token":"t"}}"#
        );
        std::fs::write(file.path(), &json).unwrap();
        let path = file.path().to_str().unwrap();
        let parse =
            |more: &[&str]| Cli::try_parse_from(["worker", "--bootstrap", path].iter().chain(more)).map(|cli| cli.args);
        let config = parse(&[]).unwrap().into_config().unwrap();
        assert_eq!(config.urls, ["wss://192.0.2.7:7/a", "wss://192.0.2.8:7/a"]);
        assert_eq!((config.ca_sha256.to_string().as_str(), config.token.as_str()), (PRINT, "t"));
        assert!(config.own_kernel && config.uuid.is_none() && config.disks.is_none());
        assert_eq!(config.give_up_after, Duration::MAX);
        assert!(parse(&["--ca-sha256", PRINT]).is_err(), "one or the other");
        std::fs::write(file.path(), json.replace(PRINT, "12")).unwrap();
        let error = parse(&[]).unwrap().into_config().err().unwrap().to_string();
        assert!(error.contains("field ca_sha256: \"12\""), "{error}");
    }

    #[test]
    fn an_orchestrator_is_not_trusted_without_a_fingerprint() {
        let without = Cli::try_parse_from(["worker", "--url", "wss://127.0.0.1:1/x"]).map(|_| ()).unwrap_err();
        assert!(without.to_string().contains("--ca-sha256"), "{without}");
        let wrong = Cli::try_parse_from(["worker", "--url", "wss://127.0.0.1:1/x", "--ca-sha256", "ab"]).map(|_| ());
        assert!(wrong.unwrap_err().to_string().contains("expected 64 hexadecimal digits"));
        assert!(Cli::try_parse_from(["worker"]).map(|_| ()).unwrap_err().to_string().contains("--url"));
    }
}

//! `connect` and `connections`: how clusters are reached, saved once and named by plans.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args, Subcommand};
use comfy_table::Table;
use hypervisor::proxmox::{Fingerprint, Seen, Timing, Trust, presented_fingerprint, read_secret_file};
use hypervisor::{Finding, Inventory};
use plan::proxmox::is_connection_name;
use plan::size::approximate;
use serde_json::json;

use crate::ask::confirm;
use crate::cli::JsonArgs;
use crate::clusters::{self, Judged};
use crate::connections::{Connection, Connections, New};
use crate::output;
use crate::secrets::Existing;
use crate::table::STYLE;

/// How a person finds the fingerprint on a node.
const ON_THE_NODE: &str = "openssl x509 -in /etc/pve/local/pve-ssl.pem -noout -fingerprint -sha256";

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("secret").required(true), group = ArgGroup::new("trust"))]
pub(crate) struct ConnectArgs {
    /// Any node of the cluster: https://HOST[:PORT], 8006 if no port is given
    url: String,
    /// Name by which plans mention the connection; the host's where absent
    #[arg(long)]
    name: Option<String>,
    /// File that holds the API token as user@realm!name=SECRET; only you may read it (chmod 600)
    #[arg(long, value_name = "FILE", group = "secret")]
    token_file: Option<PathBuf>,
    /// Environment variable that holds the API token as user@realm!name=SECRET
    #[arg(long, value_name = "VARIABLE", group = "secret")]
    token_env: Option<String>,
    /// SHA-256 of the certificate, as a node shows it: trusted without a question if it is the one presented
    #[arg(long, value_name = "AB:CD:…", group = "trust")]
    fingerprint: Option<String>,
    /// PEM file of the authority to trust (a copy of a node's /etc/pve/pve-root-ca.pem)
    #[arg(long, value_name = "FILE", group = "trust")]
    ca: Option<PathBuf>,
    /// Trust the authorities of this system
    #[arg(long, group = "trust")]
    system_ca: bool,
    /// Replace a connection of the same name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    output: JsonArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the saved connections
    List(JsonArgs),
    /// Show what a cluster offers: nodes, storages, bridges
    Show {
        /// Name of the connection
        name: String,
        #[command(flatten)]
        output: JsonArgs,
    },
    /// Forget a connection; runs that used it can then only be cleaned up once it is saved again
    Remove {
        /// Name of the connection
        name: String,
    },
}

pub(crate) async fn connect(data_dir: &Path, args: &ConnectArgs) -> anyhow::Result<ExitCode> {
    let name = args.name.clone().unwrap_or_else(|| host_of(&args.url));
    if !is_connection_name(&name) {
        bail!("--name: found {name:?}; allowed: 1 to 64 letters, digits, `-`, `_` and `.`");
    }
    let connections = Connections::of(data_dir);
    if connections.exists(&name) && !args.replace {
        bail!("a connection {name} is saved already; choose another --name, or say --replace");
    }
    let (id, secret) = token(args)?;
    let tls = trust(args).await?;
    let existing = if args.replace { Existing::Replace } else { Existing::Keep };
    let (endpoint, token, secret) = (&*args.url, &*id, &*secret);
    let new = New { name: &name, endpoint, token, secret, tls: &tls, existing };
    let Judged { seen, enough } = clusters::try_out(&new, Timing::default()).await?;
    if enough {
        connections.save(&new)?;
    }
    let text = if args.output.json {
        format!("{}\n", json!({ "name": name, "saved": enough, "inventory": seen.inventory, "lacking": seen.lacking }))
    } else {
        as_text(&name, &seen, enough)
    };
    output::result(&text)?;
    Ok(if enough { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) async fn dispatch(data_dir: &Path, command: Command) -> anyhow::Result<ExitCode> {
    let connections = Connections::of(data_dir);
    match command {
        Command::List(args) => list(&connections, args.json)?,
        Command::Remove { name } => {
            connections.remove(&name)?;
            output::note(format!("Connection {name} is forgotten."));
        }
        Command::Show { name, output: args } => {
            let connection = connections.load(&name)?;
            let seen = clusters::look(&connections, &connection, Timing::default()).await?;
            let text = if args.json {
                format!("{}\n", json!({ "name": name, "inventory": seen.inventory, "lacking": seen.lacking }))
            } else {
                format!("{}{}", inventory(&seen.inventory), lacking(&seen.lacking))
            };
            output::result(&text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Host of a URL, as a name.
fn host_of(url: &str) -> String {
    let authority = url.trim_start_matches("https://").split('/').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.replace(':', "-")
}

/// Id and secret of the token.
fn token(args: &ConnectArgs) -> anyhow::Result<(String, String)> {
    let (text, from) = match (&args.token_file, &args.token_env) {
        (Some(path), _) => (read_secret_file(path)?, path.display().to_string()),
        (None, Some(variable)) => {
            let text = std::env::var(variable)
                .with_context(|| format!("--token-env: the environment variable {variable} cannot be read"))?;
            (text, variable.clone())
        }
        (None, None) => bail!("no token: say --token-file FILE or --token-env VARIABLE"),
    };
    // What was found is not shown: it may be the secret.
    let (id, secret) = text.trim().split_once('=').with_context(|| {
        format!("{from}: no token in it; expected user@realm!name=SECRET, as `pveum user token add` shows both parts")
    })?;
    Ok((id.trim().to_owned(), secret.trim().to_owned()))
}

/// The trust that was asked for; else the certificate that is presented, once a person has compared it.
async fn trust(args: &ConnectArgs) -> anyhow::Result<Trust> {
    if let Some(text) = &args.fingerprint {
        let fingerprint: Fingerprint = text.parse().map_err(|problem| anyhow::anyhow!("--fingerprint: {problem}"))?;
        return Ok(Trust { ca_file: None, fingerprint: Some(fingerprint) });
    }
    if args.ca.is_some() || args.system_ca {
        return Ok(Trust { ca_file: args.ca.clone(), fingerprint: None });
    }
    let fingerprint = presented_fingerprint(&args.url).await?;
    output::note(format!("{} presents a certificate with the SHA-256 fingerprint", args.url));
    output::note(format!("  {fingerprint}"));
    output::note(format!("Compare it with what a node's console shows: {ON_THE_NODE}"));
    output::note("(pveproxy-ssl.pem instead of pve-ssl.pem where there is one)");
    match confirm("Is it the same?")? {
        Some(true) => Ok(Trust { ca_file: None, fingerprint: Some(fingerprint) }),
        Some(false) => bail!("the certificate is not trusted; nothing was sent and nothing is saved"),
        None => bail!(
            "nobody answered, and nothing is saved; compare the fingerprint and say --fingerprint {fingerprint}, or --ca FILE"
        ),
    }
}

fn list(connections: &Connections, json: bool) -> anyhow::Result<()> {
    let (mut all, mut broken) = (Vec::new(), Vec::new());
    for one in connections.list()? {
        match one {
            Ok(connection) => all.push(connection),
            Err(of) => broken.push(of),
        }
    }
    for of in &broken {
        output::note(format!("Connection {} cannot be read: {:#}", of.name, of.error));
    }
    let text = if json {
        let one = |of: &Connection| json!({ "name": of.name, "provider": of.provider, "endpoint": of.endpoint, "token": of.token, "tls": of.tls });
        json!(all.iter().map(one).collect::<Vec<_>>()).to_string()
    } else {
        let mut table = table(["connection", "provider", "endpoint", "token", "certificate"]);
        for of in all {
            table.add_row([
                of.name.clone(),
                of.provider.clone(),
                of.endpoint.clone(),
                of.token.clone(),
                trusted(&of.tls),
            ]);
        }
        table.to_string()
    };
    output::result(&format!("{text}\n"))
}

fn trusted(tls: &Trust) -> String {
    match (&tls.fingerprint, &tls.ca_file) {
        (Some(fingerprint), _) => format!("SHA-256 {fingerprint}"),
        (None, Some(path)) => format!("issued by {}", path.display()),
        (None, None) => "as this system trusts".to_owned(),
    }
}

fn as_text(name: &str, seen: &Seen, saved: bool) -> String {
    let end = if saved {
        format!(
            "\nSaved as {name}. In a plan:\n\ntarget:\n  provider: proxmox\n  connection: {name}\n  storage: …      # the storage under test\n  \
             iso_storage: …  # one that allows iso\n  bridge: …\n"
        )
    } else {
        "\nNot saved: the token cannot do what a test needs. Grant it, then connect again.\n".to_owned()
    };
    format!("{}{}{end}", inventory(&seen.inventory), lacking(&seen.lacking))
}

fn lacking(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("\n{}\n", output::finding(finding))).collect()
}

/// What a cluster offers, as tables.
fn inventory(inventory: &Inventory) -> String {
    let mut nodes = table(["node", "state", "CPUs", "memory", "of it in use"]);
    for host in &inventory.hosts {
        let state = if host.online { "online" } else { "offline" };
        let memory = [host.memory_bytes, host.memory_used_bytes].map(approximate);
        nodes.add_row([
            host.name.clone(),
            state.to_owned(),
            host.cpus.to_string(),
            memory[0].clone(),
            memory[1].clone(),
        ]);
    }
    let mut storages = table(["storage", "type", "content", "size", "free", "nodes"]);
    for storage in &inventory.storages {
        let shared = if storage.shared { "shared: " } else { "on each: " };
        storages.add_row([
            storage.name.clone(),
            storage.kind.clone(),
            storage.content.join(", "),
            approximate(storage.total_bytes),
            approximate(storage.available_bytes),
            format!("{shared}{}", storage.hosts.join(", ")),
        ]);
    }
    let mut bridges = table(["bridge", "nodes"]);
    for network in &inventory.networks {
        bridges.add_row([network.name.clone(), network.hosts.join(", ")]);
    }
    format!("{}\n{nodes}\n\n{storages}\n\n{bridges}\n", inventory.product)
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(header);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_named_after_its_host() {
        assert_eq!(host_of("https://pve1.example.org:8006/"), "pve1.example.org");
        assert_eq!(host_of("https://[fd00::1]:8006"), "fd00--1");
        assert!(is_connection_name(&host_of("https://192.0.2.1")));
    }
}

//! `image personalise`: a fleet's bootstrap data into a copy of the image.

use std::io::Read;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail};
use clap::Args;
use run::fleet::Authority;
use worker::{Fingerprint, TOKEN_VARIABLE};
use worker_image::{AddressRange, BOOTSTRAP_VERSION, Bootstrap, Mac, StaticAddressing};

use super::show::shown;
use super::{blocking, places};

/// Most bytes of a token file that are read; what the slot cannot hold is refused with the number of bytes.
const MAX_TOKEN_FILE_BYTES: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct PersonaliseArgs {
    /// The personal image to write, readable by you alone: it holds the token
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The image to copy; by default the one that plans find
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// An address of the orchestrator for workers, wss://ADDRESS:PORT/api/worker/v1/session or ADDRESS:PORT; once for each, in the
    /// order to try
    #[arg(long = "url", value_name = "URL", required = true)]
    urls: Vec<String>,
    /// SHA-256 of the orchestrator's CA certificate (DER), 64 hexadecimal digits; by default that of the data directory
    #[arg(long, value_name = "FINGERPRINT")]
    ca_sha256: Option<Fingerprint>,
    /// File that holds the fleet's enrolment token, - for standard input; else it comes from FOURCORNERS_WORKER_TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// MTU of all interfaces, bytes; by default as DHCP or the driver says
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Static addresses for a range of MACs, 52:54:00:00:10:00=192.0.2.50*16 (the last is how many, 1 by default); once for each
    #[arg(long = "address", value_name = "MAC=ADDRESS*COUNT", requires = "prefix")]
    addresses: Vec<Range>,
    /// Length of the static addresses' network prefix, bits
    #[arg(long, value_name = "BITS", requires = "addresses")]
    prefix: Option<u8>,
    /// Router for what is outside the prefix
    #[arg(long, value_name = "ADDRESS", requires = "addresses")]
    gateway: Option<Ipv4Addr>,
    /// Machine-readable output: the personal image as `image show` shows it
    #[arg(long)]
    json: bool,
}

/// An address range of the command line.
#[derive(Debug, Clone)]
struct Range(AddressRange);

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mac, rest) = text.split_once('=').ok_or("MAC=ADDRESS or MAC=ADDRESS*COUNT is allowed")?;
        let (address, count) = rest.split_once('*').unwrap_or((rest, "1"));
        Ok(Self(AddressRange {
            first_mac: mac.parse::<Mac>().map_err(|error| error.to_string())?,
            first_address: address.parse().map_err(|_| format!("{address:?} is no IPv4 address"))?,
            count: count.parse().map_err(|_| format!("{count:?} is no number of addresses"))?,
        }))
    }
}

pub(super) async fn personalise(data_dir: &Path, args: PersonaliseArgs) -> anyhow::Result<()> {
    let bootstrap = Bootstrap {
        version: BOOTSTRAP_VERSION,
        orchestrator_urls: args.urls.iter().map(|url| full(url)).collect(),
        ca_sha256: match args.ca_sha256 {
            Some(fingerprint) => fingerprint,
            None => Authority::open(&data_dir.join("tls"))?.fingerprint(),
        }
        .to_string(),
        token: token(args.token_file.as_deref())?,
        mtu: args.mtu,
        static_addressing: args.prefix.map(|prefix| StaticAddressing {
            ranges: args.addresses.into_iter().map(|Range(range)| range).collect(),
            prefix,
            gateway: args.gateway,
        }),
    };
    let image = args.image.unwrap_or_else(|| places::of_data_dir(data_dir));
    let output = args.output.clone();
    blocking(move || worker_image::personalise(&image, &output, &bootstrap)).await?;
    shown(args.output, args.json).await
}

/// What stands for a URL: an address and a port alone have the rest added.
fn full(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("wss://{url}{}", worker_protocol::SESSION_PATH) }
}

/// Never an option of its own: others see a command line.
fn token(file: Option<&Path>) -> anyhow::Result<String> {
    let text = match file {
        Some(file) if file == Path::new("-") => read(std::io::stdin()).context("standard input"),
        Some(file) => std::fs::File::open(file).and_then(read).with_context(|| file.display().to_string()),
        None => match std::env::var(TOKEN_VARIABLE) {
            Ok(token) => Ok(token),
            Err(_) => bail!("no token: name a file that holds it (--token-file) or set {TOKEN_VARIABLE}"),
        },
    };
    Ok(text.context("the token")?.trim().to_owned())
}

fn read(source: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    source.take(MAX_TOKEN_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_urls_are_read_as_written() {
        let Range(range) = "52:54:00:00:10:00=192.0.2.50*16".parse().unwrap();
        assert_eq!((range.first_mac.to_string().as_str(), range.count), ("52:54:00:00:10:00", 16));
        let Range(range) = "52-54-00-00-10-00=192.0.2.50".parse().unwrap();
        assert_eq!((range.first_address, range.count), (Ipv4Addr::new(192, 0, 2, 50), 1));
        for (wrong, said) in [
            ("192.0.2.50", "MAC=ADDRESS"),
            ("52:54:00=192.0.2.50", "six pairs"),
            ("52:54:00:00:10:00=host*2", "\"host\" is no IPv4 address"),
            ("52:54:00:00:10:00=192.0.2.50*x", "\"x\" is no number"),
        ] {
            let error = wrong.parse::<Range>().unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
        assert_eq!(full("192.0.2.7:7443"), "wss://192.0.2.7:7443/api/worker/v1/session");
        assert_eq!(full("[2001:db8::7]:1"), "wss://[2001:db8::7]:1/api/worker/v1/session");
        assert_eq!(full("ws://192.0.2.7:1/x"), "ws://192.0.2.7:1/x");
    }
}

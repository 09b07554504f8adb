//! What a worker VM must know before it can call its orchestrator.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::StaticAddressing;

/// Version of the slot's JSON. An init ignores fields it does not know and refuses a higher version.
pub const BOOTSTRAP_VERSION: u32 = 1;
/// Most URLs: every address of an orchestrator with many networks. Each one that does not answer costs a connect time-out.
pub const MAX_URLS: usize = 32;
/// MTUs that may be set: IPv4's least for hosts up to jumbo frames.
pub const MTU_RANGE: RangeInclusive<u32> = 576..=9216;

/// A fleet's bootstrap data, as JSON in the ISO's slot.
///
/// ```json
/// {"version":1,"orchestrator_urls":["wss://192.0.2.7:7443/api/worker/v1/session"],"ca_sha256":"<64 hex digits>","token":"…",
///  "mtu":9000,"static_addressing":{"ranges":[{"first_mac":"52:54:00:00:10:00","first_address":"192.0.2.50","count":16}],
///  "prefix":24,"gateway":"192.0.2.1"}}
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// [`BOOTSTRAP_VERSION`].
    pub version: u32,
    /// All addresses at which the orchestrator listens for workers, in the order to try; `wss://` with an IP literal as host:
    /// the image has no name service.
    pub orchestrator_urls: Vec<String>,
    /// SHA-256 of the orchestrator's CA certificate (DER), 64 hexadecimal digits.
    pub ca_sha256: String,
    /// The fleet's enrolment token. Never shown on the console.
    pub token: String,
    /// MTU of all interfaces, bytes; none leaves what DHCP says, else the driver's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Addresses where there is no DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_addressing: Option<StaticAddressing>,
}

impl std::fmt::Debug for Bootstrap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bootstrap")
            .field("version", &self.version)
            .field("orchestrator_urls", &self.orchestrator_urls)
            .field("ca_sha256", &self.ca_sha256)
            .field("token", &"(secret)")
            .field("mtu", &self.mtu)
            .field("static_addressing", &self.static_addressing)
            .finish()
    }
}

/// A bootstrap value that no worker could use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bootstrap field {field}: {found}; allowed: {allowed}")]
pub struct BootstrapError {
    /// The field, as its JSON spells it.
    pub field: String,
    /// What was found.
    pub found: String,
    /// What is allowed.
    pub allowed: String,
}

impl Bootstrap {
    /// Checks every field, so that a mistake shows where it is made and not on a VM's console.
    ///
    /// # Errors
    /// The first field that no worker could use.
    pub fn check(&self) -> Result<(), BootstrapError> {
        let wrong = |field: &str, found: String, allowed: &str| {
            Err(BootstrapError { field: field.into(), found, allowed: allowed.into() })
        };
        if self.version != BOOTSTRAP_VERSION {
            return wrong("version", self.version.to_string(), &BOOTSTRAP_VERSION.to_string());
        }
        let urls = &self.orchestrator_urls;
        if urls.is_empty() || urls.len() > MAX_URLS {
            return wrong("orchestrator_urls", format!("{} URLs", urls.len()), &format!("1 to {MAX_URLS} URLs"));
        }
        for (at, url) in urls.iter().enumerate() {
            if url_host(url).is_none() {
                return wrong(
                    &format!("orchestrator_urls[{at}]"),
                    format!("{url:?}"),
                    "wss://, an IP address (IPv6 in brackets) of one machine, a port, a path",
                );
            }
        }
        if self.ca_sha256.len() != 64 || !self.ca_sha256.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return wrong("ca_sha256", format!("{:?}", self.ca_sha256), "64 hexadecimal digits");
        }
        if self.token.is_empty() || !self.token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return wrong("token", "an empty text or one with blanks or controls".into(), "printable ASCII, no blanks");
        }
        match self.mtu {
            Some(mtu) if !MTU_RANGE.contains(&mtu) => {
                return wrong("mtu", mtu.to_string(), &format!("{} to {}", MTU_RANGE.start(), MTU_RANGE.end()));
            }
            _ => {}
        }
        self.static_addressing.as_ref().map_or(Ok(()), StaticAddressing::check)
    }
}

/// The IP literal and port of a worker URL; none where it is not one.
pub(crate) fn url_host(url: &str) -> Option<(IpAddr, u16)> {
    let rest = url.strip_prefix("wss://")?;
    if !rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'\\".contains(&byte)) {
        return None;
    }
    let (authority, _) = rest.split_once('/')?;
    let (host, port) = authority.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let address = match host.strip_prefix('[') {
        Some(inner) => IpAddr::V6(inner.strip_suffix(']')?.parse().ok()?),
        None => IpAddr::V4(host.parse().ok()?),
    };
    is_callable(address).then_some((address, port))
}

/// Whether the address can be called at all.
fn is_callable(address: IpAddr) -> bool {
    let nobody = address.is_unspecified() || address.is_multicast();
    !nobody && address != IpAddr::V4(Ipv4Addr::BROADCAST)
}

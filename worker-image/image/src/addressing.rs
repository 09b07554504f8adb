//! Static addresses for networks without DHCP: ranges of MACs that map to ranges of addresses.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::BootstrapError;

/// Most address ranges of one fleet.
pub const MAX_RANGES: usize = 128;

/// A 48-bit MAC address; written as six pairs of lower-case hexadecimal digits with colons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(u64);

impl Mac {
    /// The address `offset` after this one; none beyond the last.
    #[must_use]
    pub fn plus(self, offset: u32) -> Option<Self> {
        let sum = self.0 + u64::from(offset);
        (sum < 1 << 48).then_some(Self(sum))
    }

    /// How far this address is after `first`; none where it is before it.
    #[must_use]
    pub fn offset_from(self, first: Self) -> Option<u64> {
        self.0.checked_sub(first.0)
    }

    /// The six bytes, as sent on the wire.
    #[must_use]
    pub fn octets(self) -> [u8; 6] {
        let [_, _, octets @ ..] = self.0.to_be_bytes();
        octets
    }

    /// Whether an interface may have it as its own: the group bit is not set, and it is not all zeros.
    #[must_use]
    pub fn is_of_interface(self) -> bool {
        self.octets()[0] & 1 == 0 && self.0 != 0
    }
}

impl From<[u8; 6]> for Mac {
    fn from(octets: [u8; 6]) -> Self {
        Self(octets.iter().fold(0, |value, octet| value << 8 | u64::from(*octet)))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.octets();
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

/// A text is not a MAC address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address: six pairs of hexadecimal digits with colons are (52:54:00:12:34:56)")]
pub struct MacError(String);

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let mut octets = [0; 6];
        let mut parts = text.split(if text.contains(':') { ':' } else { '-' });
        for octet in &mut octets {
            *octet = parts
                .next()
                .filter(|part| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit()))
                .and_then(|part| u8::from_str_radix(part, 16).ok())
                .ok_or_else(|| MacError(text.into()))?;
        }
        if parts.next().is_some() { Err(MacError(text.into())) } else { Ok(octets.into()) }
    }
}

impl TryFrom<String> for Mac {
    type Error = MacError;

    fn try_from(text: String) -> Result<Self, MacError> {
        text.parse()
    }
}

/// Addresses for workers on a network without DHCP. An interface whose MAC is in no range uses DHCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticAddressing {
    /// Which MACs take which addresses; 1 to [`MAX_RANGES`].
    pub ranges: Vec<AddressRange>,
    /// Length of the network prefix, bits, 8 to 30.
    pub prefix: u8,
    /// Router for addresses outside the prefix; none where the orchestrator is inside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
}

/// `count` MACs from `first_mac` on take `count` addresses from `first_address` on, in order. A single worker is a range of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    /// MAC of the first.
    pub first_mac: Mac,
    /// Address of the first.
    pub first_address: Ipv4Addr,
    /// How many, at least 1.
    pub count: u32,
}

/// What one interface is to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticAddress {
    /// Its address.
    pub address: Ipv4Addr,
    /// Length of the network prefix, bits.
    pub prefix: u8,
    /// Router, if any.
    pub gateway: Option<Ipv4Addr>,
}

impl AddressRange {
    fn address_of(&self, mac: Mac) -> Option<Ipv4Addr> {
        let offset = mac.offset_from(self.first_mac).filter(|offset| *offset < u64::from(self.count))?;
        let bits = u32::from(self.first_address).checked_add(u32::try_from(offset).ok()?)?;
        Some(bits.into())
    }

    /// First and last MAC as numbers, first and last address as numbers.
    fn spans(&self) -> Option<([Mac; 2], [u32; 2])> {
        let last = self.count.checked_sub(1)?;
        let first_address = u32::from(self.first_address);
        Some(([self.first_mac, self.first_mac.plus(last)?], [first_address, first_address.checked_add(last)?]))
    }
}

fn overlap<T: PartialOrd>(left: &[T; 2], right: &[T; 2]) -> bool {
    left[0] <= right[1] && right[0] <= left[1]
}

impl StaticAddressing {
    /// The address for an interface; none where its MAC is in no range.
    #[must_use]
    pub fn for_mac(&self, mac: Mac) -> Option<StaticAddress> {
        let address = self.ranges.iter().find_map(|range| range.address_of(mac))?;
        Some(StaticAddress { address, prefix: self.prefix, gateway: self.gateway })
    }

    /// What is wrong with it, naming the field.
    pub(crate) fn check(&self) -> Result<(), BootstrapError> {
        let wrong = |field: String, found: String, allowed: &str| {
            Err(BootstrapError { field: format!("static_addressing.{field}"), found, allowed: allowed.into() })
        };
        if !(8..=30).contains(&self.prefix) {
            return wrong("prefix".into(), self.prefix.to_string(), "8 to 30");
        }
        if self.ranges.is_empty() || self.ranges.len() > MAX_RANGES {
            return wrong("ranges".into(), format!("{} ranges", self.ranges.len()), "1 to 128 ranges");
        }
        let host_mask = u32::MAX >> self.prefix;
        let network = u32::from(self.ranges[0].first_address) & !host_mask;
        let is_host =
            |bits: u32| bits & !host_mask == network && bits & host_mask != 0 && bits & host_mask != host_mask;
        let first = self.ranges[0].first_address;
        // RFC 1122, 3.2.1.3: this network, loopback, multicast and beyond. A prefix of 8 or more has all of its addresses in one of them.
        if matches!(first.octets()[0], 0 | 127 | 224..) {
            return wrong(
                "ranges[0].first_address".into(),
                first.to_string(),
                "addresses that a machine can have as its own",
            );
        }
        let mut seen: Vec<([Mac; 2], [u32; 2])> = Vec::new();
        for (at, range) in self.ranges.iter().enumerate() {
            let here = |part: &str| format!("ranges[{at}].{part}");
            let Some((macs, addresses)) = range.spans() else {
                return wrong(here("count"), range.count.to_string(), "1 to what MACs and addresses have room for");
            };
            if !macs.iter().all(|mac| mac.is_of_interface()) {
                return wrong(here("first_mac"), macs[0].to_string(), "MACs without the group bit, not all zeros");
            }
            if !addresses.into_iter().all(is_host) {
                let found = format!("{} to {}", Ipv4Addr::from(addresses[0]), Ipv4Addr::from(addresses[1]));
                let network = Ipv4Addr::from(network);
                return wrong(
                    here("first_address"),
                    found,
                    &format!("hosts of the first range's network {network}/{}", self.prefix),
                );
            }
            if seen.iter().any(|(other, _)| overlap(other, &macs)) {
                return wrong(here("first_mac"), macs[0].to_string(), "MACs that are in no other range");
            }
            if seen.iter().any(|(_, other)| overlap(other, &addresses)) {
                return wrong(
                    here("first_address"),
                    range.first_address.to_string(),
                    "addresses that are in no other range",
                );
            }
            seen.push((macs, addresses));
        }
        match self.gateway.map(u32::from) {
            Some(gateway) if !is_host(gateway) => {
                wrong("gateway".into(), Ipv4Addr::from(gateway).to_string(), "a host of the workers' own network")
            }
            Some(gateway) if seen.iter().any(|(_, range)| overlap(range, &[gateway, gateway])) => {
                wrong("gateway".into(), Ipv4Addr::from(gateway).to_string(), "an address outside the workers' ranges")
            }
            _ => Ok(()),
        }
    }
}

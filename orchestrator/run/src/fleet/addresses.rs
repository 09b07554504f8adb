//! Where workers can reach a listener, and which names its certificate carries.

use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, SocketAddr},
};

use nix::ifaddrs::getifaddrs;
use worker_protocol::SESSION_PATH;

/// URLs that a worker is given at most; the rest of a host's addresses is left out.
pub const MAX_URLS: usize = 32;

/// This machine's addresses, link-local ones left out: without a zone they lead nowhere.
///
/// # Errors
/// Where the system does not tell.
pub(super) fn of_this_machine() -> io::Result<Vec<IpAddr>> {
    let address = |interface: nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    let all: BTreeSet<IpAddr> = getifaddrs()?.filter_map(address).collect();
    Ok(all.into_iter().filter(|address| !is_link_local(address)).collect())
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// The addresses at which a listener on `listening` answers, where the machine has `own`: itself, or all of its family, IPv4 first and
/// loopback last.
pub(super) fn reachable(listening: IpAddr, own: &[IpAddr]) -> Vec<IpAddr> {
    if !listening.is_unspecified() {
        return vec![listening];
    }
    // A listener on [::] takes IPv4, too (net.ipv6.bindv6only is 0).
    let mut addresses: Vec<IpAddr> =
        own.iter().copied().filter(|address| listening.is_ipv6() || address.is_ipv4()).collect();
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6(), *address));
    addresses
}

/// The addresses at which a listener of this machine on `listening` answers: itself, or all of its family, loopback last.
///
/// # Errors
/// Where the system does not tell them.
pub fn reached_at(listening: IpAddr) -> io::Result<Vec<IpAddr>> {
    Ok(reachable(listening, &of_this_machine()?))
}

/// What workers dial, in turn. Loopback is of use to workers on this machine only, and listed where there is nothing else.
pub(super) fn urls(listening: SocketAddr, own: &[IpAddr]) -> Vec<String> {
    let addresses = reachable(listening.ip(), own);
    let outside = addresses.iter().filter(|address| !address.is_loopback()).count();
    let used = if outside > 0 { outside } else { addresses.len() };
    let at = |address: &IpAddr| url(SocketAddr::new(*address, listening.port()));
    addresses.iter().take(used.min(MAX_URLS)).map(at).collect()
}

/// What workers dial where somebody says so; port 0 is the listener's.
pub(super) fn told_urls(listening: SocketAddr, told: &[SocketAddr]) -> Vec<String> {
    let port = |told: &SocketAddr| if told.port() == 0 { listening.port() } else { told.port() };
    told.iter().take(MAX_URLS).map(|told| url(SocketAddr::new(told.ip(), port(told)))).collect()
}

fn url(address: SocketAddr) -> String {
    format!("wss://{address}{SESSION_PATH}")
}

/// Names for the certificate: every address, and the machine's name where it is one that a certificate can carry.
pub(super) fn names(listening: IpAddr, own: &[IpAddr], node_name: &str) -> Vec<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let host = Some(node_name).filter(|name| !name.is_empty() && name.bytes().all(plain));
    let addresses = reachable(listening, own).into_iter().map(|address| address.to_string());
    addresses.chain(["localhost".to_owned()]).chain(host.map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<IpAddr> {
        ["::1", "2001:db8::7", "127.0.0.1", "192.0.2.7", "10.1.1.1"].map(|text| text.parse().unwrap()).to_vec()
    }

    fn urls_at(listening: &str) -> Vec<String> {
        urls(listening.parse().unwrap(), &own())
    }

    #[test]
    fn a_listener_on_all_addresses_is_dialled_at_each() {
        let all = ["wss://10.1.1.1:7/", "wss://192.0.2.7:7/", "wss://[2001:db8::7]:7/"]
            .map(|url| url.trim_end_matches('/').to_owned() + SESSION_PATH);
        assert_eq!(urls_at("[::]:7"), all);
        assert_eq!(urls_at("0.0.0.0:7"), all[..2]);
        assert_eq!(urls_at("192.0.2.7:7"), all[1..2]);
        assert_eq!(urls_at("127.0.0.1:7"), [format!("wss://127.0.0.1:7{SESSION_PATH}")]);
    }

    #[test]
    fn what_somebody_says_is_dialled_and_nothing_else() {
        let told = ["203.0.113.5:0", "[2001:db8::9]:443"].map(|text| text.parse().unwrap());
        let urls = told_urls("0.0.0.0:7".parse().unwrap(), &told);
        assert_eq!(urls, ["203.0.113.5:7", "[2001:db8::9]:443"].map(|at| format!("wss://{at}{SESSION_PATH}")));
    }

    #[test]
    fn a_machine_with_loopback_alone_is_dialled_there() {
        let loopback = ["127.0.0.1".parse().unwrap()];
        assert_eq!(urls("0.0.0.0:7".parse().unwrap(), &loopback), [format!("wss://127.0.0.1:7{SESSION_PATH}")]);
    }

    #[test]
    fn a_certificate_carries_addresses_and_names() {
        assert_eq!(
            names("192.0.2.7".parse().unwrap(), &own(), "host.example"),
            ["192.0.2.7", "localhost", "host.example"]
        );
        assert_eq!(names("192.0.2.7".parse().unwrap(), &own(), "höst"), ["192.0.2.7", "localhost"]);
        assert_eq!(names("0.0.0.0".parse().unwrap(), &own(), "").len(), 4);
    }

    #[test]
    fn this_machine_has_its_loopback_address() {
        let own = of_this_machine().unwrap();
        assert!(own.contains(&"127.0.0.1".parse().unwrap()), "{own:?}");
    }
}

//! Which `Host` headers are answered. A page of another site can have its own name resolve to our address (DNS rebinding)
//! and would then read our pages from a visitor's browser; the header still names that site.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, Uri, header, uri::Authority};

/// The names and addresses under which the pages may be asked for. The port does not matter.
#[derive(Debug, Clone)]
pub struct AllowedHosts {
    listening: IpAddr,
    names: Vec<String>,
}

impl AllowedHosts {
    /// Loopback names and addresses and the address listened on; with an unspecified one (0.0.0.0, ::) any address, as those cannot be rebound.
    #[must_use]
    pub fn listening_on(address: SocketAddr) -> Self {
        Self { listening: address.ip(), names: Vec::new() }
    }

    /// Also this name, as a browser would have it in its address bar (`poc.example.com`), without a port.
    #[must_use]
    pub fn and_name(mut self, name: &str) -> Self {
        self.names.push(name.trim_end_matches('.').to_ascii_lowercase());
        self
    }

    /// Whether a request names one of them, and nothing else, as its host.
    pub(crate) fn allows(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let Ok(Ok(host)) = host.to_str().map(str::parse::<Authority>) else { return false };
        self.allows_authority(&host) && uri.authority().is_none_or(|authority| self.allows_authority(authority))
    }

    fn allows_authority(&self, authority: &Authority) -> bool {
        let host = authority.host();
        if authority.as_str().contains('@') {
            return false;
        }
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback() || ip == self.listening || self.listening.is_unspecified(),
            Err(_) => {
                let name = host.trim_end_matches('.').to_ascii_lowercase();
                name == "localhost" || self.names.contains(&name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn allows(hosts: &AllowedHosts, host: &str) -> bool {
        let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_str(host).unwrap())]);
        hosts.allows(&headers, &Uri::from_static("/"))
    }

    #[test]
    fn loopback_and_configured_hosts_are_answered() {
        let hosts = AllowedHosts::listening_on("127.0.0.1:8080".parse().unwrap()).and_name("poc.example.com");
        for good in [
            "localhost",
            "localhost:8080",
            "LOCALHOST.:1",
            "127.0.0.1:8080",
            "[::1]:8080",
            "127.8.8.8",
            "POC.example.com:443",
        ] {
            assert!(allows(&hosts, good), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "192.0.2.1",
            "127.0.0.1.evil.example",
            "a@localhost",
            "",
            "127.0.0.1:8080:1",
        ] {
            assert!(!allows(&hosts, bad), "{bad}");
        }
    }

    #[test]
    fn addresses_depend_on_the_one_listened_on() {
        let one = AllowedHosts::listening_on("192.0.2.7:80".parse().unwrap());
        assert!(allows(&one, "192.0.2.7") && !allows(&one, "192.0.2.8"));
        let every = AllowedHosts::listening_on("0.0.0.0:80".parse().unwrap());
        assert!(allows(&every, "192.0.2.8") && !allows(&every, "evil.example"));
    }

    #[test]
    fn a_request_without_one_host_is_not_answered() {
        let hosts = AllowedHosts::listening_on("127.0.0.1:80".parse().unwrap());
        assert!(!hosts.allows(&HeaderMap::new(), &Uri::from_static("/")));
        let mut two = HeaderMap::new();
        two.append(header::HOST, HeaderValue::from_static("localhost"));
        two.append(header::HOST, HeaderValue::from_static("localhost"));
        assert!(!hosts.allows(&two, &Uri::from_static("/")));
        let one = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("localhost"))]);
        assert!(!hosts.allows(&one, &Uri::from_static("http://evil.example/")));
    }
}

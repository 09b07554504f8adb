//! The session's cookie.

use axum::http::{HeaderMap, HeaderValue, header};
use cookie::{Cookie, SameSite};

use crate::problem::Problem;

/// How the cookie is called and kept.
#[derive(Debug, Clone)]
pub(crate) struct Cookies {
    name: String,
    secure: bool,
}

impl Cookies {
    /// For a server on `port`. Cookies know no ports: two servers of one host must not take each other's for their own. Over TLS the
    /// prefix keeps other hosts and plain HTTP from setting it: <https://datatracker.ietf.org/doc/html/draft-ietf-httpbis-rfc6265bis#name-the-__host-prefix>.
    pub(crate) fn new(port: u16, secure: bool) -> Self {
        let prefix = if secure { "__Host-" } else { "" };
        Self { name: format!("{prefix}fourcorners-{port}"), secure }
    }

    /// The secret that a request's cookie has.
    pub(crate) fn read(&self, headers: &HeaderMap) -> Option<String> {
        let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut all = values.flat_map(Cookie::split_parse).flatten();
        all.find(|cookie| cookie.name() == self.name).map(|cookie| cookie.value().to_owned())
    }

    /// Sets it for as long as a session may last.
    pub(crate) fn set(&self, secret: &str) -> Result<HeaderValue, Problem> {
        self.header(secret, store::SESSION_LIMIT.as_secs())
    }

    /// Takes it from the browser.
    pub(crate) fn clear(&self) -> Result<HeaderValue, Problem> {
        self.header("", 0)
    }

    fn header(&self, value: &str, seconds: i64) -> Result<HeaderValue, Problem> {
        let cookie = Cookie::build((self.name.as_str(), value))
            .path("/")
            .http_only(true)
            .secure(self.secure)
            // Lax: a link to a report in a mail opens it; what changes something is a POST, with which it is not sent from elsewhere.
            .same_site(SameSite::Lax)
            .build();
        let written = HeaderValue::try_from(format!("{cookie}; Max-Age={seconds}"));
        written.map_err(|error| Problem::internal("a cookie could not be written", &error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_for_this_server_alone() {
        let cookies = Cookies::new(8440, true);
        let set = cookies.set("abc").unwrap();
        let set = set.to_str().unwrap();
        assert!(set.starts_with("__Host-fourcorners-8440=abc; "), "{set}");
        for attribute in ["HttpOnly", "Secure", "SameSite=Lax", "Path=/", "Max-Age=604800"] {
            assert!(set.split("; ").any(|part| part == attribute), "{set}: {attribute}");
        }
        assert!(!set.contains("Domain"));
        assert!(!Cookies::new(8440, false).set("abc").unwrap().to_str().unwrap().contains("Secure"));
        assert!(cookies.clear().unwrap().to_str().unwrap().contains("Max-Age=0"));
    }

    #[test]
    fn it_is_found_among_others() {
        let cookies = Cookies::new(8440, false);
        let header = HeaderValue::from_static("a=b; fourcorners-8441=other; fourcorners-8440=mine");
        assert_eq!(cookies.read(&HeaderMap::from_iter([(header::COOKIE, header)])).as_deref(), Some("mine"));
        assert_eq!(cookies.read(&HeaderMap::new()), None);
    }
}

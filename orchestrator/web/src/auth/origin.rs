//! Whether a request that changes something was made by one of our own pages, by what a browser says of it.

use axum::http::{HeaderMap, HeaderName, Uri, header};

/// <https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header>; browsers send it over TLS and to loopback.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The browser says `same-origin`, or, where it does not say, its `Origin` is the one asked for. A request with neither is no browser's
/// of our own pages.
///
/// # Errors
/// What was found instead.
pub(crate) fn same_origin(headers: &HeaderMap, uri: &Uri, secure: bool) -> Result<(), String> {
    let text =
        |name: &HeaderName| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    if let Some(site) = text(&SEC_FETCH_SITE) {
        return if site == "same-origin" { Ok(()) } else { Err(format!("the browser says Sec-Fetch-Site: {site}")) };
    }
    let Some(origin) = text(&header::ORIGIN) else {
        return Err("the request has neither Sec-Fetch-Site nor Origin".to_owned());
    };
    let host = text(&header::HOST).or_else(|| uri.authority().map(ToString::to_string)).unwrap_or_default();
    let scheme = if secure { "https" } else { "http" };
    if origin.eq_ignore_ascii_case(&format!("{scheme}://{host}")) {
        Ok(())
    } else {
        Err(format!("its Origin is {origin}, this is {scheme}://{host}"))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn asked(headers: &[(&'static str, &'static str)], secure: bool) -> Result<(), String> {
        let headers =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        same_origin(&HeaderMap::from_iter(headers), &Uri::from_static("/x"), secure)
    }

    #[test]
    fn only_our_own_pages_may_post() {
        asked(&[("sec-fetch-site", "same-origin")], true).unwrap();
        asked(&[("host", "poc:8440"), ("origin", "http://poc:8440")], false).unwrap();
        asked(&[("host", "poc:8440"), ("origin", "https://POC:8440")], true).unwrap();
        for foreign in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site"), ("host", "poc:8440"), ("origin", "http://poc:8440")],
            &[("sec-fetch-site", "none")],
            &[("host", "poc:8440"), ("origin", "http://poc:9999")],
            &[("host", "poc:8440"), ("origin", "https://poc:8440")],
            &[("host", "poc:8440"), ("origin", "null")],
            &[("host", "poc:8440")],
            &[],
        ] {
            assert!(asked(foreign, false).is_err(), "{foreign:?}");
        }
    }
}

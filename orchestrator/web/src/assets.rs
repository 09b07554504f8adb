//! What the pages load: styles and scripts, all of them in the binary.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

/// Style of the report and of the pages around it.
pub(crate) const REPORT_CSS: &str = include_str!("../../../templates/assets/report.css");
/// Draws the charts and shows times in the reader's zone.
pub(crate) const REPORT_JS: &str = include_str!("../../../templates/assets/report.js");

/// Follows a run that goes on.
pub(crate) const LIVE_JS: &str = include_str!("../../../templates/assets/live.js");

static PLOTLY: LazyLock<String> =
    LazyLock::new(|| extract_first_script(&plotly::Plot::offline_js_sources()).to_owned());

/// The chart library (4.65 MB). The crate hands it out in a script element, followed by one with MathJax, which we do not use.
pub(crate) fn plotly_js() -> &'static str {
    &PLOTLY
}

fn extract_first_script(html: &str) -> &str {
    let start = html.find('>').map_or(0, |tag_end| tag_end + 1);
    let body = &html[start..];
    &body[..body.find("</script>").unwrap_or(body.len())]
}

/// A script's `sha256-…` source expression for a content security policy.
pub(crate) fn script_hash(script: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(script.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_library_is_plotly_alone() {
        let script = plotly_js();
        assert!(script.contains("plotly.js v"), "{}", &script[..200]);
        assert!((3_000_000..5_500_000).contains(&script.len()), "{} bytes", script.len());
        assert!(!script.contains("MathJax.loader") && !script.contains("<script"));
    }

    #[test]
    fn what_is_inlined_cannot_end_its_element() {
        for script in [plotly_js(), REPORT_JS] {
            assert!(!script.to_ascii_lowercase().contains("</script") && !script.contains("<!--"));
            // The parser would turn a carriage return into a line feed, and the policy's hash would not match.
            assert!(!script.contains('\r'));
        }
        assert!(!REPORT_CSS.to_ascii_lowercase().contains("</style"));
    }

    #[test]
    fn hashes_are_those_of_the_standard() {
        // FIPS 180-2, appendix B.1: the digest of "abc".
        assert_eq!(script_hash("abc"), "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    }
}

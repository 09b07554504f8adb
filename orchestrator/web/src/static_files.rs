//! Styles and scripts under names that change with their content, so that browsers may keep them.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use crate::assets;
use crate::problem::Problem;

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// A file that pages load.
struct Asset {
    name: &'static str,
    kind: &'static str,
    content: fn() -> &'static str,
}

/// All of them.
static ASSETS: [Asset; 11] = [
    Asset { name: "report.css", kind: STYLE, content: || assets::REPORT_CSS },
    Asset { name: "app.css", kind: STYLE, content: || include_str!("../../../templates/assets/app.css") },
    Asset { name: "app.js", kind: JAVASCRIPT, content: || include_str!("../../../templates/assets/app.js") },
    Asset { name: "report.js", kind: JAVASCRIPT, content: || assets::REPORT_JS },
    Asset { name: "live.js", kind: JAVASCRIPT, content: || assets::LIVE_JS },
    Asset { name: "workshop.css", kind: STYLE, content: || include_str!("../../../templates/assets/workshop.css") },
    Asset { name: "watch.js", kind: JAVASCRIPT, content: || include_str!("../../../templates/assets/watch.js") },
    Asset { name: "plans.js", kind: JAVASCRIPT, content: || include_str!("../../../templates/assets/plans.js") },
    Asset { name: "clusters.css", kind: STYLE, content: || include_str!("../../../templates/assets/clusters.css") },
    Asset { name: "clusters.js", kind: JAVASCRIPT, content: || include_str!("../../../templates/assets/clusters.js") },
    Asset { name: "plotly.js", kind: JAVASCRIPT, content: assets::plotly_js },
];

/// The assets' addresses, in their order.
static URLS: LazyLock<Vec<String>> = LazyLock::new(|| ASSETS.iter().map(address).collect());

fn address(asset: &Asset) -> String {
    let digest = Sha256::digest((asset.content)().as_bytes());
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("/assets/{hash}/{}", asset.name)
}

/// Where a browser finds an asset. A name that there is not leads nowhere; a test looks through the templates for such.
pub(crate) fn url(name: &str) -> &'static str {
    let place = ASSETS.iter().position(|asset| asset.name == name);
    place.and_then(|place| URLS.get(place)).map_or("", String::as_str)
}

/// `/assets/{hash}/{name}`: the file, if it is still that content.
pub(crate) async fn asset(Path((hash, name)): Path<(String, String)>) -> Result<Response, Problem> {
    let path = format!("/assets/{hash}/{name}");
    let place = URLS.iter().position(|url| *url == path);
    let asset = place.and_then(|place| ASSETS.get(place)).ok_or_else(|| Problem::no_page(&path))?;
    let headers = [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    Ok((headers, (asset.content)()).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All templates below a directory, with their text.
    fn templates(directory: &std::path::Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries
            .flat_map(
                |path| if path.is_dir() { templates(&path) } else { vec![std::fs::read_to_string(path).unwrap()] },
            )
            .collect()
    }

    #[test]
    fn templates_ask_for_assets_that_there_are() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates");
        let texts = templates(std::path::Path::new(directory));
        let names: Vec<&str> = texts
            .iter()
            .flat_map(|text| text.split("frame.asset(\"").skip(1).map(|rest| rest.split('"').next().unwrap()))
            .collect();
        assert!(names.len() >= ASSETS.len(), "{names:?}");
        for name in names {
            assert!(url(name).ends_with(name), "{name} is no asset");
        }
    }
}

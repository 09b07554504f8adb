//! Styles and scripts under names that change with their content, so that browsers may keep them.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use super::problem::{AsPage, Problem};
use crate::assets;

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Where the pages find their styles and scripts.
#[derive(Debug)]
pub(crate) struct AssetUrls {
    pub(crate) style: String,
    pub(crate) plotly: String,
    pub(crate) report: String,
    pub(crate) live: String,
    pub(crate) version: &'static str,
}

static URLS: LazyLock<AssetUrls> = LazyLock::new(|| AssetUrls {
    style: url("report.css", assets::REPORT_CSS),
    plotly: url("plotly.js", assets::plotly_js()),
    report: url("report.js", assets::REPORT_JS),
    live: url("live.js", assets::LIVE_JS),
    version: env!("CARGO_PKG_VERSION"),
});

impl AssetUrls {
    pub(crate) fn get() -> &'static Self {
        &URLS
    }
}

fn url(name: &str, content: &str) -> String {
    let digest = Sha256::digest(content.as_bytes());
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("/assets/{hash}/{name}")
}

/// `/assets/{hash}/{name}`: the file, if it is still that content.
pub(crate) async fn asset(Path((hash, name)): Path<(String, String)>) -> Result<Response, AsPage> {
    let urls = AssetUrls::get();
    let path = format!("/assets/{hash}/{name}");
    let (kind, content) = match &path {
        path if *path == urls.style => ("text/css; charset=utf-8", assets::REPORT_CSS),
        path if *path == urls.plotly => (JAVASCRIPT, assets::plotly_js()),
        path if *path == urls.report => (JAVASCRIPT, assets::REPORT_JS),
        path if *path == urls.live => (JAVASCRIPT, assets::LIVE_JS),
        _ => return Err(Problem::no_page(&path).into()),
    };
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    Ok((headers, content).into_response())
}

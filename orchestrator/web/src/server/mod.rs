//! The web report: pages, downloads and a small JSON API, read only.

mod hosts;
mod pages;
mod problem;
mod static_files;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::net::TcpListener;

pub use hosts::AllowedHosts;
use problem::{AsPage, Problem};

use crate::source::RunSource;

/// Time that answers under way have to end after a shutdown was asked for.
const DRAIN: Duration = Duration::from_secs(5);

/// Nothing but our own files; the chart library adds styles to the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Sent with every answer.
const SECURITY_HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// The pages of the runs of `source`, for requests that name one of `hosts`.
///
/// | path | answer |
/// | --- | --- |
/// | `/` | list of runs |
/// | `/runs/{id}` | report |
/// | `/runs/{id}/export.html`, `.json`, `.csv` | downloads |
/// | `/api/v1/runs` | `{"runs": [RunSummary…]}` |
/// | `/api/v1/runs/{id}` | the export |
/// | `/api/v1/runs/{id}/progress` | `{"progress": Progress or null}` |
/// | `/healthz` | `ok` |
pub fn router<S: RunSource>(source: Arc<S>, hosts: AllowedHosts) -> Router {
    Router::new()
        .route("/", get(pages::runs::<S>))
        .route("/runs/{id}", get(pages::run::<S>))
        .route("/runs/{id}/export.html", get(pages::export_as_html::<S>))
        .route("/runs/{id}/export.json", get(pages::export_as_json::<S>))
        .route("/runs/{id}/export.csv", get(pages::export_as_csv::<S>))
        .route("/api/v1/runs", get(pages::api_runs::<S>))
        .route("/api/v1/runs/{id}", get(pages::api_run::<S>))
        .route("/api/v1/runs/{id}/progress", get(pages::api_progress::<S>))
        .route("/assets/{hash}/{name}", get(static_files::asset))
        .route("/healthz", get(pages::health))
        .fallback(pages::nothing)
        .method_not_allowed_fallback(pages::wrong_method)
        .with_state(source)
        .layer(middleware::from_fn_with_state(Arc::new(hosts), check_host))
        .layer(middleware::from_fn(add_headers))
}

/// Serves the pages until `shutdown` ends, then for at most five seconds what is under way.
///
/// # Errors
/// The listener's.
pub async fn serve<S: RunSource>(
    listener: TcpListener,
    source: Arc<S>,
    hosts: AllowedHosts,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
    let asked = async move {
        shutdown.await;
        // A failed send means that the server ended by itself and nobody waits.
        stopping.send(()).unwrap_or_default();
    };
    let server = axum::serve(listener, router(source, hosts)).with_graceful_shutdown(asked).into_future();
    let bound = async move {
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        ended = server => ended,
        () = bound => Ok(()),
    }
}

async fn check_host(State(hosts): State<Arc<AllowedHosts>>, request: Request, next: Next) -> Response {
    if hosts.allows(request.headers(), request.uri()) {
        next.run(request).await
    } else {
        AsPage(Problem::host()).into_response()
    }
}

async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in SECURITY_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-cache"));
    response
}

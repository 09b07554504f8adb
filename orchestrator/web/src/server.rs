//! The router: all routes behind the guard.

use axum::Router;
use axum::http::Uri;
use axum::middleware;
use utoipa::OpenApi as _;
use utoipa::openapi::OpenApi;

use crate::app::App;
use crate::guard::guard;
use crate::problem::Problem;
use crate::routes::{Access, Route, Routes};
use crate::{api, clusters, compare, live, pages, plans, static_files};

/// Every page and every call of the API.
fn all() -> Routes {
    let routes = Routes::new(api::Description::openapi())
        .get(Access::Public, "/assets/{hash}/{name}", static_files::asset)
        .get(Access::Public, "/healthz", health)
        .get(Access::Public, "/api/openapi.json", api::description);
    let routes = pages::routes(routes);
    let routes = compare::routes(plans::routes(live::routes(clusters::routes(routes))));
    api::routes(routes)
}

/// The pages and the API.
///
/// | path | answer |
/// | --- | --- |
/// | `/` | list of runs |
/// | `/runs/{id}` | report |
/// | `/runs/{id}/live`, `/runs/{id}/feed` | the run under way and its messages |
/// | `/clusters` | connections to clusters, and what those offer |
/// | `/new`, `/profiles`, `/compare` | a plan to be started, workload profiles, cases side by side |
/// | `/runs/{id}/cases/{place}` | one case with all its tables |
/// | `/runs/{id}/tear-down` | what it left, to be removed |
/// | `/runs/{id}/export.html`, `.json`, `.csv` | downloads |
/// | `/users`, `/tokens`, `/account` | who may do what |
/// | `/api/openapi.json` | description of `/api/v1` |
/// | `/healthz` | `ok` |
///
/// [`routes`] has them all.
pub fn router(app: App) -> Router {
    let (router, _, _) = all().split();
    router
        .fallback(nothing)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

/// The list of routes, with who may use each.
#[must_use]
pub fn routes() -> Vec<Route> {
    all().split().2
}

/// The description of the API.
#[must_use]
pub fn description() -> OpenApi {
    all().split().1
}

/// `/healthz`.
async fn health() -> &'static str {
    "ok\n"
}

/// Whatever else is asked for.
async fn nothing(uri: Uri) -> Problem {
    Problem::no_page(uri.path())
}

/// A method that the path does not have.
async fn wrong_method() -> Problem {
    Problem::method()
}

//! The REST API: `/api/v1`, described at `/api/openapi.json`.
//!
//! JSON in, JSON out. What went wrong is an `error` with `title`, `what` and `remedy`. A script sends an API token as
//! `Authorization: Bearer TOKEN`, which may do what its role may, but opens nothing that outlives it; a page's script is known by its cookie, and sends the form token in the header `X-CSRF-Token`.

mod runs;
mod session;
mod tokens;
mod users;

use axum::Json;
use utoipa::Modify;
use utoipa::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::routes;

use crate::problem::ErrorBody;
use crate::routes::{Access, Routes};

/// What the description says beside its calls, which come from the handlers.
#[derive(OpenApi)]
#[openapi(
    info(title = "Fourcorners", description = "Runs, clusters, users and API tokens. Times are RFC 3339, UTC. An API token may do what its role may, \
                       but makes no tokens, users or password links and gives no roles: those need a session."),
    components(schemas(ErrorBody)),
    modifiers(&Credentials),
    security(("token" = []), ("session" = []))
)]
pub(crate) struct Description;

/// How a caller is known.
struct Credentials;

impl Modify for Credentials {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let token = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        components.add_security_scheme("token", token);
        let cookie = ApiKey::Cookie(ApiKeyValue::with_description(
            "fourcorners-PORT",
            "Set by the login; `__Host-` comes before it over TLS. What changes something also needs the header X-CSRF-Token.",
        ));
        components.add_security_scheme("session", SecurityScheme::ApiKey(cookie));
    }
}

/// Adds the calls.
pub(crate) fn routes(routes: Routes) -> Routes {
    use Access::{Admin, Public, Viewer};
    routes
        .api(Public, routes!(session::log_in))
        .api(Viewer, routes!(session::who))
        .api(Viewer, routes!(session::log_out))
        .api(Viewer, routes!(runs::list))
        .api(Viewer, routes!(runs::export))
        .api(Viewer, routes!(runs::progress))
        .api(Viewer, routes!(runs::leftovers))
        .api(Admin, routes!(runs::tear_down))
        .api(Admin, routes!(runs::set_note))
        .api(Admin, routes!(runs::delete))
        .api(Admin, routes!(users::list))
        .api(Admin, routes!(users::add))
        .api(Admin, routes!(users::set_role))
        .api(Admin, routes!(users::password_link))
        .api(Admin, routes!(users::remove))
        .api(Viewer, routes!(tokens::list))
        .api(Viewer, routes!(tokens::add))
        .api(Viewer, routes!(tokens::revoke))
}

/// `/api/openapi.json`.
pub(crate) async fn description() -> Json<utoipa::openapi::OpenApi> {
    Json(crate::server::description())
}

//! The caller's session.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::accounts;
use crate::app::App;
use crate::problem::{ErrorBody, Problem};
use crate::visitor::Visitor;

/// Who the caller is.
#[derive(Serialize, ToSchema)]
pub(crate) struct Session {
    /// Name of the user; null for whoever came by a link on the terminal.
    user: Option<String>,
    /// `viewer` or `admin`.
    role: &'static str,
    /// For the header X-CSRF-Token of calls that change something; null for an API token, which needs none.
    csrf: Option<String>,
}

impl Session {
    fn of(visitor: &Visitor) -> Self {
        Self {
            user: visitor.user.as_ref().map(|user| user.name.clone()),
            role: visitor.role.as_str(),
            csrf: visitor.session().map(|_| visitor.csrf().to_owned()),
        }
    }
}

/// A name and its password.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Login {
    /// Name of the user.
    name: String,
    /// Its password.
    password: String,
}

/// Says who the caller is.
#[utoipa::path(get, path = "/api/v1/session", tag = "session",
    responses((status = 200, body = Session), (status = 401, body = ErrorBody)))]
pub(crate) async fn who(visitor: Visitor) -> Json<Session> {
    Json(Session::of(&visitor))
}

/// Logs in; the answer sets the session's cookie. For pages: a script uses an API token.
#[utoipa::path(post, path = "/api/v1/session", tag = "session", request_body = Login, security(()),
    responses((status = 200, body = Session), (status = 401, body = ErrorBody), (status = 429, body = ErrorBody)))]
pub(crate) async fn log_in(
    State(app): State<App>,
    connection: Option<Extension<ConnectInfo<SocketAddr>>>,
    Json(login): Json<Login>,
) -> Result<Response, Problem> {
    let connection = connection.map(|Extension(connection)| connection);
    let opened = accounts::log_in(&app, connection, &login.name, login.password).await?;
    Ok(([(header::SET_COOKIE, opened.cookie)], Json(Session::of(&opened.visitor))).into_response())
}

/// Logs out: the session ends on the server. An API token is not revoked by it.
#[utoipa::path(delete, path = "/api/v1/session", tag = "session", responses((status = 204)))]
pub(crate) async fn log_out(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    if let Some(session) = visitor.session() {
        app.store().close_session(session).await?;
    }
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, app.cookies().clear()?)]).into_response())
}

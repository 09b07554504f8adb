//! Users.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::UserId;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::accounts::{self, role};
use crate::app::App;
use crate::pages::Base;
use crate::problem::{ErrorBody, Problem};
use crate::visitor::Visitor;

/// A user.
#[derive(Serialize, ToSchema)]
pub(crate) struct User {
    /// UUID.
    id: Uuid,
    /// Name.
    name: String,
    /// `viewer` or `admin`.
    role: &'static str,
    /// False until the user has set a password, and so cannot log in.
    has_password: bool,
    /// When the user was added.
    #[schema(value_type = String, format = DateTime)]
    created: Timestamp,
    /// When the user logged in last.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_login: Option<Timestamp>,
}

impl From<store::User> for User {
    fn from(user: store::User) -> Self {
        Self {
            id: user.id.0,
            name: user.name,
            role: user.role.as_str(),
            has_password: user.password_hash.is_some(),
            created: user.created,
            last_login: user.last_login,
        }
    }
}

/// All users.
#[derive(Serialize, ToSchema)]
pub(crate) struct Users {
    /// By name.
    users: Vec<User>,
}

/// A user to be added.
#[derive(Deserialize, ToSchema)]
pub(crate) struct NewUser {
    /// 1 to 64 letters (a to z), digits, and . _ @ -
    name: String,
    /// `viewer` or `admin`.
    role: String,
}

/// A user's role.
#[derive(Deserialize, ToSchema)]
pub(crate) struct NewRole {
    /// `viewer` or `admin`.
    role: String,
}

/// A user, and the link with which that user sets a password.
#[derive(Serialize, ToSchema)]
pub(crate) struct Invitation {
    user: User,
    /// Works once, for two days; the one before is good no more.
    password_link: String,
}

/// Lists users.
#[utoipa::path(get, path = "/api/v1/users", tag = "users", responses((status = 200, body = Users)))]
pub(crate) async fn list(State(app): State<App>) -> Result<Json<Users>, Problem> {
    Ok(Json(Users { users: app.store().list_users().await?.into_iter().map(User::from).collect() }))
}

/// Adds a user. From a session: an API token may not, since what it opened would outlive it.
#[utoipa::path(post, path = "/api/v1/users", tag = "users", request_body = NewUser,
    responses((status = 201, body = Invitation), (status = 403, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(crate) async fn add(
    State(app): State<App>,
    visitor: Visitor,
    base: Base,
    Json(new): Json<NewUser>,
) -> Result<(StatusCode, Json<Invitation>), Problem> {
    let (id, path) = accounts::add_user(&app, &visitor, &new.name, role(&new.role)?).await?;
    let user = app.store().user(id).await?.into();
    Ok((StatusCode::CREATED, Json(Invitation { user, password_link: base.url(&path) })))
}

/// Gives a user another role. From a session: an API token may not.
#[utoipa::path(put, path = "/api/v1/users/{id}/role", tag = "users", params(("id" = Uuid, Path)), request_body = NewRole,
    responses((status = 204), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn set_role(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
    Json(new): Json<NewRole>,
) -> Result<StatusCode, Problem> {
    accounts::set_role(&app, &visitor, UserId(id), role(&new.role)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a link with which a user sets another password. From a session: an API token may not.
#[utoipa::path(post, path = "/api/v1/users/{id}/password-link", tag = "users", params(("id" = Uuid, Path)),
    responses((status = 200, body = Invitation), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(crate) async fn password_link(
    State(app): State<App>,
    visitor: Visitor,
    base: Base,
    Path(id): Path<Uuid>,
) -> Result<Json<Invitation>, Problem> {
    let path = accounts::password_link(&app, &visitor, UserId(id)).await?;
    let user = app.store().user(UserId(id)).await?.into();
    Ok(Json(Invitation { user, password_link: base.url(&path) }))
}

/// Removes a user; sessions and API tokens of the account end.
#[utoipa::path(delete, path = "/api/v1/users/{id}", tag = "users", params(("id" = Uuid, Path)),
    responses((status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn remove(State(app): State<App>, Path(id): Path<Uuid>) -> Result<StatusCode, Problem> {
    app.store().remove_user(UserId(id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

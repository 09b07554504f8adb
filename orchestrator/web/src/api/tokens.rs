//! API tokens: one's own; an administrator sees and revokes all.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{ApiToken, TokenId};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::accounts::{self, role};
use crate::app::App;
use crate::pages::{end_token, visible_tokens};
use crate::problem::{ErrorBody, Problem};
use crate::visitor::Visitor;

/// A token, without its secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct Token {
    /// UUID.
    id: Uuid,
    /// Whose it is.
    user: String,
    /// What it is for.
    name: String,
    /// `viewer` or `admin`; never more than its user's.
    role: &'static str,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created: Timestamp,
    /// When it ends.
    #[schema(value_type = String, format = DateTime)]
    expires: Timestamp,
    /// When it was used last, to the minute.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used: Option<Timestamp>,
}

impl From<ApiToken> for Token {
    fn from(token: ApiToken) -> Self {
        Self {
            id: token.id.0,
            user: token.user_name,
            name: token.name,
            role: token.role.as_str(),
            created: token.created,
            expires: token.expires,
            last_used: token.last_used,
        }
    }
}

/// Tokens.
#[derive(Serialize, ToSchema)]
pub(crate) struct Tokens {
    /// Newest first.
    tokens: Vec<Token>,
}

/// A token to be made.
#[derive(Deserialize, ToSchema)]
pub(crate) struct NewToken {
    /// What it is for.
    name: String,
    /// `viewer` or `admin`.
    role: String,
    /// How long it lives, 1 to 366.
    days: u16,
}

/// A token that was made.
#[derive(Serialize, ToSchema)]
pub(crate) struct MadeToken {
    /// UUID.
    id: Uuid,
    /// What to send as `Authorization: Bearer …`; told only now.
    token: String,
}

/// Lists tokens.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "tokens", responses((status = 200, body = Tokens)))]
pub(crate) async fn list(State(app): State<App>, visitor: Visitor) -> Result<Json<Tokens>, Problem> {
    Ok(Json(Tokens { tokens: visible_tokens(&app, &visitor).await?.into_iter().map(Token::from).collect() }))
}

/// Makes a token for the caller's account. From a session: an API token makes none, since they would outlive it.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "tokens", request_body = NewToken,
    responses((status = 201, body = MadeToken), (status = 403, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(crate) async fn add(
    State(app): State<App>,
    visitor: Visitor,
    Json(new): Json<NewToken>,
) -> Result<(StatusCode, Json<MadeToken>), Problem> {
    let (id, token) = accounts::add_token(&app, &visitor, &new.name, role(&new.role)?, new.days).await?;
    Ok((StatusCode::CREATED, Json(MadeToken { id: id.0, token })))
}

/// Revokes a token.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "tokens", params(("id" = Uuid, Path)),
    responses((status = 204), (status = 404, body = ErrorBody)))]
pub(crate) async fn revoke(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    end_token(&app, &visitor, TokenId(id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

//! `/tokens`.

use askama::Template;
use axum::extract::{Form, Path, State};
use axum::response::Response;
use jiff::Timestamp;
use serde::Deserialize;
use store::{ApiToken, TokenId};
use uuid::Uuid;

use super::conclude;
use crate::accounts::{self, MAX_TOKEN_DAYS, role};
use crate::app::App;
use crate::format::Time;
use crate::frame::{Flash, Frame, html};
use crate::problem::Problem;
use crate::visitor::Visitor;

#[derive(Template)]
#[template(path = "pages/tokens.html")]
struct TokensPage {
    frame: Frame,
    tokens: Vec<TokenRow>,
    /// The visitor has an account for which a token can be made.
    has_account: bool,
    most_days: u16,
}

struct TokenRow {
    token: ApiToken,
    created: Time,
    expires: Time,
    expired: bool,
    last_used: Option<Time>,
}

/// A token to be made.
#[derive(Deserialize)]
pub(crate) struct TokenForm {
    name: String,
    role: String,
    days: u16,
}

/// `/tokens`: one's own; an administrator sees all.
pub(crate) async fn page(State(app): State<App>, frame: Frame, visitor: Visitor) -> Result<Response, Problem> {
    let now = Timestamp::now();
    let tokens = visible(&app, &visitor).await?.into_iter().map(|token| TokenRow {
        created: Time(token.created),
        expires: Time(token.expires),
        expired: token.expires <= now,
        last_used: token.last_used.map(Time),
        token,
    });
    let has_account = visitor.user.is_some();
    html(&TokensPage { frame, tokens: tokens.collect(), has_account, most_days: MAX_TOKEN_DAYS })
}

/// The tokens that a visitor sees.
pub(crate) async fn visible(app: &App, visitor: &Visitor) -> Result<Vec<ApiToken>, Problem> {
    match (&visitor.user, visitor.is_admin()) {
        (_, true) => Ok(app.store().list_tokens(None).await?),
        (Some(user), false) => Ok(app.store().list_tokens(Some(user.id)).await?),
        (None, false) => Ok(Vec::new()),
    }
}

/// `POST /tokens`.
pub(crate) async fn add(
    State(app): State<App>,
    visitor: Visitor,
    Form(form): Form<TokenForm>,
) -> Result<Response, Problem> {
    let added = async {
        let (_, secret) = accounts::add_token(&app, &visitor, &form.name, role(&form.role)?, form.days).await?;
        Ok(Flash::with_secret("The token was made. Copy it now: it is not shown again.", secret))
    };
    conclude(&app, &visitor, "/tokens", added.await)
}

/// `POST /tokens/{id}/revoke`: one's own; an administrator's anybody's.
pub(crate) async fn revoke(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
) -> Result<Response, Problem> {
    let revoked = async {
        end(&app, &visitor, TokenId(id)).await?;
        Ok(Flash::done("The token was revoked; it opens nothing any more."))
    };
    conclude(&app, &visitor, "/tokens", revoked.await)
}

/// Revokes a token that the visitor may see.
pub(crate) async fn end(app: &App, visitor: &Visitor, id: TokenId) -> Result<(), Problem> {
    let of = if visitor.is_admin() { None } else { Some(visitor.account()?.id) };
    Ok(app.store().revoke_token(id, of).await?)
}

//! `/account`: one's own password.

use askama::Template;
use axum::extract::{Form, State};
use axum::response::Response;
use serde::Deserialize;

use super::conclude;
use crate::accounts::{self, NewPassword};
use crate::app::App;
use crate::auth::MIN_PASSWORD_CHARACTERS;
use crate::frame::{Flash, Frame, html};
use crate::problem::Problem;
use crate::visitor::Visitor;

#[derive(Template)]
#[template(path = "pages/account.html")]
struct AccountPage {
    frame: Frame,
    visitor: Visitor,
    shortest: usize,
    /// API tokens of the account.
    tokens: usize,
}

/// A password instead of another.
#[derive(Deserialize)]
pub(crate) struct PasswordForm {
    current: String,
    password: String,
    repeated: String,
    #[serde(default)]
    end_tokens: Option<String>,
}

/// `/account`.
pub(crate) async fn page(State(app): State<App>, frame: Frame, visitor: Visitor) -> Result<Response, Problem> {
    let tokens = match &visitor.user {
        Some(user) => app.store().list_tokens(Some(user.id)).await?.len(),
        None => 0,
    };
    html(&AccountPage { frame, visitor, shortest: MIN_PASSWORD_CHARACTERS, tokens })
}

/// `POST /account/password`.
pub(crate) async fn change_password(
    State(app): State<App>,
    visitor: Visitor,
    Form(form): Form<PasswordForm>,
) -> Result<Response, Problem> {
    let end_tokens = form.end_tokens.is_some();
    let new = NewPassword { password: form.password, repeated: form.repeated, end_tokens };
    let changed = accounts::change_password(&app, &visitor, form.current, new).await;
    let changed = changed.map(|()| {
        Flash::done(if end_tokens {
            "The password was changed. Your other sessions and all your API tokens have ended."
        } else {
            "The password was changed. Your other sessions have ended; your API tokens go on."
        })
    });
    conclude(&app, &visitor, "/account", changed)
}

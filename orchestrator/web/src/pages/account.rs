//! `/account`: one's own password.

use askama::Template;
use axum::extract::{Form, State};
use axum::response::Response;
use serde::Deserialize;

use super::conclude;
use crate::accounts;
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
}

/// A password instead of another.
#[derive(Deserialize)]
pub(crate) struct PasswordForm {
    current: String,
    password: String,
    repeated: String,
}

/// `/account`.
pub(crate) async fn page(frame: Frame, visitor: Visitor) -> Result<Response, Problem> {
    html(&AccountPage { frame, visitor, shortest: MIN_PASSWORD_CHARACTERS })
}

/// `POST /account/password`.
pub(crate) async fn change_password(
    State(app): State<App>,
    visitor: Visitor,
    Form(form): Form<PasswordForm>,
) -> Result<Response, Problem> {
    let changed = accounts::change_password(&app, &visitor, form.current, form.password, &form.repeated).await;
    let changed = changed.map(|()| Flash::done("The password was changed. Your other sessions have ended."));
    conclude(&app, &visitor, "/account", changed)
}

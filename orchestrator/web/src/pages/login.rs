//! Before anybody is known: login, set-up, links; and the way out.

use std::net::SocketAddr;

use askama::Template;
use axum::extract::{ConnectInfo, Form, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use jiff::Timestamp;
use serde::Deserialize;

use crate::accounts::{self, NewPassword, Opened};
use crate::app::App;
use crate::auth::{self, MIN_PASSWORD_CHARACTERS};
use crate::frame::{Frame, html};
use crate::problem::Problem;
use crate::visitor::Visitor;

/// Whether the connection is there, which it is not where a test asks the router itself.
type Connection = Option<axum::Extension<ConnectInfo<SocketAddr>>>;

#[derive(Template)]
#[template(path = "pages/login.html")]
struct LoginPage {
    frame: Frame,
    name: String,
    next: String,
    problem: Option<Problem>,
    /// There is nobody yet who could log in.
    nobody: bool,
}

/// Where to go after the login.
#[derive(Deserialize)]
pub(crate) struct Next {
    #[serde(default)]
    next: String,
}

/// The login form.
#[derive(Deserialize)]
pub(crate) struct LoginForm {
    name: String,
    password: String,
    #[serde(default)]
    next: String,
}

/// `/login`.
pub(crate) async fn page(State(app): State<App>, frame: Frame, Query(query): Query<Next>) -> Result<Response, Problem> {
    if frame.visitor.is_some() {
        return Ok(Redirect::to(own_path(&query.next)).into_response());
    }
    let nobody = !app.store().has_admin().await?;
    html(&LoginPage { frame, name: String::new(), next: query.next, problem: None, nobody })
}

/// `POST /login`.
pub(crate) async fn log_in(
    State(app): State<App>,
    connection: Connection,
    frame: Frame,
    Form(form): Form<LoginForm>,
) -> Result<Response, Problem> {
    let connection = connection.map(|axum::Extension(connection)| connection);
    match accounts::log_in(&app, connection, &form.name, form.password).await {
        Ok(opened) => {
            end_session(&app, frame.visitor.as_ref()).await?;
            Ok(enter_with(&opened, own_path(&form.next)))
        }
        Err(problem) if problem.status.is_client_error() => {
            let status = problem.status;
            let page = LoginPage { frame, name: form.name, next: form.next, problem: Some(problem), nobody: false };
            Ok((status, html(&page)?).into_response())
        }
        Err(problem) => Err(problem),
    }
}

/// `POST /logout`: the session is over on the server, whoever has a copy of its cookie.
pub(crate) async fn log_out(State(app): State<App>, visitor: Visitor) -> Result<Response, Problem> {
    end_session(&app, Some(&visitor)).await?;
    Ok(([(header::SET_COOKIE, app.cookies().clear()?)], Redirect::to("/login")).into_response())
}

async fn end_session(app: &App, visitor: Option<&Visitor>) -> Result<(), Problem> {
    match visitor.and_then(Visitor::session) {
        Some(session) => Ok(app.store().close_session(session).await?),
        None => Ok(()),
    }
}

#[derive(Template)]
#[template(path = "pages/password.html")]
struct PasswordPage {
    frame: Frame,
    /// The user is chosen here, and not known yet.
    set_up: bool,
    name: String,
    problem: Option<Problem>,
    shortest: usize,
    /// API tokens of the account.
    tokens: usize,
}

/// The form of a new password, with a name where the user is chosen here.
#[derive(Deserialize)]
pub(crate) struct PasswordForm {
    #[serde(default)]
    name: String,
    password: String,
    repeated: String,
    #[serde(default)]
    end_tokens: Option<String>,
}

/// `/setup/{secret}`.
pub(crate) async fn set_up_page(
    State(app): State<App>,
    frame: Frame,
    Path(secret): Path<String>,
) -> Result<Response, Problem> {
    if !app.may_set_up(&secret) {
        return Err(Problem::link());
    }
    html(&PasswordPage {
        frame,
        set_up: true,
        name: "admin".to_owned(),
        problem: None,
        shortest: MIN_PASSWORD_CHARACTERS,
        tokens: 0,
    })
}

/// `POST /setup/{secret}`.
pub(crate) async fn set_up(
    State(app): State<App>,
    frame: Frame,
    Path(secret): Path<String>,
    Form(form): Form<PasswordForm>,
) -> Result<Response, Problem> {
    let opened = accounts::set_up(&app, &secret, &form.name, form.password, &form.repeated).await;
    answer(frame, true, form.name, 0, opened)
}

/// `/password/{secret}`.
pub(crate) async fn password_page(
    State(app): State<App>,
    frame: Frame,
    Path(secret): Path<String>,
) -> Result<Response, Problem> {
    let (name, tokens) = of_link(&app, &secret).await?;
    html(&PasswordPage { frame, set_up: false, name, problem: None, shortest: MIN_PASSWORD_CHARACTERS, tokens })
}

/// `POST /password/{secret}`.
pub(crate) async fn set_password(
    State(app): State<App>,
    frame: Frame,
    Path(secret): Path<String>,
    Form(form): Form<PasswordForm>,
) -> Result<Response, Problem> {
    let (name, tokens) = of_link(&app, &secret).await?;
    let end_tokens = form.end_tokens.is_some();
    let new = NewPassword { password: form.password, repeated: form.repeated, end_tokens };
    let opened = accounts::use_password_link(&app, &secret, new).await;
    answer(frame, false, name, tokens, opened)
}

/// Name and number of API tokens of the user whose password a link sets.
async fn of_link(app: &App, secret: &str) -> Result<(String, usize), Problem> {
    let user = app.store().password_link(&auth::hash(secret), Timestamp::now()).await?.ok_or_else(Problem::link)?;
    let tokens = app.store().list_tokens(Some(user.id)).await?.len();
    Ok((user.name, tokens))
}

/// Into the session, or the form once more with what is wrong.
fn answer(
    frame: Frame,
    set_up: bool,
    name: String,
    tokens: usize,
    opened: Result<Opened, Problem>,
) -> Result<Response, Problem> {
    match opened {
        Ok(opened) => Ok(enter_with(&opened, "/")),
        Err(problem) if [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::CONFLICT].contains(&problem.status) => {
            let status = problem.status;
            let shortest = MIN_PASSWORD_CHARACTERS;
            let page = PasswordPage { frame, set_up, name, problem: Some(problem), shortest, tokens };
            Ok((status, html(&page)?).into_response())
        }
        Err(problem) => Err(problem),
    }
}

#[derive(Template)]
#[template(path = "pages/enter.html")]
struct EnterPage {
    frame: Frame,
}

/// `/enter/{secret}`: the link that a run's terminal printed. It asks first: what scans mails and chats for links opens them, too.
pub(crate) async fn enter_page(
    State(app): State<App>,
    frame: Frame,
    Path(secret): Path<String>,
) -> Result<Response, Problem> {
    if !app.may_enter(&secret) {
        return Err(Problem::link());
    }
    html(&EnterPage { frame })
}

/// `POST /enter/{secret}`.
pub(crate) async fn enter(State(app): State<App>, Path(secret): Path<String>) -> Result<Response, Problem> {
    if !app.take_enter(&secret) {
        return Err(Problem::link());
    }
    Ok(enter_with(&accounts::open_session(&app, None).await?, "/"))
}

fn enter_with(opened: &Opened, path: &str) -> Response {
    ([(header::SET_COOKIE, opened.cookie.clone())], Redirect::to(path)).into_response()
}

/// A path of this server, and no other site's: whatever else is asked for leads to the list of runs.
fn own_path(next: &str) -> &str {
    let own = next.starts_with('/')
        && !next.starts_with("//")
        && next.bytes().all(|byte| (0x21..0x7f).contains(&byte) && byte != b'\\');
    if own { next } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_after_the_login_stays_here() {
        for own in ["/", "/runs/1?x=y", "/users"] {
            assert_eq!(own_path(own), own);
        }
        for foreign in [
            "",
            "//evil.example",
            "https://evil.example",
            "/\\evil.example",
            "/\t/evil.example",
            "/a\r\nSet-Cookie: b",
            "javascript:x",
            "/ü",
        ] {
            assert_eq!(own_path(foreign), "/", "{foreign:?}");
        }
    }
}

//! The pages and the forms on them.

mod account;
mod login;
mod run;
mod runs;
mod tokens;
mod users;

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::Response;

use crate::app::App;
use crate::frame::{Flash, onward};
use crate::problem::Problem;
use crate::routes::{Access, Routes};
use crate::visitor::Visitor;

pub(crate) use run::{download, load, render, run_id, torn_down, write_note};
pub(crate) use runs::RunsQuery;
pub(crate) use tokens::{end as end_token, visible as visible_tokens};

/// Adds them.
pub(crate) fn routes(routes: Routes) -> Routes {
    use Access::{Admin, Public, Viewer};
    routes
        .get(Public, "/login", login::page)
        .post(Public, "/login", login::log_in)
        .get(Public, "/setup/{secret}", login::set_up_page)
        .post(Public, "/setup/{secret}", login::set_up)
        .get(Public, "/enter/{secret}", login::enter_page)
        .post(Public, "/enter/{secret}", login::enter)
        .get(Public, "/password/{secret}", login::password_page)
        .post(Public, "/password/{secret}", login::set_password)
        .post(Viewer, "/logout", login::log_out)
        .get(Viewer, "/", runs::page)
        .get(Viewer, "/runs/{id}", run::page)
        .get(Viewer, "/runs/{id}/cases/{place}", run::case_page)
        .get(Viewer, "/runs/{id}/export.html", run::export_as_html)
        .get(Viewer, "/runs/{id}/export.json", run::export_as_json)
        .get(Viewer, "/runs/{id}/export.csv", run::export_as_csv)
        .post(Admin, "/runs/{id}/note", run::set_note)
        .get(Admin, "/runs/{id}/delete", run::delete_page)
        .post(Admin, "/runs/{id}/delete", run::delete)
        .get(Admin, "/runs/{id}/tear-down", run::tear_down_page)
        .post(Admin, "/runs/{id}/tear-down", run::tear_down)
        .get(Admin, "/users", users::page)
        .post(Admin, "/users", users::add)
        .post(Admin, "/users/{id}/role", users::set_role)
        .post(Admin, "/users/{id}/password-link", users::password_link)
        .get(Admin, "/users/{id}/remove", users::remove_page)
        .post(Admin, "/users/{id}/remove", users::remove)
        .get(Viewer, "/tokens", tokens::page)
        .post(Viewer, "/tokens", tokens::add)
        .post(Viewer, "/tokens/{id}/revoke", tokens::revoke)
        .get(Viewer, "/account", account::page)
        .post(Viewer, "/account/password", account::change_password)
}

/// Scheme and host that the browser uses, for links that are handed on: `https://poc:8440`. The guard has let the host through.
pub(crate) struct Base(String);

impl Base {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }
}

impl FromRequestParts<App> for Base {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).ok_or_else(Problem::host)?;
        Ok(Self(format!("{}://{host}", if app.secure() { "https" } else { "http" })))
    }
}

/// After a form: back to a page with what was done, or with why it was not. What is this program's failure is a page of its own.
fn conclude(app: &App, visitor: &Visitor, path: &str, done: Result<Flash, Problem>) -> Result<Response, Problem> {
    match done {
        Ok(flash) => Ok(onward(app, visitor, path, flash)),
        Err(problem) if problem.status.is_client_error() => Ok(onward(app, visitor, path, Flash::refused(&problem))),
        Err(problem) => Err(problem),
    }
}

//! What goes wrong, as a page or as JSON: what happened and what to do.

use std::error::Error;

use askama::Template;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use serde_json::json;

use super::static_files::AssetUrls;

/// An answer that is none.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) title: &'static str,
    pub(crate) what: String,
    pub(crate) remedy: &'static str,
}

impl Problem {
    pub(crate) fn no_page(path: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            title: "No such page",
            what: format!("There is nothing at {path}."),
            remedy: "Start from the list of runs.",
        }
    }

    pub(crate) fn no_run(id: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            title: "No such run",
            what: format!("There is no run {id} in this data directory."),
            remedy: "The list of runs has all that are here. If the run was made with another --data-dir, serve that one.",
        }
    }

    pub(crate) fn method() -> Self {
        Self {
            status: StatusCode::METHOD_NOT_ALLOWED,
            title: "Only reading is possible here",
            what: "These pages answer GET and HEAD.".to_owned(),
            remedy: "Open the page with a browser.",
        }
    }

    pub(crate) fn host() -> Self {
        Self {
            status: StatusCode::MISDIRECTED_REQUEST,
            title: "Asked for under a name that is not served",
            what: "The request's Host header names neither this machine's loopback, nor the address that is listened on, nor a configured name. \
                   Pages of other sites are kept from reading the results in this way."
                .to_owned(),
            remedy: "Use the address that was printed when the server started, or configure the name.",
        }
    }

    pub(crate) fn source(error: &(dyn Error + 'static)) -> Self {
        let what = chain(error);
        tracing::error!(error = %what, "a run could not be read");
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            title: "The run could not be read",
            what,
            remedy: "Nothing was changed. Look at the orchestrator's log, check that the data directory can be read, and load the page again.",
        }
    }

    pub(crate) fn render(error: &(dyn Error + 'static)) -> Self {
        let what = chain(error);
        tracing::error!(error = %what, "a page could not be made");
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            title: "The page could not be made",
            what,
            remedy: "This is a defect of Fourcorners. The JSON export may still work; please report it with the orchestrator's log.",
        }
    }
}

/// An error and its sources, separated by colons.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        words.push_str(": ");
        words.push_str(&source.to_string());
        next = source.source();
    }
    words
}

#[derive(Template)]
#[template(path = "pages/problem.html")]
struct ProblemPage<'a> {
    assets: &'a AssetUrls,
    problem: Problem,
}

/// A problem as a page.
pub(crate) struct AsPage(pub(crate) Problem);

impl From<Problem> for AsPage {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for AsPage {
    fn into_response(self) -> Response {
        let status = self.0.status;
        let plain = format!("{}\n", self.0.title);
        match (ProblemPage { assets: AssetUrls::get(), problem: self.0 }).render() {
            Ok(page) => (status, Html(page)).into_response(),
            Err(_) => (status, plain).into_response(),
        }
    }
}

/// A problem as JSON.
pub(crate) struct AsJson(pub(crate) Problem);

impl From<Problem> for AsJson {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for AsJson {
    fn into_response(self) -> Response {
        let Problem { status, title, what, remedy } = self.0;
        (status, Json(json!({ "error": { "title": title, "what": what, "remedy": remedy } }))).into_response()
    }
}

//! What goes wrong, as a page or as JSON: what happened and what to do.

use std::borrow::Cow;
use std::error::Error;
use std::path::PathBuf;

use askama::Template;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use serde::Serialize;
use store::{MAX_PROFILES, Refusal, StoreError};
use utoipa::ToSchema;

use crate::frame::Frame;
use crate::guard::{CSRF_HEADER, MAX_BODY_BYTES};
use crate::source::SourceError;
use crate::visitor::Visitor;

/// An answer that is none. A handler returns it; the guard makes a page or JSON of it.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) title: &'static str,
    pub(crate) what: String,
    pub(crate) remedy: Cow<'static, str>,
    /// Seconds after which to try again.
    retry_after: Option<u64>,
    /// A browser is sent to the login.
    login: bool,
}

impl Problem {
    /// `remedy` says what to do.
    pub(crate) fn new(
        status: StatusCode,
        title: &'static str,
        what: impl Into<String>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, title, what: what.into(), remedy: remedy.into(), retry_after: None, login: false }
    }

    pub(crate) fn no_page(path: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "No such page",
            format!("There is nothing at {path}."),
            "Start from the list of runs.",
        )
    }

    pub(crate) fn no_run(id: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "No such run",
            format!("There is no run {id} in this data directory."),
            "The list of runs has all that are here. If the run was made with another --data-dir, serve that one.",
        )
    }

    pub(crate) fn method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "Not possible here",
            "This address does not answer that method.",
            "Go to the page and use what it offers; /api/openapi.json lists the methods of the API.",
        )
    }

    pub(crate) fn host() -> Self {
        Self::new(
            StatusCode::MISDIRECTED_REQUEST,
            "Asked for under a name that is not served",
            "The request's Host header names neither this machine, nor the address that is listened on, nor a configured name. \
             Pages of other sites are kept from reading the results in this way.",
            "Use an address that was printed when the server started, or start it with --name and the name that you use.",
        )
    }

    pub(crate) fn login() -> Self {
        let what = "Nobody is logged in, or the session has ended.";
        let problem = Self::new(
            StatusCode::UNAUTHORIZED,
            "Login needed",
            what,
            "Log in; a script sends an API token as `Authorization: Bearer TOKEN`.",
        );
        Self { login: true, ..problem }
    }

    pub(crate) fn is_login(&self) -> bool {
        self.login
    }

    pub(crate) fn token() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "No such API token",
            "The API token is unknown, revoked or expired.",
            "Make another one on the page API tokens.",
        )
    }

    pub(crate) fn wrong_login() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "Not logged in",
            "There is no such user with this password.",
            "Try again; an administrator can make a link that sets another password.",
        )
    }

    pub(crate) fn not_allowed(name: &str) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "For administrators",
            format!("{name} may look at runs and reports; this is for administrators."),
            "Ask an administrator to do it, or to give you that role.",
        )
    }

    pub(crate) fn no_account() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "For users with an account",
            "You came by the link that the terminal printed, which has no account.",
            "Log in with a user's name and password.",
        )
    }

    pub(crate) fn person_needed() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "Not for API tokens",
            "An API token makes no tokens, users or password links, and gives no roles: what it opened would outlive it.",
            "Log in and do it on the page API tokens or Users.",
        )
    }

    pub(crate) fn foreign(found: String) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "Not sent from one of these pages",
            format!("A request that changes something must come from a page of this server; {found}."),
            "Open the page here and use its form; a script sends an API token.",
        )
    }

    pub(crate) fn form_token() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "The form is out of date",
            format!(
                "Its form token (field csrf, or header {CSRF_HEADER}) is not the session's: the page is from another session."
            ),
            "Load the page again and send the form once more. Nothing was changed.",
        )
    }

    pub(crate) fn too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "Too much was sent",
            format!("A request's body is {MAX_BODY_BYTES} bytes at most, and must arrive whole."),
            "Send less. Nothing was changed.",
        )
    }

    pub(crate) fn slow_body() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "The request took too long",
            "Its body did not arrive within 30 s.",
            "Send it again over a better connection. Nothing was changed.",
        )
    }

    pub(crate) fn too_often(seconds: u64) -> Self {
        let problem = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many failed logins",
            format!(
                "There were many failed logins from this address or to this account. The next try is possible in {seconds} s."
            ),
            "Wait, then try again.",
        );
        Self { retry_after: Some(seconds), ..problem }
    }

    pub(crate) fn busy() -> Self {
        let problem = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Too many logins at once",
            "Others are logging in or setting passwords; there was no turn within 10 s.",
            "Try again in a moment.",
        );
        Self { retry_after: Some(10), ..problem }
    }

    pub(crate) fn many_downloads() -> Self {
        let problem = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Too many downloads at once",
            "As many runs are being downloaded as this server sends at a time, and none of them ended within 5 s.",
            "Try again in a moment. One that its client takes too slowly is broken off.",
        );
        Self { retry_after: Some(10), ..problem }
    }

    pub(crate) fn link() -> Self {
        Self::new(
            StatusCode::GONE,
            "This link is good no more",
            "Each link works once and for a limited time; this one was used, has expired, or was replaced by a newer one.",
            "The terminal prints a new one at each start; an administrator can make a new one for setting a password.",
        )
    }

    pub(crate) fn input(what: impl Into<String>) -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Not accepted",
            what,
            "Correct it and send it again. Nothing was changed.",
        )
    }

    /// It cannot be done as things are; `remedy` says what would let it be done.
    pub(crate) fn conflict(what: impl Into<String>, remedy: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, "Not possible now", what, remedy)
    }

    /// A stop of a run that goes on nowhere, or in another process.
    pub(crate) fn not_going_on() -> Self {
        Self::conflict(
            "The run does not go on in this server.",
            "Its report says how it ended. A run of the command line is stopped there, with Ctrl-C.",
        )
    }

    pub(crate) fn refused(status: StatusCode, what: &str) -> Self {
        Self::new(
            status,
            "Not accepted",
            what.trim(),
            "Correct the request; /api/openapi.json describes the API. Nothing was changed.",
        )
    }

    pub(crate) fn source(error: &(dyn Error + 'static)) -> Self {
        let what = chain(error);
        tracing::error!(error = %what, "the store failed");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The data could not be read or written",
            what,
            "Check that the data directory can be read and written and has free space; the orchestrator's log says more. Then load the page \
             again, which shows what is there now.",
        )
    }

    pub(crate) fn render(error: &(dyn Error + 'static)) -> Self {
        let what = chain(error);
        tracing::error!(error = %what, "a page could not be made");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The page could not be made",
            what,
            "This is a defect of Fourcorners. The JSON export may still work; please report it with the orchestrator's log.",
        )
    }

    pub(crate) fn internal(what: &'static str, error: &str) -> Self {
        tracing::error!(error, "{what}");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "This did not work",
            format!("{what}: {error}"),
            "This is a defect of Fourcorners, or of the machine it runs on; please report it with the orchestrator's log.",
        )
    }

    /// A page in the frame of whoever asked.
    pub(crate) fn into_page(self, visitor: Option<Visitor>, path: &str) -> Response {
        let (status, retry_after, plain) = (self.status, self.retry_after, format!("{}\n", self.title));
        let page = ProblemPage { frame: Frame::bare(visitor, path), problem: self };
        let mut answer = match page.render() {
            Ok(page) => (status, Html(page)).into_response(),
            Err(_) => (status, plain).into_response(),
        };
        put_retry_after(&mut answer, retry_after);
        answer
    }

    pub(crate) fn into_json(self) -> Response {
        let retry_after = self.retry_after;
        let body = ErrorBody { error: ErrorWords { title: self.title, what: self.what, remedy: self.remedy } };
        let mut answer = (self.status, Json(body)).into_response();
        put_retry_after(&mut answer, retry_after);
        answer
    }

    /// To the login, and back afterwards.
    pub(crate) fn redirect(&self, uri: &Uri) -> Response {
        let back = uri.path_and_query().map_or("/", |path| path.as_str());
        let query: String = form_urlencoded::Serializer::new(String::new()).append_pair("next", back).finish();
        Redirect::to(&format!("/login?{query}")).into_response()
    }
}

fn put_retry_after(answer: &mut Response, seconds: Option<u64>) {
    if let Some(seconds) = seconds {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
}

/// What the API answers where something went wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    error: ErrorWords,
}

/// What went wrong, in words.
#[derive(Debug, Serialize, ToSchema)]
struct ErrorWords {
    /// In a few words.
    title: &'static str,
    /// What happened.
    what: String,
    /// What to do.
    remedy: Cow<'static, str>,
}

impl IntoResponse for Problem {
    /// For the guard, which knows who asked and for what.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Refused { reason, .. } => Self::refusal(reason).unwrap_or_else(|| Self::source(&error)),
            StoreError::HalfDeleted { removed, gone, source } => Self::half_deleted(removed, *gone, source),
            _ => Self::source(&error),
        }
    }
}

impl Problem {
    /// What the store refuses for what was asked or for what is there; none where the store itself is at fault.
    fn refusal(reason: &Refusal) -> Option<Self> {
        Some(match reason {
            Refusal::Absent { .. } => Self::new(
                StatusCode::NOT_FOUND,
                "It is not there",
                sentence(&reason.to_string()),
                "It may have been removed meanwhile: load the list again.",
            ),
            Refusal::NameTaken { name } => Self::conflict(
                format!("There is a user {name:?} already."),
                "Choose another name. Nothing was changed.",
            ),
            Refusal::LastAdmin { name } => Self::conflict(
                format!("The user {name} is the last administrator who can log in."),
                "Make somebody else an administrator first. Nothing was changed.",
            ),
            Refusal::TooManyTokens { name, allowed } => Self::conflict(
                format!("{name} has {allowed} API tokens, which is the most."),
                "Revoke one that is not needed any more, then make the new one. Nothing was changed.",
            ),
            Refusal::TooManyProfiles => Self::conflict(
                format!("There are {MAX_PROFILES} own profiles already, which is the most."),
                "Delete one that is not needed any more, then keep this one. Nothing was changed.",
            ),
            Refusal::RunGoesOn { state } => Self::conflict(
                format!("The run is in state {state}; only a run that has ended can be deleted."),
                "Wait for its end, or stop it on its live page. Nothing was removed.",
            ),
            Refusal::LeftBehind { objects } => Self::conflict(
                format!("The run's journal does not say that these were removed: {}.", objects.join(", ")),
                "Tear them down first: nothing else records them. Where they are gone already, tick that on the question's page (API: \
                 forget_left). Nothing was removed.",
            ),
            Refusal::Ended { .. } => Self::conflict(
                sentence(&reason.to_string()),
                "Load the page again, which shows how it ended. Nothing was changed.",
            ),
            Refusal::ReadOnly => Self::conflict(
                "This server only shows what is in the data directory.",
                "Use `fourcorners serve`. Nothing was changed.",
            ),
            Refusal::TooLarge { .. } => Self::input(sentence(&reason.to_string())),
            _ => return None,
        })
    }

    fn half_deleted(removed: &[PathBuf], gone: bool, source: &StoreError) -> Self {
        let why = chain(source);
        tracing::error!(error = %why, gone, "a run was deleted in part");
        let files: Vec<String> = removed.iter().map(|path| path.display().to_string()).collect();
        let files = match files.as_slice() {
            [] => "No file of it was removed".to_owned(),
            files => format!("Removed were {}", files.join(", ")),
        };
        let (run, remedy) = if gone {
            (
                "the run is in no list any more, but not all of its rows are removed",
                "The next start of `fourcorners serve` removes the rest. Make sure that the data directory can be written and has free space.",
            )
        } else {
            (
                "the run itself is still there, with all that it measured",
                "Set right what stood in the way, then delete the run again: it goes on where it stopped.",
            )
        };
        let what = format!("{} {files}; {run}.", sentence(&why));
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Not all of the run was deleted", what, remedy)
    }
}

impl From<SourceError> for Problem {
    /// What the store refuses comes through a source, too.
    fn from(error: SourceError) -> Self {
        match error.downcast::<StoreError>() {
            Ok(error) => (*error).into(),
            Err(error) => Self::source(error.as_ref()),
        }
    }
}

/// With a capital and a full stop.
fn sentence(words: &str) -> String {
    let mut characters = words.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", characters.as_str().trim_end_matches('.'))
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
struct ProblemPage {
    frame: Frame,
    problem: Problem,
}

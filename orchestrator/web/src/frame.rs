//! What every page has around its content: navigation, who is logged in, the form token, and what was just done.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use store::SecretHash;

use crate::app::App;
use crate::problem::Problem;
use crate::routes::Access;
use crate::static_files;
use crate::visitor::Visitor;

/// The navigation: path, label, whose it is. A path that the page's begins with is the current one.
const NAVIGATION: [(&str, &str, Access); 8] = [
    ("/", "Runs", Access::Viewer),
    ("/new", "New test", Access::Admin),
    ("/clusters", "Clusters", Access::Viewer),
    ("/profiles", "Profiles", Access::Viewer),
    ("/compare", "Compare", Access::Viewer),
    ("/users", "Users", Access::Admin),
    ("/tokens", "API tokens", Access::Viewer),
    ("/account", "Account", Access::Viewer),
];

/// Sessions that have an unread message; beyond, one is forgotten.
const MAX_FLASHES: usize = 1000;

/// Around a page's content. A template has it as `frame` and extends `pages/base.html`.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) visitor: Option<Visitor>,
    pub(crate) flash: Option<Flash>,
    path: String,
}

/// One entry of the navigation.
pub(crate) struct Entry {
    pub(crate) path: &'static str,
    pub(crate) label: &'static str,
    pub(crate) current: bool,
}

/// A message for the next page that a session shows.
#[derive(Debug, Clone)]
pub(crate) struct Flash {
    /// `good` or `bad`.
    pub(crate) tone: &'static str,
    pub(crate) text: String,
    /// What to do; empty where nothing needs to be done.
    pub(crate) remedy: Cow<'static, str>,
    /// What is shown this once, to be copied: a token, a link.
    pub(crate) secret: Option<String>,
}

impl Flash {
    /// Something was done.
    pub(crate) fn done(text: impl Into<String>) -> Self {
        Self { tone: "good", text: text.into(), remedy: Cow::Borrowed(""), secret: None }
    }

    /// Something was not done.
    pub(crate) fn refused(problem: &Problem) -> Self {
        Self { tone: "bad", text: problem.what.clone(), remedy: problem.remedy.clone(), secret: None }
    }

    /// Something was done, and this is what came of it.
    pub(crate) fn with_secret(text: impl Into<String>, secret: String) -> Self {
        Self { secret: Some(secret), ..Self::done(text) }
    }
}

/// Messages by session.
#[derive(Debug, Default)]
pub(crate) struct Flashes {
    by_session: Mutex<HashMap<SecretHash, Flash>>,
}

impl Flashes {
    fn put(&self, session: SecretHash, flash: Flash) {
        let mut all = self.by_session.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_FLASHES
            && let Some(any) = all.keys().next().copied()
        {
            all.remove(&any);
        }
        all.insert(session, flash);
    }

    fn take(&self, session: &SecretHash) -> Option<Flash> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner).remove(session)
    }
}

impl Frame {
    /// Of a page at `path`, without a message.
    pub(crate) fn bare(visitor: Option<Visitor>, path: &str) -> Self {
        Self { visitor, flash: None, path: path.to_owned() }
    }

    /// What this visitor may go to; nothing before the login.
    pub(crate) fn navigation(&self) -> Vec<Entry> {
        let Some(visitor) = &self.visitor else { return Vec::new() };
        let entries = NAVIGATION.into_iter().filter(|(_, _, access)| access.allows(Some(visitor)));
        entries.map(|(path, label, _)| Entry { path, label, current: self.is_at(path) }).collect()
    }

    fn is_at(&self, path: &str) -> bool {
        if path == "/" {
            return self.path == "/" || self.path.starts_with("/runs");
        }
        self.path == path || self.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
    }

    /// May change things.
    pub(crate) fn is_admin(&self) -> bool {
        self.visitor.as_ref().is_some_and(Visitor::is_admin)
    }

    /// For the hidden field `csrf` of every form.
    pub(crate) fn csrf(&self) -> &str {
        self.visitor.as_ref().map_or("", Visitor::csrf)
    }

    /// Where a browser finds a style or script.
    #[expect(clippy::unused_self, reason = "templates can call methods only")]
    pub(crate) fn asset(&self, name: &str) -> &'static str {
        static_files::url(name)
    }

    /// Version of this program.
    #[expect(clippy::unused_self, reason = "templates can call methods only")]
    pub(crate) fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}

impl FromRequestParts<App> for Frame {
    type Rejection = Infallible;

    /// Takes the message that waits for the session: only pages have a frame.
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let visitor = parts.extensions.get::<Visitor>().cloned();
        let flash = visitor.as_ref().and_then(Visitor::session).and_then(|session| app.flashes().take(session));
        Ok(Self { visitor, flash, path: parts.uri.path().to_owned() })
    }
}

/// A template as an answer.
pub(crate) fn html(page: &impl Template) -> Result<Response, Problem> {
    let page = page.render().map_err(|error| Problem::render(&error))?;
    Ok(Html(page).into_response())
}

/// After a form: to another page (see other, so that loading it again does not send the form again), which shows the message.
pub(crate) fn onward(app: &App, visitor: &Visitor, path: &str, flash: Flash) -> Response {
    if let Some(session) = visitor.session() {
        app.flashes().put(*session, flash);
    }
    Redirect::to(path).into_response()
}

//! Who asks, once that is known.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use jiff::Timestamp;
use store::{Role, SecretHash, User};

use crate::app::App;
use crate::auth::{self, csrf_token};
use crate::problem::Problem;

/// Whoever sent a request. As a handler's argument it refuses whoever is not logged in.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    /// The account; none for whoever came by a link on the terminal.
    pub(crate) user: Option<User>,
    /// What is allowed.
    pub(crate) role: Role,
    pub(crate) credential: Credential,
}

/// How a visitor is known.
#[derive(Debug, Clone)]
pub(crate) enum Credential {
    /// A session's cookie.
    Session {
        hash: SecretHash,
        /// What its forms carry.
        csrf: String,
    },
    /// An API token: no browser sends it by itself, so nothing need be asked of where the request comes from.
    Token { hash: SecretHash },
}

impl Visitor {
    /// The visitor of a session's cookie, if the session is open.
    pub(crate) async fn of_session(app: &App, secret: &str) -> Result<Option<Self>, Problem> {
        let hash = auth::hash(secret);
        let session = app.store().session(&hash, Timestamp::now()).await?;
        Ok(session.map(|session| Self {
            role: session.user.as_ref().map_or(Role::Viewer, |user| user.role),
            user: session.user,
            credential: Credential::Session { hash, csrf: csrf_token(secret) },
        }))
    }

    /// The visitor of an API token, if the token is good.
    pub(crate) async fn of_token(app: &App, secret: &str) -> Result<Option<Self>, Problem> {
        let hash = auth::hash(secret);
        let bearer = app.store().token_bearer(&hash, Timestamp::now()).await?;
        let credential = Credential::Token { hash };
        Ok(bearer.map(|bearer| Self { user: Some(bearer.user), role: bearer.role, credential }))
    }

    /// The visitor's own session or token, asked for again: none once the session or token has ended. For answers that go on for long.
    pub(crate) async fn again(&self, app: &App) -> Result<Option<Self>, Problem> {
        let now = Timestamp::now();
        Ok(match &self.credential {
            Credential::Session { hash, .. } => app.store().session(hash, now).await?.map(|session| Self {
                role: session.user.as_ref().map_or(Role::Viewer, |user| user.role),
                user: session.user,
                credential: self.credential.clone(),
            }),
            Credential::Token { hash } => app.store().token_bearer(hash, now).await?.map(|bearer| Self {
                role: bearer.role,
                user: Some(bearer.user),
                credential: self.credential.clone(),
            }),
        })
    }

    /// May change things.
    pub(crate) fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }

    /// What to call the visitor.
    pub(crate) fn name(&self) -> &str {
        self.user.as_ref().map_or("Terminal link", |user| &user.name)
    }

    /// The account.
    ///
    /// # Errors
    /// For whoever came by a link on the terminal.
    pub(crate) fn account(&self) -> Result<&User, Problem> {
        self.user.as_ref().ok_or_else(Problem::no_account)
    }

    /// For what lasts beyond its credential: more than an API token may do, which ends by itself and may be stolen.
    ///
    /// # Errors
    /// For an API token.
    pub(crate) fn person(&self) -> Result<(), Problem> {
        match self.credential {
            Credential::Session { .. } => Ok(()),
            Credential::Token { .. } => Err(Problem::person_needed()),
        }
    }

    /// What forms carry; empty for an API token.
    pub(crate) fn csrf(&self) -> &str {
        match &self.credential {
            Credential::Session { csrf, .. } => csrf,
            Credential::Token { .. } => "",
        }
    }

    /// Hash of its session.
    pub(crate) fn session(&self) -> Option<&SecretHash> {
        match &self.credential {
            Credential::Session { hash, .. } => Some(hash),
            Credential::Token { .. } => None,
        }
    }
}

impl FromRequestParts<App> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::login)
    }
}

//! What the handlers share.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use store::Store;

use crate::Error;
use crate::auth::{self, Cookies, Limiter, Passwords, Secret};
use crate::frame::Flashes;
use crate::hosts::AllowedHosts;
use crate::live::Workshop;
use crate::source::RunSource;
use crate::streamed::Downloads;

/// Failed logins from one address: this many at once, then one each interval.
const ADDRESS_BURST: u32 = 10;
const ADDRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Failed logins to one account, from wherever: 2,880 a day, so that nobody can guess and nobody is locked out for long.
const ACCOUNT_BURST: u32 = 30;
const ACCOUNT_INTERVAL: Duration = Duration::from_secs(30);

/// The state of the web interface. Clones share it.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    parts: Parts,
    cookies: Cookies,
    passwords: Passwords,
    by_address: Limiter,
    by_account: Limiter,
    flashes: Flashes,
    downloads: Downloads,
    links: Mutex<Links>,
}

/// What the web interface is made of.
#[derive(Clone)]
pub struct Parts {
    /// The runs that are shown.
    pub runs: Arc<dyn RunSource>,
    /// Starts and stops runs, and knows the one under way.
    pub workshop: Arc<dyn Workshop>,
    /// Users, sessions, tokens and own profiles.
    pub store: Store,
    /// The names that are answered to.
    pub hosts: AllowedHosts,
    /// Where the listener listens.
    pub listening: SocketAddr,
    /// The listener speaks TLS.
    pub secure: bool,
}

/// Links printed on the terminal, as the hashes of their secrets; each is good once.
#[derive(Debug, Default)]
struct Links {
    set_up: Option<store::SecretHash>,
    enter: Option<store::SecretHash>,
}

impl App {
    /// # Errors
    /// Where no password can be hashed.
    pub fn new(parts: Parts) -> Result<Self, Error> {
        let inner = Inner {
            cookies: Cookies::new(parts.listening.port(), parts.secure),
            passwords: Passwords::new().map_err(Error::Password)?,
            by_address: Limiter::new(ADDRESS_BURST, ADDRESS_INTERVAL),
            by_account: Limiter::new(ACCOUNT_BURST, ACCOUNT_INTERVAL),
            flashes: Flashes::default(),
            downloads: Downloads::default(),
            links: Mutex::default(),
            parts,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The path of a link that creates an administrator, once. An earlier one is good no more.
    ///
    /// # Errors
    /// Where the system has no randomness.
    pub fn set_up_link(&self) -> Result<String, Error> {
        let secret = Secret::new()?;
        self.links(|links| links.set_up = Some(secret.hash()));
        Ok(format!("/setup/{}", secret.as_str()))
    }

    /// The path of a link that opens a viewer's session, once. An earlier one is good no more.
    ///
    /// # Errors
    /// Where the system has no randomness.
    pub fn enter_link(&self) -> Result<String, Error> {
        let secret = Secret::new()?;
        self.links(|links| links.enter = Some(secret.hash()));
        Ok(format!("/enter/{}", secret.as_str()))
    }

    /// Whether a set-up link is good.
    pub(crate) fn may_set_up(&self, secret: &str) -> bool {
        let hash = auth::hash(secret);
        self.links(|links| links.set_up == Some(hash))
    }

    /// Ends a set-up link; answers whether it was good until now.
    pub(crate) fn take_set_up(&self, secret: &str) -> bool {
        let hash = auth::hash(secret);
        self.links(|links| links.set_up.take_if(|known| *known == hash).is_some())
    }

    /// Makes a set-up link good again: what it was taken for did not happen.
    pub(crate) fn give_back_set_up(&self, secret: &str) {
        self.links(|links| links.set_up = links.set_up.or(Some(auth::hash(secret))));
    }

    /// Whether a link that opens a session is good.
    pub(crate) fn may_enter(&self, secret: &str) -> bool {
        let hash = auth::hash(secret);
        self.links(|links| links.enter == Some(hash))
    }

    /// Ends a link that opens a session; answers whether it was good until now.
    pub(crate) fn take_enter(&self, secret: &str) -> bool {
        let hash = auth::hash(secret);
        self.links(|links| links.enter.take_if(|known| *known == hash).is_some())
    }

    fn links<T>(&self, change: impl FnOnce(&mut Links) -> T) -> T {
        change(&mut self.inner.links.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn runs(&self) -> &dyn RunSource {
        self.inner.parts.runs.as_ref()
    }

    pub(crate) fn workshop(&self) -> &dyn Workshop {
        self.inner.parts.workshop.as_ref()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.parts.store
    }

    pub(crate) fn hosts(&self) -> &AllowedHosts {
        &self.inner.parts.hosts
    }

    pub(crate) fn secure(&self) -> bool {
        self.inner.parts.secure
    }

    pub(crate) fn cookies(&self) -> &Cookies {
        &self.inner.cookies
    }

    pub(crate) fn passwords(&self) -> &Passwords {
        &self.inner.passwords
    }

    pub(crate) fn by_address(&self) -> &Limiter {
        &self.inner.by_address
    }

    pub(crate) fn by_account(&self) -> &Limiter {
        &self.inner.by_account
    }

    pub(crate) fn flashes(&self) -> &Flashes {
        &self.inner.flashes
    }

    pub(crate) fn downloads(&self) -> &Downloads {
        &self.inner.downloads
    }
}

//! Who asks: secrets, passwords, cookies, limits and the evidence that a request comes from our own pages.

mod cookies;
mod limiter;
mod origin;
mod passwords;
mod secret;

pub(crate) use cookies::Cookies;
pub(crate) use limiter::Limiter;
pub(crate) use origin::same_origin;
pub(crate) use passwords::{MAX_PASSWORD_BYTES, MIN_PASSWORD_CHARACTERS, Passwords, check_new_password};
pub(crate) use secret::{Secret, csrf_token, equal, hash};

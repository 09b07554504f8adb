//! What pages and API do with users, sessions and tokens alike.

use std::net::SocketAddr;
use std::time::Instant;

use axum::extract::ConnectInfo;
use axum::http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use store::{NewToken, PASSWORD_LINK_LIMIT, Role, TokenId, UserId};

use crate::app::App;
use crate::auth::{MAX_PASSWORD_BYTES, Secret, check_new_password};
use crate::guard::client;
use crate::problem::Problem;
use crate::visitor::Visitor;

/// Characters of a user's name.
const MAX_NAME: usize = 64;

/// Characters of a token's name.
const MAX_TOKEN_NAME: usize = 100;

/// Days that a token may live.
pub(crate) const MAX_TOKEN_DAYS: u16 = 366;

/// A session that was just opened.
pub(crate) struct Opened {
    pub(crate) visitor: Visitor,
    /// For the answer's `Set-Cookie`.
    pub(crate) cookie: HeaderValue,
}

/// A login by name and password, within the limits of address and account. Success costs none of them.
pub(crate) async fn log_in(
    app: &App,
    connection: Option<ConnectInfo<SocketAddr>>,
    name: &str,
    password: String,
) -> Result<Opened, Problem> {
    let (address, account, now) = (client(connection), name.trim().to_lowercase(), Instant::now());
    let wait = |wait: std::time::Duration| Problem::too_often(wait.as_secs() + 1);
    app.by_address().take(address, now).map_err(wait)?;
    app.by_account().take(&account, now).map_err(wait)?;
    let user = app.store().user_named(name.trim()).await?;
    let hash = user.as_ref().and_then(|user| user.password_hash.clone());
    // A password that is too long is nobody's.
    let hash = hash.filter(|_| password.len() <= MAX_PASSWORD_BYTES);
    let password = if password.len() > MAX_PASSWORD_BYTES { String::new() } else { password };
    let right = app.passwords().verify(password, hash).await?;
    let Some(user) = user.filter(|_| right) else {
        // Quoted: what a stranger typed must not look like another line of the log.
        tracing::warn!(user = ?account.chars().take(MAX_NAME).collect::<String>(), "a login failed");
        return Err(Problem::wrong_login());
    };
    app.by_address().give_back(address);
    app.by_account().give_back(&account);
    open_session(app, Some(user.id)).await
}

/// Opens a session; of a viewer without an account where no user is given.
pub(crate) async fn open_session(app: &App, user: Option<UserId>) -> Result<Opened, Problem> {
    let secret = new_secret()?;
    app.store().open_session(&secret.hash(), user, Timestamp::now()).await?;
    let visitor = Visitor::of_session(app, secret.as_str()).await?.ok_or_else(Problem::login)?;
    Ok(Opened { visitor, cookie: app.cookies().set(secret.as_str())? })
}

/// The first administrator, by the link that the terminal printed.
pub(crate) async fn set_up(
    app: &App,
    secret: &str,
    name: &str,
    password: String,
    repeated: &str,
) -> Result<Opened, Problem> {
    if !app.may_set_up(secret) {
        return Err(Problem::link());
    }
    let name = user_name(name)?;
    check_new_password(&password, repeated, name).map_err(Problem::input)?;
    let hash = app.passwords().hash(password).await?;
    if !app.take_set_up(secret) {
        return Err(Problem::link());
    }
    match app.store().add_user(name, Role::Admin, Some(&hash)).await {
        Ok(id) => open_session(app, Some(id)).await,
        Err(error) => {
            app.give_back_set_up(secret);
            Err(error.into())
        }
    }
}

/// Adds a user, for a person; answers the path of the link with which the user sets a password.
pub(crate) async fn add_user(
    app: &App,
    visitor: &Visitor,
    name: &str,
    role: Role,
) -> Result<(UserId, String), Problem> {
    visitor.person()?;
    let id = app.store().add_user(user_name(name)?, role, None).await?;
    Ok((id, password_link(app, visitor, id).await?))
}

/// Gives a user another role, for a person.
pub(crate) async fn set_role(app: &App, visitor: &Visitor, id: UserId, role: Role) -> Result<(), Problem> {
    visitor.person()?;
    Ok(app.store().set_role(id, role).await?)
}

/// The path of a new link with which a user sets a password, for a person; the one before is good no more.
pub(crate) async fn password_link(app: &App, visitor: &Visitor, id: UserId) -> Result<String, Problem> {
    visitor.person()?;
    let secret = new_secret()?;
    let expires = later(PASSWORD_LINK_LIMIT)?;
    app.store().add_password_link(id, &secret.hash(), expires).await?;
    Ok(format!("/password/{}", secret.as_str()))
}

/// Makes an API token for the visitor's own account, for a person; answers its secret, which nobody can read again.
pub(crate) async fn add_token(
    app: &App,
    visitor: &Visitor,
    name: &str,
    role: Role,
    days: u16,
) -> Result<(TokenId, String), Problem> {
    visitor.person()?;
    let (user, name) = (visitor.account()?, name.trim());
    if name.is_empty() || name.chars().count() > MAX_TOKEN_NAME || name.chars().any(char::is_control) {
        return Err(Problem::input(format!(
            "The token's name must have 1 to {MAX_TOKEN_NAME} characters on one line."
        )));
    }
    if !(1..=MAX_TOKEN_DAYS).contains(&days) {
        return Err(Problem::input(format!("A token lives {days} days; allowed are 1 to {MAX_TOKEN_DAYS}.")));
    }
    if role > visitor.role {
        return Err(Problem::input(format!("A token of {} cannot have the role {role}.", user.name)));
    }
    let (secret, expires) = (new_secret()?, later(SignedDuration::from_hours(24 * i64::from(days)))?);
    let new = NewToken { user, name, role, hash: &secret.hash(), expires };
    Ok((app.store().add_token(&new).await?, secret.as_str().to_owned()))
}

/// A new password, typed twice.
pub(crate) struct NewPassword {
    pub(crate) password: String,
    pub(crate) repeated: String,
    /// The account's API tokens end, too.
    pub(crate) end_tokens: bool,
}

/// Replaces the visitor's own password; the other sessions of the account end.
pub(crate) async fn change_password(
    app: &App,
    visitor: &Visitor,
    current: String,
    new: NewPassword,
) -> Result<(), Problem> {
    let user = visitor.account()?;
    let account = user.name.to_lowercase();
    let wait = |wait: std::time::Duration| Problem::too_often(wait.as_secs() + 1);
    app.by_account().take(&account, Instant::now()).map_err(wait)?;
    if current.len() > MAX_PASSWORD_BYTES || !app.passwords().verify(current, user.password_hash.clone()).await? {
        return Err(Problem::input("The current password is not right."));
    }
    app.by_account().give_back(&account);
    check_new_password(&new.password, &new.repeated, &user.name).map_err(Problem::input)?;
    let hash = app.passwords().hash(new.password).await?;
    Ok(app.store().set_password(user.id, &hash, visitor.session(), new.end_tokens).await?)
}

/// Sets the password that a link is for, and opens a session of its user.
pub(crate) async fn use_password_link(app: &App, secret: &str, new: NewPassword) -> Result<Opened, Problem> {
    let (link, now) = (crate::auth::hash(secret), Timestamp::now());
    let user = app.store().password_link(&link, now).await?.ok_or_else(Problem::link)?;
    check_new_password(&new.password, &new.repeated, &user.name).map_err(Problem::input)?;
    let hash = app.passwords().hash(new.password).await?;
    let user = app.store().use_password_link(&link, &hash, new.end_tokens, now).await?.ok_or_else(Problem::link)?;
    open_session(app, Some(user.id)).await
}

/// A user's name: what cannot be mistaken for another one, on a page or in a log.
fn user_name(name: &str) -> Result<&str, Problem> {
    let name = name.trim();
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(allowed) {
        return Ok(name);
    }
    Err(Problem::input(format!(
        "{name:?} is no user name: it has 1 to {MAX_NAME} letters (a to z), digits, and . _ @ -"
    )))
}

/// A role by its word.
pub(crate) fn role(word: &str) -> Result<Role, Problem> {
    word.parse().map_err(|error: String| Problem::input(format!("{error}.")))
}

fn new_secret() -> Result<Secret, Problem> {
    Secret::new().map_err(|error| Problem::internal("the system has no random numbers", &error.to_string()))
}

fn later(by: SignedDuration) -> Result<Timestamp, Problem> {
    Timestamp::now().checked_add(by).map_err(|error| Problem::internal("an expiry is out of range", &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_are_plain() {
        for good in ["a", " alice ", "Bob.Smith", "eve@example.com", "x-1_2"] {
            assert_eq!(user_name(good).unwrap(), good.trim());
        }
        for bad in ["", "  ", "a b", "<script>", "аdmin", "a\nb", "../x", &"x".repeat(65)] {
            assert!(user_name(bad).is_err(), "{bad:?}");
        }
    }
}

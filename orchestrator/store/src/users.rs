//! Who may use the web interface, and the links with which they set their passwords.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use sqlx::{Connection, FromRow, SqliteConnection};
use uuid::Uuid;

use crate::error::{Fault, Refusal};
use crate::rows::{time, time_opt, time_text};
use crate::runs::one_row;
use crate::{SecretHash, Store, StoreError, sql};

/// How long a link for setting a password is good.
pub const PASSWORD_LINK_LIMIT: SignedDuration = SignedDuration::from_hours(48);

/// Id of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserId(pub Uuid);

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a user may do. An administrator may do all that a viewer may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Looks at runs and reports.
    Viewer,
    /// Changes things, too: starts and deletes runs, manages users.
    Admin,
}

impl Role {
    /// The word for it: `viewer`, `admin`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        [Self::Viewer, Self::Admin]
            .into_iter()
            .find(|role| role.as_str() == word)
            .ok_or_else(|| format!("{word:?} is no role; there are viewer and admin"))
    }
}

/// Somebody who may log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Id.
    pub id: UserId,
    /// Name; letters' case does not tell users apart.
    pub name: String,
    /// What the user may do.
    pub role: Role,
    /// The password's hash, a PHC string; none until the user has set a password.
    pub password_hash: Option<String>,
    /// When the user was added.
    pub created: Timestamp,
    /// When the user logged in last.
    pub last_login: Option<Timestamp>,
}

#[derive(FromRow)]
pub(crate) struct UserRow {
    id: String,
    name: String,
    role: String,
    password_hash: Option<String>,
    created: String,
    last_login: Option<String>,
}

impl UserRow {
    pub(crate) fn into_user(self) -> Result<User, Fault> {
        Ok(User {
            id: UserId(self.id.parse().map_err(|error| Fault::unreadable("users.id", error))?),
            name: self.name,
            role: role(&self.role)?,
            password_hash: self.password_hash,
            created: time(&self.created, "users.created")?,
            last_login: time_opt(self.last_login.as_deref(), "users.last_login")?,
        })
    }
}

pub(crate) fn role(word: &str) -> Result<Role, Fault> {
    word.parse().map_err(|error| Fault::unreadable("role", error))
}

impl Store {
    /// Whether there is an administrator who can log in.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be read.
    pub async fn has_admin(&self) -> Result<bool, StoreError> {
        let count = sqlx::query_scalar(sql::COUNT_ADMINS).fetch_one(&self.inner.readers).await;
        self.named("looking for administrators", count.map(|count: i64| count > 0).map_err(Fault::from))
    }

    /// All users, by name.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn list_users(&self) -> Result<Vec<User>, StoreError> {
        let read = async {
            let rows: Vec<UserRow> = sqlx::query_as(sql::LIST_USERS).fetch_all(&self.inner.readers).await?;
            rows.into_iter().map(UserRow::into_user).collect()
        };
        self.named("listing users", read.await)
    }

    /// A user.
    ///
    /// # Errors
    /// [`Refusal::Absent`] where there is no such user; [`StoreError`] where it cannot be read.
    pub async fn user(&self, id: UserId) -> Result<User, StoreError> {
        let read = async {
            let query = sqlx::query_as(sql::SELECT_USER).bind(id.to_string());
            let row: Option<UserRow> = query.fetch_optional(&self.inner.readers).await?;
            row.ok_or_else(|| Fault::absent("user", id))?.into_user()
        };
        self.named("reading a user", read.await)
    }

    /// The user of a name, if there is one.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be read.
    pub async fn user_named(&self, name: &str) -> Result<Option<User>, StoreError> {
        let read = async {
            let query = sqlx::query_as(sql::SELECT_USER_BY_NAME).bind(name);
            let row: Option<UserRow> = query.fetch_optional(&self.inner.readers).await?;
            row.map(UserRow::into_user).transpose()
        };
        self.named("reading a user", read.await)
    }

    /// Adds a user, who can log in once there is a password.
    ///
    /// # Errors
    /// [`Refusal::NameTaken`]; [`StoreError`] where it cannot be committed.
    pub async fn add_user(&self, name: &str, role: Role, password_hash: Option<&str>) -> Result<UserId, StoreError> {
        let stored = async {
            let id = UserId(Uuid::now_v7());
            let mut writer = self.writer().await?;
            let insert = sqlx::query(sql::INSERT_USER)
                .bind(id.to_string())
                .bind(name)
                .bind(role.as_str())
                .bind(password_hash)
                .bind(time_text(Timestamp::now()));
            match insert.execute(&mut *writer).await {
                Ok(_) => Ok(id),
                Err(error) if error.as_database_error().is_some_and(|error| error.is_unique_violation()) => {
                    Err(Refusal::NameTaken { name: name.to_owned() }.into())
                }
                Err(error) => Err(error.into()),
            }
        };
        self.named("adding a user", stored.await)
    }

    /// Gives a user another role.
    ///
    /// # Errors
    /// [`Refusal::LastAdmin`], [`Refusal::Absent`]; [`StoreError`] where it cannot be committed.
    pub async fn set_role(&self, id: UserId, role: Role) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
            let before = had_admin(&mut tx).await?;
            let done = sqlx::query(sql::UPDATE_ROLE).bind(id.to_string()).bind(role.as_str()).execute(&mut *tx).await?;
            one_row(done, || Fault::absent("user", id))?;
            still_has_admin(&mut tx, before, id).await?;
            Ok(tx.commit().await?)
        };
        self.named("changing a role", stored.await)
    }

    /// Removes a user, whose sessions, links and tokens end with it.
    ///
    /// # Errors
    /// [`Refusal::LastAdmin`], [`Refusal::Absent`]; [`StoreError`] where it cannot be committed.
    pub async fn remove_user(&self, id: UserId) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
            let before = had_admin(&mut tx).await?;
            let name = name_of(&mut tx, id).await?;
            sqlx::query(sql::DELETE_USER).bind(id.to_string()).execute(&mut *tx).await?;
            if before && !had_admin(&mut tx).await? {
                return Err(Refusal::LastAdmin { name }.into());
            }
            Ok(tx.commit().await?)
        };
        self.named("removing a user", stored.await)
    }

    /// Gives a user another password. Its other sessions end, and so does a link for setting it; the session `keep` goes on. API tokens
    /// end where `end_tokens` says so.
    ///
    /// # Errors
    /// [`Refusal::Absent`]; [`StoreError`] where it cannot be committed.
    pub async fn set_password(
        &self,
        id: UserId,
        hash: &str,
        keep: Option<&SecretHash>,
        end_tokens: bool,
    ) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
            change_password(&mut tx, id, hash, keep, end_tokens).await?;
            Ok(tx.commit().await?)
        };
        self.named("setting a password", stored.await)
    }

    /// Records the hash of a link with which a user may set a password until `expires`; an earlier link is good no more.
    ///
    /// # Errors
    /// [`Refusal::Absent`]; [`StoreError`] where it cannot be committed.
    pub async fn add_password_link(&self, id: UserId, hash: &SecretHash, expires: Timestamp) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            name_of(&mut writer, id).await?;
            let link = sqlx::query(sql::UPSERT_PASSWORD_LINK);
            link.bind(id.to_string()).bind(&hash[..]).bind(time_text(expires)).execute(&mut *writer).await?;
            Ok(())
        };
        self.named("recording a link", stored.await)
    }

    /// Whose password a link sets; none where it is unknown, used or expired.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be read.
    pub async fn password_link(&self, hash: &SecretHash, now: Timestamp) -> Result<Option<User>, StoreError> {
        let read = async {
            let query = sqlx::query_as(sql::SELECT_PASSWORD_LINK).bind(&hash[..]).bind(time_text(now));
            let row: Option<UserRow> = query.fetch_optional(&self.inner.readers).await?;
            row.map(UserRow::into_user).transpose()
        };
        self.named("reading a link", read.await)
    }

    /// Sets the password that a link is for, and ends the link, sessions and, where `end_tokens` says so, API tokens; answers whose it
    /// was, none where it is good no more.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be committed.
    pub async fn use_password_link(
        &self,
        link: &SecretHash,
        password_hash: &str,
        end_tokens: bool,
        now: Timestamp,
    ) -> Result<Option<User>, StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
            let query = sqlx::query_as(sql::SELECT_PASSWORD_LINK).bind(&link[..]).bind(time_text(now));
            let row: Option<UserRow> = query.fetch_optional(&mut *tx).await?;
            let Some(user) = row.map(UserRow::into_user).transpose()? else { return Ok(None) };
            change_password(&mut tx, user.id, password_hash, None, end_tokens).await?;
            tx.commit().await?;
            Ok(Some(user))
        };
        self.named("setting a password", stored.await)
    }
}

async fn change_password(
    connection: &mut SqliteConnection,
    id: UserId,
    hash: &str,
    keep: Option<&SecretHash>,
    end_tokens: bool,
) -> Result<(), Fault> {
    let id_text = id.to_string();
    let done = sqlx::query(sql::UPDATE_PASSWORD).bind(&id_text).bind(hash).execute(&mut *connection).await?;
    one_row(done, || Fault::absent("user", id))?;
    sqlx::query(sql::DELETE_PASSWORD_LINK).bind(&id_text).execute(&mut *connection).await?;
    let kept = keep.map(|hash| hash.to_vec());
    sqlx::query(sql::DELETE_SESSIONS_OF).bind(&id_text).bind(kept).execute(&mut *connection).await?;
    if end_tokens {
        sqlx::query(sql::DELETE_TOKENS_OF).bind(&id_text).execute(connection).await?;
    }
    Ok(())
}

async fn had_admin(connection: &mut SqliteConnection) -> Result<bool, Fault> {
    let count: i64 = sqlx::query_scalar(sql::COUNT_ADMINS).fetch_one(connection).await?;
    Ok(count > 0)
}

async fn still_has_admin(connection: &mut SqliteConnection, before: bool, id: UserId) -> Result<(), Fault> {
    if before && !had_admin(connection).await? {
        return Err(Refusal::LastAdmin { name: name_of(connection, id).await? }.into());
    }
    Ok(())
}

async fn name_of(connection: &mut SqliteConnection, id: UserId) -> Result<String, Fault> {
    let row: Option<UserRow> = sqlx::query_as(sql::SELECT_USER).bind(id.to_string()).fetch_optional(connection).await?;
    row.map(|row| row.name).ok_or_else(|| Fault::absent("user", id))
}

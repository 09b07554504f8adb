//! Sessions of browsers.

use jiff::{SignedDuration, Timestamp};
use sqlx::{Connection, Row};

use crate::error::Fault;
use crate::rows::{time, time_text};
use crate::users::{User, UserRow};
use crate::{SecretHash, Store, StoreError, UserId, sql};

/// A session ends after this time without a request. A page that follows a run asks all the time.
pub const IDLE_LIMIT: SignedDuration = SignedDuration::from_hours(12);

/// A session ends after this time in any case: a week at a customer's site.
pub const SESSION_LIMIT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Sessions of one user, and of the terminal's links together; the oldest ends where another one begins.
pub const MAX_SESSIONS: u32 = 50;

/// Between two records of a session's use: not each request needs a write.
const SEEN_STEP: SignedDuration = SignedDuration::from_secs(60);

/// A session that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Whose it is; none where a link on the terminal opened it: a viewer.
    pub user: Option<User>,
}

impl Store {
    /// Opens a session until [`SESSION_LIMIT`] from `now`, and clears away those that have ended.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be committed.
    pub async fn open_session(
        &self,
        hash: &SecretHash,
        user: Option<UserId>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.named("opening a session", self.try_open_session(hash, user, now).await)
    }

    async fn try_open_session(&self, hash: &SecretHash, user: Option<UserId>, now: Timestamp) -> Result<(), Fault> {
        let user = user.map(|user| user.to_string());
        let mut writer = self.writer().await?;
        let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
        let idle = time_text(before(now, IDLE_LIMIT));
        sqlx::query(sql::DELETE_EXPIRED_SESSIONS).bind(time_text(now)).bind(idle).execute(&mut *tx).await?;
        sqlx::query(sql::INSERT_SESSION)
            .bind(&hash[..])
            .bind(&user)
            .bind(time_text(now))
            .bind(time_text(after(now, SESSION_LIMIT)))
            .execute(&mut *tx)
            .await?;
        sqlx::query(sql::DELETE_OLD_SESSIONS).bind(&user).bind(MAX_SESSIONS).execute(&mut *tx).await?;
        if user.is_some() {
            sqlx::query(sql::UPDATE_LAST_LOGIN).bind(&user).bind(time_text(now)).execute(&mut *tx).await?;
        }
        Ok(tx.commit().await?)
    }

    /// The session of a hash, if it is open; that it was used is recorded.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be read, or its use cannot be recorded.
    pub async fn session(&self, hash: &SecretHash, now: Timestamp) -> Result<Option<Session>, StoreError> {
        self.named("reading a session", self.try_session(hash, now).await)
    }

    async fn try_session(&self, hash: &SecretHash, now: Timestamp) -> Result<Option<Session>, Fault> {
        let query = sqlx::query(sql::SELECT_SESSION)
            .bind(&hash[..])
            .bind(time_text(now))
            .bind(time_text(before(now, IDLE_LIMIT)));
        let Some(row) = query.fetch_optional(&self.inner.readers).await? else { return Ok(None) };
        let owner: Option<String> = row.try_get("user_id")?;
        let user = match owner {
            Some(_) => Some(<UserRow as sqlx::FromRow<_>>::from_row(&row)?.into_user()?),
            None => None,
        };
        let last_seen = time(&row.try_get::<String, _>("last_seen")?, "sessions.last_seen")?;
        if last_seen < before(now, SEEN_STEP) {
            let mut writer = self.writer().await?;
            sqlx::query(sql::UPDATE_LAST_SEEN).bind(&hash[..]).bind(time_text(now)).execute(&mut *writer).await?;
        }
        Ok(Some(Session { user }))
    }

    /// Ends a session.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be committed.
    pub async fn close_session(&self, hash: &SecretHash) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            sqlx::query(sql::DELETE_SESSION).bind(&hash[..]).execute(&mut *writer).await?;
            Ok(())
        };
        self.named("closing a session", stored.await)
    }
}

/// At the ends of time, where nothing can be added, the time itself.
fn after(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(time)
}

fn before(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_sub(by).unwrap_or(time)
}

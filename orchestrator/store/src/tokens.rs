//! API tokens: for scripts, which have no browser.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use sqlx::{Connection, FromRow, Row};
use uuid::Uuid;

use crate::error::{Fault, Refusal};
use crate::rows::{time, time_opt, time_text};
use crate::runs::one_row;
use crate::users::{Role, User, UserRow, role};
use crate::{SecretHash, Store, StoreError, UserId, sql};

/// Tokens of one user.
pub const MAX_TOKENS: u32 = 50;

/// Between two records of a token's use.
const USED_STEP: SignedDuration = SignedDuration::from_secs(60);

/// Id of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenId(pub Uuid);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A token to be recorded.
#[derive(Debug, Clone, Copy)]
pub struct NewToken<'a> {
    /// Whose it is.
    pub user: &'a User,
    /// What it is for.
    pub name: &'a str,
    /// What it allows.
    pub role: Role,
    /// SHA-256 of its secret.
    pub hash: &'a SecretHash,
    /// When it ends.
    pub expires: Timestamp,
}

/// A token in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiToken {
    /// Id.
    pub id: TokenId,
    /// Whose it is.
    pub user: UserId,
    /// That user's name.
    pub user_name: String,
    /// What it is for.
    pub name: String,
    /// What it allows, unless its user may do less.
    pub role: Role,
    /// When it was made.
    pub created: Timestamp,
    /// When it ends.
    pub expires: Timestamp,
    /// When it was used last.
    pub last_used: Option<Timestamp>,
}

/// Who shows a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBearer {
    /// The token's user.
    pub user: User,
    /// What both the token and its user may do.
    pub role: Role,
}

#[derive(FromRow)]
struct TokenRow {
    id: String,
    user_id: String,
    user_name: String,
    name: String,
    role: String,
    created: String,
    expires: String,
    last_used: Option<String>,
}

impl TokenRow {
    fn into_token(self) -> Result<ApiToken, Fault> {
        Ok(ApiToken {
            id: TokenId(self.id.parse().map_err(|error| Fault::unreadable("api_tokens.id", error))?),
            user: UserId(self.user_id.parse().map_err(|error| Fault::unreadable("api_tokens.user_id", error))?),
            user_name: self.user_name,
            name: self.name,
            role: role(&self.role)?,
            created: time(&self.created, "api_tokens.created")?,
            expires: time(&self.expires, "api_tokens.expires")?,
            last_used: time_opt(self.last_used.as_deref(), "api_tokens.last_used")?,
        })
    }
}

impl Store {
    /// Records a token.
    ///
    /// # Errors
    /// [`Refusal::TooManyTokens`]; [`StoreError`] where it cannot be committed.
    pub async fn add_token(&self, token: &NewToken<'_>) -> Result<TokenId, StoreError> {
        self.named("recording a token", self.try_add_token(token).await)
    }

    async fn try_add_token(&self, token: &NewToken<'_>) -> Result<TokenId, Fault> {
        let (id, user) = (TokenId(Uuid::now_v7()), token.user.id.to_string());
        let mut writer = self.writer().await?;
        let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
        let count: u32 = sqlx::query_scalar(sql::COUNT_TOKENS).bind(&user).fetch_one(&mut *tx).await?;
        if count >= MAX_TOKENS {
            return Err(Refusal::TooManyTokens { name: token.user.name.clone(), allowed: MAX_TOKENS }.into());
        }
        sqlx::query(sql::INSERT_TOKEN)
            .bind(id.to_string())
            .bind(user)
            .bind(token.name)
            .bind(token.role.as_str())
            .bind(&token.hash[..])
            .bind(time_text(Timestamp::now()))
            .bind(time_text(token.expires))
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(id)
    }

    /// The tokens of a user, or all; the newest first.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn list_tokens(&self, user: Option<UserId>) -> Result<Vec<ApiToken>, StoreError> {
        let read = async {
            let query = sqlx::query_as(sql::LIST_TOKENS).bind(user.map(|user| user.to_string()));
            let rows: Vec<TokenRow> = query.fetch_all(&self.inner.readers).await?;
            rows.into_iter().map(TokenRow::into_token).collect()
        };
        self.named("listing tokens", read.await)
    }

    /// Who shows a token; none where it is unknown, revoked or expired. That it was used is recorded.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be read, or its use cannot be recorded.
    pub async fn token_bearer(&self, hash: &SecretHash, now: Timestamp) -> Result<Option<TokenBearer>, StoreError> {
        self.named("reading a token", self.try_token_bearer(hash, now).await)
    }

    async fn try_token_bearer(&self, hash: &SecretHash, now: Timestamp) -> Result<Option<TokenBearer>, Fault> {
        let query = sqlx::query(sql::SELECT_TOKEN).bind(&hash[..]).bind(time_text(now));
        let Some(row) = query.fetch_optional(&self.inner.readers).await? else { return Ok(None) };
        let user = UserRow::from_row(&row)?.into_user()?;
        let allowed = role(&row.try_get::<String, _>("token_role")?)?;
        let used = time_opt(row.try_get::<Option<String>, _>("last_used")?.as_deref(), "api_tokens.last_used")?;
        if used.is_none_or(|used| now.duration_since(used) > USED_STEP) {
            let id: String = row.try_get("token_id")?;
            let mut writer = self.writer().await?;
            sqlx::query(sql::UPDATE_LAST_USED).bind(id).bind(time_text(now)).execute(&mut *writer).await?;
        }
        Ok(Some(TokenBearer { role: allowed.min(user.role), user }))
    }

    /// Ends a token: of this user, or of anybody where none is given.
    ///
    /// # Errors
    /// [`Refusal::Absent`]; [`StoreError`] where it cannot be committed.
    pub async fn revoke_token(&self, id: TokenId, of: Option<UserId>) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let query = sqlx::query(sql::DELETE_TOKEN).bind(id.to_string()).bind(of.map(|user| user.to_string()));
            one_row(query.execute(&mut *writer).await?, || Fault::absent("API token", id))
        };
        self.named("revoking a token", stored.await)
    }
}

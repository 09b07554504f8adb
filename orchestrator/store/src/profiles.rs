//! The workload profiles that users keep beside the shipped ones.

use jiff::Timestamp;

use crate::error::{Fault, Refusal};
use crate::rows::{time, time_text};
use crate::runs::one_row;
use crate::{Store, StoreError, sql};

/// Profiles that a data directory holds at most: every plan is checked against all of them.
pub const MAX_PROFILES: u32 = 500;

/// A user's own profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredProfile {
    /// Name; plans call it `own/NAME`.
    pub name: String,
    /// The profile as written.
    pub yaml: String,
    /// When it was written.
    pub changed: Timestamp,
}

impl Store {
    /// All own profiles by name.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn list_profiles(&self) -> Result<Vec<StoredProfile>, StoreError> {
        let read = async {
            let rows: Vec<(String, String, String)> =
                sqlx::query_as(sql::LIST_PROFILES).fetch_all(&self.inner.readers).await?;
            let profile = |(name, yaml, changed): (String, String, String)| {
                Ok(StoredProfile { name, yaml, changed: time(&changed, "profiles.changed")? })
            };
            rows.into_iter().map(profile).collect()
        };
        self.named("reading profiles", read.await)
    }

    /// Keeps a profile under its name; one of the same name is replaced. The caller has checked it.
    ///
    /// # Errors
    /// [`Refusal::TooManyProfiles`] beyond [`MAX_PROFILES`]; [`StoreError`] where it cannot be committed.
    pub async fn put_profile(&self, name: &str, yaml: &str) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let others: u32 = sqlx::query_scalar(sql::COUNT_PROFILES).bind(name).fetch_one(&mut *writer).await?;
            if others >= MAX_PROFILES {
                return Err(Refusal::TooManyProfiles.into());
            }
            let query = sqlx::query(sql::PUT_PROFILE).bind(name).bind(yaml).bind(time_text(Timestamp::now()));
            query.execute(&mut *writer).await?;
            Ok(())
        };
        self.named("keeping a profile", stored.await)
    }

    /// Forgets a profile. Runs and plans that used it keep what they used.
    ///
    /// # Errors
    /// [`Refusal::Absent`] where there is none of this name; [`StoreError`] where it cannot be committed.
    pub async fn delete_profile(&self, name: &str) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let done = sqlx::query(sql::DELETE_PROFILE).bind(name).execute(&mut *writer).await?;
            one_row(done, || Fault::absent("profile", name))
        };
        self.named("deleting a profile", stored.await)
    }
}

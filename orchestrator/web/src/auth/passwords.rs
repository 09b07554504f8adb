//! Passwords: argon2id with the crate's parameters (19 MiB, 2 passes), a few at a time, so that a flood of logins takes neither
//! the memory nor the CPUs from a test that runs on this machine.

use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher as _, PasswordVerifier as _, SaltString};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::problem::Problem;

/// NIST SP 800-63B asks for 8 at least; these accounts can start writes to somebody's storage.
pub(crate) const MIN_PASSWORD_CHARACTERS: usize = 12;

/// More is refused: hashing takes time by length.
pub(crate) const MAX_PASSWORD_BYTES: usize = 1024;

/// As RFC 9106 recommends.
const SALT_BYTES: usize = 16;

/// Hashes computed at a time.
const PLACES: usize = 2;

/// The longest wait for a place; then the client is asked to come back.
const PATIENCE: Duration = Duration::from_secs(10);

/// Computes hashes of passwords.
pub(crate) struct Passwords {
    places: Semaphore,
    /// Hash of a password that nobody has: an unknown user's login takes as long as a known one's.
    nobody: String,
}

impl Passwords {
    /// # Errors
    /// Where the first hash cannot be computed.
    pub(crate) fn new() -> Result<Self, String> {
        Ok(Self { places: Semaphore::new(PLACES), nobody: compute("")? })
    }

    /// A new hash, as a PHC string.
    pub(crate) async fn hash(&self, password: String) -> Result<String, Problem> {
        let hashed = self.in_place(move || compute(&password)).await?;
        hashed.map_err(|error| Problem::internal("a password could not be hashed", &error))
    }

    /// Whether a password is the one of a hash; never where there is no hash.
    pub(crate) async fn verify(&self, password: String, hash: Option<String>) -> Result<bool, Problem> {
        let known = hash.is_some();
        let hash = hash.unwrap_or_else(|| self.nobody.clone());
        let right = self.in_place(move || {
            let hash = PasswordHash::new(&hash)?;
            Ok::<bool, argon2::password_hash::Error>(
                Argon2::default().verify_password(password.as_bytes(), &hash).is_ok(),
            )
        });
        let right =
            right.await?.map_err(|error| Problem::internal("a stored password is no hash", &error.to_string()))?;
        Ok(known && right)
    }

    async fn in_place<T: Send + 'static>(&self, compute: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        let Ok(Ok(_place)) = timeout(PATIENCE, self.places.acquire()).await else { return Err(Problem::busy()) };
        tokio::task::spawn_blocking(compute).await.map_err(|error| Problem::render(&error))
    }
}

fn compute(password: &str) -> Result<String, String> {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).map_err(|error| error.to_string())?;
    let salt = SaltString::encode_b64(&salt).map_err(|error| error.to_string())?;
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt);
    hash.map(|hash| hash.to_string()).map_err(|error| error.to_string())
}

/// Why a new password is not good enough, for a person.
pub(crate) fn check_new_password(password: &str, repeated: &str, user: &str) -> Result<(), String> {
    let characters = password.chars().count();
    if password.len() > MAX_PASSWORD_BYTES {
        return Err(format!("The password has {} bytes; the most is {MAX_PASSWORD_BYTES}.", password.len()));
    }
    if characters < MIN_PASSWORD_CHARACTERS {
        return Err(format!(
            "The password has {characters} characters; it must have {MIN_PASSWORD_CHARACTERS} or more. A few words with spaces make a good one."
        ));
    }
    if password.eq_ignore_ascii_case(user) {
        return Err("The password is the user's name; choose another one.".to_owned());
    }
    if password != repeated {
        return Err("The two passwords differ; type the same one twice.".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_known_again_and_no_other() {
        let passwords = Passwords::new().unwrap();
        let hash = passwords.hash("correct horse battery".to_owned()).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert_ne!(hash, passwords.hash("correct horse battery".to_owned()).await.unwrap(), "each has its salt");
        assert!(passwords.verify("correct horse battery".to_owned(), Some(hash.clone())).await.unwrap());
        assert!(!passwords.verify("correct horse batterz".to_owned(), Some(hash)).await.unwrap());
        assert!(!passwords.verify(String::new(), None).await.unwrap(), "nobody's password opens nothing");
    }

    #[test]
    fn bad_passwords_are_told_why() {
        let refused =
            |password: &str, repeated: &str| check_new_password(password, repeated, "administrator").unwrap_err();
        assert!(refused("short", "short").contains("5 characters"));
        assert!(refused("Administrator", "Administrator").contains("user's name"));
        assert!(refused("twelve letters", "twelve lettres").contains("differ"));
        assert!(refused(&"x".repeat(2000), "").contains("the most is 1024"));
        check_new_password("größer als zwölf", "größer als zwölf", "administrator").unwrap();
    }
}

//! Random secrets: of sessions, links and API tokens. Whoever stores one stores its SHA-256: 256 random bits need no salt.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use store::SecretHash;
use subtle::ConstantTimeEq as _;

/// Sets a session's form token apart from whatever else is derived from its secret.
const CSRF_CONTEXT: &[u8] = b"fourcorners form token\0";

/// 256 random bits as text: letters, digits, `-` and `_`.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// Where the system has no randomness.
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(BASE64_URL_SAFE_NO_PAD.encode(bytes)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn hash(&self) -> SecretHash {
        hash(&self.0)
    }
}

/// What is stored of a secret.
pub(crate) fn hash(secret: &str) -> SecretHash {
    Sha256::digest(secret.as_bytes()).into()
}

/// The token that forms of a session carry: derived from the cookie's secret, which no page and no other site can read.
pub(crate) fn csrf_token(session: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::new().chain_update(CSRF_CONTEXT).chain_update(session).finalize())
}

/// Whether two texts are the same, in a time that does not tell where they differ.
pub(crate) fn equal(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_and_differ() {
        let (a, b) = (Secret::new().unwrap(), Secret::new().unwrap());
        assert_eq!(a.as_str().len(), 43);
        assert!(a.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
        assert_ne!(a.as_str(), b.as_str());
        assert_ne!(a.hash(), b.hash());
    }

    #[test]
    fn form_tokens_belong_to_their_session_and_do_not_tell_it() {
        let token = csrf_token("session");
        assert!(equal(&token, &csrf_token("session")));
        assert!(!equal(&token, &csrf_token("another")) && !equal(&token, ""));
        assert_ne!(token, BASE64_URL_SAFE_NO_PAD.encode(hash("session")), "the database must not give it away");
    }
}

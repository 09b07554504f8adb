//! The API token: read from the environment or a file, never shown.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::HypervisorError;

/// Longest secret file that is read, bytes.
const MAX_SECRET_BYTES: u64 = 4096;

/// Where the token comes from. The secret itself never stands in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSource {
    /// Name of the token: `user@realm!name`.
    pub id: String,
    /// Environment variable that holds the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<String>,
    /// File that holds the secret and nothing else; only its owner may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<std::path::PathBuf>,
}

impl TokenSource {
    /// Reads the secret. Where neither variable nor file is named, `stored` is asked for the secret of this token's id.
    ///
    /// # Errors
    /// Both sources are named, the source is missing or empty, or the file may be read by others.
    pub fn read(&self, stored: impl FnOnce(&str) -> Option<String>) -> Result<Token, HypervisorError> {
        let secret = match (&self.secret_env, &self.secret_file) {
            (Some(_), Some(_)) => return Err(bad("token: secret_env and secret_file are both set; keep one of them")),
            (Some(variable), None) => std::env::var(variable)
                .map_err(|_| bad(format!("token: the environment variable {variable} (secret_env) is not set")))?,
            (None, Some(path)) => read_secret_file(path)?,
            (None, None) => stored(&self.id).ok_or_else(|| {
                bad(format!("token: no secret is stored for {}; set secret_env or secret_file, or store it", self.id))
            })?,
        };
        Token::new(&self.id, secret.trim())
    }
}

/// Reads a file that holds a secret.
///
/// # Errors
/// It cannot be read, others may read it, or it is too long for a secret.
pub fn read_secret_file(path: &Path) -> Result<String, HypervisorError> {
    let fail = |error| HypervisorError::io(format!("{}: cannot read the token's secret", path.display()))(error);
    let metadata = fs::metadata(path).map_err(fail)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(bad(format!("{}: others may read this secret; run: chmod 600 {0}", path.display())));
    }
    if metadata.len() > MAX_SECRET_BYTES {
        return Err(bad(format!("{}: a secret has at most {MAX_SECRET_BYTES} bytes", path.display())));
    }
    fs::read_to_string(path).map_err(fail)
}

/// What is wrong with a token's id.
pub(super) fn check_id(id: &str) -> Result<(), String> {
    let (user, name) = id.split_once('!').unwrap_or((id, ""));
    if !user.contains('@') || name.is_empty() || !id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=') {
        return Err(format!("found {id:?}, expected user@realm!tokenname"));
    }
    Ok(())
}

fn bad(message: impl Into<String>) -> HypervisorError {
    HypervisorError::Unexpected(message.into())
}

/// An API token with its secret.
#[derive(Clone)]
pub struct Token {
    id: String,
    secret: String,
}

impl Token {
    /// `id` is `user@realm!name`.
    ///
    /// # Errors
    /// The id has another form, or the secret is empty or holds characters that no header may carry.
    pub fn new(id: &str, secret: &str) -> Result<Self, HypervisorError> {
        check_id(id).map_err(|problem| bad(format!("token.id: {problem}")))?;
        if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad(format!("token: the secret of {id} is empty or holds characters that no token has")));
        }
        Ok(Self { id: id.into(), secret: secret.into() })
    }

    /// `user@realm!name`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Value of the `Authorization` header.
    pub(super) fn header(&self) -> String {
        format!("PVEAPIToken={}={}", self.id, self.secret)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Token").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        let token = Token::new("fc@pve!poc", "6f1d-secret").unwrap();
        assert!(!format!("{token:?}").contains("6f1d"));
        assert_eq!(token.header(), "PVEAPIToken=fc@pve!poc=6f1d-secret");
    }

    #[test]
    fn a_malformed_id_is_refused_with_the_form_that_is_expected() {
        for id in ["fc@pve", "fc!poc", "fc@pve!", "fc@pve!a=b"] {
            let error = Token::new(id, "x").unwrap_err().to_string();
            assert!(error.contains("user@realm!tokenname") && error.contains(id), "{error}");
        }
    }

    #[test]
    fn a_secret_file_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "abc\n").unwrap();
        let source = TokenSource { id: "a@pve!b".into(), secret_env: None, secret_file: Some(path.clone()) };
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(source.read(|_| None).unwrap_err().to_string().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(source.read(|_| None).unwrap().header(), "PVEAPIToken=a@pve!b=abc");
    }

    #[test]
    fn without_a_source_the_store_is_asked() {
        let source = TokenSource { id: "a@pve!b".into(), secret_env: None, secret_file: None };
        assert!(source.read(|_| None).is_err());
        assert_eq!(source.read(|id| Some(format!("for-{id}"))).unwrap().header(), "PVEAPIToken=a@pve!b=for-a@pve!b");
    }
}

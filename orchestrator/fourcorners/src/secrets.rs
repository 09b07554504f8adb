//! Encryption of what must not lie about in the clear, with a key beside the database that only its owner may read.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

/// File of the key in the data directory.
pub(crate) const KEY_FILE: &str = "secrets.key";

/// Bytes of the key.
const KEY_BYTES: usize = 32;

/// The data directory's key.
pub(crate) struct Key {
    path: PathBuf,
    key: LessSafeKey,
}

impl Key {
    /// The key of a data directory, made where there is none.
    pub(crate) fn open_or_make(data_dir: &Path) -> anyhow::Result<Self> {
        let path = data_dir.join(KEY_FILE);
        if !path.exists() {
            let mut bytes = [0; KEY_BYTES];
            SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow::anyhow!("the system gives no random bytes"))?;
            fs::create_dir_all(data_dir).with_context(|| format!("{}: cannot be created", data_dir.display()))?;
            match write_private(&path, &bytes, Existing::Keep) {
                // Another process was faster: its key is the key.
                Err(_) if path.exists() => {}
                written => written?,
            }
        }
        Self::open(data_dir)
    }

    /// The key of a data directory, which must be there.
    pub(crate) fn open(data_dir: &Path) -> anyhow::Result<Self> {
        let path = data_dir.join(KEY_FILE);
        let name = path.display();
        let bytes = fs::read(&path).with_context(|| {
            format!(
                "{name}: the key of the saved secrets cannot be read; without it, connect again (fourcorners connect)"
            )
        })?;
        refuse_others(&path)?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes)
            .map_err(|_| anyhow::anyhow!("{name}: found {} bytes; a key has {KEY_BYTES}", bytes.len()))?;
        Ok(Self { path, key: LessSafeKey::new(key) })
    }

    /// Encrypts; the answer is text. `bound_to` is not in it, and must be the same when it is opened.
    pub(crate) fn seal(&self, secret: &str, bound_to: &str) -> anyhow::Result<String> {
        let failed = || anyhow::anyhow!("the secret cannot be encrypted");
        // Drawn anew each time: under one key, a few secrets are ever sealed.
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| failed())?;
        let mut sealed = secret.as_bytes().to_vec();
        let aad = Aad::from(bound_to.as_bytes());
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .map_err(|_| failed())?;
        Ok(STANDARD.encode([&nonce[..], &sealed].concat()))
    }

    /// Decrypts what [`seal`](Self::seal) answered.
    pub(crate) fn unseal(&self, sealed: &str, bound_to: &str) -> anyhow::Result<String> {
        let failed = || {
            format!(
                "the secret was not sealed with the key in {}, or what it belongs to was changed; \
                 connect again (fourcorners connect --replace)",
                self.path.display()
            )
        };
        let bytes = STANDARD.decode(sealed).with_context(failed)?;
        let Some((nonce, sealed)) = bytes.split_first_chunk::<NONCE_LEN>() else { bail!(failed()) };
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(bound_to.as_bytes());
        let opened = self.key.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut sealed);
        let opened = opened.map_err(|_| anyhow::anyhow!(failed()))?;
        String::from_utf8(opened.to_vec()).with_context(failed)
    }
}

/// What to do with a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// Keep it; writing fails.
    Keep,
    /// Replace it.
    Replace,
}

/// Writes a file for its owner alone, whole or not at all.
pub(crate) fn write_private(path: &Path, bytes: &[u8], existing: Existing) -> anyhow::Result<()> {
    let failed = || format!("{}: cannot be written", path.display());
    let dir = path.parent().unwrap_or(Path::new("."));
    // Mode 0600 from its creation on.
    let mut file = tempfile::NamedTempFile::new_in(dir).with_context(failed)?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).with_context(failed)?;
    match existing {
        Existing::Keep => file.persist_noclobber(path).map(drop).with_context(failed),
        Existing::Replace => file.persist(path).map(drop).with_context(failed),
    }
}

/// A file that others may read is no secret any more.
pub(crate) fn refuse_others(path: &Path) -> anyhow::Result<()> {
    let mode =
        fs::metadata(path).with_context(|| format!("{}: cannot be looked at", path.display()))?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!("{0}: found mode {1:03o}; others may read it: chmod 600 {0}", path.display(), mode & 0o777);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_with_the_same_key_and_place_alone() {
        let dir = tempfile::tempdir().unwrap();
        let key = Key::open_or_make(dir.path()).unwrap();
        let sealed = key.seal("6f1d-secret", "https://pve1").unwrap();
        assert!(!sealed.contains("6f1d"));
        assert_ne!(sealed, key.seal("6f1d-secret", "https://pve1").unwrap());
        assert_eq!(Key::open(dir.path()).unwrap().unseal(&sealed, "https://pve1").unwrap(), "6f1d-secret");
        assert!(key.unseal(&sealed, "https://evil").unwrap_err().to_string().contains("was changed"));
        let other = tempfile::tempdir().unwrap();
        let other = Key::open_or_make(other.path()).unwrap();
        assert!(other.unseal(&sealed, "https://pve1").unwrap_err().to_string().contains(KEY_FILE));
        for broken in ["", "AAAA", "no base64", &sealed[4..]] {
            assert!(key.unseal(broken, "https://pve1").is_err(), "{broken}");
        }
    }

    #[test]
    fn a_key_is_for_its_owner_and_complete() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Key::open(dir.path()).err().unwrap().to_string().contains("connect again"));
        drop(Key::open_or_make(dir.path()).unwrap());
        let path = dir.path().join(KEY_FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Key::open(dir.path()).err().unwrap().to_string().contains("found mode 640"));
        fs::remove_file(&path).unwrap();
        write_private(&path, b"short", Existing::Keep).unwrap();
        assert!(Key::open(dir.path()).err().unwrap().to_string().contains("found 5 bytes"));
        assert!(write_private(&path, b"other", Existing::Keep).is_err());
    }
}

//! Saved connections to clusters: a file each under the data directory, for its owner alone, the token's secret encrypted.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hypervisor::proxmox::{Token, Trust};
use serde::{Deserialize, Serialize};

use crate::secrets::{Existing, Key, refuse_others, write_private};

/// Directory of the connections in the data directory.
const DIRECTORY: &str = "connections";

/// Version of the files' form.
const VERSION: u32 = 1;

/// The connections of a data directory.
pub(crate) struct Connections {
    data_dir: PathBuf,
}

/// A saved connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Connection {
    version: u32,
    /// As a plan names it.
    pub(crate) name: String,
    /// Only `proxmox`.
    pub(crate) provider: String,
    /// `https://HOST[:PORT]`.
    pub(crate) endpoint: String,
    /// `user@realm!name`.
    pub(crate) token: String,
    /// Trust in the certificate.
    pub(crate) tls: Trust,
    sealed_secret: String,
}

impl Connection {
    /// What the secret is sealed to: whoever could change one of these could have it sent elsewhere.
    fn bound_to(&self) -> String {
        let Self { version, name, provider, endpoint, token, tls, sealed_secret: _ } = self;
        serde_json::json!([version, name, provider, endpoint, token, tls]).to_string()
    }
}

/// What to save.
pub(crate) struct New<'a> {
    pub(crate) name: &'a str,
    pub(crate) endpoint: &'a str,
    pub(crate) token: &'a str,
    pub(crate) secret: &'a str,
    pub(crate) tls: &'a Trust,
    pub(crate) existing: Existing,
}

impl Connections {
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self { data_dir: data_dir.to_owned() }
    }

    fn path_of(&self, name: &str, extension: &str) -> PathBuf {
        self.data_dir.join(DIRECTORY).join(format!("{name}.{extension}"))
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path_of(name, "json").exists()
    }

    /// Saves a connection. An authority's file is copied, so that it stays what it was.
    pub(crate) fn save(&self, new: &New<'_>) -> anyhow::Result<()> {
        let key = Key::open_or_make(&self.data_dir)?;
        let dir = self.data_dir.join(DIRECTORY);
        fs::create_dir_all(&dir).with_context(|| format!("{}: cannot be created", dir.display()))?;
        let mut tls = new.tls.clone();
        if let Some(ca_file) = &mut tls.ca_file {
            let pem = fs::read(&*ca_file).with_context(|| format!("{}: cannot be read", ca_file.display()))?;
            let copy = std::path::absolute(self.path_of(new.name, "pem"))?;
            write_private(&copy, &pem, new.existing)?;
            *ca_file = copy;
        } else {
            // Of a connection that is replaced, or of one whose removal was broken off.
            self.remove_file(new.name, "pem")?;
        }
        let mut connection = Connection {
            version: VERSION,
            name: new.name.to_owned(),
            provider: "proxmox".to_owned(),
            endpoint: new.endpoint.to_owned(),
            token: new.token.to_owned(),
            tls,
            sealed_secret: String::new(),
        };
        connection.sealed_secret = key.seal(new.secret, &connection.bound_to())?;
        let text = format!("{}\n", serde_json::to_string_pretty(&connection)?);
        write_private(&self.path_of(new.name, "json"), text.as_bytes(), new.existing)
    }

    /// The connection of a name.
    pub(crate) fn load(&self, name: &str) -> anyhow::Result<Connection> {
        let path = self.path_of(name, "json");
        match fs::read(&path) {
            Ok(bytes) => read(&path, &bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let names: Vec<String> = self.list()?.into_iter().map(|connection| connection.name).collect();
                let saved = if names.is_empty() {
                    "none is saved".to_owned()
                } else {
                    format!("saved are {}", names.join(", "))
                };
                bail!(
                    "no connection {name} in {}; {saved}. To save it: fourcorners connect URL --name {name}",
                    self.data_dir.display()
                )
            }
            Err(error) => Err(error).with_context(|| format!("{}: cannot be read", path.display())),
        }
    }

    /// All, by name.
    pub(crate) fn list(&self) -> anyhow::Result<Vec<Connection>> {
        let dir = self.data_dir.join(DIRECTORY);
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("{}: cannot be read", dir.display())),
        };
        let mut connections = Vec::new();
        for entry in entries {
            let path = entry.with_context(|| format!("{}: cannot be read", dir.display()))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let bytes = fs::read(&path).with_context(|| format!("{}: cannot be read", path.display()))?;
                connections.push(read(&path, &bytes)?);
            }
        }
        connections.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(connections)
    }

    /// Forgets a connection.
    pub(crate) fn remove(&self, name: &str) -> anyhow::Result<()> {
        self.load(name)?;
        self.remove_file(name, "json")?;
        self.remove_file(name, "pem")
    }

    fn remove_file(&self, name: &str, extension: &str) -> anyhow::Result<()> {
        let path = self.path_of(name, extension);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.with_context(|| format!("{}: cannot be removed", path.display())),
        }
    }

    /// The token of a connection.
    pub(crate) fn token(&self, connection: &Connection) -> anyhow::Result<Token> {
        let secret = self.secret(connection)?;
        Token::new(&connection.token, &secret).with_context(|| format!("connection {}", connection.name))
    }

    /// The secret of a connection's token.
    pub(crate) fn secret(&self, connection: &Connection) -> anyhow::Result<String> {
        let secret = Key::open(&self.data_dir)?.unseal(&connection.sealed_secret, &connection.bound_to());
        secret.with_context(|| format!("connection {}", connection.name))
    }

    /// The token of whichever connection leads to this endpoint with this token.
    pub(crate) fn token_for(&self, endpoint: &str, token: &str) -> anyhow::Result<Token> {
        let connection = self.leading_to(endpoint, token)?.with_context(|| {
            format!("no saved connection leads to {endpoint} with the token {token}; save it: fourcorners connect {endpoint}")
        })?;
        self.token(&connection)
    }

    /// Whichever connection leads to this endpoint with this token.
    pub(crate) fn leading_to(&self, endpoint: &str, token: &str) -> anyhow::Result<Option<Connection>> {
        let mut all = self.list()?.into_iter();
        Ok(all.find(|connection| connection.endpoint == endpoint && connection.token == token))
    }
}

fn read(path: &Path, bytes: &[u8]) -> anyhow::Result<Connection> {
    let unreadable = || format!("{}: no saved connection can be read from it", path.display());
    refuse_others(path)?;
    let connection: Connection = serde_json::from_slice(bytes).with_context(unreadable)?;
    if connection.version != VERSION {
        bail!("{}: found version {}; this program reads version {VERSION}", path.display(), connection.version);
    }
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new<'a>(tls: &'a Trust, existing: Existing) -> New<'a> {
        New { name: "lab", endpoint: "https://pve1:8006", token: "fc@pve!poc", secret: "6f1d-secret", tls, existing }
    }

    #[test]
    fn a_connection_is_found_by_name_and_by_where_it_leads() {
        let dir = tempfile::tempdir().unwrap();
        let connections = Connections::of(dir.path());
        assert_eq!(connections.list().unwrap(), vec![]);
        assert!(connections.load("lab").unwrap_err().to_string().contains("none is saved"));
        let ca = dir.path().join("theirs.pem");
        fs::write(&ca, "pem").unwrap();
        let tls = Trust { ca_file: Some(ca.clone()), fingerprint: None };
        connections.save(&new(&tls, Existing::Keep)).unwrap();
        assert!(connections.save(&new(&tls, Existing::Keep)).is_err(), "the name is taken");
        connections.save(&new(&Trust::default(), Existing::Replace)).unwrap();
        assert!(!connections.path_of("lab", "pem").exists(), "an authority that is trusted no more is not kept");
        connections.save(&new(&tls, Existing::Replace)).unwrap();
        fs::remove_file(ca).unwrap();

        let saved = connections.load("lab").unwrap();
        assert_eq!(fs::read_to_string(saved.tls.ca_file.as_ref().unwrap()).unwrap(), "pem");
        assert!(!format!("{saved:?}").contains("6f1d"));
        assert_eq!(connections.token(&saved).unwrap().id(), "fc@pve!poc");
        assert!(connections.token_for("https://pve1:8006", "fc@pve!poc").is_ok());
        assert!(connections.token_for("https://pve2:8006", "fc@pve!poc").unwrap_err().to_string().contains("pve2"));
        assert!(connections.load("lap").unwrap_err().to_string().contains("saved are lab"));
        connections.remove("lab").unwrap();
        assert!(!connections.exists("lab") && fs::read_dir(dir.path().join(DIRECTORY)).unwrap().next().is_none());
    }

    #[test]
    fn a_changed_connection_does_not_get_the_secret() {
        let dir = tempfile::tempdir().unwrap();
        let connections = Connections::of(dir.path());
        connections.save(&new(&Trust::default(), Existing::Keep)).unwrap();
        let path = connections.path_of("lab", "json");
        let text = fs::read_to_string(&path).unwrap().replace("https://pve1", "https://evil");
        fs::write(&path, text).unwrap();
        let error = connections.token(&connections.load("lab").unwrap()).unwrap_err();
        assert!(format!("{error:#}").contains("connection lab: the secret was not sealed"), "{error:#}");
    }
}

//! Saved connections to clusters: a file each under the data directory, for its owner alone, the token's secret encrypted.

use std::collections::BTreeSet;
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

/// A file of which no connection can be read.
#[derive(Debug)]
pub(crate) struct Broken {
    /// As the file is called.
    pub(crate) name: String,
    pub(crate) error: anyhow::Error,
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
        if self.exists(name) {
            return self.read(name);
        }
        let names: Vec<String> = self.readable()?.into_iter().map(|connection| connection.name).collect();
        let saved =
            if names.is_empty() { "none is saved".to_owned() } else { format!("saved are {}", names.join(", ")) };
        bail!(
            "no connection {name} in {}; {saved}. To save it: fourcorners connect URL --name {name}",
            self.data_dir.display()
        )
    }

    /// All, by name. One that cannot be read is no reason to do without the others.
    pub(crate) fn list(&self) -> anyhow::Result<Vec<Result<Connection, Broken>>> {
        let dir = self.data_dir.join(DIRECTORY);
        let unreadable = || format!("{}: cannot be read", dir.display());
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(unreadable),
        };
        let mut names = BTreeSet::new();
        for entry in entries {
            let path = entry.with_context(unreadable)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
            }
        }
        let read = |name: String| self.read(&name).map_err(|error| Broken { name, error });
        Ok(names.into_iter().map(read).collect())
    }

    /// Those of them that can be read.
    fn readable(&self) -> anyhow::Result<Vec<Connection>> {
        Ok(self.list()?.into_iter().flatten().collect())
    }

    fn read(&self, name: &str) -> anyhow::Result<Connection> {
        let path = self.path_of(name, "json");
        let bytes = fs::read(&path).with_context(|| format!("{}: cannot be read", path.display()))?;
        let connection = read(&path, &bytes)?;
        if connection.name != name {
            bail!("{}: found the connection {:?} in it, expected {name:?}", path.display(), connection.name);
        }
        Ok(connection)
    }

    /// Forgets a connection, also one that cannot be read.
    pub(crate) fn remove(&self, name: &str) -> anyhow::Result<()> {
        if !self.exists(name) {
            self.load(name)?;
        }
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
        let mut all = self.readable()?.into_iter();
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
        assert!(connections.list().unwrap().is_empty());
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
    fn one_that_cannot_be_read_is_told_and_keeps_nobody_from_the_others() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let connections = Connections::of(dir.path());
        connections.save(&new(&Trust::default(), Existing::Keep)).unwrap();
        let file = |name: &str| connections.path_of(name, "json");
        for (name, text) in [("cut", "{\"version\": 1,"), ("other", &*fs::read_to_string(file("lab")).unwrap())] {
            write_private(&file(name), text.as_bytes(), Existing::Keep).unwrap();
        }
        fs::copy(file("lab"), file("open")).unwrap();
        fs::set_permissions(file("open"), fs::Permissions::from_mode(0o644)).unwrap();
        let listed = connections.list().unwrap();
        let told: Vec<(&str, String)> = listed
            .iter()
            .map(|one| match one {
                Ok(connection) => (connection.name.as_str(), String::new()),
                Err(broken) => (broken.name.as_str(), format!("{:#}", broken.error)),
            })
            .collect();
        let names: Vec<&str> = told.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["cut", "lab", "open", "other"]);
        for ((name, words), expected) in told.iter().zip(["cut.json", "", "chmod 600", "found the connection \"lab\""])
        {
            assert!(words.contains(expected) && words.is_empty() == expected.is_empty(), "{name}: {words}");
        }
        assert!(connections.token_for("https://pve1:8006", "fc@pve!poc").is_ok(), "the others are in use");
        assert!(connections.load("lap").unwrap_err().to_string().contains("saved are lab"));
        connections.remove("cut").unwrap();
        assert!(!connections.exists("cut"), "it can be forgotten");
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

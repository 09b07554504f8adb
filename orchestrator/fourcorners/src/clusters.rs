//! Looking at clusters, and saving how they are reached: what the command line and the pages both do, and the pages' keeper of
//! connections.

use std::collections::HashMap;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use hypervisor::proxmox::{self, Timing, Token, look_at, presented_fingerprint};
use hypervisor::{Finding, HypervisorError, Severity};
use jiff::Timestamp;
use plan::proxmox::is_connection_name;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};
use web::{Attempt, Broken, Clusters, Fault, FaultKind, Look, NewConnection, Trust, Wanted};

use crate::connections::{self, Connection, Connections, New};
use crate::manager::Manager;
use crate::output;
use crate::secrets::Existing;

/// How long what a look found counts as new.
pub(crate) const KEPT: Duration = Duration::from_secs(60);

/// The longest that a page waits for a look at a cluster. One of 32 nodes answers some 70 calls.
const LOOK_BOUND: Duration = Duration::from_secs(30);

/// The longest that a page waits for a certificate.
const CERTIFICATE_BOUND: Duration = Duration::from_secs(15);

/// Waiting of looks that a person waits for: a call that fails is soon told.
pub(crate) fn interactive() -> Timing {
    Timing {
        connect: Duration::from_secs(5),
        answer: Duration::from_secs(15),
        retry_within: Duration::from_secs(4),
        ..Timing::default()
    }
}

/// What a token sees, and whether a test can do with it.
pub(crate) struct Judged {
    pub(crate) seen: proxmox::Seen,
    pub(crate) enough: bool,
}

/// Looks at a cluster with what is to be saved.
pub(crate) async fn try_out(new: &New<'_>, timing: Timing) -> anyhow::Result<Judged> {
    let seen = look_at(new.endpoint, new.tls, Token::new(new.token, new.secret)?, timing).await?;
    let enough = seen.lacking.iter().all(|finding| finding.severity != Severity::Blocker);
    Ok(Judged { seen, enough })
}

/// Looks at the cluster of a saved connection.
pub(crate) async fn look(
    connections: &Connections,
    connection: &Connection,
    timing: Timing,
) -> anyhow::Result<proxmox::Seen> {
    let token = connections.token(connection)?;
    Ok(look_at(&connection.endpoint, &connection.tls, token, timing).await?)
}

/// The connections of a data directory for the pages, with what the last looks found. Clones share them.
#[derive(Clone)]
pub(crate) struct Keeper {
    inner: Arc<Inner>,
}

struct Inner {
    data_dir: PathBuf,
    looks: Mutex<HashMap<String, Kept>>,
}

/// What is known of one connection.
#[derive(Default)]
struct Kept {
    /// A connection that was changed since is another one.
    last: Option<(Connection, Instant, Arc<Look>)>,
    /// One look at a time.
    turn: Arc<Turn<()>>,
}

impl Keeper {
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self { inner: Arc::new(Inner { data_dir: data_dir.to_owned(), looks: Mutex::default() }) }
    }

    fn connections(&self) -> Connections {
        Connections::of(&self.inner.data_dir)
    }

    /// The connection of a name. What is no name of one is not looked for: it would be a path.
    fn load(&self, name: &str) -> Result<Connection, Fault> {
        if !self.is_saved(name) {
            let what = format!("There is no connection {name:?} in this data directory.");
            let remedy = "The page Clusters lists those that are saved.".to_owned();
            return Err(Fault { kind: FaultKind::Absent, what, remedy });
        }
        self.connections().load(name).map_err(|error| to_mend(output::chain(&error)))
    }

    fn is_saved(&self, name: &str) -> bool {
        is_connection_name(name) && self.connections().exists(name)
    }

    fn kept<T>(&self, name: &str, read: impl FnOnce(&mut Kept) -> T) -> T {
        let mut looks = self.inner.looks.lock().unwrap_or_else(PoisonError::into_inner);
        read(looks.entry(name.to_owned()).or_default())
    }

    /// What the last look at a connection found, and whether it counts as new.
    fn last(&self, connection: &Connection) -> Option<(Arc<Look>, bool)> {
        self.kept(&connection.name, |kept| {
            let (of, since, look) = kept.last.as_ref()?;
            (of == connection).then(|| (Arc::clone(look), since.elapsed() < KEPT))
        })
    }

    fn keep(&self, connection: Connection, found: Result<web::Seen, Fault>) -> Arc<Look> {
        let look = Arc::new(Look { at: Timestamp::now(), found });
        self.kept(&connection.name.clone(), |kept| {
            kept.last = Some((connection, Instant::now(), Arc::clone(&look)));
        });
        look
    }

    /// Looks, with the turn to do so.
    async fn look_now(&self, connection: Connection, turn: OwnedMutexGuard<()>) -> Arc<Look> {
        let connections = self.connections();
        let looked = bounded(LOOK_BOUND, &connection.endpoint, look(&connections, &connection, interactive())).await;
        let look = self.keep(connection, looked.map(seen));
        drop(turn);
        look
    }

    async fn look(&self, name: &str, wanted: Wanted) -> Result<Option<Arc<Look>>, Fault> {
        let connection = self.load(name)?;
        let turn = self.kept(name, |kept| Arc::clone(&kept.turn));
        let last = self.last(&connection);
        match (wanted, last) {
            (Wanted::Known | Wanted::Recent, Some((look, true))) => Ok(Some(look)),
            (Wanted::Known, last) => {
                if let Ok(turn) = turn.try_lock_owned() {
                    let keeper = self.clone();
                    tokio::spawn(async move { keeper.look_now(connection, turn).await });
                }
                Ok(last.map(|(look, _)| look))
            }
            (Wanted::Recent | Wanted::Anew, _) => {
                let turn = turn.lock_owned().await;
                // Whoever had the turn before has looked, too.
                match self.last(&connection) {
                    Some((look, true)) if wanted == Wanted::Recent => Ok(Some(look)),
                    _ => Ok(Some(self.look_now(connection, turn).await)),
                }
            }
        }
    }

    fn shown(&self, connection: &Connection) -> Result<web::Connection, Fault> {
        Ok(web::Connection {
            name: connection.name.clone(),
            endpoint: connection.endpoint.clone(),
            token: connection.token.clone(),
            trust: trust(&connection.tls).map_err(|error| fault(&error))?,
            look: self.last(connection).map(|(look, _)| look),
        })
    }

    fn list(&self) -> Result<Vec<Result<web::Connection, Broken>>, Fault> {
        let all = self.connections().list().map_err(|error| fault(&error))?;
        let shown = |one: Result<Connection, connections::Broken>| match one {
            Ok(connection) => self
                .shown(&connection)
                .map_err(|fault| Broken { name: connection.name.clone(), fault: to_mend(fault.what) }),
            Err(broken) => Err(Broken { name: broken.name, fault: to_mend(output::chain(&broken.error)) }),
        };
        Ok(all.into_iter().map(shown).collect())
    }

    /// Looks with what is to be saved; saves it where that is enough, unless `manager` carries out a run on it.
    async fn save(&self, new: NewConnection, manager: &Manager) -> Result<Attempt, Fault> {
        let was = self.may_save(&new)?;
        // The connection must not change under a run: what cleans up after it finds the cluster by it.
        let unless_used = |save: &dyn Fn() -> anyhow::Result<()>| -> Result<(), Fault> {
            let saved = manager.unless_used(&new.name, save).map_err(|run| in_use(&new.name, &run))?;
            saved.map_err(|error| fault(&error))
        };
        unless_used(&|| Ok(()))?;
        let secret = self.secret_of(&new, was.as_ref())?;
        let written = Written::of(&new.trust)?;
        let existing = if was.is_some() { Existing::Replace } else { Existing::Keep };
        let asked = New {
            name: &new.name,
            endpoint: &new.endpoint,
            token: &new.token,
            secret: &secret,
            tls: &written.trust,
            existing,
        };
        let judged = bounded(LOOK_BOUND, &new.endpoint, try_out(&asked, interactive())).await;
        let Judged { seen: found, enough } = judged.map_err(|fault| written.forget_path(fault))?;
        let seen = seen(found);
        if enough {
            unless_used(&|| self.connections().save(&asked))?;
            self.keep(self.load(&new.name)?, Ok(seen.clone()));
        }
        Ok(Attempt { saved: enough, seen })
    }

    /// The connection that is changed; none for a new one.
    fn may_save(&self, new: &NewConnection) -> Result<Option<Connection>, Fault> {
        let input = |what: String, remedy: &str| Fault { kind: FaultKind::Input, what, remedy: remedy.to_owned() };
        match new.existing {
            web::Existing::Yes => self.load(&new.name).map(Some),
            web::Existing::No if !is_connection_name(&new.name) => Err(input(
                format!("{:?} is no name of a connection.", new.name),
                "Use 1 to 64 letters (a to z), digits, and - _ . in it.",
            )),
            web::Existing::No if self.connections().exists(&new.name) => Err(Fault {
                kind: FaultKind::Conflict,
                what: format!("A connection {} is saved already.", new.name),
                remedy: "Choose another name, or change that one.".to_owned(),
            }),
            web::Existing::No => Ok(None),
        }
    }

    /// The secret that was given, else the saved one, where the change cannot send it to somebody else: to the same address; to another
    /// one only where the same pinned certificate, or the same authority of the cluster's own, vouches for that.
    fn secret_of(&self, new: &NewConnection, was: Option<&Connection>) -> Result<String, Fault> {
        if let Some(secret) = &new.secret {
            return Ok(secret.clone());
        }
        let again = |why: &str| Fault {
            kind: FaultKind::Input,
            what: format!("The token's secret is needed: {why}."),
            remedy: "Give the secret that Proxmox VE showed when the token was made, or make another token.".to_owned(),
        };
        let Some(was) = was else { return Err(again("none is saved yet")) };
        if was.token != new.token {
            return Err(again("the saved one is another token's"));
        }
        let same_trust = trust(&was.tls).map_err(|error| fault(&error))? == new.trust;
        let vouched = same_trust && new.trust != Trust::System;
        if was.endpoint != new.endpoint && !vouched {
            return Err(again("the saved one is not sent to another address whose certificate is not known yet"));
        }
        self.connections().secret(was).map_err(|error| fault(&error))
    }

    fn remove(&self, name: &str, manager: &Manager) -> Result<(), Fault> {
        if !self.is_saved(name) {
            self.load(name)?;
        }
        let removed = manager.unless_used(name, || self.connections().remove(name));
        removed.map_err(|run| in_use(name, &run))?.map_err(|error| fault(&error))
    }
}

/// Trust as the provider has it: an authority is a file.
struct Written {
    trust: proxmox::Trust,
    file: Option<tempfile::NamedTempFile>,
}

impl Written {
    fn of(trust: &Trust) -> Result<Self, Fault> {
        let none = proxmox::Trust::default();
        Ok(match trust {
            Trust::System => Self { trust: none, file: None },
            Trust::Fingerprint { sha256 } => {
                let pinned = sha256.parse::<proxmox::Fingerprint>().map_err(|what| Fault {
                    kind: FaultKind::Input,
                    what,
                    remedy: "Take it as a node's console shows it.".to_owned(),
                })?;
                Self { trust: proxmox::Trust { fingerprint: Some(pinned), ..none }, file: None }
            }
            Trust::Authority { pem } => {
                let file = write(pem).map_err(|error| fault(&error))?;
                let trust = proxmox::Trust { ca_file: Some(file.path().to_owned()), ..none };
                Self { trust, file: Some(file) }
            }
        })
    }

    /// What is wrong with the certificates that were given, without the place where they lay.
    fn forget_path(&self, fault: Fault) -> Fault {
        let Some(file) = &self.file else { return fault };
        let place = format!("tls.ca_file {}", file.path().display());
        Fault { what: fault.what.replace(&place, "the authority's certificates"), ..fault }
    }
}

fn write(pem: &str) -> anyhow::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new().context("a temporary file cannot be made")?;
    file.write_all(pem.as_bytes()).context("a temporary file cannot be written")?;
    Ok(file)
}

/// Trust as the pages have it: an authority is its text.
fn trust(trust: &proxmox::Trust) -> anyhow::Result<Trust> {
    Ok(match (&trust.fingerprint, &trust.ca_file) {
        (Some(fingerprint), _) => Trust::Fingerprint { sha256: fingerprint.to_string() },
        (None, Some(file)) => {
            let read = std::fs::read_to_string(file);
            Trust::Authority { pem: read.with_context(|| format!("{}: cannot be read", file.display()))? }
        }
        (None, None) => Trust::System,
    })
}

fn in_use(name: &str, run: &str) -> Fault {
    Fault {
        kind: FaultKind::Conflict,
        what: format!("The run {run} uses the connection {name}: without it, nothing could clean up after that run."),
        remedy: "Wait for the run's end, or stop it.".to_owned(),
    }
}

/// An answer within a time.
async fn bounded<T>(
    bound: Duration,
    endpoint: &str,
    asked: impl Future<Output = anyhow::Result<T>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(bound, asked).await {
        Ok(answer) => answer.map_err(|error| fault(&error)),
        Err(_) => Err(Fault {
            kind: FaultKind::Place,
            what: format!("{endpoint} did not answer everything within {} s.", bound.as_secs()),
            remedy: "Check the network and the load of the node, then test the connection again.".to_owned(),
        }),
    }
}

/// Fields of a plan, as the pages call them.
const FIELDS: [(&str, &str); 2] = [("target.endpoint: ", "Address: "), ("token.id: ", "Token id: ")];

/// An error in the words of whoever made it.
fn fault(error: &anyhow::Error) -> Fault {
    match error.downcast_ref::<HypervisorError>() {
        Some(HypervisorError::Place { words, advice }) => {
            Fault { kind: FaultKind::Place, what: words.clone(), remedy: advice.clone() }
        }
        Some(HypervisorError::Unexpected(words)) => {
            let what = FIELDS.iter().fold(words.clone(), |words, (field, label)| words.replace(field, label));
            Fault { kind: FaultKind::Input, what, remedy: "Correct it and send it again.".to_owned() }
        }
        _ => Fault {
            kind: FaultKind::Internal,
            what: output::chain(error),
            remedy: "Look at the data directory; save the connection again if it cannot be read.".to_owned(),
        },
    }
}

/// Why a saved connection cannot be read.
fn to_mend(what: String) -> Fault {
    let remedy = "Set that right in the data directory; or remove the connection and add the cluster again under the same name, by \
                  which plans and earlier runs find it.";
    Fault { kind: FaultKind::Internal, what: format!("{what}."), remedy: remedy.to_owned() }
}

/// A finding as the pages have it.
pub(crate) fn finding(found: Finding) -> web::Finding {
    let severity = match found.severity {
        Severity::Blocker => "blocker",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    web::Finding { severity, message: found.message, remedy: found.remedy }
}

fn seen(seen: proxmox::Seen) -> web::Seen {
    let hypervisor::Inventory { product, hosts, storages, networks } = seen.inventory;
    let nodes = hosts.into_iter().map(|host| web::Node {
        name: host.name,
        online: host.online,
        cpus: host.cpus,
        memory_bytes: host.memory_bytes,
        memory_used_bytes: host.memory_used_bytes,
    });
    let storages = storages.into_iter().map(|storage| web::Storage {
        name: storage.name,
        kind: storage.kind,
        content: storage.content,
        shared: storage.shared,
        nodes: storage.hosts,
        total_bytes: storage.total_bytes,
        available_bytes: storage.available_bytes,
    });
    let networks = networks.into_iter().map(|network| web::Network { name: network.name, nodes: network.hosts });
    let inventory =
        web::Inventory { product, nodes: nodes.collect(), storages: storages.collect(), networks: networks.collect() };
    web::Seen { inventory, lacking: seen.lacking.into_iter().map(finding).collect() }
}

impl Clusters for Manager {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Result<web::Connection, Broken>>, Fault>> {
        Box::pin(async move { self.keeper().list() })
    }

    fn connection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<web::Connection, Fault>> {
        Box::pin(async move { self.keeper().shown(&self.keeper().load(name)?) })
    }

    fn presented<'a>(&'a self, endpoint: &'a str) -> BoxFuture<'a, Result<String, Fault>> {
        Box::pin(bounded(CERTIFICATE_BOUND, endpoint, async move {
            anyhow::Ok(presented_fingerprint(endpoint).await?.to_string())
        }))
    }

    fn save(&self, new: NewConnection) -> BoxFuture<'_, Result<Attempt, Fault>> {
        Box::pin(self.keeper().save(new, self))
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move { self.keeper().remove(name, self) })
    }

    fn look<'a>(&'a self, name: &'a str, wanted: Wanted) -> BoxFuture<'a, Result<Option<Arc<Look>>, Fault>> {
        Box::pin(self.keeper().look(name, wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

    fn keeper(tls: &Trust) -> (tempfile::TempDir, Keeper) {
        let dir = tempfile::tempdir().unwrap();
        let keeper = Keeper::new(dir.path());
        let written = Written::of(tls).unwrap();
        let (endpoint, token, secret) = ("https://pve1:8006", "fc@pve!poc", "6f1d-secret");
        let existing = Existing::Keep;
        let new = New { name: "lab", endpoint, token, secret, tls: &written.trust, existing };
        keeper.connections().save(&new).unwrap();
        (dir, keeper)
    }

    fn change(endpoint: &str, token: &str, trust: &Trust) -> NewConnection {
        let (endpoint, token, trust) = (endpoint.to_owned(), token.to_owned(), trust.clone());
        NewConnection { name: "lab".into(), endpoint, token, secret: None, trust, existing: web::Existing::Yes }
    }

    #[test]
    fn the_saved_secret_goes_only_to_who_had_it_before() {
        let pinned = |digits: &str| Trust::Fingerprint { sha256: [digits; 32].join(":") };
        let authority = Trust::Authority { pem: PEM.into() };
        let [first, second] = ["https://pve1:8006", "https://pve2:8006"];
        for (was, now, endpoint, kept) in [
            (&pinned("AB"), &pinned("AB"), first, true),
            (&pinned("AB"), &pinned("CD"), first, true),
            (&pinned("AB"), &pinned("AB"), second, true),
            (&pinned("AB"), &pinned("CD"), second, false),
            (&authority, &authority, second, true),
            (&authority, &Trust::System, second, false),
            (&Trust::System, &Trust::System, first, true),
            (&Trust::System, &Trust::System, second, false),
        ] {
            let (_dir, keeper) = keeper(was);
            let saved = keeper.load("lab").unwrap();
            let secret = keeper.secret_of(&change(endpoint, "fc@pve!poc", now), Some(&saved));
            assert_eq!(secret.is_ok(), kept, "{was:?} to {now:?} at {endpoint}: {secret:?}");
            assert!(secret.is_err() || secret.as_deref() == Ok("6f1d-secret"));
            assert!(keeper.secret_of(&change(first, "other@pve!x", was), Some(&saved)).is_err(), "another token");
        }
    }

    #[test]
    fn what_is_no_name_is_no_path() {
        let (dir, keeper) = keeper(&Trust::System);
        std::fs::write(dir.path().join("x.json"), "{}").unwrap();
        for name in ["../x", "", "lab/../lab", "LAB"] {
            assert!(keeper.load(name).is_err_and(|fault| fault.kind == FaultKind::Absent), "{name:?}");
        }
        assert!(keeper.load("lab").is_ok());
    }

    #[test]
    fn certificates_that_cannot_be_read_are_told_without_the_place_where_they_lay() {
        let written = Written::of(&Trust::Authority { pem: "none".into() }).unwrap();
        let token = Token::new("a@pve!b", "x").unwrap();
        let error = hypervisor::proxmox::Proxmox::new(
            serde_json::from_value(serde_json::json!({
                "endpoint": "https://pve1", "token": { "id": "a@pve!b" }, "tls": written.trust,
                "storage": "a", "iso_storage": "b", "bridge": "c",
            }))
            .unwrap(),
            proxmox::Guard::default(),
            token,
            interactive(),
        );
        let told = written.forget_path(fault(&error.err().unwrap().into()));
        assert_eq!(told.kind, FaultKind::Input);
        assert!(told.what.starts_with("the authority's certificates: cannot be read as PEM"), "{}", told.what);
    }

    #[test]
    fn a_connection_whose_authority_is_gone_is_listed_as_broken() {
        let (dir, keeper) = keeper(&Trust::Authority { pem: PEM.into() });
        assert!(keeper.list().unwrap()[0].is_ok());
        std::fs::remove_file(dir.path().join("connections/lab.pem")).unwrap();
        let listed = keeper.list().unwrap();
        let broken = listed[0].as_ref().unwrap_err();
        assert!(broken.name == "lab" && broken.fault.what.contains("lab.pem"), "{broken:?}");
        assert!(broken.fault.remedy.contains("remove the connection"), "{broken:?}");
    }

    #[tokio::test]
    async fn a_look_that_failed_is_kept_for_its_connection_and_no_other() {
        // A port that nothing listens on.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (_dir, keeper) = keeper(&Trust::System);
        let tls = proxmox::Trust::default();
        let save = |endpoint: &str| {
            let existing = Existing::Replace;
            let new = New { name: "lab", endpoint, token: "fc@pve!poc", secret: "x", tls: &tls, existing };
            keeper.connections().save(&new).unwrap();
        };
        save(&format!("https://{free}"));
        let look = keeper.look("lab", Wanted::Recent).await.unwrap().unwrap();
        let fault = look.found.as_ref().unwrap_err();
        assert!(fault.kind == FaultKind::Place && fault.what.contains("no connection"), "{fault:?}");
        let again = keeper.look("lab", Wanted::Known).await.unwrap().unwrap();
        assert!(Arc::ptr_eq(&look, &again), "the cluster is not asked again");
        save("https://127.0.0.1:9");
        let other = keeper.look("lab", Wanted::Known).await.unwrap();
        assert!(other.is_none(), "another address is another cluster");
    }
}

//! Sample runs as a source of pages, and an app around them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use analysis::export::Export;
use futures_util::future::BoxFuture;
use store::{DataDir, Role, RunFilter, Store};
use uuid::Uuid;
use web::{AllowedHosts, Answer, App, Measured, Parts, Progress, RunSource, RunSummary, SourceError};

/// Runs in memory.
pub(crate) struct Runs {
    exports: Mutex<Vec<(Export, String)>>,
    progress: Option<Progress>,
}

impl Runs {
    pub(crate) fn new(exports: Vec<Export>, progress: Option<Progress>) -> Self {
        Self { exports: Mutex::new(exports.into_iter().map(|export| (export, String::new())).collect()), progress }
    }

    fn find<T>(&self, id: Uuid, found: impl FnOnce(&mut (Export, String)) -> T) -> Option<T> {
        self.exports.lock().unwrap().iter_mut().find(|(export, _)| export.run.id == id.to_string()).map(found)
    }
}

impl RunSource for Runs {
    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> Answer<'a, Vec<RunSummary>> {
        Box::pin(async {
            let exports = self.exports.lock().unwrap();
            exports.iter().take(usize::try_from(filter.limit)?).map(|(export, note)| summary(export, note)).collect()
        })
    }

    fn load_export(&self, id: Uuid) -> Answer<'_, Option<Measured>> {
        Box::pin(async move {
            Ok(self.find(id, |(export, note)| {
                let mut export = export.clone();
                note.clone_into(&mut export.run.note);
                export.into()
            }))
        })
    }

    fn summary(&self, id: Uuid) -> Answer<'_, Option<RunSummary>> {
        Box::pin(async move { self.find(id, |(export, note)| summary(export, note)).transpose() })
    }

    fn set_note<'a>(&'a self, id: Uuid, note: &'a str) -> Answer<'a, ()> {
        Box::pin(async move { self.find(id, |run| note.clone_into(&mut run.1)).ok_or_else(|| "no such run".into()) })
    }

    fn delete_run(&self, id: Uuid, _: bool) -> Answer<'_, ()> {
        Box::pin(async move {
            self.exports.lock().unwrap().retain(|(export, _)| export.run.id != id.to_string());
            Ok(())
        })
    }

    fn progress(&self, id: Uuid) -> BoxFuture<'_, Option<Progress>> {
        let known = self.find(id, |_| ()).is_some();
        Box::pin(std::future::ready(self.progress.clone().filter(|_| known)))
    }
}

fn summary(export: &Export, note: &str) -> Result<RunSummary, SourceError> {
    let run = &export.run;
    Ok(RunSummary {
        id: run.id.parse()?,
        name: run.name.clone(),
        state: run.state.clone(),
        complete: run.complete,
        reason: run.reason.clone(),
        started: run.started,
        finished: run.finished,
        note: note.to_owned(),
        rehearsal: run.rehearsal,
    })
}

/// The store of a new data directory.
pub(crate) async fn new_store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&DataDir::new(directory.path())).await.unwrap();
    (directory, store)
}

/// An app of a store and a source, as a listener at `listening` would have it.
pub(crate) fn new_app(runs: Arc<dyn RunSource>, store: Store, listening: SocketAddr) -> App {
    let hosts = AllowedHosts::listening_on(listening);
    App::new(Parts { runs, workshop: Arc::new(web::Onlooker::default()), store, hosts, listening, secure: false })
        .unwrap()
}

/// A password that is long enough.
pub(crate) const PASSWORD: &str = "a few words for a test";

/// Adds a user with [`PASSWORD`].
pub(crate) async fn add_user(store: &Store, name: &str, role: Role) {
    // Argon2 with little memory: the pages take what parameters the hash says, and the tests log in often.
    store.add_user(name, role, Some(&weak_hash())).await.unwrap();
}

fn weak_hash() -> String {
    use argon2::password_hash::{PasswordHasher as _, SaltString};
    use argon2::{Algorithm, Argon2, Params, Version};
    let salt = SaltString::encode_b64(b"salt of the tests").unwrap();
    let weak = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::new(8, 1, 1, None).unwrap());
    weak.hash_password(PASSWORD.as_bytes(), &salt).unwrap().to_string()
}

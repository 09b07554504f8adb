//! `serve`: the web interface; beside a run (`--serve`), its report, which is then live.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use analysis::export::Export;
use anyhow::Context;
use futures_util::future::BoxFuture;
use run::fleet::{Authority, CERTIFICATE_FILE, Leaf, node_name, reached_at};
use store::{DataDir, Refusal, RunFilter, RunId, Store, StoreError};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use uuid::Uuid;
use web::{AllowedHosts, Answer, App, Hub, Parts, RunSource, RunSummary, Workshop};

use crate::cli::{DoorArgs, ServeArgs};
use crate::interrupt::Interrupts;
use crate::manager::Manager;
use crate::{output, recover};

pub(crate) async fn serve(data_dir: &Path, args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let dir = DataDir::new(data_dir);
    let _lock = dir.lock()?;
    let listener = bind(args.listen).await?;
    let store = Store::open(&dir).await?;
    recover::recover(data_dir, &store).await?;
    let interrupts = Interrupts::listen()?;
    let authority = Arc::new(Authority::open(&data_dir.join("tls"))?);
    let manager = Manager::new(data_dir, store.clone(), authority, args.workers.clone());
    let site = Site::open(listener, data_dir, &store, Arc::new(manager.clone()), &args.door)?;
    output::result(&greeting(&site, &store, args.new_admin).await?)?;
    let purged = store.clone();
    let purge = tokio::spawn(async move { purged.purge_deleted().await });
    site.serve(wind_down(manager, interrupts)).await;
    // What it did not get to, the next start does. It is waited for, so that it holds the store no longer.
    purge.abort();
    let _ = purge.await;
    store.close().await?;
    Ok(ExitCode::SUCCESS)
}

/// Waits for an interrupt, then for the end of the run under way; a second interrupt does not wait for it.
async fn wind_down(manager: Manager, mut interrupts: Interrupts) {
    interrupts.next().await;
    if manager.is_busy() {
        output::note(
            "Cancelling the run: the workers stop, what was measured is kept, disks are removed. Once more to break off at once.",
        );
    }
    tokio::select! {
        () = manager.close() => {}
        () = interrupts.next() => output::note("Broken off; the next start cleans up what the run left."),
    }
}

/// Where the pages are, how to trust them, and how to get in.
async fn greeting(site: &Site, store: &Store, new_admin: bool) -> anyhow::Result<String> {
    let mut text = format!("Web interface: {} (Ctrl-C ends it)\n", site.urls("/").join(" "));
    text.push_str(&site.trust);
    let first = !store.has_admin().await?;
    if first || new_admin {
        let links = site.urls(&site.app.set_up_link()?).join("\n  ");
        let whom = if first { "the administrator" } else { "another administrator" };
        text.push_str(&format!("Open this link to make {whom}; it works once, until this program ends:\n  {links}\n"));
    }
    Ok(text)
}

/// Takes the address, or says that somebody else has it.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("{address}: the web interface cannot listen there; choose another with --listen ADDRESS:PORT")
    })
}

/// The web interface on its listener.
pub(crate) struct Site {
    pub(crate) app: App,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    /// The certificate that follows the machine's addresses.
    leaf: Option<Arc<Leaf>>,
    /// What to say of the certificate.
    pub(crate) trust: String,
}

impl Site {
    /// Sets up what the listener speaks: TLS, unless it is on loopback or plain HTTP was asked for.
    pub(crate) fn open(
        listener: TcpListener,
        data_dir: &Path,
        store: &Store,
        workshop: Arc<dyn Workshop>,
        door: &DoorArgs,
    ) -> anyhow::Result<Self> {
        let address = listener.local_addr()?;
        let mut hosts = AllowedHosts::listening_on(address).and_name(&node_name());
        for name in &door.name {
            hosts = hosts.and_name(name);
        }
        let (tls, leaf, trust) = match (&door.cert, &door.key) {
            (Some(certificate), Some(key)) => {
                let certificates = web::certificate_files(certificate, key)?;
                (Some(web::acceptor(certificates)?), None, String::new())
            }
            _ if door.insecure_http || address.ip().is_loopback() => (None, None, plain_note(address.ip())),
            _ => {
                let (leaf, trust) = own_certificate(data_dir, address.ip(), &door.name)?;
                (Some(web::acceptor(leaf.clone())?), Some(leaf), trust)
            }
        };
        let hub = Arc::clone(workshop.hub());
        let runs = Arc::new(StoreSource { store: store.clone(), hub, reports: data_dir.join("reports") });
        let secure = tls.is_some();
        let app = App::new(Parts { runs, workshop, store: store.clone(), hosts, listening: address, secure })?;
        Ok(Self { app, listener, address, tls, leaf, trust })
    }

    /// Where a browser finds a path: at each of the machine's addresses, those that others reach first.
    pub(crate) fn urls(&self, path: &str) -> Vec<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let addresses = reached_at(self.address.ip()).unwrap_or_else(|_| vec![self.address.ip()]);
        let url = |ip: &IpAddr| format!("{scheme}://{}{path}", SocketAddr::new(*ip, self.address.port()));
        addresses.iter().map(url).collect()
    }

    /// Serves what the store holds, and the progress of the run that goes on, until `end`.
    pub(crate) async fn serve(self, end: impl Future<Output = ()> + Send + 'static) {
        let follow = async {
            match &self.leaf {
                Some(leaf) => leaf.follow_addresses().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = web::serve(self.listener, self.tls, self.app, end) => {}
            () = follow => {}
        }
    }
}

fn plain_note(address: IpAddr) -> String {
    if address.is_loopback() {
        return String::new();
    }
    "Passwords and results cross the network unencrypted (--insecure-http).\n".to_owned()
}

/// A certificate of this orchestrator's CA, and what to say of it.
fn own_certificate(data_dir: &Path, listening: IpAddr, names: &[String]) -> anyhow::Result<(Arc<Leaf>, String)> {
    let directory = data_dir.join("tls");
    let authority = Arc::new(Authority::open(&directory)?);
    let fingerprint = authority.fingerprint();
    let leaf = Leaf::for_listener(authority, listening, names).context("the web interface's certificate")?;
    let file = std::path::absolute(directory.join(CERTIFICATE_FILE))?;
    let trust = format!(
        "The certificate is of this orchestrator's own CA ({}), which no browser knows: compare the CA's SHA-256 fingerprint in the \
         browser's warning with this one, or give a certificate with --cert and --key.\n  {fingerprint}\n",
        file.display()
    );
    Ok((leaf, trust))
}

/// The store as the pages ask for it.
struct StoreSource {
    store: Store,
    hub: Arc<Hub>,
    /// Where `run` and `demo` write their reports.
    reports: PathBuf,
}

impl StoreSource {
    /// The run, and the report of it that was written when it ended.
    async fn remove(&self, id: Uuid, forget_left: bool) -> Result<(), web::SourceError> {
        self.store.delete_run(RunId(id), forget_left).await?;
        let report = self.reports.join(format!("{id}.html"));
        match tokio::fs::remove_file(&report).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("{}: the run was deleted, but not this report of it: {error}", report.display()).into())
            }
            _ => Ok(()),
        }
    }

    fn progress_of(&self, id: Uuid) -> Option<web::Progress> {
        let goes_on = self.hub.shows() == Some((id, true));
        let now = self.hub.progress(id).filter(|_| goes_on)?;
        Some(web::Progress {
            case: (now.case > 0).then(|| format!("case {} of {}", now.case, now.cases)),
            phase: now.step,
            percent: now.fraction * 100.0,
            iops: now.iops,
            mib_per_s: now.mib_per_s,
            seconds_left: now.seconds_left,
        })
    }
}

impl RunSource for StoreSource {
    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> Answer<'a, Vec<RunSummary>> {
        Box::pin(async { Ok(self.store.filter_runs(filter).await?.into_iter().map(summary).collect()) })
    }

    fn load_export(&self, id: Uuid) -> Answer<'_, Option<Export>> {
        Box::pin(async move { Ok(if_there(self.store.load_export(RunId(id)).await)?) })
    }

    fn load_figures(&self, id: Uuid) -> Answer<'_, Option<Export>> {
        Box::pin(async move { Ok(if_there(self.store.load_figures(RunId(id)).await)?) })
    }

    fn summary(&self, id: Uuid) -> Answer<'_, Option<RunSummary>> {
        Box::pin(async move { Ok(if_there(self.store.run_summary(RunId(id)).await)?.map(summary)) })
    }

    fn set_note<'a>(&'a self, id: Uuid, note: &'a str) -> Answer<'a, ()> {
        Box::pin(async move { Ok(self.store.set_note(RunId(id), note).await?) })
    }

    fn delete_run(&self, id: Uuid, forget_left: bool) -> Answer<'_, ()> {
        Box::pin(self.remove(id, forget_left))
    }

    fn progress(&self, id: Uuid) -> BoxFuture<'_, Option<web::Progress>> {
        Box::pin(std::future::ready(self.progress_of(id)))
    }
}

/// None where it is not there.
fn if_there<T>(found: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(StoreError::Refused { reason, .. }) if matches!(*reason, Refusal::Absent { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn summary(run: store::RunSummary) -> RunSummary {
    RunSummary {
        id: run.id.0,
        name: run.name,
        state: run.state.to_string(),
        complete: run.complete,
        reason: run.reason,
        started: run.started,
        finished: run.finished,
        note: run.note,
    }
}

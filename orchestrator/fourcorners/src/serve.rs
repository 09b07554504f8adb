//! `serve`: the web interface; beside a run (`--serve`), its report, which is then live.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use run::fleet::{Authority, CERTIFICATE_FILE, Leaf, node_name, reached_at};
use store::{DataDir, Store};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;
use web::{AllowedHosts, App, Parts, StoreSource, Workshop};

use crate::cli::{DoorArgs, ServeArgs};
use crate::interrupt::Interrupts;
use crate::manager::Manager;
use crate::{output, recover};

pub(crate) async fn serve(data_dir: &Path, args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let dir = DataDir::new(data_dir);
    let _lock = dir.lock()?;
    let listener = bind(args.listen)?;
    let store = Store::open(&dir).await?;
    recover::recover(data_dir, &store, None).await?;
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

/// Bytes that the kernel keeps for a client that takes them slowly; it doubles that. Left to itself it keeps 4 MiB for each of hundreds.
const SEND_BUFFER_BYTES: u32 = 256 << 10;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Takes the address, or says that somebody else has it.
pub(crate) fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    listen(address).with_context(|| {
        format!("{address}: the web interface cannot listen there; choose another with --listen ADDRESS:PORT")
    })
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // Connections have it from their listener.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
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
        let runs = Arc::new(StoreSource::new(store.clone(), hub));
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

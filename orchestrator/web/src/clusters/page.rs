//! The list of connections, one with what its cluster offers, its test and its removal.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use plan::proxmox::is_connection_name;

use super::{Broken, Connection, FaultKind, Inventory, Look, Node, Storage, Trust, Wanted, keeper};
use crate::app::App;
use crate::format::{self, Time};
use crate::frame::{Flash, Frame, html, onward};
use crate::live::Finding;
use crate::problem::Problem;
use crate::visitor::Visitor;

#[derive(Template)]
#[template(path = "pages/clusters.html")]
struct ListPage {
    frame: Frame,
    rows: Vec<Result<Row, BrokenRow>>,
    /// This server keeps connections.
    kept: bool,
}

/// A connection as it is shown.
struct Row {
    name: String,
    endpoint: String,
    token: String,
    trust: String,
    state: Standing,
}

/// A connection that cannot be read.
struct BrokenRow {
    name: String,
    what: String,
    remedy: String,
    /// Its name is one that an address can have.
    removable: bool,
}

/// What the last look found.
struct Standing {
    tone: &'static str,
    word: &'static str,
    /// Product, or the cluster's words.
    note: String,
    at: Option<Time>,
}

#[derive(Template)]
#[template(path = "pages/cluster.html")]
struct ClusterPage {
    frame: Frame,
    row: Row,
    /// What stands in the way of a look, and what to do.
    fault: Option<(String, String)>,
    findings: Vec<Finding>,
    product: String,
    nodes: Vec<NodeRow>,
    storages: Vec<StorageRow>,
    networks: Vec<NetworkRow>,
}

struct NodeRow {
    name: String,
    online: bool,
    /// Of one that is offline, nothing is known.
    cpus: String,
    memory: String,
    used: String,
    /// Percent of the memory.
    share: u64,
}

struct StorageRow {
    name: String,
    kind: String,
    content: String,
    total: String,
    free: String,
    /// Percent of it that is free.
    share: u64,
    shared: bool,
    nodes: String,
}

struct NetworkRow {
    name: String,
    nodes: String,
}

#[derive(Template)]
#[template(path = "pages/remove_cluster.html")]
struct RemovePage {
    frame: Frame,
    name: String,
    endpoint: String,
}

/// Where a connection's page is; its name needs no escape.
pub(super) fn path_of(name: &str) -> String {
    format!("/clusters/saved/{name}")
}

/// `/clusters`. No cluster is asked anything.
pub(crate) async fn list(State(app): State<App>, frame: Frame) -> Result<Response, Problem> {
    let kept = app.workshop().clusters();
    let connections = match kept {
        Some(keeper) => keeper.list().await?,
        None => Vec::new(),
    };
    let rows = connections.iter().map(|one| one.as_ref().map(row).map_err(broken_row));
    html(&ListPage { frame, rows: rows.collect(), kept: kept.is_some() })
}

/// `/clusters/saved/{name}`. The cluster is asked where what is known is older than a minute.
pub(crate) async fn show(State(app): State<App>, frame: Frame, Path(name): Path<String>) -> Result<Response, Problem> {
    let keeper = keeper(&app)?;
    let look = keeper.look(&name, Wanted::Recent).await?;
    let connection = Connection { look, ..keeper.connection(&name).await? };
    html(&cluster_page(frame, &connection))
}

fn cluster_page(frame: Frame, connection: &Connection) -> ClusterPage {
    let nothing = Inventory::default();
    let (fault, findings, inventory) = match connection.look.as_deref().map(|look| &look.found) {
        Some(Ok(seen)) => (None, seen.lacking.clone(), &seen.inventory),
        Some(Err(fault)) => (Some((fault.what.clone(), fault.remedy.clone())), Vec::new(), &nothing),
        None => (None, Vec::new(), &nothing),
    };
    let networks = inventory.networks.iter();
    ClusterPage {
        frame,
        row: row(connection),
        fault,
        findings,
        product: inventory.product.clone(),
        nodes: inventory.nodes.iter().map(node_row).collect(),
        storages: inventory.storages.iter().map(storage_row).collect(),
        networks: networks.map(|of| NetworkRow { name: of.name.clone(), nodes: of.nodes.join(", ") }).collect(),
    }
}

fn node_row(node: &Node) -> NodeRow {
    let known = |text: String| if node.online { text } else { "–".to_owned() };
    NodeRow {
        name: node.name.clone(),
        online: node.online,
        cpus: known(node.cpus.to_string()),
        memory: known(format::bytes(node.memory_bytes)),
        used: known(format::bytes(node.memory_used_bytes)),
        share: percent(node.memory_used_bytes, node.memory_bytes),
    }
}

fn storage_row(storage: &Storage) -> StorageRow {
    StorageRow {
        name: storage.name.clone(),
        kind: storage.kind.clone(),
        content: storage.content.join(", "),
        total: format::bytes(storage.total_bytes),
        free: format::bytes(storage.available_bytes),
        share: percent(storage.available_bytes, storage.total_bytes),
        shared: storage.shared,
        nodes: storage.nodes.join(", "),
    }
}

/// 0 to 100; 0 of nothing.
fn percent(part: u64, whole: u64) -> u64 {
    let percent = (u128::from(part) * 100).checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(percent.min(100)).unwrap_or(100)
}

fn row(connection: &Connection) -> Row {
    Row {
        name: connection.name.clone(),
        endpoint: connection.endpoint.clone(),
        token: connection.token.clone(),
        trust: trusted(&connection.trust),
        state: state(connection.look.as_ref()),
    }
}

fn broken_row(broken: &Broken) -> BrokenRow {
    let Broken { name, fault } = broken;
    BrokenRow {
        name: name.clone(),
        what: fault.what.clone(),
        remedy: fault.remedy.clone(),
        removable: is_connection_name(name),
    }
}

fn trusted(trust: &Trust) -> String {
    match trust {
        Trust::System => "as the orchestrator's system trusts".to_owned(),
        Trust::Authority { .. } => "issued by a given authority".to_owned(),
        Trust::Fingerprint { sha256 } => format!("SHA-256 {sha256}"),
    }
}

fn state(look: Option<&Arc<Look>>) -> Standing {
    let Some(look) = look else {
        return Standing { tone: "", word: "not looked at yet", note: String::new(), at: None };
    };
    let (tone, word, note) = match &look.found {
        Ok(seen) if seen.is_enough() => ("good", "usable", seen.inventory.product.clone()),
        Ok(_) => ("bad", "lacks privileges", "The token may not do what a test needs.".to_owned()),
        Err(fault) => ("bad", "not usable", fault.what.clone()),
    };
    Standing { tone, word, note, at: Some(Time(look.at)) }
}

/// `POST /clusters/saved/{name}/test`: connects and looks at the privileges; the connection's page shows what was found.
pub(crate) async fn test(
    State(app): State<App>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let look = keeper(&app)?.look(&name, Wanted::Anew).await?;
    let enough = look.is_some_and(|look| look.found.as_ref().is_ok_and(|seen| seen.lacking.is_empty()));
    if enough {
        let flash = Flash::done("The cluster answers, and the token has every privilege that a test needs.");
        return Ok(onward(&app, &visitor, &path_of(&name), flash));
    }
    Ok(Redirect::to(&path_of(&name)).into_response())
}

/// `/clusters/saved/{name}/remove`.
pub(crate) async fn remove_page(
    State(app): State<App>,
    frame: Frame,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let keeper = keeper(&app)?;
    let endpoint = match keeper.connection(&name).await {
        Ok(connection) => connection.endpoint,
        // What cannot be read can be removed nevertheless.
        Err(fault) if fault.kind == FaultKind::Internal => "Its address, which cannot be read,".to_owned(),
        Err(fault) => return Err(fault.into()),
    };
    html(&RemovePage { frame, name, endpoint })
}

/// `POST /clusters/saved/{name}/remove`.
pub(crate) async fn remove(
    State(app): State<App>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let flash = match keeper(&app)?.remove(&name).await {
        Ok(()) => Flash::done(format!("The connection {name} is forgotten.")),
        Err(fault) if fault.kind == FaultKind::Conflict => Flash::refused(&fault.into()),
        Err(fault) => return Err(fault.into()),
    };
    Ok(onward(&app, &visitor, "/clusters", flash))
}

//! What the pages ask of whoever keeps the connections, and what they are answered. No answer holds a token's secret.

use std::sync::Arc;

use axum::http::StatusCode;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::live::Finding;
use crate::problem::Problem;

/// Keeps connections to clusters and looks at the clusters. Every answer comes within a bounded time, whatever a cluster does.
pub trait Clusters: Send + Sync + 'static {
    /// The saved ones, by name; of one that cannot be read, why.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Result<Connection, Broken>>, Fault>>;

    /// The one of a name.
    fn connection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Connection, Fault>>;

    /// SHA-256 of the certificate that an address presents, as `AB:CD:…`. Nothing secret is sent.
    fn presented<'a>(&'a self, endpoint: &'a str) -> BoxFuture<'a, Result<String, Fault>>;

    /// Connects, and saves the connection where the token lacks nothing that a test cannot do without. The certificate is judged
    /// before the token is sent.
    fn save(&self, new: NewConnection) -> BoxFuture<'_, Result<Attempt, Fault>>;

    /// Forgets a connection, unless a run uses it.
    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Fault>>;

    /// What a connection's cluster shows; none where it is being looked at and nothing is known yet, which only
    /// [`Wanted::Known`] is answered.
    fn look<'a>(&'a self, name: &'a str, wanted: Wanted) -> BoxFuture<'a, Result<Option<Arc<Look>>, Fault>>;
}

/// How new an answer has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// What is known, at once; where that is old or nothing, the place is asked meanwhile. For what follows the typing.
    Known,
    /// A minute old at most, waited for. For a page that is opened.
    Recent,
    /// From now on, waited for.
    Anew,
}

/// A saved connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// As plans name it.
    pub name: String,
    /// `https://HOST[:PORT]`.
    pub endpoint: String,
    /// The token's id, `user@realm!name`.
    pub token: String,
    /// How the certificate is judged.
    pub trust: Trust,
    /// What the last look found; none where there was none since this server started.
    pub look: Option<Arc<Look>>,
}

/// A saved connection that cannot be read. It can be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// As plans name it.
    pub name: String,
    /// Why, and what to do.
    pub fault: Fault,
}

/// How a cluster's certificate is judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Trust {
    /// By the authorities of the orchestrator's system.
    System,
    /// By these authorities.
    Authority {
        /// Certificates, PEM.
        pem: String,
    },
    /// The one certificate of this fingerprint.
    Fingerprint {
        /// SHA-256, `AB:CD:…`.
        sha256: String,
    },
}

/// A connection to be saved. It cannot be printed: it holds a secret.
pub struct NewConnection {
    /// As plans name it.
    pub name: String,
    /// `https://HOST[:PORT]`.
    pub endpoint: String,
    /// The token's id.
    pub token: String,
    /// The token's secret; none keeps the one that is saved.
    pub secret: Option<String>,
    /// How the certificate is judged.
    pub trust: Trust,
    /// Whether there is one of this name.
    pub existing: Existing,
}

/// Whether a connection of the name must be there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It must not.
    No,
    /// It must, and is changed.
    Yes,
}

/// How an attempt to save a connection ended, where the cluster answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// False where the token lacks what a test cannot do without: nothing was saved or changed.
    pub saved: bool,
    /// What the cluster showed.
    pub seen: Seen,
}

/// A look at a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// When it was answered.
    pub at: Timestamp,
    /// What it found.
    pub found: Result<Seen, Fault>,
}

/// What a token sees of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What there is to choose from; empty where the token may not read it.
    pub inventory: Inventory,
    /// Privileges that a test needs and that the token has on no path.
    pub lacking: Vec<Finding>,
}

impl Seen {
    /// A test can do with what the token may do.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.lacking.iter().all(|finding| finding.severity != "blocker")
    }
}

/// What a cluster offers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Inventory {
    /// The cluster's software and version.
    pub product: String,
    /// By name.
    pub nodes: Vec<Node>,
    /// By name.
    pub storages: Vec<Storage>,
    /// By name.
    pub networks: Vec<Network>,
}

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Whether it can be used now.
    pub online: bool,
    /// CPUs.
    pub cpus: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Memory in use, bytes.
    pub memory_used_bytes: u64,
}

/// A storage of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Storage {
    /// Name.
    pub name: String,
    /// Type, in the cluster's own word (`rbd`, `lvmthin`).
    pub kind: String,
    /// What it may hold, in the cluster's own words (`images`, `iso`).
    pub content: Vec<String>,
    /// All nodes see the same bytes.
    pub shared: bool,
    /// Nodes on which it is active.
    pub nodes: Vec<String>,
    /// Size, bytes: where it is not shared, that of the smallest.
    pub total_bytes: u64,
    /// Free, bytes, likewise.
    pub available_bytes: u64,
}

/// A bridge of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Network {
    /// Name.
    pub name: String,
    /// Nodes that have it.
    pub nodes: Vec<String>,
}

/// Why a keeper of connections, or a cluster, did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Fault {
    /// Whose doing it is.
    pub kind: FaultKind,
    /// What happened, in the cluster's own words where they are its.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

/// Whose doing a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// There is no such connection.
    Absent,
    /// What was asked is not possible now.
    Conflict,
    /// What was sent cannot be.
    Input,
    /// The cluster, or the way to it.
    Place,
    /// This machine.
    Internal,
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        let (status, title) = match fault.kind {
            FaultKind::Absent => (StatusCode::NOT_FOUND, "No such connection"),
            FaultKind::Conflict => (StatusCode::CONFLICT, "Not possible now"),
            FaultKind::Input => (StatusCode::UNPROCESSABLE_ENTITY, "Not accepted"),
            FaultKind::Place => (StatusCode::BAD_GATEWAY, "The cluster did not do it"),
            FaultKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "The connection could not be used"),
        };
        Self::new(status, title, fault.what, fault.remedy)
    }
}

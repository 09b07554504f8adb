//! Connections to clusters for scripts.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Attempt, Broken, Connection, Existing, Inventory, Look, NewConnection, Trust, Wanted, keeper};
use crate::app::App;
use crate::live::Finding;
use crate::problem::{ErrorBody, Problem};

/// A saved connection. Its token's secret is never answered.
#[derive(Serialize, ToSchema)]
pub(crate) struct Cluster {
    /// As plans name it.
    name: String,
    /// `https://HOST[:PORT]`.
    endpoint: String,
    /// The token's id, `user@realm!name`.
    token: String,
    trust: Trust,
    /// What the last look found; none where there was none since this server started.
    look: Option<Answered>,
}

impl From<Connection> for Cluster {
    fn from(of: Connection) -> Self {
        let look = of.look.map(|look| Answered::from(&*look));
        Self { name: of.name, endpoint: of.endpoint, token: of.token, trust: of.trust, look }
    }
}

/// The saved connections.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClusterList {
    /// By name.
    clusters: Vec<Cluster>,
    /// Saved ones that cannot be read, by name.
    broken: Vec<BrokenCluster>,
}

/// A saved connection that cannot be read.
#[derive(Serialize, ToSchema)]
pub(crate) struct BrokenCluster {
    /// As plans name it.
    name: String,
    /// Why.
    what: String,
    /// What to do.
    remedy: String,
}

impl From<Broken> for BrokenCluster {
    fn from(of: Broken) -> Self {
        Self { name: of.name, what: of.fault.what, remedy: of.fault.remedy }
    }
}

/// How a look at a cluster ended.
#[derive(Serialize, ToSchema)]
pub(crate) struct Answered {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// `usable`, `lacking` (privileges, as the findings say) or `failed` (no look was possible).
    state: &'static str,
    /// Why no look was possible.
    what: Option<String>,
    /// What to do about that.
    remedy: Option<String>,
    /// Privileges that the token lacks.
    findings: Vec<Finding>,
}

impl From<&Look> for Answered {
    fn from(look: &Look) -> Self {
        let of = |state, findings: &[Finding]| Self {
            at: look.at,
            state,
            what: None,
            remedy: None,
            findings: findings.to_vec(),
        };
        match &look.found {
            Ok(seen) => of(if seen.is_enough() { "usable" } else { "lacking" }, &seen.lacking),
            Err(fault) => {
                Self { what: Some(fault.what.clone()), remedy: Some(fault.remedy.clone()), ..of("failed", &[]) }
            }
        }
    }
}

/// A connection to be saved.
#[derive(Deserialize, ToSchema)]
pub(crate) struct NewCluster {
    /// 1 to 64 letters, digits, `-`, `_` and `.`
    name: String,
    #[serde(flatten)]
    settings: ClusterSettings,
}

/// How a cluster is reached.
#[derive(Deserialize, ToSchema)]
pub(crate) struct ClusterSettings {
    /// `https://HOST[:PORT]` of any node; 8006 where no port is given.
    endpoint: String,
    /// The API token's id, `user@realm!name`.
    token: String,
    /// The token's secret. A change may leave it out: the saved one is kept, where the change does not send it elsewhere.
    secret: Option<String>,
    trust: Trust,
}

impl ClusterSettings {
    fn of(self, name: String, existing: Existing) -> NewConnection {
        let Self { endpoint, token, secret, trust } = self;
        NewConnection { name, endpoint, token, secret, trust, existing }
    }
}

/// How an attempt to save a connection ended, where the cluster answered.
#[derive(Serialize, ToSchema)]
pub(crate) struct Saved {
    /// False where the token lacks what a test cannot do without: nothing was saved or changed.
    saved: bool,
    /// Privileges that the token lacks.
    findings: Vec<Finding>,
    inventory: Inventory,
}

impl Saved {
    fn answer(attempt: Attempt, done: StatusCode) -> (StatusCode, Json<Self>) {
        let Attempt { saved, seen } = attempt;
        let status = if saved { done } else { StatusCode::UNPROCESSABLE_ENTITY };
        (status, Json(Self { saved, findings: seen.lacking, inventory: seen.inventory }))
    }
}

/// Which address.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Address {
    /// `https://HOST[:PORT]` of any node.
    endpoint: String,
}

/// A certificate, to be compared with what a node's console shows before it is trusted.
#[derive(Serialize, ToSchema)]
pub(crate) struct Certificate {
    /// SHA-256, `AB:CD:…`.
    sha256: String,
}

/// What a cluster offers, as it was when it was looked at.
#[derive(Serialize, ToSchema)]
pub(crate) struct Offered {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    inventory: Inventory,
}

/// Lists the saved connections.
#[utoipa::path(get, path = "/api/v1/clusters", tag = "clusters", responses((status = 200, body = ClusterList)))]
pub(crate) async fn list(State(app): State<App>) -> Result<Json<ClusterList>, Problem> {
    let mut list = ClusterList { clusters: Vec::new(), broken: Vec::new() };
    for one in keeper(&app)?.list().await? {
        match one {
            Ok(connection) => list.clusters.push(connection.into()),
            Err(broken) => list.broken.push(broken.into()),
        }
    }
    Ok(Json(list))
}

/// Connects and saves the connection. The certificate is judged before the token is sent.
#[utoipa::path(post, path = "/api/v1/clusters", tag = "clusters", request_body = NewCluster,
    responses((status = 201, body = Saved), (status = 409, body = ErrorBody), (status = 422, body = Saved), (status = 502, body = ErrorBody)))]
pub(crate) async fn add(
    State(app): State<App>,
    Json(new): Json<NewCluster>,
) -> Result<(StatusCode, Json<Saved>), Problem> {
    let attempt = keeper(&app)?.save(new.settings.of(new.name, Existing::No)).await?;
    Ok(Saved::answer(attempt, StatusCode::CREATED))
}

/// Connects with other settings and saves them.
#[utoipa::path(put, path = "/api/v1/clusters/{name}", tag = "clusters", params(("name" = String, Path)), request_body = ClusterSettings,
    responses((status = 200, body = Saved), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 422, body = Saved), (status = 502, body = ErrorBody)))]
pub(crate) async fn change(
    State(app): State<App>,
    Path(name): Path<String>,
    Json(settings): Json<ClusterSettings>,
) -> Result<(StatusCode, Json<Saved>), Problem> {
    let attempt = keeper(&app)?.save(settings.of(name, Existing::Yes)).await?;
    Ok(Saved::answer(attempt, StatusCode::OK))
}

/// Forgets a connection; refused while a run uses it.
#[utoipa::path(delete, path = "/api/v1/clusters/{name}", tag = "clusters", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn remove(State(app): State<App>, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    keeper(&app)?.remove(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Connects, and looks whether the token has the privileges that a test needs.
#[utoipa::path(post, path = "/api/v1/clusters/{name}/test", tag = "clusters", params(("name" = String, Path)),
    responses((status = 200, body = Answered), (status = 404, body = ErrorBody)))]
pub(crate) async fn test(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Answered>, Problem> {
    let look = keeper(&app)?.look(&name, Wanted::Anew).await?.ok_or_else(not_yet)?;
    Ok(Json(Answered::from(&*look)))
}

/// Nodes, storages and bridges of a cluster, a minute old at most.
#[utoipa::path(get, path = "/api/v1/clusters/{name}/inventory", tag = "clusters", params(("name" = String, Path)),
    responses((status = 200, body = Offered), (status = 404, body = ErrorBody), (status = 502, body = ErrorBody)))]
pub(crate) async fn inventory(State(app): State<App>, Path(name): Path<String>) -> Result<Json<Offered>, Problem> {
    let look = keeper(&app)?.look(&name, Wanted::Recent).await?.ok_or_else(not_yet)?;
    let inventory = look.found.as_ref().map_err(Clone::clone)?.inventory.clone();
    Ok(Json(Offered { at: look.at, inventory }))
}

/// A look that is waited for has an answer.
fn not_yet() -> Problem {
    Problem::conflict("The cluster is being looked at.", "Ask again in some seconds.")
}

/// Fingerprint of the certificate that an address presents. Nothing secret is sent.
#[utoipa::path(post, path = "/api/v1/cluster-certificate", tag = "clusters", request_body = Address,
    responses((status = 200, body = Certificate), (status = 422, body = ErrorBody), (status = 502, body = ErrorBody)))]
pub(crate) async fn certificate(
    State(app): State<App>,
    Json(address): Json<Address>,
) -> Result<Json<Certificate>, Problem> {
    Ok(Json(Certificate { sha256: keeper(&app)?.presented(&address.endpoint).await? }))
}

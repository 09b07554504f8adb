//! Connections to clusters as a keeper of them answers once it has looked: pages wait for no cluster, so what they take is theirs.

use std::sync::Arc;

use analysis::export::How;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use plan::TestPlan;
use uuid::Uuid;
use web::{
    Attempt, Broken, Clusters, Connection, Fault, FaultKind, Finding, Findings, Hub, Inventory, Look, Network,
    NewConnection, Node, Seen, StartError, Storage, Trust, Wanted, Workshop,
};

/// Name of the first connection, as the example plan has it.
pub(crate) const CONNECTION: &str = "lab";

/// Saved connections.
const CONNECTIONS: usize = 50;
/// Of each cluster.
const NODES: usize = 32;
const STORAGES: usize = 20;
const BRIDGES: usize = 10;

/// Keeps connections in memory, and starts nothing.
pub(crate) struct Keeper {
    hub: Arc<Hub>,
    saved: Vec<Connection>,
}

impl Keeper {
    pub(crate) fn new(hub: Arc<Hub>) -> Self {
        let look = Arc::new(Look { at: Timestamp::now(), found: Ok(seen()) });
        let connection = |number: usize| Connection {
            name: if number == 0 { CONNECTION.to_owned() } else { format!("lab-{number}") },
            endpoint: format!("https://pve{number}.example:8006"),
            token: "fourcorners@pve!poc".to_owned(),
            trust: Trust::Fingerprint { sha256: ["AB"; 32].join(":") },
            look: Some(Arc::clone(&look)),
        };
        Self { hub, saved: (0..CONNECTIONS).map(connection).collect() }
    }

    fn find(&self, name: &str) -> Result<Connection, Fault> {
        self.saved.iter().find(|saved| saved.name == name).cloned().ok_or_else(|| refused("there is none"))
    }
}

fn seen() -> Seen {
    let names: Vec<String> = (1..=NODES).map(|number| format!("pve{number}")).collect();
    let node = |name: &String| Node {
        name: name.clone(),
        online: true,
        cpus: 64,
        memory_bytes: 512 << 30,
        memory_used_bytes: 128 << 30,
    };
    let storage = |number: usize| Storage {
        name: format!("storage-{number}"),
        kind: "rbd".to_owned(),
        content: vec!["images".to_owned(), "iso".to_owned()],
        shared: true,
        nodes: names.clone(),
        total_bytes: 400 << 40,
        available_bytes: 300 << 40,
    };
    let bridge = |number: usize| Network { name: format!("vmbr{number}"), nodes: names.clone() };
    let inventory = Inventory {
        product: "Proxmox VE 9.0.3".to_owned(),
        nodes: names.iter().map(node).collect(),
        storages: (0..STORAGES).map(storage).collect(),
        networks: (0..BRIDGES).map(bridge).collect(),
    };
    Seen { inventory, lacking: Vec::new() }
}

fn refused(what: &str) -> Fault {
    Fault { kind: FaultKind::Absent, what: what.to_owned(), remedy: "ask for another one".to_owned() }
}

impl Clusters for Keeper {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Result<Connection, Broken>>, Fault>> {
        Box::pin(async { Ok(self.saved.iter().cloned().map(Ok).collect()) })
    }

    fn connection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Connection, Fault>> {
        Box::pin(async { self.find(name) })
    }

    fn presented<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<String, Fault>> {
        Box::pin(async { Err(refused("no cluster is asked")) })
    }

    fn save(&self, _: NewConnection) -> BoxFuture<'_, Result<Attempt, Fault>> {
        Box::pin(async { Err(refused("nothing is saved")) })
    }

    fn remove<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async { Err(refused("nothing is removed")) })
    }

    fn look<'a>(&'a self, name: &'a str, _: Wanted) -> BoxFuture<'a, Result<Option<Arc<Look>>, Fault>> {
        Box::pin(async { Ok(self.find(name)?.look) })
    }
}

impl Workshop for Keeper {
    fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    fn start(&self, _: TestPlan, _: String) -> BoxFuture<'_, Result<Uuid, StartError>> {
        Box::pin(async { Err(StartError::Closed("nothing is started")) })
    }

    fn end<'a>(&'a self, _: Uuid, _: How, _: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(async { false })
    }

    fn findings<'a>(&'a self, _: &'a TestPlan, _: Wanted) -> BoxFuture<'a, Findings> {
        let finding = Finding { severity: "note", message: "it was looked at".into(), remedy: "go on".into() };
        let looked = Some(Timestamp::now());
        Box::pin(async move { Findings { list: vec![finding; NODES], looked, pending: false } })
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        Some(self)
    }
}

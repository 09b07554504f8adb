//! The place of a plan's workers as fields: this machine, or a cluster with what its inventory offers.

use plan::edit::{self, EditError, Item};
use plan::proxmox::{VmidRange, is_connection_name};

use crate::app::App;
use crate::clusters::{Broken, Connection, Fault, Inventory, Wanted};
use crate::format;
use crate::problem::Problem;

/// Fields of a cluster's target and its guard, each with one value.
pub(crate) const FIELDS: [&str; 13] = [
    "target.connection",
    "target.storage",
    "target.iso_storage",
    "target.bridge",
    "target.vlan",
    "target.mtu",
    "target.pool",
    "target.vmids.first",
    "target.vmids.last",
    "guard.min_free_percent",
    "guard.ceph",
    "guard.io_error",
    "guard.quorum",
];

/// Those of them that are yes or no.
pub(crate) const FLAGS: [&str; 3] = ["guard.ceph", "guard.io_error", "guard.quorum"];

/// What only a cluster's plan may have: it goes when the workers are brought to this machine.
const OF_CLUSTERS: [&str; 2] = ["guard", "canary"];

/// The place as the form shows it.
pub(crate) struct Place {
    /// `local`, `saved` (a connection) or `given` (the text names a cluster by its address).
    pub(crate) kind: &'static str,
    /// The saved connections, and the named one where it is not among them.
    pub(crate) connections: Vec<Offer>,
    /// None where nothing is known of the cluster: names are typed then.
    pub(crate) offers: Option<Offers>,
    pub(crate) nodes: Vec<NodeOffer>,
    /// The text gives nodes a count each.
    pub(crate) counts: bool,
    /// Why nothing is known: the cluster's words.
    pub(crate) note: String,
    /// A look goes on.
    pub(crate) pending: bool,
    /// Changes with what there is to choose from, so that the page's script leaves a field alone that somebody is in.
    pub(crate) key: String,
}

/// What a cluster offers for each field.
pub(crate) struct Offers {
    pub(crate) storages: Vec<Offer>,
    pub(crate) iso_storages: Vec<Offer>,
    pub(crate) bridges: Vec<Offer>,
}

/// One thing to choose.
#[derive(Debug, PartialEq)]
pub(crate) struct Offer {
    pub(crate) name: String,
    /// What tells it from others.
    pub(crate) about: String,
    pub(crate) chosen: bool,
}

/// A node to choose.
#[derive(Debug, PartialEq)]
pub(crate) struct NodeOffer {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) chosen: bool,
}

/// The place that a text names, with what is known of its cluster. `wanted` says whether a cluster is waited for.
pub(crate) async fn read(app: &App, yaml: &str, wanted: Wanted) -> Result<Place, Problem> {
    let text = |field| edit::value(yaml, field).unwrap_or_default();
    let connection = text("target.connection");
    let kind = match (text("target.provider").as_str(), connection.is_empty()) {
        ("proxmox", false) => "saved",
        ("proxmox", true) => "given",
        _ => "local",
    };
    let mut saved = Vec::new();
    let (mut inventory, mut note, mut pending) = (None, String::new(), false);
    if let Some(keeper) = app.workshop().clusters() {
        let listed = keeper.list().await?;
        let broken = listed.iter().filter_map(|one| one.as_ref().err()).find(|broken| broken.name == connection);
        saved = listed.iter().map(offered).collect();
        if let Some(broken) = broken.filter(|_| kind == "saved") {
            note = to_do(&broken.fault);
        } else if kind == "saved" && saved.iter().any(|(name, _)| *name == connection) {
            match keeper.look(&connection, wanted).await?.as_deref().map(|look| look.found.clone()) {
                Some(Ok(seen)) => inventory = Some(seen.inventory),
                Some(Err(fault)) => note = to_do(&fault),
                None => pending = true,
            }
        }
    }
    Ok(form(yaml, kind, (connection, saved), inventory.as_ref(), (note, pending)))
}

/// A saved connection to choose, with what tells it from others.
fn offered(one: &Result<Connection, Broken>) -> (String, String) {
    match one {
        Ok(connection) => (connection.name.clone(), connection.endpoint.clone()),
        Err(broken) => (broken.name.clone(), "cannot be read".to_owned()),
    }
}

fn to_do(fault: &Fault) -> String {
    format!("{} What to do: {}.", fault.what, fault.remedy.trim_end_matches('.'))
}

fn form(
    yaml: &str,
    kind: &'static str,
    (connection, saved): (String, Vec<(String, String)>),
    inventory: Option<&Inventory>,
    (note, pending): (String, bool),
) -> Place {
    let listed = edit::list(yaml, "target.nodes");
    let counts = listed.is_none() && edit::has(yaml, "target.nodes");
    let named: Vec<String> = listed.into_iter().flatten().filter_map(name_of).collect();
    let text = |field| edit::value(yaml, field).unwrap_or_default();
    let offers = inventory.map(|inventory| Offers {
        storages: storages(inventory, "images", &text("target.storage")),
        iso_storages: storages(inventory, "iso", &text("target.iso_storage")),
        bridges: bridges(inventory, &text("target.bridge")),
    });
    let connections = with_chosen(saved, if kind == "saved" { &connection } else { "" }, "not saved here");
    let nodes = nodes(inventory, &named);
    let mut place = Place { kind, connections, offers, nodes, counts, note, pending, key: String::new() };
    place.key = place.key();
    place
}

impl Place {
    fn key(&self) -> String {
        let names = |offers: &[Offer]| -> Vec<String> {
            offers.iter().map(|offer| format!("{}: {}", offer.name, offer.about)).collect()
        };
        let offers = self.offers.as_ref();
        let offers = offers.map(|of| [names(&of.storages), names(&of.iso_storages), names(&of.bridges)]);
        let nodes: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        let all = (self.kind, names(&self.connections), offers, nodes, self.counts, &self.note, self.pending);
        serde_json::to_string(&all).unwrap_or_default()
    }
}

fn name_of(item: Item) -> Option<String> {
    match item {
        Item::Value(name) => Some(name),
        Item::Group(_) => None,
    }
}

/// What there is, and what is chosen although there is no such thing.
fn with_chosen(there: Vec<(String, String)>, chosen: &str, missing: &str) -> Vec<Offer> {
    let known = chosen.is_empty() || there.iter().any(|(name, _)| name == chosen);
    let unknown = (!known).then(|| (chosen.to_owned(), missing.to_owned()));
    let all = there.into_iter().chain(unknown);
    all.map(|(name, about)| Offer { chosen: name == chosen, name, about }).collect()
}

const NOT_THERE: &str = "the cluster shows none of this name";

fn storages(inventory: &Inventory, content: &str, chosen: &str) -> Vec<Offer> {
    let fit = inventory.storages.iter().filter(|storage| storage.content.iter().any(|one| one == content));
    let there = fit.map(|storage| {
        let reach = if storage.shared { "shared" } else { "each node its own" };
        let free = format::bytes(storage.available_bytes);
        (
            storage.name.clone(),
            format!("{}, {reach}, {free} free of {}", storage.kind, format::bytes(storage.total_bytes)),
        )
    });
    with_chosen(there.collect(), chosen, NOT_THERE)
}

fn bridges(inventory: &Inventory, chosen: &str) -> Vec<Offer> {
    let nodes = inventory.nodes.iter().filter(|node| node.online).count();
    let there = inventory.networks.iter().map(|network| {
        let about = if network.nodes.len() >= nodes { "on all nodes".to_owned() } else { network.nodes.join(", ") };
        (network.name.clone(), about)
    });
    with_chosen(there.collect(), chosen, NOT_THERE)
}

fn nodes(inventory: Option<&Inventory>, named: &[String]) -> Vec<NodeOffer> {
    let there = inventory.into_iter().flat_map(|inventory| &inventory.nodes);
    let mut all: Vec<NodeOffer> = there
        .map(|node| NodeOffer {
            name: node.name.clone(),
            about: if node.online { format!("{} CPUs", node.cpus) } else { "offline".to_owned() },
            chosen: named.contains(&node.name),
        })
        .collect();
    for name in named.iter().filter(|name| inventory.is_some_and(|of| of.nodes.iter().all(|node| node.name != **name)))
    {
        all.push(NodeOffer { name: name.clone(), about: NOT_THERE.to_owned(), chosen: true });
    }
    all
}

/// Brings the workers to a saved connection's cluster; to this machine where none is named. What belongs to a cluster alone, or to the
/// other one, goes.
pub(crate) fn choose(yaml: &str, connection: &str) -> Result<String, String> {
    let said = |error: EditError| error.to_string();
    if connection.is_empty() {
        let mut text = edit::set_group(yaml, "target", &[("provider", "local")]).map_err(said)?;
        for field in OF_CLUSTERS {
            text = edit::remove(&text, field).map_err(said)?;
        }
        return Ok(text);
    }
    if !is_connection_name(connection) {
        return Err(format!("{connection:?} is no name of a connection"));
    }
    if edit::value(yaml, "target.provider").as_deref() != Some("proxmox") {
        return edit::set_group(yaml, "target", &[("provider", "proxmox"), ("connection", connection)]).map_err(said);
    }
    let mut text = edit::set(yaml, "target.connection", connection).map_err(said)?;
    for field in ["target.endpoint", "target.token", "target.tls"] {
        text = edit::remove(&text, field).map_err(said)?;
    }
    Ok(text)
}

/// Takes a node among those that are used, or out of them. Without any, all that are online are used.
pub(crate) fn choose_node(yaml: &str, node: &str, chosen: bool) -> Result<String, String> {
    let said = |error: EditError| error.to_string();
    let field = "target.nodes";
    let listed = edit::list(yaml, field);
    if listed.is_none() && edit::has(yaml, field) {
        return Err("the text gives each node a number of workers: change it there".to_owned());
    }
    if chosen {
        return edit::add_item(yaml, field, node).map_err(said);
    }
    let last = listed.is_some_and(|items| items == [Item::Value(node.to_owned())]);
    if last { edit::remove(yaml, field) } else { edit::remove_item(yaml, field, node) }.map_err(said)
}

/// Sets one end of the VMIDs' range; the other is the usual one where the text has none. Without a value, the whole range is.
pub(crate) fn set_vmid(yaml: &str, field: &str, value: &str) -> Result<String, String> {
    let said = |error: EditError| error.to_string();
    if value.is_empty() {
        return edit::remove(yaml, "target.vmids").map_err(said);
    }
    let usual = VmidRange::default();
    let (other, number) =
        if field.ends_with("first") { ("target.vmids.last", usual.last) } else { ("target.vmids.first", usual.first) };
    let text = edit::set(yaml, field, value).map_err(said)?;
    match edit::value(&text, other) {
        Some(_) => Ok(text),
        None => edit::set(&text, other, &number.to_string()).map_err(said),
    }
}

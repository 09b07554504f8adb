//! Connections to clusters: pages and API over a keeper in memory, whose clusters answer what an attacker would have them answer.

use std::sync::{Arc, Mutex};

use analysis::export::How;
use axum::http::{Method, StatusCode};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use plan::TestPlan;
use serde_json::json;
use uuid::Uuid;
use web::{
    Attempt, Clusters, Connection, Existing, Fault, FaultKind, Finding, Findings, Hub, Inventory, Look, Network,
    NewConnection, Node, Seen, StartError, Storage, Trust, Wanted, Workshop,
};

use crate::client::{Answered, Interface};

const SECRET: &str = "the-secret-of-the-token";
const EVIL: &str = "<script>alert(1)</script>";
const SHOWN: &str = "&#60;script&#62;alert(1)&#60;/script&#62;";
const SHA256: &str = "AB:CD";

/// Keeps connections in memory; their clusters' words are scripts.
#[derive(Default)]
struct Memory {
    hub: Arc<Hub>,
    saved: Mutex<Vec<Connection>>,
    /// What was sent to clusters: secrets, and fingerprints that were fetched before.
    sent: Mutex<Vec<String>>,
    /// How looks are wanted.
    looks: Mutex<Vec<Wanted>>,
}

fn absent() -> Fault {
    Fault { kind: FaultKind::Absent, what: "There is none.".into(), remedy: "Look at the list.".into() }
}

fn seen() -> Seen {
    let lacking =
        vec![Finding { severity: "warning", message: format!("lacks {EVIL}"), remedy: format!("grant {EVIL}") }];
    let node = |name: &str, online| Node {
        name: name.into(),
        online,
        cpus: 16,
        memory_bytes: 64 << 30,
        memory_used_bytes: 16 << 30,
    };
    let storage = |name: &str, content: &str| Storage {
        name: name.into(),
        kind: EVIL.into(),
        content: vec![content.into(), EVIL.into()],
        shared: true,
        nodes: vec!["pve1".into(), EVIL.into()],
        total_bytes: 4 << 40,
        available_bytes: 1 << 40,
    };
    let inventory = Inventory {
        product: format!("Proxmox VE {EVIL}"),
        nodes: vec![node("pve1", true), node(EVIL, false)],
        storages: vec![storage("ceph", "images"), storage(EVIL, "iso")],
        networks: vec![Network { name: EVIL.into(), nodes: vec![EVIL.into()] }],
    };
    Seen { inventory, lacking }
}

impl Memory {
    fn find(&self, name: &str) -> Result<Connection, Fault> {
        self.saved.lock().unwrap().iter().find(|one| one.name == name).cloned().ok_or_else(absent)
    }

    fn sent(&self) -> Vec<String> {
        self.sent.lock().unwrap().clone()
    }

    fn put(&self, new: NewConnection) -> Result<Attempt, Fault> {
        let mut saved = self.saved.lock().unwrap();
        self.sent.lock().unwrap().push(new.secret.clone().unwrap_or_else(|| "as saved".into()));
        if new.token.contains("wrong") {
            let what = format!("PVE answers 401: {EVIL}");
            return Err(Fault { kind: FaultKind::Place, what, remedy: format!("check {EVIL}") });
        }
        let mut seen = seen();
        if new.token.contains("weak") {
            seen.lacking[0].severity = "blocker";
            return Ok(Attempt { saved: false, seen });
        }
        saved.retain(|one| one.name != new.name || new.existing == Existing::No);
        let look = Some(Arc::new(Look { at: Timestamp::now(), found: Ok(seen.clone()) }));
        let NewConnection { name, endpoint, token, trust, .. } = new;
        saved.push(Connection { name, endpoint, token, trust, look });
        Ok(Attempt { saved: true, seen })
    }
}

impl Clusters for Memory {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Connection>, Fault>> {
        Box::pin(async { Ok(self.saved.lock().unwrap().clone()) })
    }

    fn connection<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Connection, Fault>> {
        Box::pin(async { self.find(name) })
    }

    fn presented<'a>(&'a self, endpoint: &'a str) -> BoxFuture<'a, Result<String, Fault>> {
        Box::pin(async move {
            if !endpoint.starts_with("https://") {
                let what = format!("found {endpoint:?}, expected https://HOST[:PORT]");
                return Err(Fault { kind: FaultKind::Input, what, remedy: "Correct it.".into() });
            }
            self.sent.lock().unwrap().push("nothing secret".into());
            Ok(SHA256.into())
        })
    }

    fn save(&self, new: NewConnection) -> BoxFuture<'_, Result<Attempt, Fault>> {
        Box::pin(async { self.put(new) })
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            self.find(name)?;
            if name == "busy" {
                let what = format!("The run {EVIL} uses it.");
                return Err(Fault { kind: FaultKind::Conflict, what, remedy: "Wait.".into() });
            }
            self.saved.lock().unwrap().retain(|one| one.name != name);
            Ok(())
        })
    }

    fn look<'a>(&'a self, name: &'a str, wanted: Wanted) -> BoxFuture<'a, Result<Option<Arc<Look>>, Fault>> {
        Box::pin(async move {
            self.looks.lock().unwrap().push(wanted);
            let found = match self.find(name)?.endpoint.contains("down") {
                true => Err(Fault {
                    kind: FaultKind::Place,
                    what: format!("no connection: {EVIL}"),
                    remedy: format!("check the network {EVIL}"),
                }),
                false => Ok(seen()),
            };
            // What follows the typing does not wait.
            let first = wanted == Wanted::Known && self.looks.lock().unwrap().len() == 1;
            Ok((!first).then(|| Arc::new(Look { at: Timestamp::now(), found })))
        })
    }
}

impl Workshop for Memory {
    fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    fn start(&self, _: TestPlan, _: String) -> BoxFuture<'_, Result<Uuid, StartError>> {
        Box::pin(async { Err(StartError::Closed("it only keeps connections")) })
    }

    fn end<'a>(&'a self, _: Uuid, _: How, _: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(false))
    }

    fn findings<'a>(&'a self, _: &'a TestPlan, wanted: Wanted) -> BoxFuture<'a, Findings> {
        let list =
            vec![Finding { severity: "blocker", message: format!("node {EVIL} is offline"), remedy: EVIL.into() }];
        let looked = (wanted == Wanted::Anew).then(Timestamp::now);
        Box::pin(std::future::ready(Findings { list, looked, pending: looked.is_none() }))
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        Some(self)
    }
}

/// Text alone, whatever the cluster says; and no secret.
fn is_tame(answered: &Answered) {
    assert!(!answered.body.contains(EVIL), "{}", answered.body);
    assert!(!answered.body.contains(SECRET), "{}", answered.body);
}

const FIRST: [(&str, &str); 4] =
    [("name", "lab"), ("endpoint", " https://pve1:8006 "), ("trust", "fingerprint"), ("step", "look")];

fn second<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let fields = [
        ("name", "lab"),
        ("endpoint", "https://pve1:8006"),
        ("trust", "fingerprint"),
        ("fingerprint", SHA256),
        ("token", "fc@pve!poc"),
        ("step", "save"),
    ];
    fields
        .into_iter()
        .filter(|(name, _)| more.iter().all(|(other, _)| other != name))
        .chain(more.iter().copied())
        .collect()
}

#[tokio::test]
async fn a_certificate_is_shown_and_confirmed_before_a_secret_is_sent() {
    let memory = Arc::new(Memory::default());
    let interface = Interface::with_workshop(Vec::new(), memory.clone()).await;
    let admin = interface.log_in("admin").await;
    assert!(admin.get("/clusters").await.body.contains("No connection is saved"));
    let first = admin.get("/clusters/new").await;
    assert!(!first.body.contains("name=\"secret\""), "nothing secret is asked for yet: {}", first.body);

    for (field, value) in [("name", "a b"), ("name", "../x"), ("endpoint", "http://pve1"), ("trust", "authority")] {
        let fields: Vec<_> = FIRST.iter().map(|&(name, old)| (name, if name == field { value } else { old })).collect();
        let refused = admin.post("/clusters/new", &fields).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{field}: {value}");
        assert!(refused.body.contains("What to do"), "{}", refused.body);
    }
    let shown = admin.post("/clusters/new", &FIRST).await;
    assert_eq!(shown.status, StatusCode::OK);
    assert!(shown.body.contains(SHA256) && shown.body.contains("openssl x509"), "{}", shown.body);
    assert_eq!(memory.sent(), ["nothing secret"]);

    let unconfirmed = admin.post("/clusters/new", &second(&[("secret", SECRET)])).await;
    assert_eq!(unconfirmed.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(unconfirmed.body.contains("Nobody has confirmed"), "{}", unconfirmed.body);
    is_tame(&unconfirmed);
    assert_eq!(memory.sent(), ["nothing secret"]);

    let sent = [("secret", SECRET), ("confirmed", "yes")];
    for (token, words) in [("wrong@pve!x", "401"), ("weak@pve!x", "may not do what a test needs")] {
        let fields = second(&[sent[0], sent[1], ("token", token)]);
        let refused = admin.post("/clusters/new", &fields).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{token}");
        assert!(refused.body.contains(words) && refused.body.contains(SHOWN), "{}", refused.body);
        assert!(refused.body.contains(token), "what was typed is kept, but for the secret");
        is_tame(&refused);
    }
    assert!(memory.saved.lock().unwrap().is_empty());

    let saved = admin.post("/clusters/new", &second(&sent)).await;
    assert_eq!((saved.status, saved.location()), (StatusCode::SEE_OTHER, "/clusters/saved/lab"));
    assert_eq!(memory.sent().last().map(String::as_str), Some(SECRET));
    let again = admin.post("/clusters/new", &FIRST).await;
    assert!(again.status == StatusCode::UNPROCESSABLE_ENTITY && again.body.contains("saved already"), "{}", again.body);
}

/// A keeper with `lab`, `down`, whose cluster does not answer, and `busy`, which a run uses.
async fn kept() -> (Arc<Memory>, Interface) {
    let memory = Arc::new(Memory::default());
    for (name, endpoint) in [("lab", "https://pve1:8006"), ("down", "https://down"), ("busy", "https://pve3")] {
        let trust = Trust::Fingerprint { sha256: "12:34".into() };
        let (token, secret) = ("fc@pve!poc".to_owned(), Some(SECRET.to_owned()));
        let new = NewConnection {
            name: name.into(),
            endpoint: endpoint.into(),
            token,
            secret,
            trust,
            existing: Existing::No,
        };
        memory.put(new).unwrap();
    }
    let interface = Interface::with_workshop(Vec::new(), memory.clone()).await;
    (memory, interface)
}

#[tokio::test]
async fn what_a_cluster_answers_is_text_everywhere() {
    let (memory, interface) = kept().await;
    let viewer = interface.log_in("viewer").await;
    let list = viewer.get("/clusters").await;
    assert!(list.body.contains("usable") && list.body.contains(SHOWN) && !list.body.contains("/edit"), "{}", list.body);
    let cluster = viewer.get("/clusters/saved/lab").await;
    for part in ["offline", "1 TiB", "64 GiB", "lacks &#60;script", "shared: pve1"] {
        assert!(cluster.body.contains(part), "{part} is not in {}", cluster.body);
    }
    assert!(!cluster.body.contains("/test"), "a viewer has no buttons");
    let down = viewer.get("/clusters/saved/down").await;
    assert!(
        down.body.contains("no connection") && down.body.contains("What to do: check the network"),
        "{}",
        down.body
    );
    let plan = plan::example("proxmox").unwrap();
    let admin = interface.log_in("admin").await;
    let checked = admin.post("/new/check", &[("yaml", plan)]).await;
    let page = admin.get("/new?example=proxmox").await;
    for answered in [&list, &cluster, &down, &checked, &page] {
        is_tame(answered);
    }
    assert!(
        checked.body.contains(SHOWN) && checked.body.contains("<option value=\"ceph\" selected>"),
        "{}",
        checked.body
    );
    for path in ["/clusters/saved/none", "/clusters/saved/..%2f..%2fsecrets", "/api/v1/clusters/none/inventory"] {
        assert_eq!(viewer.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    for path in ["/api/v1/clusters", "/api/v1/clusters/lab/inventory"] {
        let answered = viewer.get(path).await;
        assert!(answered.status == StatusCode::OK && !answered.body.contains(SECRET), "{}", answered.body);
    }
    assert_eq!(viewer.get("/api/v1/clusters/down/inventory").await.status, StatusCode::BAD_GATEWAY);
    assert_eq!(memory.saved.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_connection_is_changed_tested_and_removed_by_administrators_alone() {
    let (memory, interface) = kept().await;
    let (admin, viewer) = (interface.log_in("admin").await, interface.log_in("viewer").await);
    let before = memory.sent();
    for path in ["/clusters/new", "/clusters/saved/lab/edit", "/clusters/saved/lab/test", "/clusters/saved/lab/remove"]
    {
        assert_eq!(viewer.post(path, &second(&[("confirmed", "yes")])).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(memory.sent(), before);

    let edit = admin.get("/clusters/saved/lab/edit").await;
    assert!(edit.body.contains("https://pve1:8006") && !edit.body.contains(SECRET), "{}", edit.body);
    let shown = admin.post("/clusters/saved/lab/edit", &FIRST).await;
    assert!(shown.body.contains("12:<wbr>34") && shown.body.contains("not</b> the certificate"), "{}", shown.body);
    let fields = second(&[("confirmed", "yes"), ("name", "other"), ("secret", "")]);
    let changed = admin.post("/clusters/saved/lab/edit", &fields).await;
    assert_eq!((changed.status, changed.location()), (StatusCode::SEE_OTHER, "/clusters/saved/lab"), "the name stays");
    assert_eq!(memory.sent().last().map(String::as_str), Some("as saved"));
    assert_eq!(memory.find("lab").unwrap().trust, Trust::Fingerprint { sha256: SHA256.into() });

    assert_eq!(admin.post("/clusters/saved/lab/test", &[]).await.location(), "/clusters/saved/lab");
    assert_eq!(memory.looks.lock().unwrap().last(), Some(&Wanted::Anew));
    assert!(admin.get("/clusters/saved/busy/remove").await.body.contains("Forget the connection busy?"));
    assert_eq!(admin.post("/clusters/saved/busy/remove", &[]).await.location(), "/clusters");
    let list = admin.get("/clusters").await;
    assert!(list.body.contains(&format!("The run {SHOWN} uses it.")) && list.body.contains("/clusters/saved/busy"));
    assert_eq!(admin.post("/clusters/saved/lab/remove", &[]).await.location(), "/clusters");
    assert!(!admin.get("/clusters").await.body.contains("/clusters/saved/lab"));
    assert_eq!(admin.post("/clusters/saved/lab/test", &[]).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn scripts_do_the_same() {
    let (memory, interface) = kept().await;
    let admin = interface.log_in("admin").await;
    let certificate =
        admin.call(Method::POST, "/api/v1/cluster-certificate", json!({ "endpoint": "https://pve9" })).await;
    assert_eq!(certificate.json()["sha256"], SHA256);
    let new = |token: &str| {
        json!({ "name": "nine", "endpoint": "https://pve9", "token": token, "secret": SECRET,
            "trust": { "kind": "fingerprint", "sha256": SHA256 } })
    };
    let weak = admin.call(Method::POST, "/api/v1/clusters", new("weak@pve!x")).await;
    assert_eq!((weak.status, &weak.json()["saved"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!(false)));
    let wrong = admin.call(Method::POST, "/api/v1/clusters", new("wrong@pve!x")).await;
    assert_eq!(wrong.status, StatusCode::BAD_GATEWAY);
    assert!(wrong.json()["error"]["remedy"].as_str().unwrap().starts_with("check"), "{}", wrong.body);
    let made = admin.call(Method::POST, "/api/v1/clusters", new("fc@pve!poc")).await;
    assert_eq!((made.status, &made.json()["inventory"]["nodes"][0]["name"]), (StatusCode::CREATED, &json!("pve1")));
    let listed = admin.get("/api/v1/clusters").await;
    let nine = listed.json()["clusters"].as_array().unwrap().iter().find(|one| one["name"] == "nine").cloned().unwrap();
    assert_eq!((&nine["look"]["state"], &nine["trust"]["kind"]), (&json!("usable"), &json!("fingerprint")));
    let settings = json!({ "endpoint": "https://pve9", "token": "fc@pve!poc", "trust": { "kind": "system" } });
    let changed = admin.call(Method::PUT, "/api/v1/clusters/nine", settings).await;
    assert_eq!((changed.status, memory.sent().last().map(String::as_str)), (StatusCode::OK, Some("as saved")));
    assert_eq!(memory.find("nine").unwrap().trust, Trust::System);
    let tested = admin.call(Method::POST, "/api/v1/clusters/down/test", json!({})).await;
    assert_eq!((tested.status, &tested.json()["state"]), (StatusCode::OK, &json!("failed")));
    assert_eq!(admin.call(Method::DELETE, "/api/v1/clusters/busy", json!({})).await.status, StatusCode::CONFLICT);
    assert_eq!(admin.call(Method::DELETE, "/api/v1/clusters/nine", json!({})).await.status, StatusCode::NO_CONTENT);
    for answered in [&weak, &made, &listed, &changed, &tested] {
        assert!(!answered.body.contains(SECRET), "{}", answered.body);
    }
}

#[tokio::test]
async fn the_form_of_a_new_test_offers_what_the_cluster_has_and_asks_it_no_more_than_it_must() {
    let (memory, interface) = kept().await;
    let admin = interface.log_in("admin").await;
    let local = admin.get("/new").await;
    assert!(local.body.contains("this machine") && local.body.contains("<option value=\"lab\">"), "{}", local.body);
    assert!(memory.looks.lock().unwrap().is_empty(), "a plan of this machine asks no cluster");
    let plan = plan::example("proxmox").unwrap();
    let pending = admin.post("/new/check", &[("yaml", plan)]).await;
    assert!(pending.body.contains("data-pending"), "{}", pending.body);
    assert!(
        pending.body.contains("value=\"ceph\"") && !pending.body.contains("<option value=\"ceph\""),
        "typed meanwhile"
    );
    let known = admin.post("/new/check", &[("yaml", plan)]).await;
    assert!(known.body.contains("each node") || known.body.contains("1 TiB free of 4 TiB"), "{}", known.body);
    assert!(known.body.contains("the cluster shows none of this name"), "iso storage and bridge are not there");
    assert_eq!(*memory.looks.lock().unwrap(), [Wanted::Known, Wanted::Known]);
    let anew = admin.post("/new/check", &[("yaml", plan), ("anew", "yes")]).await;
    assert!(anew.body.contains("It was asked at") && anew.body.contains("data-anew"), "{}", anew.body);
    assert_eq!(memory.looks.lock().unwrap().last(), Some(&Wanted::Anew));

    let change = async |yaml: &str, field: &str, value: &str| {
        let fields = [("yaml", yaml), ("field", field), ("value", value), ("chosen", "true")];
        admin.post("/new/edit", &fields).await.json()["yaml"].as_str().unwrap().to_owned()
    };
    let chosen = change(plan::DEMO_PLAN, "target.connection", "lab").await;
    assert!(chosen.contains("provider: proxmox\n  connection: lab\n"), "{chosen}");
    let chosen = change(&chosen, "target.storage", "ceph").await;
    let shown = admin.post("/new/check", &[("yaml", &chosen)]).await;
    assert!(shown.body.contains("<option value=\"ceph\" selected>"), "{}", shown.body);
    assert!(shown.body.contains("data-field=\"target.bridge\""), "what lacks is told by line and field");
    let none = change(&chosen, "target.connection", "unknown").await;
    let shown = admin.post("/new/check", &[("yaml", &none)]).await;
    assert!(shown.body.contains("not saved here"), "{}", shown.body);
}

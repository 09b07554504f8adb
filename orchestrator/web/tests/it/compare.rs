//! Runs and cases side by side: what differs, what disturbed them, and the same as CSV.

use analysis::export::{Export, StorageHealth};
use uuid::Uuid;

use crate::client::{Client, Interface};
use crate::router::ID;
use crate::samples;

async fn body(client: &Client<'_>, query: &str) -> String {
    client.get(&format!("/compare{query}")).await.body
}

/// A calm run, and one in which everything went wrong that can.
fn both() -> (String, Vec<Export>) {
    let mut other = samples::incomplete();
    other.run.id = Uuid::now_v7().to_string();
    (other.run.id.clone(), vec![samples::demo(), other])
}

#[tokio::test]
async fn what_disturbed_a_figure_stands_beside_that_of_a_calm_run() {
    let (other, exports) = both();
    let interface = Interface::new(exports).await;
    let viewer = interface.log_in("viewer").await;
    let page = body(&viewer, &format!("?case={ID}:6&case={other}:6&case={other}:7")).await;
    for part in [
        // The runs.
        "<th scope=\"row\">run.state</th><td>complete</td><td class=\"differs\">incomplete</td>",
        "<th scope=\"row\">run.warnings</th><td>–</td>",
        "lab-42 acceptance: of all its figures",
        "Reason: 1 of 10 cases is incomplete",
        "has no O_DIRECT: reads and writes go through this machine",
        // The cases.
        "<th scope=\"row\">errors</th><td>0</td><td class=\"differs\">37 (37 EIO)</td>",
        "<th scope=\"row\">stalls</th><td>none</td><td class=\"differs\">2, the longest 2.2 s</td>",
        "<th scope=\"row\">seconds not in the series</th><td>0 of 5 (0.0 %)</td><td class=\"differs\">0 of 240 (0.0 %)</td><td class=\"differs\">75 of 240 (31.2 %)</td>",
        "<th scope=\"row\">storage cluster</th><td>not known</td><td class=\"differs\">not at rest in the window: HEALTH_WARN (PG_DEGRADED)",
        "The storage cluster was not at rest in the window: HEALTH_WARN",
        "<th scope=\"row\">load generator</th><td>no finding</td><td class=\"differs\">may limit</td>",
        "75 of the 240 seconds of the sample lack a worker",
        "37 writes failed or were short",
        "<span class=\"badge\">storage not at rest</span>",
        "<span class=\"badge\">37 errors</span>",
        "What is not compared",
        "<code>environment.seed</code>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let same = body(&viewer, &format!("?case={other}:6&case={other}:6")).await;
    assert!(same.contains("The storage cluster was not at rest"), "what is alike is said, too");
}

/// A case shorter than the time between two looks at the storage, say.
#[tokio::test]
async fn a_storage_of_which_nothing_is_known_in_the_window_is_not_called_at_rest() {
    let (mut calm, mut unseen) = (samples::incomplete(), samples::incomplete());
    unseen.run.id = Uuid::now_v7().to_string();
    for (run, from) in [(&mut calm, 0.0), (&mut unseen, -60.0)] {
        for case in &mut run.cases {
            for (place, sample) in (0_u32..).zip(&mut case.hosts) {
                sample.t = from + f64::from(place) / 100.0;
                if let Some(health) = &mut sample.storage {
                    *health = StorageHealth {
                        status: "HEALTH_OK".to_owned(),
                        checks: Vec::new(),
                        recovery_bytes_per_second: 0,
                        displaced_percent: 0.0,
                        scrubbing: 0,
                    };
                }
            }
        }
    }
    let (first, second) = (calm.run.id.clone(), unseen.run.id.clone());
    let interface = Interface::new(vec![calm, unseen]).await;
    let viewer = interface.log_in("viewer").await;
    let query = format!("?case={first}:6&case={second}:6");
    let page = body(&viewer, &query).await;
    let row = "<th scope=\"row\">storage cluster</th><td>at rest</td><td class=\"differs\">not known</td>";
    assert!(page.contains(row), "{page}");
    let table = viewer.get(&format!("/compare.csv{query}")).await.body;
    let column = table.lines().next().unwrap().split(',').position(|name| name == "storage_disturbance").unwrap();
    let said: Vec<&str> = table.lines().skip(1).map(|row| row.split(',').nth(column).unwrap()).collect();
    assert!(said.contains(&"at rest") && said.contains(&""), "{said:?}");
}

/// What the check of a cluster found is recorded with the run, and names the token.
#[tokio::test]
async fn whose_token_asked_the_cluster_is_in_nothing_that_is_handed_on() {
    let mut run = samples::demo();
    run.run.environment["place"] =
        serde_json::json!({"provider": "proxmox", "settings": {"token": {"id": "fc@pve!poc"}}});
    let found =
        "token fc@pve!poc lacks Datastore.Allocate (pveum acl modify / --tokens 'fc@pve!poc'; --users 'fc@pve')";
    run.run.warnings.push(found.to_owned());
    run.run.events.push(analysis::export::Event {
        at: run.run.started,
        level: "info".to_owned(),
        message: found.to_owned(),
    });
    let interface = Interface::new(vec![run]).await;
    let viewer = interface.log_in("viewer").await;
    let pages = [
        format!("/runs/{ID}"),
        format!("/runs/{ID}/export.html"),
        format!("/runs/{ID}/export.csv"),
        format!("/compare?case={ID}:6"),
        format!("/compare.csv?case={ID}:6"),
    ];
    for page in pages {
        let body = viewer.get(&page).await.body;
        assert!(body.contains("the API token lacks Datastore.Allocate"), "{page}");
        assert!(!body.contains("fc@pve"), "{page}");
    }
}

#[tokio::test]
async fn the_cases_of_several_runs_are_one_csv_with_what_the_reader_must_know() {
    let (other, exports) = both();
    let interface = Interface::new(exports).await;
    let viewer = interface.log_in("viewer").await;
    let query = format!("?case={ID}:6&case={other}:7&case={other}:6");
    let page = body(&viewer, &query).await;
    let link = page.split("href=\"/compare.csv").nth(1).unwrap().split('"').next().unwrap().replace("&#38;", "&");
    let answered = viewer.get(&format!("/compare.csv{link}")).await;
    assert_eq!(answered.headers["content-type"], "text/csv; charset=utf-8");
    let mut reader = csv::Reader::from_reader(answered.body.as_bytes());
    let rows: Vec<std::collections::HashMap<String, String>> = reader.deserialize().collect::<Result<_, _>>().unwrap();
    let alls: Vec<_> = rows.iter().filter(|row| row["op"] == "all").collect();
    let runs: Vec<(&str, &str)> = alls.iter().map(|row| (&*row["run_id"], &*row["case"])).collect();
    assert_eq!(runs, [(ID, "7"), (&*other, "8"), (&*other, "7")], "as they were picked");
    let column = |name: &str| alls.iter().map(|row| row[name].as_str()).collect::<Vec<_>>();
    assert_eq!(column("missing_seconds"), ["0", "75", "0"]);
    assert_eq!(column("missing_share"), ["0", "31.25", "0"]);
    assert_eq!(column("io_errors"), ["", "", "37 EIO"]);
    assert!(column("storage_disturbance")[2].contains("recovery at up to 5 MiB a second"));
    assert_eq!(column("run_reason")[0], "");
    assert!(column("warnings")[1].contains("has no O_DIRECT") && column("run_reason")[1].contains("1 of 10 cases"));
}

#[tokio::test]
async fn no_report_or_comparison_says_whose_token_it_was_or_where_its_secret_is() {
    let mut export = samples::demo();
    let settings = serde_json::json!({"endpoint": "https://pve1.example:8006", "storage": "ceph-under-test",
        "token": {"id": "fc@pve!poc", "secret_file": "/root/the-secret"}, "tls": {"ca_file": "/root/the-ca.pem"}});
    export.run.environment["place"]["settings"] = settings.clone();
    export.run.plan["target"] = settings;
    export.run.plan_yaml =
        "name: x\ntarget:\n  provider: proxmox\n  token: {id: 'fc@pve!poc', secret_file: /root/the-secret}\n  storage: ceph-under-test\n".into();
    let mut other = export.clone();
    other.run.id = Uuid::now_v7().to_string();
    other.run.plan["target"]["token"]["id"] = "fc@pve!other".into();
    other.run.environment["place"]["settings"]["storage"] = "lvm".into();
    let query = format!("?run={ID}&run={}", other.run.id);
    let file = web::report_html(&export).unwrap();
    let interface = Interface::new(vec![export, other]).await;
    let viewer = interface.log_in("viewer").await;
    for page in [file, viewer.get(&format!("/runs/{ID}")).await.body, body(&viewer, &query).await] {
        assert!(page.contains("ceph-under-test"));
        for secret in ["fc@pve", "/root/"] {
            assert!(!page.contains(secret), "{secret}");
        }
    }
}

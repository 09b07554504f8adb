//! Who may use what, over the router's whole list of routes: a new route cannot be forgotten here.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use serde_json::json;
use web::{Access, Route};

use crate::client::{Client, Interface};
use crate::router::ID;
use crate::samples;

/// The route's path with something in it for each name.
fn path(route: &Route) -> String {
    let path = route
        .path
        .replace("{id}", ID)
        .replace("{secret}", "secret")
        .replace("{hash}", "0")
        .replace("{place}", "1")
        .replace("{name}", "x")
        .replace("{set}", "own");
    assert!(!path.contains('{'), "{path}: give the name a value here");
    path
}

fn routes(access: Access) -> Vec<Route> {
    web::routes().into_iter().filter(|route| route.access == access).collect()
}

/// Sends what a page of ours would send.
async fn ask(client: &Client<'_>, route: &Route) -> crate::client::Answered {
    match (&route.method, route.path.starts_with("/api/")) {
        (&Method::GET, _) => client.get(&path(route)).await,
        (_, true) => client.call(route.method.clone(), &path(route), json!({})).await,
        (_, false) => client.post(&path(route), &[]).await,
    }
}

#[test]
fn what_is_open_to_anybody_is_what_a_login_needs() {
    let open: BTreeSet<String> =
        routes(Access::Public).iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    let expected = [
        "GET /api/openapi.json",
        "GET /assets/{hash}/{name}",
        "GET /enter/{secret}",
        "GET /healthz",
        "GET /login",
        "GET /password/{secret}",
        "GET /setup/{secret}",
        "POST /api/v1/session",
        "POST /enter/{secret}",
        "POST /login",
        "POST /password/{secret}",
        "POST /setup/{secret}",
    ];
    assert_eq!(open.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn what_changes_something_is_for_administrators_or_ones_own() {
    let changing = routes(Access::Viewer).into_iter().filter(|route| route.method != Method::GET);
    let own: BTreeSet<String> = changing.map(|route| format!("{} {}", route.method, route.path)).collect();
    let expected = [
        "DELETE /api/v1/session",
        "DELETE /api/v1/tokens/{id}",
        "POST /account/password",
        "POST /api/v1/tokens",
        "POST /logout",
        "POST /tokens",
        "POST /tokens/{id}/revoke",
    ];
    assert_eq!(own.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn nobody_gets_past_the_login() {
    let interface = Interface::new(vec![samples::demo()]).await;
    let stranger = Client { cookie: Some("fourcorners-8440=guessed".to_owned()), ..interface.anonymous() };
    for route in web::routes().iter().filter(|route| route.access != Access::Public) {
        for client in [&interface.anonymous(), &stranger] {
            let answered = ask(client, route).await;
            let api = route.path.starts_with("/api/");
            if route.method == Method::GET && !api {
                let back: String = form_urlencoded::byte_serialize(path(route).as_bytes()).collect();
                assert_eq!(answered.location(), format!("/login?next={back}"), "{route:?}");
            } else {
                assert_eq!(answered.status, StatusCode::UNAUTHORIZED, "{route:?}");
                assert_eq!(answered.body.starts_with("{\"error\":{"), api, "{route:?}: {}", answered.body);
            }
            assert!(!answered.body.contains("demo"), "{route:?}");
        }
    }
}

#[tokio::test]
async fn a_viewer_may_use_no_administrators_route() {
    let interface = Interface::new(vec![samples::demo()]).await;
    let (admin, viewer) = (interface.log_in("admin").await, interface.log_in("viewer").await);
    let made =
        viewer.call(Method::POST, "/api/v1/tokens", json!({ "name": "script", "role": "viewer", "days": 1 })).await;
    let token = format!("Bearer {}", made.json()["token"].as_str().unwrap());
    let before = (interface.store.list_users().await.unwrap(), admin.get("/api/v1/runs").await.body);
    let all = routes(Access::Admin);
    assert!(all.len() >= 15, "{all:?}");
    for route in &all {
        let answered = ask(&viewer, route).await;
        assert_eq!(answered.status, StatusCode::FORBIDDEN, "{route:?}");
        assert!(answered.body.contains("viewer may look at runs and reports"), "{route:?}: {}", answered.body);
        if route.path.starts_with("/api/") {
            let request = interface.anonymous().request(route.method.clone(), &path(route));
            let request = request.header(header::AUTHORIZATION, &token).body(Body::from("{}")).unwrap();
            assert_eq!(interface.send(request).await.status, StatusCode::FORBIDDEN, "{route:?} with a token");
        }
    }
    assert!((interface.store.list_users().await.unwrap(), admin.get("/api/v1/runs").await.body) == before);
}

#[tokio::test]
async fn other_sites_cannot_make_a_browser_change_anything() {
    let interface = Interface::new(vec![samples::demo()]).await;
    let admin = interface.log_in("admin").await;
    let form = format!("csrf={}&name=eve&role=admin&note=x", admin.csrf);
    let kind = "application/x-www-form-urlencoded";
    let changing: Vec<Route> = web::routes().into_iter().filter(|route| route.method != Method::GET).collect();
    for route in &changing {
        // Even with the token: a browser says where a request comes from.
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://localhost:9999"),
            ("accept", "*/*"),
        ] {
            let mut request = admin.request(route.method.clone(), &path(route)).header(header::CONTENT_TYPE, kind);
            request.headers_mut().unwrap().remove("sec-fetch-site");
            let request = request.header(name, value).body(Body::from(form.clone())).unwrap();
            let answered = interface.send(request).await;
            assert_eq!(answered.status, StatusCode::FORBIDDEN, "{route:?} {name}: {value}");
            assert!(answered.body.contains("must come from a page of this server"), "{}", answered.body);
        }
    }
    for route in changing.iter().filter(|route| route.access != Access::Public) {
        let other = interface.log_in("viewer").await.csrf;
        for token in [String::new(), "x".repeat(43), other] {
            let forged = Client { csrf: token, ..admin.clone() };
            let answered = ask(&forged, route).await;
            assert_eq!(answered.status, StatusCode::FORBIDDEN, "{route:?}");
            assert!(answered.body.contains("form token"), "{route:?}: {}", answered.body);
        }
        // A form of text/plain, which needs no permission of ours to be sent across sites.
        let plain = admin.request(route.method.clone(), &path(route)).header(header::CONTENT_TYPE, "text/plain");
        let answered = interface.send(plain.body(Body::from(form.clone())).unwrap()).await;
        assert_eq!(answered.status, StatusCode::FORBIDDEN, "{route:?}");
    }
    assert_eq!(interface.store.list_users().await.unwrap().len(), 2);
    assert_eq!(admin.get(&format!("/runs/{ID}")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_description_has_every_call_of_the_api_and_no_other() {
    let interface = Interface::new(Vec::new()).await;
    let description = interface.anonymous().get("/api/openapi.json").await.json();
    let described: BTreeSet<String> = description["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, item)| {
            item.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase()))
        })
        .collect();
    let calls = web::routes().into_iter().filter(|route| route.path.starts_with("/api/v1/"));
    let calls: BTreeSet<String> = calls.map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(described, calls);
    assert!(description["openapi"].as_str().unwrap().starts_with("3."));
    assert_eq!(description["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    let references: Vec<String> = description
        .to_string()
        .split("\"#/components/schemas/")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect();
    for name in references {
        assert!(description["components"]["schemas"][&name].is_object(), "{name} is referred to, and not described");
    }
}

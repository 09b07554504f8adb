//! Users, sessions, links and tokens, as their users meet them.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode, header};
use serde_json::json;
use store::Role;

use crate::client::{Client, Interface};
use crate::samples;
use crate::source::{PASSWORD, Runs, add_user};

const NEW: &str = "quite another password";

#[tokio::test]
async fn the_set_up_link_makes_one_administrator_once() {
    let interface = Interface::empty(Arc::new(Runs::new(Vec::new(), None))).await;
    let browser = interface.anonymous();
    assert!(browser.get("/login").await.body.contains("There is no administrator yet"));
    let link = interface.app.set_up_link().unwrap();
    let newer = interface.app.set_up_link().unwrap();
    assert_eq!(browser.get(&link).await.status, StatusCode::GONE, "a newer link replaces it");
    assert!(browser.get(&newer).await.body.contains("Make the administrator"));
    for (name, password, repeated, why) in [
        ("boss", "short", "short", "5 characters"),
        ("boss", NEW, PASSWORD, "differ"),
        ("<script>", NEW, NEW, "no user name"),
    ] {
        let refused = browser.post(&newer, &[("name", name), ("password", password), ("repeated", repeated)]).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(refused.body.contains(why) && !refused.body.contains("<script>\""), "{}", refused.body);
    }
    let form = [("name", "boss"), ("password", NEW), ("repeated", NEW)];
    let made = browser.post(&newer, &form).await;
    assert_eq!((made.status, made.location()), (StatusCode::SEE_OTHER, "/"));
    let boss = interface.with_cookie(&made.cookie()).await;
    assert_eq!(boss.get("/users").await.status, StatusCode::OK);
    assert_eq!(browser.post(&newer, &form).await.status, StatusCode::GONE, "used");
    assert!(!browser.get("/login").await.body.contains("There is no administrator yet"));
}

#[tokio::test]
async fn a_login_opens_a_session_and_a_logout_ends_it_for_every_copy() {
    let interface = Interface::new(vec![samples::demo()]).await;
    let browser = interface.anonymous();
    let wrong = browser.post("/login", &[("name", "viewer"), ("password", "wrong")]).await;
    let unknown = browser.post("/login", &[("name", "nobody"), ("password", "wrong")]).await;
    assert_eq!((wrong.status, unknown.status), (StatusCode::UNAUTHORIZED, StatusCode::UNAUTHORIZED));
    assert_eq!(wrong.body.replace("viewer", "nobody"), unknown.body, "who exists is not told");
    assert!(!wrong.headers.contains_key(header::SET_COOKIE));
    let right = browser.post("/login", &[("name", "VIEWER"), ("password", PASSWORD), ("next", "/tokens")]).await;
    assert_eq!(right.location(), "/tokens");
    let attributes = right.headers[header::SET_COOKIE].to_str().unwrap().to_owned();
    for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age="] {
        assert!(attributes.contains(attribute), "{attributes}");
    }
    let viewer = interface.with_cookie(&right.cookie()).await;
    let stolen = viewer.clone();
    assert_eq!(stolen.get("/").await.status, StatusCode::OK);
    let out = viewer.post("/logout", &[]).await;
    assert_eq!((out.status, out.location()), (StatusCode::SEE_OTHER, "/login"));
    assert!(out.headers[header::SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(stolen.get("/").await.location(), "/login?next=%2F");
    assert_eq!(stolen.get("/api/v1/runs").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        stolen.post("/tokens", &[("name", "x"), ("role", "viewer"), ("days", "1")]).await.status,
        StatusCode::UNAUTHORIZED
    );
    let foreign =
        browser.post("/login", &[("name", "viewer"), ("password", PASSWORD), ("next", "//evil.example")]).await;
    assert_eq!(foreign.location(), "/");
}

#[tokio::test]
async fn failed_logins_are_limited_by_address_and_by_account() {
    let interface = Interface::new(Vec::new()).await;
    for number in 0..10 {
        let address = format!("[2001:db8:0:1:{number}::1]:9").parse().unwrap();
        let client = Client { address, ..interface.anonymous() };
        let failed = client.post("/login", &[("name", "nobody"), ("password", "wrong")]).await;
        assert_eq!(failed.status, StatusCode::UNAUTHORIZED);
    }
    let network = |address: &str| Client { address: address.parse().unwrap(), ..interface.anonymous() };
    let admin = [("name", "admin"), ("password", PASSWORD)];
    let limited = network("[2001:db8:0:1:ffff::1]:9").post("/login", &admin).await;
    assert_eq!(limited.status, StatusCode::TOO_MANY_REQUESTS, "a host of IPv6 has a whole /64");
    assert_eq!(network("[2001:db8:0:2::1]:9").post("/login", &admin).await.status, StatusCode::SEE_OTHER);
    let from =
        |number: u8| Client { address: format!("198.51.100.{number}:9").parse().unwrap(), ..interface.anonymous() };
    for _ in 0..10 {
        let failed = from(1).post("/login", &[("name", "viewer"), ("password", "wrong")]).await;
        assert_eq!(failed.status, StatusCode::UNAUTHORIZED);
    }
    let right = [("name", "viewer"), ("password", PASSWORD)];
    let limited = from(1).post("/login", &right).await;
    assert_eq!(limited.status, StatusCode::TOO_MANY_REQUESTS, "also with the right password");
    assert!(limited.body.contains("Too many failed logins"));
    let api = from(1).call(Method::POST, "/api/v1/session", json!({ "name": "viewer", "password": PASSWORD })).await;
    assert_eq!(api.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(api.headers[header::RETRY_AFTER].to_str().unwrap().parse::<u64>().unwrap() <= 11);
    assert_eq!(from(2).post("/login", &right).await.status, StatusCode::SEE_OTHER, "others are not concerned");
    for number in 0..25 {
        from(number + 10).post("/login", &[("name", "Viewer"), ("password", "wrong")]).await;
    }
    assert_eq!(from(99).post("/login", &right).await.status, StatusCode::TOO_MANY_REQUESTS, "the account is");
    assert_eq!(
        from(99).post("/login", &[("name", "admin"), ("password", PASSWORD)]).await.status,
        StatusCode::SEE_OTHER
    );
    for _ in 0..40 {
        let fine = from(98).post("/login", &[("name", "admin"), ("password", PASSWORD)]).await;
        assert_eq!(fine.status, StatusCode::SEE_OTHER, "a login that is right costs nothing");
    }
}

#[tokio::test]
async fn a_user_is_added_by_link_and_removed_with_all_that_it_opened() {
    let interface = Interface::new(vec![samples::demo()]).await;
    let admin = interface.log_in("admin").await;
    let added = admin.post("/users", &[("name", "carol"), ("role", "viewer")]).await;
    assert_eq!(added.location(), "/users");
    let page = admin.get("/users").await.body;
    let link = page.split("http://localhost:8440").nth(1).unwrap().split('<').next().unwrap().to_owned();
    assert!(link.starts_with("/password/") && page.contains("has not set a password yet"), "{link}");
    assert!(!admin.get("/users").await.body.contains("/password/"), "the link is shown once");
    let newcomer = interface.anonymous();
    assert!(newcomer.get(&link).await.body.contains("A password for carol"));
    assert_eq!(
        newcomer.post(&link, &[("password", "short"), ("repeated", "short")]).await.status,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    let set = newcomer.post(&link, &[("password", NEW), ("repeated", NEW)]).await;
    assert_eq!(set.location(), "/");
    assert_eq!(newcomer.get(&link).await.status, StatusCode::GONE);
    let carol = interface.with_cookie(&set.cookie()).await;
    let token = carol.call(Method::POST, "/api/v1/tokens", json!({ "name": "t", "role": "viewer", "days": 1 })).await;
    let bearer = format!("Bearer {}", token.json()["token"].as_str().unwrap());
    let with_token = |path: &str| {
        let request = interface.anonymous().request(Method::GET, path).header(header::AUTHORIZATION, &bearer);
        interface.send(request.body(Body::empty()).unwrap())
    };
    assert_eq!(with_token("/api/v1/runs").await.status, StatusCode::OK);
    assert_eq!(with_token("/").await.status, StatusCode::SEE_OTHER, "a token is for the API");
    let id = interface.store.user_named("carol").await.unwrap().unwrap().id;
    let again = admin.post("/users", &[("name", "CAROL"), ("role", "viewer")]).await;
    assert_eq!(again.status, StatusCode::SEE_OTHER);
    assert!(admin.get("/users").await.body.contains("There is a user &#34;CAROL&#34; already"));
    assert!(admin.get(&format!("/users/{id}/remove")).await.body.contains("Remove carol?"));
    admin.post(&format!("/users/{id}/remove"), &[]).await;
    assert_eq!(carol.get("/").await.location(), "/login?next=%2F");
    assert_eq!(with_token("/api/v1/runs").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_last_administrator_stays_one() {
    let interface = Interface::new(Vec::new()).await;
    let admin = interface.log_in("admin").await;
    let id = interface.store.user_named("admin").await.unwrap().unwrap().id;
    let demoted = admin.call(Method::PUT, &format!("/api/v1/users/{id}/role"), json!({ "role": "viewer" })).await;
    assert_eq!(demoted.status, StatusCode::CONFLICT);
    assert!(demoted.body.contains("admin is the last administrator who can log in"), "{}", demoted.body);
    assert_eq!(
        admin.call(Method::DELETE, &format!("/api/v1/users/{id}"), json!({})).await.status,
        StatusCode::CONFLICT
    );
    // One who was only invited cannot log in, and does not count.
    admin.post("/users", &[("name", "invited"), ("role", "admin")]).await;
    assert_eq!(
        admin.call(Method::DELETE, &format!("/api/v1/users/{id}"), json!({})).await.status,
        StatusCode::CONFLICT
    );
    add_user(&interface.store, "second", Role::Admin).await;
    admin.post(&format!("/users/{id}/role"), &[("role", "viewer")]).await;
    assert_eq!(admin.get("/users").await.status, StatusCode::FORBIDDEN, "a role counts at once");
}

#[tokio::test]
async fn passwords_are_changed_and_reset_and_old_sessions_end() {
    let interface = Interface::new(Vec::new()).await;
    let (here, elsewhere) = (interface.log_in("viewer").await, interface.log_in("viewer").await);
    let wrong = here.post("/account/password", &[("current", "wrong"), ("password", NEW), ("repeated", NEW)]).await;
    assert_eq!(wrong.location(), "/account");
    assert!(here.get("/account").await.body.contains("The current password is not right."));
    here.post("/account/password", &[("current", PASSWORD), ("password", NEW), ("repeated", NEW)]).await;
    assert!(here.get("/account").await.body.contains("The password was changed."));
    assert_eq!(elsewhere.get("/").await.status, StatusCode::SEE_OTHER);
    let login = |password| interface.anonymous().clone_post("/login", password);
    assert_eq!(login(PASSWORD).await, StatusCode::UNAUTHORIZED);
    assert_eq!(login(NEW).await, StatusCode::SEE_OTHER);

    let admin = interface.log_in("admin").await;
    let id = interface.store.user_named("viewer").await.unwrap().unwrap().id;
    let reset = admin.call(Method::POST, &format!("/api/v1/users/{id}/password-link"), json!({})).await.json();
    let link = reset["password_link"].as_str().unwrap().strip_prefix("http://localhost:8440").unwrap().to_owned();
    assert_eq!(here.get("/").await.status, StatusCode::OK, "until the link is used nothing changes");
    let set = interface.anonymous().post(&link, &[("password", PASSWORD), ("repeated", PASSWORD)]).await;
    assert_eq!(set.status, StatusCode::SEE_OTHER);
    assert_eq!(here.get("/").await.status, StatusCode::SEE_OTHER);
    assert_eq!(login(PASSWORD).await, StatusCode::SEE_OTHER);
}

impl Client<'_> {
    async fn clone_post(self, path: &str, password: &str) -> StatusCode {
        self.post(path, &[("name", "viewer"), ("password", password)]).await.status
    }
}

#[tokio::test]
async fn tokens_are_shown_once_and_allow_no_more_than_their_user() {
    let interface = Interface::new(Vec::new()).await;
    let (admin, viewer) = (interface.log_in("admin").await, interface.log_in("viewer").await);
    for (body, words) in [
        (json!({ "name": "t", "role": "admin", "days": 1 }), "cannot have the role admin"),
        (json!({ "name": "t", "role": "viewer", "days": 0 }), "allowed are 1 to 366"),
        (json!({ "name": " ", "role": "viewer", "days": 1 }), "1 to 100 characters"),
        (json!({ "name": "t", "role": "king", "days": 1 }), "no role"),
    ] {
        let refused = viewer.call(Method::POST, "/api/v1/tokens", body).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(refused.body.contains(words), "{}", refused.body);
    }
    viewer.post("/tokens", &[("name", "<b>script</b>"), ("role", "viewer"), ("days", "30")]).await;
    let shown = viewer.get("/tokens").await.body;
    let secret = shown.split("id=\"secret\">").nth(1).unwrap().split('<').next().unwrap().to_owned();
    assert_eq!(secret.len(), 43);
    assert!(shown.contains("&#60;b&#62;script&#60;/b&#62;") && !shown.contains("<b>script"));
    assert!(!viewer.get("/tokens").await.body.contains(&secret));

    let made =
        admin.call(Method::POST, "/api/v1/tokens", json!({ "name": "all", "role": "admin", "days": 1 })).await.json();
    let bearer = format!("Bearer {}", made["token"].as_str().unwrap());
    let users = |bearer: &str| {
        // As a script sends it: no cookie, no origin.
        let request = axum::http::Request::builder().uri("/api/v1/users").header(header::HOST, "127.0.0.1:8440");
        interface.send(request.header(header::AUTHORIZATION, bearer).body(Body::empty()).unwrap())
    };
    assert_eq!(users(&bearer).await.status, StatusCode::OK);
    assert_eq!(users(&format!("Bearer {secret}")).await.status, StatusCode::FORBIDDEN);
    assert_eq!(users("Bearer guessed").await.status, StatusCode::UNAUTHORIZED);
    add_user(&interface.store, "second", Role::Admin).await;
    let id = interface.store.user_named("admin").await.unwrap().unwrap().id;
    interface.store.set_role(id, Role::Viewer).await.unwrap();
    assert_eq!(users(&bearer).await.status, StatusCode::FORBIDDEN, "the user was made a viewer");

    let second = interface.log_in("second").await;
    let all = second.get("/api/v1/tokens").await.json();
    assert_eq!(all["tokens"].as_array().unwrap().len(), 2, "an administrator sees all");
    assert_eq!(viewer.get("/api/v1/tokens").await.json()["tokens"].as_array().unwrap().len(), 1);
    let foreign = made["id"].as_str().unwrap();
    assert_eq!(
        viewer.call(Method::DELETE, &format!("/api/v1/tokens/{foreign}"), json!({})).await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        second.call(Method::DELETE, &format!("/api/v1/tokens/{foreign}"), json!({})).await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(users(&bearer).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn the_terminals_link_lets_a_viewer_in_once() {
    let interface = Interface::new(vec![samples::demo()]).await;
    let link = interface.app.enter_link().unwrap();
    let entered = interface.anonymous().post(&link, &[]).await;
    assert_eq!(entered.location(), "/");
    for answered in [interface.anonymous().get(&link).await, interface.anonymous().post(&link, &[]).await] {
        assert_eq!(answered.status, StatusCode::GONE);
    }
    let visitor = interface.with_cookie(&entered.cookie()).await;
    assert!(visitor.get("/").await.body.contains("demo"));
    assert_eq!(visitor.get("/users").await.status, StatusCode::FORBIDDEN);
    assert!(visitor.get("/account").await.body.contains("has no account"));
    let token = visitor.call(Method::POST, "/api/v1/tokens", json!({ "name": "t", "role": "viewer", "days": 1 })).await;
    assert_eq!(token.status, StatusCode::FORBIDDEN);
    visitor.post("/logout", &[]).await;
    assert_eq!(visitor.get("/").await.status, StatusCode::SEE_OTHER);
}

/// What looks at links before a person does, a mail scanner or `curl -I`, takes none of them away.
#[tokio::test]
async fn a_link_that_works_once_is_not_used_up_by_looking_at_it() {
    let interface = Interface::new(Vec::new()).await;
    let admin = interface.log_in("admin").await;
    let id = interface.store.user_named("viewer").await.unwrap().unwrap().id;
    let reset = admin.call(Method::POST, &format!("/api/v1/users/{id}/password-link"), json!({})).await.json();
    let reset = reset["password_link"].as_str().unwrap().strip_prefix("http://localhost:8440").unwrap().to_owned();
    let links = [interface.app.enter_link().unwrap(), interface.app.set_up_link().unwrap(), reset];
    let secrets =
        web::routes().into_iter().filter(|route| route.path.contains("{secret}") && route.method == Method::GET);
    assert_eq!(secrets.count(), links.len(), "a kind of link that is not looked at here");
    let scanner = interface.anonymous();
    for link in &links {
        for method in [Method::HEAD, Method::GET, Method::GET] {
            let looked = interface.send(scanner.request(method, link).body(Body::empty()).unwrap()).await;
            assert_eq!((looked.status, looked.headers.get(header::SET_COOKIE)), (StatusCode::OK, None), "{link}");
        }
        let used = scanner.post(link, &[("name", "boss"), ("password", NEW), ("repeated", NEW)]).await;
        assert_eq!((used.status, used.location()), (StatusCode::SEE_OTHER, "/"), "{link}");
    }
}

/// A token ends, and whoever has stolen one has nothing for longer.
#[tokio::test]
async fn a_token_opens_nothing_that_outlives_it() {
    let interface = Interface::new(Vec::new()).await;
    let admin = interface.log_in("admin").await;
    let made = admin.call(Method::POST, "/api/v1/tokens", json!({ "name": "all", "role": "admin", "days": 1 })).await;
    let bearer = format!("Bearer {}", made.json()["token"].as_str().unwrap());
    let id = interface.store.user_named("viewer").await.unwrap().unwrap().id;
    let calls = [
        (Method::POST, "/api/v1/tokens".to_owned(), json!({ "name": "more", "role": "viewer", "days": 1 })),
        (Method::POST, "/api/v1/users".to_owned(), json!({ "name": "eve", "role": "admin" })),
        (Method::POST, format!("/api/v1/users/{id}/password-link"), json!({})),
        (Method::PUT, format!("/api/v1/users/{id}/role"), json!({ "role": "admin" })),
    ];
    let state =
        async || (interface.store.list_users().await.unwrap(), interface.store.list_tokens(None).await.unwrap().len());
    let before = state().await;
    for (method, path, body) in &calls {
        let request = interface.anonymous().request(method.clone(), path).header(header::AUTHORIZATION, &bearer);
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string()));
        let refused = interface.send(request.unwrap()).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}: {}", refused.body);
        assert!(refused.body.contains("would outlive it"), "{}", refused.body);
    }
    assert!(state().await == before);
    for (method, path, body) in calls {
        let allowed = admin.call(method, &path, body).await;
        assert!(allowed.status.is_success(), "a person may: {path}: {}", allowed.body);
    }
}

#[tokio::test]
async fn a_new_password_ends_the_tokens_where_that_is_asked_for() {
    let interface = Interface::new(Vec::new()).await;
    let admin = interface.log_in("admin").await;
    admin.call(Method::POST, "/api/v1/tokens", json!({ "name": "another's", "role": "viewer", "days": 1 })).await;
    let user = interface.store.user_named("viewer").await.unwrap().unwrap();
    let viewer = interface.log_in("viewer").await;
    assert!(!viewer.get("/account").await.body.contains("end_tokens"), "there is none");
    let tokens = async || interface.store.list_tokens(Some(user.id)).await.unwrap().len();
    let make = async |viewer: &Client<'_>| {
        let body = json!({ "name": "nightly", "role": "viewer", "days": 1 });
        let made = viewer.call(Method::POST, "/api/v1/tokens", body).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    };
    make(&viewer).await;
    assert!(viewer.get("/account").await.body.contains("name=\"end_tokens\" value=\"yes\" checked"));
    let change = [("current", PASSWORD), ("password", NEW), ("repeated", NEW)];
    viewer.post("/account/password", &change).await;
    assert!(viewer.get("/account").await.body.contains("your API tokens go on"));
    assert_eq!(tokens().await, 1);
    let back = [("current", NEW), ("password", PASSWORD), ("repeated", PASSWORD), ("end_tokens", "yes")];
    viewer.post("/account/password", &back).await;
    assert!(viewer.get("/account").await.body.contains("all your API tokens have ended"));
    assert_eq!(tokens().await, 0);

    for (asked, left) in [(&[][..], 1), (&[("end_tokens", "yes")], 0)] {
        let viewer = interface.log_in("viewer").await;
        if tokens().await == 0 {
            make(&viewer).await;
        }
        let reset = admin.call(Method::POST, &format!("/api/v1/users/{}/password-link", user.id), json!({})).await;
        let reset = reset.json()["password_link"].as_str().unwrap().to_owned();
        let link = reset.strip_prefix("http://localhost:8440").unwrap();
        assert!(interface.anonymous().get(link).await.body.contains("name=\"end_tokens\""));
        let form = [&[("password", PASSWORD), ("repeated", PASSWORD)][..], asked].concat();
        assert_eq!(interface.anonymous().post(link, &form).await.status, StatusCode::SEE_OTHER);
        assert_eq!(tokens().await, left);
        assert_eq!(viewer.get("/").await.status, StatusCode::SEE_OTHER, "sessions end in any case");
    }
    assert_eq!(interface.store.list_tokens(None).await.unwrap().len(), 1, "another's goes on");
}

#[tokio::test]
async fn bodies_are_bounded_whoever_sends_them() {
    let interface = Interface::new(Vec::new()).await;
    let hundred = || {
        let pieces = (0..1600).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 64 << 10])));
        Body::from_stream(futures_util::stream::iter(pieces))
    };
    let admin = interface.log_in("admin").await;
    for (client, path) in [(&interface.anonymous(), "/login"), (&admin, "/users"), (&admin, "/api/v1/users")] {
        let streamed = interface.send(client.request(Method::POST, path).body(hundred()).unwrap()).await;
        assert_eq!(streamed.status, StatusCode::PAYLOAD_TOO_LARGE, "{path}");
        let announced = client.request(Method::POST, path).header(header::CONTENT_LENGTH, 100 << 20);
        let announced = interface.send(announced.body(Body::empty()).unwrap()).await;
        assert_eq!(announced.status, StatusCode::PAYLOAD_TOO_LARGE, "{path}");
    }
    let nonsense = admin.call(Method::POST, "/api/v1/users", json!(["no", "user"])).await;
    assert!(nonsense.status.is_client_error() && nonsense.body.starts_with("{\"error\":{"), "{}", nonsense.body);
    let page = admin.post("/users", &[("role", "viewer")]).await;
    assert!(page.status.is_client_error() && page.body.contains("missing field"), "{}", page.body);
}

//! A client of the router: a browser's headers, cookie and form token without the browser.

use std::net::SocketAddr;
use std::sync::Arc;

use analysis::export::Export;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use store::{Role, Store};
use tower::ServiceExt as _;
use web::{AllowedHosts, App, Parts, Progress, RunSource, Workshop};

use crate::source::{PASSWORD, Runs, add_user, new_app, new_store};

pub(crate) const HOST: &str = "localhost:8440";

/// An interface with its users `admin` and `viewer`.
pub(crate) struct Interface {
    _directory: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) app: App,
    pub(crate) router: Router,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answered {
    /// Where a redirect leads.
    pub(crate) fn location(&self) -> &str {
        self.headers.get(header::LOCATION).map_or("", |location| location.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The value of the session's cookie that it sets.
    pub(crate) fn cookie(&self) -> String {
        let cookie = self.headers[header::SET_COOKIE].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }
}

impl Interface {
    pub(crate) async fn new(exports: Vec<Export>) -> Self {
        Self::with_progress(exports, None).await
    }

    pub(crate) async fn with_progress(exports: Vec<Export>, progress: Option<Progress>) -> Self {
        let interface = Self::empty(Arc::new(Runs::new(exports, progress))).await;
        add_user(&interface.store, "admin", Role::Admin).await;
        add_user(&interface.store, "viewer", Role::Viewer).await;
        interface
    }

    /// With somebody who carries out runs.
    pub(crate) async fn with_workshop(exports: Vec<Export>, workshop: Arc<dyn Workshop>) -> Self {
        let (directory, store) = new_store().await;
        let listening = "127.0.0.1:8440".parse().unwrap();
        let (runs, hosts) = (Arc::new(Runs::new(exports, None)), AllowedHosts::listening_on(listening));
        let app = App::new(Parts { runs, workshop, store: store.clone(), hosts, listening, secure: false }).unwrap();
        add_user(&store, "admin", Role::Admin).await;
        add_user(&store, "viewer", Role::Viewer).await;
        Self { _directory: directory, store, router: web::router(app.clone()), app }
    }

    /// Of an app over a store.
    pub(crate) fn of(directory: tempfile::TempDir, store: Store, app: App) -> Self {
        Self { _directory: directory, store, router: web::router(app.clone()), app }
    }

    /// Without a user.
    pub(crate) async fn empty(runs: Arc<dyn RunSource>) -> Self {
        let (directory, store) = new_store().await;
        let app = new_app(runs, store.clone(), "127.0.0.1:8440".parse().unwrap());
        Self { _directory: directory, store, router: web::router(app.clone()), app }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answered {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = to_bytes(body, 64 << 20).await.unwrap();
        Answered { status: head.status, headers: head.headers, body: String::from_utf8(body.to_vec()).unwrap() }
    }

    /// Nobody.
    pub(crate) fn anonymous(&self) -> Client<'_> {
        Client { interface: self, cookie: None, csrf: String::new(), address: "192.0.2.1:1".parse().unwrap() }
    }

    /// Whoever has that name, logged in.
    pub(crate) async fn log_in(&self, name: &str) -> Client<'_> {
        let answered = self.anonymous().post("/login", &[("name", name), ("password", PASSWORD)]).await;
        assert_eq!(answered.status, StatusCode::SEE_OTHER, "{}", answered.body);
        self.with_cookie(&answered.cookie()).await
    }

    /// Whoever has that cookie.
    pub(crate) async fn with_cookie(&self, cookie: &str) -> Client<'_> {
        let mut client = Client { cookie: Some(cookie.to_owned()), ..self.anonymous() };
        let csrf = client.get("/api/v1/session").await.json()["csrf"].as_str().map(str::to_owned);
        csrf.unwrap_or_default().clone_into(&mut client.csrf);
        client
    }
}

/// A browser that sends what browsers send by themselves.
#[derive(Clone)]
pub(crate) struct Client<'a> {
    pub(crate) interface: &'a Interface,
    pub(crate) cookie: Option<String>,
    pub(crate) csrf: String,
    pub(crate) address: SocketAddr,
}

impl Client<'_> {
    pub(crate) fn request(&self, method: Method, path: &str) -> axum::http::request::Builder {
        let mut builder = Request::builder().method(method).uri(path).header(header::HOST, HOST);
        builder = builder.header("sec-fetch-site", "same-origin").extension(ConnectInfo(self.address));
        match &self.cookie {
            Some(cookie) => builder.header(header::COOKIE, cookie),
            None => builder,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        self.interface.send(self.request(Method::GET, path).body(Body::empty()).unwrap()).await
    }

    /// A form with the session's token.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answered {
        let mut form = form_urlencoded::Serializer::new(String::new());
        let body = form.extend_pairs(fields).append_pair("csrf", &self.csrf).finish();
        let kind = "application/x-www-form-urlencoded";
        let request = self.request(Method::POST, path).header(header::CONTENT_TYPE, kind).body(Body::from(body));
        self.interface.send(request.unwrap()).await
    }

    /// JSON, with the token in the header.
    pub(crate) async fn call(&self, method: Method, path: &str, body: serde_json::Value) -> Answered {
        let request = self.request(method, path).header("x-csrf-token", &self.csrf);
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string()));
        self.interface.send(request.unwrap()).await
    }
}

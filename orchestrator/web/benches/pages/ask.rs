//! Asks the router what a browser would ask, and looks at the clock.

use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode, header};
use futures_util::StreamExt as _;
use tower::ServiceExt as _;

use crate::source::PASSWORD;

const HOST: &str = "localhost:8440";
/// No answer is larger.
const MOST_BYTES: usize = 1 << 30;

/// A browser that is logged in.
pub(crate) struct Client {
    router: Router,
    cookie: String,
    /// The session's form token.
    csrf: String,
}

/// What is asked for.
pub(crate) enum Question {
    /// By its path.
    Get(String),
    /// A form; `name` tells it from others that go to the same path.
    Post { path: &'static str, name: &'static str, fields: Vec<(&'static str, String)> },
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get(path) => f.write_str(path),
            Self::Post { path, name, .. } => write!(f, "POST {path} ({name})"),
        }
    }
}

/// One answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) status: u16,
    /// Until the head, and of what is not streamed all of it, is there.
    head_ms: f64,
    /// Until all of it is there; of the feed, which has no end, until the first message.
    pub(crate) whole_ms: f64,
    pub(crate) bytes: usize,
    streamed: bool,
}

impl Asked {
    /// What the limit is for: a page whole; of a download, which is made while it is sent, its head.
    pub(crate) fn answer_ms(&self) -> f64 {
        if self.streamed { self.head_ms } else { self.whole_ms }
    }
}

impl Client {
    pub(crate) async fn log_in(router: Router) -> Self {
        let mut form = form_urlencoded::Serializer::new(String::new());
        let form = form.append_pair("name", "admin").append_pair("password", PASSWORD).append_pair("csrf", "").finish();
        let request = request(Method::POST, "/login").header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = router.clone().oneshot(request.body(Body::from(form)).unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        let cookie = answer.headers()[header::SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
        let mut client = Self { router, cookie, csrf: String::new() };
        let session: serde_json::Value = serde_json::from_str(&client.text("/api/v1/session").await).unwrap();
        session["csrf"].as_str().unwrap().clone_into(&mut client.csrf);
        client
    }

    pub(crate) async fn ask(&self, question: &Question) -> Asked {
        match question {
            Question::Get(path) => {
                let request = request(Method::GET, path).header(header::COOKIE, &self.cookie);
                self.send(request.body(Body::empty()).unwrap()).await
            }
            Question::Post { path, fields, .. } => {
                let mut form = form_urlencoded::Serializer::new(String::new());
                let form = form.extend_pairs(fields).append_pair("csrf", &self.csrf).finish();
                let request = request(Method::POST, path).header(header::COOKIE, &self.cookie);
                let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
                self.send(request.body(Body::from(form)).unwrap()).await
            }
        }
    }

    async fn send(&self, request: Request<Body>) -> Asked {
        let is_feed = request.uri().path().ends_with("/feed");
        let began = Instant::now();
        let ms = || began.elapsed().as_secs_f64() * 1e3;
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let head_ms = ms();
        let (status, body) = (answer.status().as_u16(), answer.into_body());
        let streamed = body.size_hint().exact().is_none();
        let bytes = if is_feed {
            body.into_data_stream().next().await.unwrap().unwrap().len()
        } else {
            to_bytes(body, MOST_BYTES).await.unwrap().len()
        };
        Asked { status, head_ms, whole_ms: ms(), bytes, streamed }
    }

    async fn text(&self, path: &str) -> String {
        let request = request(Method::GET, path).header(header::COOKIE, &self.cookie).body(Body::empty()).unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let text = to_bytes(answer.into_body(), MOST_BYTES).await.unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Where a browser finds an asset.
    pub(crate) async fn asset(&self, name: &str) -> String {
        let page = self.text("/compare").await;
        let mut urls = page.split('"').filter(|url| url.starts_with("/assets/"));
        urls.find(|url| url.ends_with(name)).unwrap().to_owned()
    }
}

fn request(method: Method, path: &str) -> axum::http::request::Builder {
    let address: SocketAddr = "192.0.2.1:1".parse().unwrap();
    let builder = Request::builder().method(method).uri(path).header(header::HOST, HOST);
    builder.header("sec-fetch-site", "same-origin").extension(ConnectInfo(address))
}

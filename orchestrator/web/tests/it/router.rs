//! Status codes, headers and bodies of the pages.

use std::sync::Arc;

use analysis::export::Export;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use tower::ServiceExt as _;
use uuid::Uuid;
use web::{AllowedHosts, Progress, RunSource, RunSummary, SourceError};

use crate::samples;
use crate::source::Runs;

/// A source whose disk is gone.
struct Broken;

impl RunSource for Broken {
    async fn list_runs(&self, _: u32) -> Result<Vec<RunSummary>, SourceError> {
        Err("the database <disk> is gone".into())
    }

    async fn load_export(&self, _: Uuid) -> Result<Option<Export>, SourceError> {
        Err("the database <disk> is gone".into())
    }
}

pub(crate) const ID: &str = "0199c2a4-5b6e-7d10-9f3a-2c1d4e5f6a7b";

fn hosts() -> AllowedHosts {
    AllowedHosts::listening_on("127.0.0.1:8080".parse().unwrap())
}

async fn send<S: RunSource>(source: S, request: Request<Body>) -> (StatusCode, HeaderMap, String) {
    let response = web::router(Arc::new(source), hosts()).oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = to_bytes(body, 64 << 20).await.unwrap();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

fn request(method: Method, path: &str) -> Request<Body> {
    Request::builder().method(method).uri(path).header(header::HOST, "localhost:8080").body(Body::empty()).unwrap()
}

async fn get(path: &str) -> (StatusCode, HeaderMap, String) {
    send(Runs { exports: vec![samples::demo()], progress: None }, request(Method::GET, path)).await
}

fn has_security_headers(headers: &HeaderMap) {
    let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.contains("default-src 'none'; script-src 'self';"), "{policy}");
    let script = policy.split("script-src").nth(1).unwrap().split(';').next().unwrap();
    assert_eq!(script.trim(), "'self'");
    assert!(policy.contains("frame-ancestors 'none'"));
    assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(headers[header::X_FRAME_OPTIONS], "DENY");
    assert_eq!(headers[header::REFERRER_POLICY], "no-referrer");
}

#[tokio::test]
async fn the_list_and_the_report_are_pages() {
    let (status, headers, body) = get("/").await;
    assert_eq!(status, StatusCode::OK);
    has_security_headers(&headers);
    assert!(body.contains(&format!("<a href=\"/runs/{ID}\">demo</a>")), "{body}");
    let (status, headers, body) = get(&format!("/runs/{ID}")).await;
    assert_eq!(status, StatusCode::OK);
    has_security_headers(&headers);
    assert_eq!(headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
    assert_eq!(headers[header::CACHE_CONTROL], "private, no-cache");
    assert!(body.contains("48,000") && body.len() < 1_000_000, "{} bytes", body.len());
    assert!(!body.contains("data-progress"), "a run that has ended has no progress");
}

#[tokio::test]
async fn served_pages_have_no_inline_script() {
    for path in ["/".to_owned(), format!("/runs/{ID}"), "/nothing".to_owned()] {
        let (_, _, body) = get(&path).await;
        for script in body.split("<script").skip(1) {
            let (attributes, content) = script.split_once('>').unwrap();
            let data = attributes.contains("type=\"application/json\"");
            assert!(
                data || (attributes.contains("src=\"/assets/") && content.starts_with("</script>")),
                "{path}: {attributes}"
            );
        }
        assert!(!body.contains(" onclick=") && !body.contains("javascript:"), "{path}");
    }
}

#[tokio::test]
async fn assets_are_kept_and_only_under_their_own_name() {
    let (_, _, page) = get(&format!("/runs/{ID}")).await;
    let urls: Vec<&str> = page.split("\"/assets/").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(urls.len(), 3, "{urls:?}");
    for url in urls {
        let (status, headers, body) = get(&format!("/assets/{url}")).await;
        assert_eq!(status, StatusCode::OK, "{url}");
        assert_eq!(headers[header::CACHE_CONTROL], "public, max-age=31536000, immutable");
        assert!(!body.is_empty());
        let (_, name) = url.split_once('/').unwrap();
        assert_eq!(get(&format!("/assets/another-version/{name}")).await.0, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn downloads_are_attachments() {
    for (extension, kind, start) in [
        ("json", "application/json", "{"),
        ("csv", "text/csv; charset=utf-8", "run_id,"),
        ("html", "text/html; charset=utf-8", "<!DOCTYPE html>"),
    ] {
        let (status, headers, body) = get(&format!("/runs/{ID}/export.{extension}")).await;
        assert_eq!(status, StatusCode::OK);
        has_security_headers(&headers);
        assert_eq!(headers[header::CONTENT_TYPE], kind);
        let name = format!("attachment; filename=\"fourcorners-demo-2c1d4e5f6a7b.{extension}\"");
        assert_eq!(headers[header::CONTENT_DISPOSITION], name);
        assert!(body.starts_with(start));
    }
}

#[tokio::test]
async fn a_hostile_name_stays_in_its_header_and_page() {
    let mut export = samples::hostile();
    export.run.id = ID.to_owned();
    export.run.name.push_str("\r\nSet-Cookie: a=b");
    let source = || Runs { exports: vec![export.clone()], progress: None };
    let (status, headers, _) = send(source(), request(Method::GET, &format!("/runs/{ID}/export.csv"))).await;
    assert_eq!(status, StatusCode::OK);
    assert!(!headers.contains_key(header::SET_COOKIE));
    let name = headers[header::CONTENT_DISPOSITION].to_str().unwrap();
    assert!(
        name.strip_prefix("attachment; filename=\"")
            .unwrap()
            .trim_end_matches('"')
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)),
        "{name}"
    );
    for path in ["/".to_owned(), format!("/runs/{ID}")] {
        let (_, _, body) = send(source(), request(Method::GET, &path)).await;
        assert!(!body.contains("<script>window") && !body.contains("<img"), "{path}");
    }
}

#[tokio::test]
async fn unknown_runs_and_path_tricks_are_not_found() {
    let unknown = Uuid::nil();
    for path in [
        format!("/runs/{unknown}"),
        format!("/runs/{unknown}/export.json"),
        "/runs/..%2f..%2fetc%2fpasswd".to_owned(),
        "/runs/%3Cscript%3E".to_owned(),
        format!("/runs/{ID}/export.exe"),
        format!("/runs/{ID}/../../etc/passwd"),
        "/assets/..%2f..%2fCargo.toml/x".to_owned(),
        "/assets/%2e%2e/Cargo.toml".to_owned(),
        "//etc/passwd".to_owned(),
    ] {
        let (status, headers, body) = get(&path).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        has_security_headers(&headers);
        assert!(body.contains("Error 404") && body.contains("All runs"), "{path}: {body}");
        assert!(!body.contains("<script>"), "{path}");
    }
    let (status, _, body) = get(&format!("/api/v1/runs/{unknown}")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body.starts_with("{\"error\":{"), "{body}");
    let (status, _, body) = get("/api/v1/nothing").await;
    assert_eq!((status, body.starts_with("{\"error\":{")), (StatusCode::NOT_FOUND, true));
}

#[tokio::test]
async fn only_reading_is_possible() {
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        let source = Runs { exports: vec![samples::demo()], progress: None };
        let (status, headers, _) = send(source, request(method, &format!("/runs/{ID}"))).await;
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
        has_security_headers(&headers);
    }
    let source = Runs { exports: vec![samples::demo()], progress: None };
    let (status, _, body) = send(source, request(Method::HEAD, "/")).await;
    assert_eq!((status, body.len()), (StatusCode::OK, 0));
}

#[tokio::test]
async fn another_sites_name_is_refused_everywhere() {
    for path in ["/", "/healthz", "/api/v1/runs", "/nothing"] {
        let request = Request::builder().uri(path).header(header::HOST, "evil.example").body(Body::empty()).unwrap();
        let (status, headers, body) = send(Runs { exports: vec![samples::demo()], progress: None }, request).await;
        assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "{path}");
        has_security_headers(&headers);
        assert!(!body.contains("demo"), "{path}");
    }
}

#[tokio::test]
async fn a_broken_source_is_explained() {
    let (status, _, body) = send(Broken, request(Method::GET, "/")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body.contains("the database &#60;disk&#62; is gone") && body.contains("Nothing was changed"), "{body}");
    let (status, _, body) = send(Broken, request(Method::GET, "/api/v1/runs")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body.contains("\"what\":\"the database <disk> is gone\""), "{body}");
}

#[tokio::test]
async fn the_api_lists_runs_exports_them_and_tells_progress() {
    let (_, _, body) = get("/api/v1/runs").await;
    let runs: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(runs["runs"][0]["id"], ID);
    assert_eq!(runs["runs"][0]["started"], "2026-11-30T08:15:00Z");
    let (_, _, body) = get(&format!("/api/v1/runs/{ID}")).await;
    assert!(serde_json::from_str::<Export>(&body).unwrap() == samples::demo());
    let (_, _, body) = get(&format!("/api/v1/runs/{ID}/progress")).await;
    assert_eq!(body, "{\"progress\":null}");
    let (status, _, body) = get("/healthz").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "ok\n"));
}

#[tokio::test]
async fn a_running_run_has_progress() {
    let progress = Progress {
        phase: "sampling".to_owned(),
        case: Some("8k-random-70-30 on 256MiB".to_owned()),
        percent: 24.5,
        iops: Some(24_000.0),
        mib_per_s: Some(187.5),
        seconds_left: Some(93.0),
    };
    let source = || Runs { exports: vec![samples::running()], progress: Some(progress.clone()) };
    let (_, _, page) = send(source(), request(Method::GET, &format!("/runs/{ID}"))).await;
    assert!(page.contains(&format!("data-progress=\"/api/v1/runs/{ID}/progress\"")), "{page}");
    let (_, _, body) = send(source(), request(Method::GET, &format!("/api/v1/runs/{ID}/progress"))).await;
    let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["progress"]["percent"], 24.5);
    assert_eq!(answer["progress"]["case"], "8k-random-70-30 on 256MiB");
}

#[tokio::test]
async fn an_empty_list_says_how_to_make_a_run() {
    let (_, _, body) = send(Runs { exports: Vec::new(), progress: None }, request(Method::GET, "/")).await;
    assert!(body.contains("fourcorners demo"), "{body}");
}

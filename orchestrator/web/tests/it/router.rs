//! Status codes, headers and bodies of the pages of runs.

use std::sync::Arc;

use analysis::export::Export;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use store::{Role, RunFilter};
use uuid::Uuid;
use web::{Answer, Measured, Progress, RunSource, RunSummary};

use crate::client::{Answered, Interface};
use crate::samples;
use crate::source::add_user;

/// A source whose disk is gone.
struct Broken;

impl Broken {
    fn fail<T: Send + 'static>() -> Answer<'static, T> {
        Box::pin(async { Err("the database <disk> is gone".into()) })
    }
}

impl RunSource for Broken {
    fn list_runs<'a>(&'a self, _: &'a RunFilter) -> Answer<'a, Vec<RunSummary>> {
        Self::fail()
    }

    fn load_export(&self, _: Uuid) -> Answer<'_, Option<Measured>> {
        Self::fail()
    }

    fn summary(&self, _: Uuid) -> Answer<'_, Option<RunSummary>> {
        Self::fail()
    }

    fn set_note<'a>(&'a self, _: Uuid, _: &'a str) -> Answer<'a, ()> {
        Self::fail()
    }

    fn delete_run(&self, _: Uuid, _: bool) -> Answer<'_, ()> {
        Self::fail()
    }
}

pub(crate) const ID: &str = "0199c2a4-5b6e-7d10-9f3a-2c1d4e5f6a7b";

/// As a viewer.
async fn get_of(exports: Vec<Export>, path: &str) -> Answered {
    let interface = Interface::new(exports).await;
    interface.log_in("viewer").await.get(path).await
}

async fn get(path: &str) -> (StatusCode, HeaderMap, String) {
    let Answered { status, headers, body } = get_of(vec![samples::demo()], path).await;
    (status, headers, body)
}

fn has_security_headers(headers: &HeaderMap) {
    let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.contains("default-src 'none'; script-src 'self';"), "{policy}");
    let script = policy.split("script-src").nth(1).unwrap().split(';').next().unwrap();
    assert_eq!(script.trim(), "'self'");
    assert!(policy.contains("frame-ancestors 'none'"));
    assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(headers[header::X_FRAME_OPTIONS], "DENY");
    assert_eq!(headers[header::REFERRER_POLICY], "same-origin");
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
    assert_eq!(headers[header::CACHE_CONTROL], "no-store");
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
    assert_eq!(urls.len(), 5, "{urls:?}");
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
    let Answered { status, headers, .. } = get_of(vec![export.clone()], &format!("/runs/{ID}/export.csv")).await;
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
        let Answered { body, .. } = get_of(vec![export.clone()], &path).await;
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
async fn a_method_that_a_path_does_not_have_is_refused() {
    let interface = Interface::new(vec![samples::demo()]).await;
    let admin = interface.log_in("admin").await;
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        let answered = admin.call(method, &format!("/runs/{ID}"), serde_json::Value::Null).await;
        assert_eq!(answered.status, StatusCode::METHOD_NOT_ALLOWED);
        has_security_headers(&answered.headers);
    }
    let head = interface.send(admin.request(Method::HEAD, "/").body(Body::empty()).unwrap()).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
}

#[tokio::test]
async fn another_sites_name_is_refused_everywhere() {
    let interface = Interface::new(vec![samples::demo()]).await;
    let cookie = interface.log_in("admin").await.cookie.unwrap();
    for path in ["/", "/healthz", "/api/v1/runs", "/nothing"] {
        let request = Request::builder().uri(path).header(header::HOST, "evil.example").header(header::COOKIE, &cookie);
        let answered = interface.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answered.status, StatusCode::MISDIRECTED_REQUEST, "{path}");
        has_security_headers(&answered.headers);
        assert!(!answered.body.contains("demo"), "{path}");
    }
}

#[tokio::test]
async fn a_broken_source_is_explained() {
    let interface = Interface::empty(Arc::new(Broken)).await;
    add_user(&interface.store, "viewer", Role::Viewer).await;
    let viewer = interface.log_in("viewer").await;
    let page = viewer.get("/").await;
    assert_eq!(page.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(page.body.contains("the database &#60;disk&#62; is gone") && page.body.contains("Nothing was changed"));
    let answer = viewer.get("/api/v1/runs").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.json()["error"]["what"], "the database <disk> is gone");
}

#[tokio::test]
async fn the_api_lists_runs_exports_them_and_tells_progress() {
    let (_, _, body) = get("/api/v1/runs").await;
    let runs: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(runs["runs"][0]["id"], ID);
    assert_eq!(runs["runs"][0]["started"], "2026-11-30T08:15:00Z");
    let (_, _, body) = get(&format!("/api/v1/runs/{ID}")).await;
    assert_eq!(body, web::export_json(&samples::demo()).unwrap(), "what is written a case at a time is the same text");
    let (_, _, body) = get(&format!("/api/v1/runs/{ID}/progress")).await;
    assert_eq!(body, "{\"progress\":null}");
    let (status, _, body) = get("/healthz").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "ok\n"));
}

#[tokio::test]
async fn an_export_without_cases_is_the_same_text_too() {
    let export = Export { cases: Vec::new(), ..samples::demo() };
    let answered = get_of(vec![export.clone()], &format!("/runs/{ID}/export.json")).await;
    assert_eq!(answered.body, web::export_json(&export).unwrap());
}

#[tokio::test]
async fn a_running_run_has_progress() {
    let progress = Progress {
        phase: "256MiB: 8k-random-70-30, sample".to_owned(),
        case: Some("case 3 of 10".to_owned()),
        percent: 24.5,
        iops: Some(24_000.0),
        mib_per_s: Some(187.5),
        seconds_left: Some(93.0),
        ending: None,
    };
    let interface = Interface::with_progress(vec![samples::running()], Some(progress)).await;
    let viewer = interface.log_in("viewer").await;
    let page = viewer.get(&format!("/runs/{ID}")).await.body;
    assert!(page.contains(&format!("data-progress=\"/api/v1/runs/{ID}/progress\"")), "{page}");
    let answer = viewer.get(&format!("/api/v1/runs/{ID}/progress")).await.json();
    assert_eq!(answer["progress"]["percent"], 24.5);
    assert_eq!(answer["progress"]["case"], "case 3 of 10");
}

#[tokio::test]
async fn an_empty_list_says_how_to_make_a_run() {
    let body = get_of(Vec::new(), "/").await.body;
    assert!(body.contains("fourcorners demo"), "{body}");
}

#[tokio::test]
async fn notes_are_written_by_administrators_and_shown_as_text() {
    let interface = Interface::new(vec![samples::demo()]).await;
    let (admin, viewer) = (interface.log_in("admin").await, interface.log_in("viewer").await);
    let note = "<script>alert(1)</script>\r\n\"quoted\" & </textarea><img src=x onerror=alert(2)>";
    let saved = admin.post(&format!("/runs/{ID}/note"), &[("note", note)]).await;
    assert_eq!((saved.status, saved.location()), (StatusCode::SEE_OTHER, format!("/runs/{ID}").as_str()));
    for (client, path) in [(&admin, format!("/runs/{ID}")), (&viewer, format!("/runs/{ID}")), (&viewer, "/".to_owned())]
    {
        let page = client.get(&path).await.body;
        assert!(page.contains("&#60;script&#62;alert(1)&#60;/script&#62;"), "{path}: the note is not shown");
        assert!(!page.contains("<script>alert") && !page.contains("<img"), "{path}: the note became markup");
        assert_eq!(page.matches("</textarea>").count(), page.matches("<textarea").count(), "{path}");
    }
    let listed = viewer.get("/api/v1/runs").await.json();
    assert_eq!(listed["runs"][0]["note"], note.replace("\r\n", "\n"));
    let long = admin
        .call(Method::PUT, &format!("/api/v1/runs/{ID}/note"), serde_json::json!({ "note": "x".repeat(10_001) }))
        .await;
    assert_eq!(long.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(long.body.contains("10001 characters"), "{}", long.body);
}

#[tokio::test]
async fn a_run_is_deleted_after_a_question_and_never_one_that_goes_on() {
    let interface = Interface::new(vec![samples::demo()]).await;
    let admin = interface.log_in("admin").await;
    let question = admin.get(&format!("/runs/{ID}/delete")).await;
    assert!(question.status == StatusCode::OK && question.body.contains("Delete the run demo?"), "{}", question.body);
    assert_eq!(admin.get(&format!("/runs/{ID}")).await.status, StatusCode::OK, "asking deletes nothing");
    let deleted = admin.post(&format!("/runs/{ID}/delete"), &[]).await;
    assert_eq!((deleted.status, deleted.location()), (StatusCode::SEE_OTHER, "/"));
    assert!(admin.get("/").await.body.contains("The run demo was deleted."));
    assert!(!admin.get("/").await.body.contains("was deleted"), "a message is shown once");
    assert_eq!(admin.get(&format!("/runs/{ID}")).await.status, StatusCode::NOT_FOUND);

    let running = Interface::new(vec![samples::running()]).await;
    let admin = running.log_in("admin").await;
    assert!(!admin.get("/").await.body.contains(&format!("/runs/{ID}/delete")));
    let refused = admin.get(&format!("/runs/{ID}/delete")).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.body.contains("only a run that has ended can be deleted"), "{}", refused.body);
}

#[tokio::test]
async fn filters_that_are_none_are_refused_with_words() {
    for (query, words) in [
        ("state=nothing", "&#34;nothing&#34; is no state to filter by; there are going-on, complete"),
        ("before=../../etc", "is no id of a run"),
        ("limit=many", "limit"),
    ] {
        let (status, _, body) = get(&format!("/?{query}")).await;
        assert!(status.is_client_error() && body.contains(words), "{query}: {body}");
    }
    let long = get(&format!("/?text={}", "x".repeat(201))).await;
    assert_eq!(long.0, StatusCode::UNPROCESSABLE_ENTITY);
}

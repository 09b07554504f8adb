//! What every request goes through, whatever it asks for: the name it asks under, who asks, the bounds of its body, where it
//! comes from; and every answer: its headers, and what went wrong in words.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::time::timeout;

use crate::app::App;
use crate::auth;
use crate::problem::Problem;
use crate::visitor::{Credential, Visitor};

/// The largest body of a request, bytes: a plan of thousands of lines, and far from what would hurt.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;

/// The time that a body may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(30);

/// Of an answer that is not ours, an extractor's refusal say, at most this is shown.
const MAX_REFUSAL_BYTES: usize = 4 << 10;

/// Where a script puts the form token: <https://developer.mozilla.org/docs/Web/API/Request/headers>. Other sites cannot send it.
pub(crate) const CSRF_HEADER: HeaderName = HeaderName::from_static("x-csrf-token");

/// The field of a form that has it.
const CSRF_FIELD: &str = "csrf";

/// What a page's script says to accept, and a browser that loads a page does not.
const SCRIPT_TYPES: [&str; 2] = ["application/json", "text/event-stream"];

/// Nothing but our own files; the chart library adds styles to the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Sent with every answer. With `no-referrer` a form's `Origin` would be `null`, and its coming from our own page could not be seen
/// over plain HTTP: <https://fetch.spec.whatwg.org/#append-a-request-origin-header>.
const SECURITY_HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// The outermost layer.
pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let asked = Asked::of(&request);
    let (visitor, answer) = match admit(&app, request).await {
        Ok(request) => (request.extensions().get::<Visitor>().cloned(), next.run(request).await),
        Err(problem) => (None, problem.into_response()),
    };
    let mut answer = present(answer, visitor, &asked).await;
    add_headers(answer.headers_mut());
    answer
}

/// What is needed of a request to show what went wrong with it.
struct Asked {
    method: Method,
    uri: Uri,
    /// By a script, which is answered in JSON: for the API, or for what a page's script asks beside it.
    by_script: bool,
}

impl Asked {
    fn of(request: &Request) -> Self {
        let accepted = request.headers().get(header::ACCEPT).map_or(&[][..], HeaderValue::as_bytes);
        let by_script = request.uri().path().starts_with("/api/")
            || SCRIPT_TYPES.iter().any(|kind| accepted.starts_with(kind.as_bytes()));
        Self { method: request.method().clone(), uri: request.uri().clone(), by_script }
    }
}

/// The request with its visitor and its whole body.
async fn admit(app: &App, request: Request) -> Result<Request, Problem> {
    if !app.hosts().allows(request.headers(), request.uri()) {
        return Err(Problem::host());
    }
    let visitor = recognise(app, request.headers(), request.uri()).await?;
    let mut request = match *request.method() {
        Method::GET | Method::HEAD => request,
        _ => {
            let request = with_body(request).await?;
            check_origin(app, &request, visitor.as_ref())?;
            request
        }
    };
    if let Some(visitor) = visitor {
        request.extensions_mut().insert(visitor);
    }
    Ok(request)
}

/// Who asks. An API token counts for the API alone, and there before a cookie.
async fn recognise(app: &App, headers: &HeaderMap, uri: &Uri) -> Result<Option<Visitor>, Problem> {
    if uri.path().starts_with("/assets/") {
        return Ok(None);
    }
    if uri.path().starts_with("/api/")
        && let Some(token) = bearer(headers)
    {
        return Visitor::of_token(app, token).await?.map(Some).ok_or_else(Problem::token);
    }
    match app.cookies().read(headers) {
        Some(secret) => Visitor::of_session(app, &secret).await,
        None => Ok(None),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Reads the body whole, within its bounds.
async fn with_body(request: Request) -> Result<Request, Problem> {
    let (parts, body) = request.into_parts();
    let announced =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > MAX_BODY_BYTES as u64) {
        return Err(Problem::too_large());
    }
    let read = timeout(BODY_PATIENCE, to_bytes(body, MAX_BODY_BYTES)).await.map_err(|_| Problem::slow_body())?;
    // A connection that broke hears of neither.
    let bytes = read.map_err(|_| Problem::too_large())?;
    let mut request = Request::from_parts(parts, Body::from(bytes.clone()));
    request.extensions_mut().insert(BodyBytes(bytes));
    Ok(request)
}

/// A request's body, beside the stream that its handler takes it from.
#[derive(Clone)]
struct BodyBytes(Bytes);

/// Refuses what another site could have made a browser send. Whoever shows an API token is no browser.
fn check_origin(app: &App, request: &Request, visitor: Option<&Visitor>) -> Result<(), Problem> {
    if matches!(visitor, Some(Visitor { credential: Credential::Token { .. }, .. })) {
        return Ok(());
    }
    let headers = request.headers();
    auth::same_origin(headers, request.uri(), app.secure()).map_err(Problem::foreign)?;
    let Some(visitor) = visitor else { return Ok(()) };
    let token = match headers.get(CSRF_HEADER) {
        Some(token) => token.to_str().map(str::to_owned).ok(),
        None => form_token(request),
    };
    if token.is_some_and(|token| auth::equal(&token, visitor.csrf())) { Ok(()) } else { Err(Problem::form_token()) }
}

fn form_token(request: &Request) -> Option<String> {
    let kind = request.headers().get(header::CONTENT_TYPE)?.to_str().ok()?;
    if !kind.to_ascii_lowercase().starts_with("application/x-www-form-urlencoded") {
        return None;
    }
    let body = request.extensions().get::<BodyBytes>()?;
    form_urlencoded::parse(&body.0).find(|(name, _)| name == CSRF_FIELD).map(|(_, value)| value.into_owned())
}

/// Puts what went wrong into words: a page, or JSON for the API.
async fn present(mut answer: Response, visitor: Option<Visitor>, asked: &Asked) -> Response {
    let problem = match answer.extensions_mut().remove::<Problem>() {
        Some(problem) => problem,
        None if is_bare_refusal(&answer) => match bare_refusal(&mut answer).await {
            Some(problem) => problem,
            None => return answer,
        },
        None => return answer,
    };
    if asked.by_script {
        return problem.into_json();
    }
    if problem.is_login() && asked.method == Method::GET {
        return problem.redirect(&asked.uri);
    }
    problem.into_page(visitor, asked.uri.path())
}

/// What a library refuses says so in plain text.
fn is_bare_refusal(answer: &Response) -> bool {
    let plain =
        answer.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    answer.status().is_client_error() && plain
}

async fn bare_refusal(answer: &mut Response) -> Option<Problem> {
    let status = answer.status();
    let body = to_bytes(std::mem::take(answer.body_mut()), MAX_REFUSAL_BYTES).await.ok()?;
    Some(Problem::refused(status, &String::from_utf8_lossy(&body)))
}

fn add_headers(headers: &mut HeaderMap) {
    for (name, value) in SECURITY_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// Where a request comes from, for limits.
pub(crate) fn client(connection: Option<ConnectInfo<SocketAddr>>) -> [u8; 8] {
    connection.map_or([0; 8], |ConnectInfo(address)| network(address.ip()))
}

/// What counts as one client, for limits: an address; of IPv6 its /64, since a host has a whole one.
pub(crate) fn network(address: IpAddr) -> [u8; 8] {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            [0, 0, 0, 0, a, b, c, d]
        }
        IpAddr::V6(v6) => {
            let [a, b, c, d, e, f, g, h, ..] = v6.octets();
            [a, b, c, d, e, f, g, h]
        }
    }
}

//! The two steps to a connection: where the cluster is; then, with its certificate seen, the token. Nothing secret is asked for, and so
//! nothing secret can be sent, before a person has seen whose certificate it is.

use askama::Template;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use plan::proxmox::is_connection_name;
use serde::Deserialize;

use super::page::path_of;
use super::{Attempt, Clusters, Connection, Existing, Fault, FaultKind, NewConnection, Trust, keeper};
use crate::app::App;
use crate::frame::{Flash, Frame, html, onward};
use crate::live::Finding;
use crate::problem::Problem;
use crate::visitor::Visitor;

/// The largest authorities' file that is taken, bytes: some dozens of certificates.
const MAX_PEM_BYTES: usize = 64 << 10;

/// What a browser sends. It cannot be printed: it may hold a secret.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct ClusterForm {
    name: String,
    endpoint: String,
    trust: TrustKind,
    ca: String,
    fingerprint: String,
    confirmed: String,
    token: String,
    secret: String,
    step: Step,
}

/// How the certificate is to be judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TrustKind {
    #[default]
    Fingerprint,
    Authority,
    System,
}

/// What the button that was pressed asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Step {
    /// Fetch the certificate and show it.
    #[default]
    Look,
    /// Back to where the cluster is.
    Back,
    /// Send the token; save.
    Save,
}

#[derive(Template)]
#[template(path = "pages/cluster_form.html")]
struct FormPage {
    frame: Frame,
    /// The connection that is changed; none for a new one.
    was: Option<Connection>,
    form: ClusterForm,
    /// The second step: what the address presents.
    certificate: Option<Certificate>,
    refused: Option<Refused>,
}

/// The certificate that an address presents.
struct Certificate {
    sha256: String,
    /// The pinned one before, where this is another.
    was: Option<String>,
    /// It is the one that is pinned already.
    known: bool,
}

/// Why it did not go on.
struct Refused {
    what: String,
    remedy: String,
    findings: Vec<Finding>,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self { what: fault.what, remedy: fault.remedy, findings: Vec::new() }
    }
}

impl FormPage {
    fn is(&self, kind: &str) -> bool {
        let word = match self.form.trust {
            TrustKind::Fingerprint => "fingerprint",
            TrustKind::Authority => "authority",
            TrustKind::System => "system",
        };
        word == kind
    }

    fn title(&self) -> String {
        match &self.was {
            Some(was) => format!("Change {}", was.name),
            None => "Add a cluster".to_owned(),
        }
    }

    fn back(&self) -> String {
        self.was.as_ref().map_or("/clusters".to_owned(), |was| path_of(&was.name))
    }
}

impl ClusterForm {
    fn of(connection: &Connection) -> Self {
        let (trust, ca) = match &connection.trust {
            Trust::System => (TrustKind::System, String::new()),
            Trust::Authority { pem } => (TrustKind::Authority, pem.clone()),
            Trust::Fingerprint { .. } => (TrustKind::Fingerprint, String::new()),
        };
        let (name, endpoint, token) = (connection.name.clone(), connection.endpoint.clone(), connection.token.clone());
        Self { name, endpoint, token, trust, ca, ..Self::default() }
    }

    /// Without the blanks that come with a paste, and with the name that a change cannot change.
    fn tidy(mut self, was: Option<&Connection>) -> Self {
        for field in [&mut self.name, &mut self.endpoint, &mut self.token, &mut self.secret, &mut self.fingerprint] {
            *field = field.trim().to_owned();
        }
        if let Some(was) = was {
            self.name.clone_from(&was.name);
        }
        self
    }

    fn trust(&self) -> Trust {
        match self.trust {
            TrustKind::Fingerprint => Trust::Fingerprint { sha256: self.fingerprint.clone() },
            TrustKind::Authority => Trust::Authority { pem: self.ca.replace("\r\n", "\n") },
            TrustKind::System => Trust::System,
        }
    }

    fn connection(&self, existing: Existing) -> NewConnection {
        NewConnection {
            name: self.name.clone(),
            endpoint: self.endpoint.clone(),
            token: self.token.clone(),
            secret: (!self.secret.is_empty()).then(|| self.secret.clone()),
            trust: self.trust(),
            existing,
        }
    }

    /// What is wrong with the first step's fields by themselves.
    fn problem(&self) -> Option<Fault> {
        let wrong = |what: &str, remedy: &str| {
            Some(Fault { kind: FaultKind::Input, what: what.to_owned(), remedy: remedy.to_owned() })
        };
        if !is_connection_name(&self.name) {
            return wrong(
                "The name is none that plans could use.",
                "Use 1 to 64 letters (a to z), digits, and - _ . in it.",
            );
        }
        if self.trust == TrustKind::Authority && !self.ca.contains("-----BEGIN CERTIFICATE-----") {
            return wrong(
                "No certificate of an authority was given.",
                "Paste the text of /etc/pve/pve-root-ca.pem of a node, from BEGIN CERTIFICATE to END CERTIFICATE.",
            );
        }
        if self.ca.len() > MAX_PEM_BYTES {
            return wrong("The authorities' certificates are more than 64 KiB.", "Give those that the cluster needs.");
        }
        None
    }
}

/// `/clusters/new`.
pub(crate) async fn new(State(app): State<App>, frame: Frame) -> Result<Response, Problem> {
    keeper(&app)?;
    html(&FormPage { frame, was: None, form: ClusterForm::default(), certificate: None, refused: None })
}

/// `/clusters/saved/{name}/edit`.
pub(crate) async fn edit(State(app): State<App>, frame: Frame, Path(name): Path<String>) -> Result<Response, Problem> {
    let was = keeper(&app)?.connection(&name).await?;
    let form = ClusterForm::of(&was);
    html(&FormPage { frame, was: Some(was), form, certificate: None, refused: None })
}

/// `POST /clusters/new`.
pub(crate) async fn add(
    State(app): State<App>,
    visitor: Visitor,
    frame: Frame,
    Form(form): Form<ClusterForm>,
) -> Result<Response, Problem> {
    step(&app, &visitor, frame, form.tidy(None), None).await
}

/// `POST /clusters/saved/{name}/edit`.
pub(crate) async fn change(
    State(app): State<App>,
    visitor: Visitor,
    frame: Frame,
    Path(name): Path<String>,
    Form(form): Form<ClusterForm>,
) -> Result<Response, Problem> {
    let was = keeper(&app)?.connection(&name).await?;
    step(&app, &visitor, frame, form.tidy(Some(&was)), Some(was)).await
}

async fn step(
    app: &App,
    visitor: &Visitor,
    frame: Frame,
    form: ClusterForm,
    was: Option<Connection>,
) -> Result<Response, Problem> {
    let keeper = keeper(app)?;
    match form.step {
        Step::Back => html(&FormPage { frame, was, form, certificate: None, refused: None }),
        Step::Look => match presented(keeper, &form, was.as_ref()).await {
            Ok(certificate) => html(&FormPage { frame, was, form, certificate: Some(certificate), refused: None }),
            Err(fault) => again(FormPage { frame, was, form, certificate: None, refused: Some(fault.into()) }),
        },
        Step::Save => {
            // What was shown is what is asked about again, where this attempt is refused.
            let certificate = Certificate::of(form.fingerprint.clone(), was.as_ref());
            match save(keeper, &form, was.as_ref()).await {
                Ok(()) => Ok(onward(app, visitor, &path_of(&form.name), saved(&form.name, was.is_some()))),
                Err(refused) => {
                    again(FormPage { frame, was, form, certificate: Some(certificate), refused: Some(refused) })
                }
            }
        }
    }
}

fn saved(name: &str, changed: bool) -> Flash {
    let done = if changed { "changed" } else { "saved" };
    Flash::done(format!(
        "The connection {name} was {done}: the cluster answers, and the token may do what a test needs."
    ))
}

/// The page once more, with why it did not go on. What was typed is kept, but for the secret.
fn again(page: FormPage) -> Result<Response, Problem> {
    Ok((StatusCode::UNPROCESSABLE_ENTITY, html(&page)?).into_response())
}

impl Certificate {
    fn of(sha256: String, was: Option<&Connection>) -> Self {
        let pinned = was.and_then(|was| match &was.trust {
            Trust::Fingerprint { sha256 } => Some(sha256.clone()),
            Trust::System | Trust::Authority { .. } => None,
        });
        let known = pinned.as_deref() == Some(&*sha256);
        Self { sha256, was: pinned.filter(|_| !known), known }
    }
}

async fn presented(keeper: &dyn Clusters, form: &ClusterForm, was: Option<&Connection>) -> Result<Certificate, Fault> {
    if let Some(fault) = form.problem() {
        return Err(fault);
    }
    if was.is_none() && keeper.connection(&form.name).await.is_ok() {
        let what = format!("A connection {} is saved already.", form.name);
        return Err(Fault {
            kind: FaultKind::Conflict,
            what,
            remedy: "Choose another name, or change that one.".into(),
        });
    }
    Ok(Certificate::of(keeper.presented(&form.endpoint).await?, was))
}

async fn save(keeper: &dyn Clusters, form: &ClusterForm, was: Option<&Connection>) -> Result<(), Refused> {
    if let Some(fault) = form.problem() {
        return Err(fault.into());
    }
    if form.trust == TrustKind::Fingerprint && form.confirmed != "yes" {
        return Err(Refused {
            what: "Nobody has confirmed that this is the cluster's certificate; nothing was sent.".into(),
            remedy: "Compare the fingerprint with what a node's console shows, then tick the box.".into(),
            findings: Vec::new(),
        });
    }
    let existing = if was.is_some() { Existing::Yes } else { Existing::No };
    let Attempt { saved, seen } = keeper.save(form.connection(existing)).await?;
    if saved {
        return Ok(());
    }
    Err(Refused {
        what: "The cluster answers, but the token may not do what a test needs. Nothing was saved.".into(),
        remedy: "Grant what is listed, then send this again.".into(),
        findings: seen.lacking,
    })
}

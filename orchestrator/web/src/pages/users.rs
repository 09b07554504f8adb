//! `/users`.

use askama::Template;
use axum::extract::{Form, Path, State};
use axum::response::Response;
use serde::Deserialize;
use store::{Role, User, UserId};
use uuid::Uuid;

use super::{Base, conclude};
use crate::accounts::{self, role};
use crate::app::App;
use crate::format::Time;
use crate::frame::{Flash, Frame, html};
use crate::problem::Problem;
use crate::visitor::Visitor;

#[derive(Template)]
#[template(path = "pages/users.html")]
struct UsersPage {
    frame: Frame,
    users: Vec<UserRow>,
}

struct UserRow {
    id: UserId,
    name: String,
    role: Role,
    /// The visitor's own account.
    own: bool,
    has_password: bool,
    created: Time,
    last_login: Option<Time>,
}

#[derive(Template)]
#[template(path = "pages/remove_user.html")]
struct RemovePage {
    frame: Frame,
    user: User,
}

/// A name and a role.
#[derive(Deserialize)]
pub(crate) struct UserForm {
    name: String,
    role: String,
}

/// A role.
#[derive(Deserialize)]
pub(crate) struct RoleForm {
    role: String,
}

/// `/users`.
pub(crate) async fn page(State(app): State<App>, frame: Frame, visitor: Visitor) -> Result<Response, Problem> {
    let own = visitor.user.as_ref().map(|user| user.id);
    let users = app.store().list_users().await?.into_iter().map(|user| UserRow {
        id: user.id,
        own: own == Some(user.id),
        name: user.name,
        role: user.role,
        has_password: user.password_hash.is_some(),
        created: Time(user.created),
        last_login: user.last_login.map(Time),
    });
    html(&UsersPage { frame, users: users.collect() })
}

/// `POST /users`.
pub(crate) async fn add(
    State(app): State<App>,
    visitor: Visitor,
    base: Base,
    Form(form): Form<UserForm>,
) -> Result<Response, Problem> {
    let added = async {
        let (_, path) = accounts::add_user(&app, &visitor, &form.name, role(&form.role)?).await?;
        let text = format!(
            "{} was added. Hand on this link, which is shown only now; it sets the password, works once, and for two days.",
            form.name.trim()
        );
        Ok(Flash::with_secret(text, base.url(&path)))
    };
    conclude(&app, &visitor, "/users", added.await)
}

/// `POST /users/{id}/role`.
pub(crate) async fn set_role(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
    Form(form): Form<RoleForm>,
) -> Result<Response, Problem> {
    let changed = async {
        let (user, role) = (app.store().user(UserId(id)).await?, role(&form.role)?);
        accounts::set_role(&app, &visitor, user.id, role).await?;
        Ok(Flash::done(format!("{} is {} now.", user.name, called(role))))
    };
    // Whoever is no administrator any more cannot see the list.
    let own = visitor.user.as_ref().is_some_and(|user| user.id == UserId(id)) && form.role != Role::Admin.as_str();
    let changed = changed.await;
    let path = if own && changed.is_ok() { "/" } else { "/users" };
    conclude(&app, &visitor, path, changed)
}

/// `POST /users/{id}/password-link`.
pub(crate) async fn password_link(
    State(app): State<App>,
    visitor: Visitor,
    base: Base,
    Path(id): Path<Uuid>,
) -> Result<Response, Problem> {
    let made = async {
        let user = app.store().user(UserId(id)).await?;
        let path = accounts::password_link(&app, &visitor, user.id).await?;
        let text = format!(
            "With this link, which is shown only now, {} sets a new password. It works once, and for two days; until then the old password stays.",
            user.name
        );
        Ok(Flash::with_secret(text, base.url(&path)))
    };
    conclude(&app, &visitor, "/users", made.await)
}

/// `/users/{id}/remove`.
pub(crate) async fn remove_page(
    State(app): State<App>,
    frame: Frame,
    Path(id): Path<Uuid>,
) -> Result<Response, Problem> {
    html(&RemovePage { frame, user: app.store().user(UserId(id)).await? })
}

/// `POST /users/{id}/remove`.
pub(crate) async fn remove(
    State(app): State<App>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
) -> Result<Response, Problem> {
    let removed = async {
        let user = app.store().user(UserId(id)).await?;
        app.store().remove_user(user.id).await?;
        Ok(Flash::done(format!("{} was removed; the sessions and API tokens of that account have ended.", user.name)))
    };
    conclude(&app, &visitor, "/users", removed.await)
}

fn called(role: Role) -> &'static str {
    match role {
        Role::Viewer => "a viewer",
        Role::Admin => "an administrator",
    }
}

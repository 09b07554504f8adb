//! Pages where a test is prepared: the plan as text and as fields, what it costs, its start; and the workload profiles.

mod api;
mod check;
mod page;
mod place;
mod profiles;

use utoipa_axum::routes;

use crate::app::App;
use crate::problem::Problem;
use crate::routes::{Access, Routes};

/// The set of the users' own profiles.
pub(crate) const OWN_SET: &str = "own";

/// Adds them.
pub(crate) fn routes(routes: Routes) -> Routes {
    use Access::{Admin, Viewer};
    routes
        .get(Admin, "/new", page::page)
        .post(Admin, "/new", page::act)
        .post(Admin, "/new/check", page::check)
        .post(Admin, "/new/edit", page::edit)
        .get(Viewer, "/profiles", profiles::list)
        .get(Viewer, "/profiles/{set}/{name}", profiles::show)
        .get(Admin, "/profiles/new", profiles::new)
        .post(Admin, "/profiles/new", profiles::save)
        .post(Admin, "/profiles/check", profiles::check)
        .post(Admin, "/profiles/{set}/{name}/delete", profiles::delete)
        .api(Admin, routes!(api::check_plan))
        .api(Admin, routes!(api::start))
        .api(Admin, routes!(api::stop))
        .api(Admin, routes!(api::cancel))
}

/// The shipped profiles and the users' own. An own one that an older version wrote and this one cannot read is left out.
pub(crate) async fn in_force(app: &App) -> Result<plan::Profiles, Problem> {
    let mut profiles = plan::Profiles::shipped();
    for own in app.store().list_profiles().await? {
        if let Err(error) = profiles.add(OWN_SET, &own.name, &own.yaml) {
            tracing::warn!(profile = own.name, %error, "an own profile cannot be read");
        }
    }
    Ok(profiles)
}

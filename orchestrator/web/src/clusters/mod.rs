//! Connections to clusters: the pages on which they are added, tested, changed and removed, what their clusters offer, and the same for
//! scripts.

mod api;
mod form;
mod model;
mod page;

use utoipa_axum::routes;

pub use model::{
    Attempt, Broken, Clusters, Connection, Existing, Fault, FaultKind, Inventory, Look, Network, NewConnection, Node,
    Seen, Storage, Trust, Wanted,
};

use crate::app::App;
use crate::problem::Problem;
use crate::routes::{Access, Routes};

/// Adds them. A connection's pages are below `saved`, since it may have any name.
pub(crate) fn routes(routes: Routes) -> Routes {
    use Access::{Admin, Viewer};
    routes
        .get(Viewer, "/clusters", page::list)
        .get(Admin, "/clusters/new", form::new)
        .post(Admin, "/clusters/new", form::add)
        .get(Viewer, "/clusters/saved/{name}", page::show)
        .post(Admin, "/clusters/saved/{name}/test", page::test)
        .get(Admin, "/clusters/saved/{name}/edit", form::edit)
        .post(Admin, "/clusters/saved/{name}/edit", form::change)
        .get(Admin, "/clusters/saved/{name}/remove", page::remove_page)
        .post(Admin, "/clusters/saved/{name}/remove", page::remove)
        .api(Viewer, routes!(api::list))
        .api(Admin, routes!(api::add))
        .api(Admin, routes!(api::change))
        .api(Admin, routes!(api::remove))
        .api(Admin, routes!(api::test))
        .api(Viewer, routes!(api::inventory))
        .api(Admin, routes!(api::certificate))
}

/// Whoever keeps the connections.
///
/// # Errors
/// This server keeps none.
pub(crate) fn keeper(app: &App) -> Result<&dyn Clusters, Problem> {
    app.workshop().clusters().ok_or_else(|| {
        Problem::conflict(
            "This server belongs to a run of the command line and keeps no connections.",
            "Use `fourcorners serve` with the same data directory.",
        )
    })
}

//! Cases of any runs side by side.

mod differences;
mod page;
mod side_by_side;

use crate::routes::{Access, Routes};

/// Adds the page.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes.get(Access::Viewer, "/compare", page::page).get(Access::Viewer, "/compare.csv", page::csv)
}

//! The report of a run: one HTML file that opens without a network, and the body of the served page.

mod cases;
mod caveats;
mod charts;
mod circumstances;
mod engine;
mod figures;
pub(crate) mod handed_on;
mod hosts;
mod incidents;
mod page;
mod plan_view;
mod profile;
mod series;
mod view;

pub(crate) use caveats::{badges, missing, missing_share, sample_span, texts};
pub(crate) use charts::{escape_island, overlay};
pub(crate) use hosts::{is_at_rest, storage_in_window, unrest};
pub(crate) use incidents::io_errors;
pub use page::report_html;
pub(crate) use page::write_report;
pub(crate) use plan_view::{PlanView as Plan, flatten};
pub(crate) use profile::profile;
pub(crate) use view::{INSIDE_DISKS, ReportView, Tables, verdict};

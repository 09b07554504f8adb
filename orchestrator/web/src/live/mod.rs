//! The run under way: its state for viewers, the feed, and its page.

mod beat;
mod figures;
mod heat;
mod history;
mod hub;
mod page;
mod prospect;
mod steps;
mod stream;
mod workshop;

pub use beat::{Beat, CaseSecond, Health, LiveEnd, LiveProgress, SoFar};
pub use heat::{DiskBeat, Layout};
pub use hub::Hub;
pub use prospect::Prospect;
pub use workshop::{Finding, Findings, Onlooker, StartError, Workshop};

pub(crate) use page::ended;

use crate::routes::{Access, Routes};

/// Adds the live page, its feed, and what ends a run.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .get(Access::Viewer, "/runs/{id}/live", page::page)
        .get(Access::Viewer, "/runs/{id}/feed", page::feed)
        .post(Access::Admin, "/runs/{id}/stop", page::stop)
        .post(Access::Admin, "/runs/{id}/cancel", page::cancel)
}

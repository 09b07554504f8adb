//! Watches disks for being truncated, deleted or replaced under a job, from a thread of its own: a look at a dead file system may hang.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::control::Control;
use crate::disk::Disk;
use crate::thread::ended_within;

/// How often the disks are looked at: our own writes make a truncated file grow again, so the look must come before they are through.
const INTERVAL: Duration = Duration::from_millis(20);

/// How long the end of a look is waited for.
const LIMIT: Duration = Duration::from_secs(2);

/// A watching thread; none where it could not be started.
#[derive(Debug)]
pub(crate) struct Watch {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Watch {
    pub(crate) fn start(disks: Arc<Vec<Disk>>, control: Arc<Control>, compressible: bool) -> Self {
        let (alive, ended) = channel::<()>();
        let look = move || {
            loop {
                let waited = ended.recv_timeout(INTERVAL);
                // The last look is after the end.
                let changed =
                    disks.iter().enumerate().find_map(|(index, disk)| Some((index, disk.changed(compressible)?)));
                if let Some((index, change)) = changed {
                    control.fail(Some(index), format!("disk {}: {change}", disks[index].spec.id));
                    return;
                }
                if waited != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let handle = std::thread::Builder::new().name("load-watch".to_owned()).spawn(look);
        Self { running: handle.ok().map(|handle| (alive, handle)) }
    }

    /// Ends the watch; one that hangs is left behind.
    pub(crate) fn end(self) {
        let Some((alive, handle)) = self.running else { return };
        drop(alive);
        ended_within(&handle, LIMIT);
    }
}

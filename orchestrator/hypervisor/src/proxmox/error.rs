//! What a call to the API came to when it failed: PVE's own words, whether trying again may help, and what a person can do.

use std::fmt;

use crate::HypervisorError;

/// Status that pveproxy answers when it cannot reach the node a call is for.
const NO_ROUTE: u16 = 595;
/// How PVE words that a VM does not exist: `Configuration file 'nodes/NODE/qemu-server/VMID.conf' does not exist`.
pub(super) const NO_CONFIGURATION: &str = ".conf' does not exist";

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallError {
    /// Method and path.
    pub(super) call: String,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// PVE answered with an error.
    Refused { status: u16, words: String },
    /// No connection was made: nothing was sent.
    Unreachable(String),
    /// The call was sent and no answer came: it may have had its effect.
    Lost(String),
    /// The answer is not what the API promises.
    Unintelligible(String),
}

/// Whether a call is worth repeating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// It passes by itself: until the time is up.
    Transient,
    /// It may pass: a few times.
    Perhaps,
    /// It will be the same.
    Never,
}

impl CallError {
    /// PVE's words or the system's.
    pub(super) fn words(&self) -> &str {
        match &self.kind {
            Kind::Refused { words, .. } => words,
            Kind::Unreachable(words) | Kind::Lost(words) | Kind::Unintelligible(words) => words,
        }
    }

    /// The call may have had its effect although it failed. 596 to 599 and a gateway's errors come from between us and the node.
    pub(super) fn may_have_happened(&self) -> bool {
        match &self.kind {
            Kind::Lost(_) | Kind::Unintelligible(_) => true,
            Kind::Refused { status, .. } => matches!(status, 502 | 504 | 596..=599),
            Kind::Unreachable(_) => false,
        }
    }

    /// The node a call was for cannot be reached.
    pub(super) fn is_offline(&self) -> bool {
        matches!(&self.kind, Kind::Refused { status: NO_ROUTE, .. })
            || self.words().contains("No route to host") && matches!(self.kind, Kind::Refused { .. })
    }

    /// PVE answered, and with an error.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.kind, Kind::Refused { .. })
    }

    /// The token lacks a privilege.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(&self.kind, Kind::Refused { status: 403, .. })
    }

    /// PVE has no Ceph of its own to tell of, at least on the node that was asked: the storage's is another.
    pub(super) fn is_not_its_ceph(&self) -> bool {
        let says = |words| self.words().contains(words);
        self.is_refusal() && (says("binary not installed") || says("pveceph configuration not initialized"))
    }

    /// Ceph does not answer PVE. That PVE may not be asked, or does not answer itself, says nothing of Ceph.
    pub(super) fn is_silent_ceph(&self) -> bool {
        matches!(self.kind, Kind::Refused { status: 500, .. }) && !self.is_not_its_ceph()
    }

    /// The VM is not there. A storage, a volume or a pool that does not exist is another matter.
    pub(super) fn is_absent(&self) -> bool {
        self.is_refusal() && self.words().contains(NO_CONFIGURATION)
    }

    /// The node keeps no record of the task.
    pub(super) fn is_forgotten_task(&self) -> bool {
        let says = |words| self.words().contains(words);
        self.is_refusal() && (says("no such task") || says("unable to parse worker upid"))
    }

    /// Whether to repeat a call that only reads.
    pub(super) fn again(&self) -> Again {
        match &self.kind {
            Kind::Lost(_) => Again::Transient,
            Kind::Unreachable(words) if is_about_certificate(words) => Again::Never,
            Kind::Unreachable(_) => Again::Transient,
            Kind::Unintelligible(_) => Again::Perhaps,
            Kind::Refused { status, words } => match *status {
                429 | 502..=504 | 596..=599 => Again::Transient,
                500 if is_lock_timeout(words) => Again::Transient,
                500 if words.contains("does not exist") => Again::Never,
                500 | NO_ROUTE => Again::Perhaps,
                _ => Again::Never,
            },
        }
    }

    /// Whether to repeat a call that changes something: only where it certainly had no effect.
    pub(super) fn change_again(&self) -> Again {
        match &self.kind {
            Kind::Unreachable(_) => self.again(),
            Kind::Refused { status: 429 | 503, .. } => Again::Transient,
            // The node is there, and its pveproxy restarts; one that there is no way to may be gone.
            Kind::Refused { status: NO_ROUTE, words } if words.contains("Connection refused") => Again::Transient,
            Kind::Refused { status: NO_ROUTE, .. } => Again::Perhaps,
            Kind::Refused { status: 500, words } if is_lock_timeout(words) => Again::Transient,
            _ => Again::Never,
        }
    }

    pub(super) fn advice(&self) -> &'static str {
        match &self.kind {
            Kind::Unreachable(words) | Kind::Lost(words) if is_about_certificate(words) => {
                "set tls.ca_file to the cluster's /etc/pve/pve-root-ca.pem, or pin the certificate's fingerprint"
            }
            Kind::Unreachable(_) => "check target.endpoint, the network and that pveproxy runs there (port 8006)",
            Kind::Lost(_) => "check the network and the load of the node",
            Kind::Unintelligible(_) => "check that target.endpoint is a Proxmox VE node and not a proxy's login page",
            Kind::Refused { status, words } => advice_on(*status, words),
        }
    }
}

/// What a person can do about PVE's words.
pub(super) fn advice_on(status: u16, words: &str) -> &'static str {
    let any = |needles: &[&str]| needles.iter().any(|needle| words.contains(needle));
    match status {
        401 => "check the token's id and secret and that it has not expired: pveum user token list USER",
        403 => {
            "grant the privilege to the token, and to its user where privileges are separated; \
             the recipe is in docs/proxmox.md, `fourcorners check` lists all that are missing"
        }
        NO_ROUTE => "bring the node back, or leave it out of target.nodes",
        _ if any(&["no quorum"]) => "wait until most of the cluster's nodes are online (pvecm status)",
        _ if any(&["can't lock file"]) => "another task holds this VM's configuration: look at the node's task list",
        _ if any(&["VM is locked"]) => {
            "another job (backup, migration, snapshot) holds the VM: wait for its end or stop it"
        }
        _ if any(&["No space left", "not enough free space", "out of space", "insufficient free"]) => {
            "free some space on the storage, or use a smaller footprint"
        }
        _ if any(&["protection mode enabled"]) => "somebody protected this VM: remove the protection if it may go",
        _ if any(&[
            "is not online",
            "is not available on node",
            "is disabled",
            "rbd error",
            "Connection timed out",
        ]) =>
        {
            "check the storage on that node: pvesm status"
        }
        _ if any(&["hostname lookup"]) => "check target.nodes: the cluster knows no node of that name",
        _ => "look at the task log and at journalctl -u pvedaemon on the node",
    }
}

/// PVE waited for a lock in vain: what was to be done under it had not begun.
pub(super) fn is_lock_timeout(words: &str) -> bool {
    words.contains("can't lock file")
        || words.contains("got timeout") && words.contains("lock")
        || is_cluster_lock_timeout(words)
}

/// The lock was one of the cluster, as parallel allocations on a shared storage wait for. Unlike a VM's own it is taken in the middle of a
/// task, which may have done a part of its work before.
pub(super) fn is_cluster_lock_timeout(words: &str) -> bool {
    words.contains("got lock request timeout")
}

/// PVE broke off what took too long under a lock of the cluster; it may have had a part of its effect.
pub(super) fn is_cut_under_lock(words: &str) -> bool {
    words.contains("locked command timed out") || words.contains("got lock timeout - aborting command")
}

fn is_about_certificate(words: &str) -> bool {
    words.contains("certificate") || words.contains("Certificate")
}

impl fmt::Display for CallError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Refused { status, words } => write!(formatter, "{}: PVE answers {status}: {words}", self.call),
            Kind::Unreachable(words) => write!(formatter, "{}: no connection: {words}", self.call),
            Kind::Lost(words) => write!(formatter, "{}: no answer: {words}", self.call),
            Kind::Unintelligible(words) => write!(formatter, "{}: not an answer of the API: {words}", self.call),
        }
    }
}

impl From<CallError> for HypervisorError {
    fn from(error: CallError) -> Self {
        Self::Place { words: error.to_string(), advice: error.advice().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, words: &str) -> CallError {
        CallError { call: "GET /version".into(), kind: Kind::Refused { status, words: words.into() } }
    }

    #[test]
    fn a_change_is_repeated_only_where_it_had_no_effect() {
        let lock = "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout";
        assert_eq!(refused(500, lock).change_again(), Again::Transient);
        let lock = "cfs-lock 'storage-ceph' error: got lock request timeout";
        assert_eq!(refused(500, lock).change_again(), Again::Transient);
        for had_begun in ["boom", "'storage-ceph'-locked command timed out - aborting"] {
            assert_eq!(refused(500, had_begun).change_again(), Again::Never, "{had_begun}");
        }
        assert_eq!(refused(NO_ROUTE, "Connection refused").change_again(), Again::Transient);
        assert_eq!(refused(NO_ROUTE, "No route to host").change_again(), Again::Perhaps);
        assert_eq!(refused(500, "boom").again(), Again::Perhaps);
        assert_eq!(refused(596, "broken").change_again(), Again::Never);
        assert!(refused(596, "broken").may_have_happened() && !refused(500, "boom").may_have_happened());
        assert_eq!(refused(403, "x").again(), Again::Never);
    }

    #[test]
    fn an_error_shows_the_words_and_what_to_do() {
        let text = HypervisorError::from(refused(500, "cluster not ready - no quorum?")).to_string();
        assert!(text.contains("cluster not ready - no quorum?") && text.contains("pvecm status"), "{text}");
    }

    #[test]
    fn only_a_missing_configuration_means_that_a_vm_is_gone() {
        assert!(refused(500, "Configuration file 'nodes/pve1/qemu-server/9000.conf' does not exist").is_absent());
        assert!(!refused(500, "storage 'ceph' does not exist").is_absent());
        assert!(!refused(500, "pool 'poc' does not exist").is_absent());
    }
}

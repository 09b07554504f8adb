//! What the console shows: what this machine is, and how far it has come.

use std::fmt;

use worker_image::Bootstrap;

use crate::disks::Disks;
use crate::machine::Identity;

/// Disks that are listed by name; more are counted.
const DISKS_NAMED: usize = 4;
const RULE: &str = "==============================================================================";

/// All that the status is made from.
pub(crate) struct Status<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) bootstrap: Result<&'a Bootstrap, &'a String>,
    pub(crate) entropy: bool,
    pub(crate) disks: &'a Disks,
    pub(crate) interfaces: &'a [String],
    pub(crate) agent: Option<String>,
}

impl fmt::Display for Status<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { uuid, vendor, cpus, memory_mib, kernel } = self.identity;
        let uuid = uuid.as_deref().unwrap_or("none given by the hypervisor; MACs identify this machine");
        writeln!(f, "{RULE}")?;
        writeln!(f, "Fourcorners worker: generates storage load for a test. Nothing to log in to.")?;
        writeln!(f, "  image      not signed: Secure Boot has to be off; kernel {kernel}")?;
        writeln!(f, "  machine    UUID {uuid}")?;
        writeln!(f, "             {vendor}, {cpus} CPU{}, {memory_mib} MiB of memory", plural(*cpus))?;
        for line in self.interfaces {
            writeln!(f, "  network    {line}")?;
        }
        if self.interfaces.is_empty() {
            writeln!(f, "  network    NO INTERFACE that this image can drive; it has drivers for virtio, VMXNET3 and")?;
            writeln!(f, "             Hyper-V, not for E1000: change the VM's network adapter")?;
        }
        writeln!(f, "  disks      {}", disks(self.disks))?;
        if !self.entropy {
            writeln!(f, "  waiting    for the kernel's random numbers")?;
        }
        match self.bootstrap {
            Ok(bootstrap) => {
                for url in &bootstrap.orchestrator_urls {
                    writeln!(f, "  calls      {url}")?;
                }
            }
            Err(problem) => writeln!(f, "  PROBLEM    {problem}")?,
        }
        if let Some(agent) = &self.agent {
            writeln!(f, "  agent      {agent}")?;
        }
        write!(f, "{RULE}")
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn disks(disks: &Disks) -> String {
    let named: Vec<String> =
        disks.found.iter().take(DISKS_NAMED).map(|(name, bytes)| format!("{name} {} MiB", bytes >> 20)).collect();
    let mut text = match disks.found.len() {
        0 => "none".to_owned(),
        count if count > DISKS_NAMED => format!("{count}: {}, ...", named.join(", ")),
        count => format!("{count}: {}", named.join(", ")),
    };
    if !disks.settled {
        text.push_str(" (still looking)");
    } else if disks.awaited > 0 {
        text.push_str(&format!("; {} SCSI disks did not come up", disks.awaited));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            uuid: Some("6a1c".into()),
            vendor: "QEMU".into(),
            cpus: 1,
            memory_mib: 239,
            kernel: "6.1.0-1-cloud-amd64".into(),
        }
    }

    #[test]
    fn it_says_what_the_machine_is_and_what_it_calls_but_not_the_token() {
        let bootstrap = Bootstrap {
            version: 1,
            orchestrator_urls: vec!["wss://192.0.2.1:7443/a".into()],
            ca_sha256: String::new(),
            token: "s3cret".into(),
            mtu: None,
            static_addressing: None,
        };
        let disks =
            Disks { settled: true, found: (0..31).map(|at| (format!("sd{at}"), 64 << 20)).collect(), awaited: 0 };
        let text = Status {
            identity: &identity(),
            bootstrap: Ok(&bootstrap),
            entropy: true,
            disks: &disks,
            interfaces: &["eth0 52:54:00:00:00:01  no link".into()],
            agent: Some("is running".into()),
        }
        .to_string();
        for wanted in ["Secure Boot has to be off", "UUID 6a1c", "no link", "31: sd0 64 MiB", "wss://192.0.2.1:7443/a"]
        {
            assert!(text.contains(wanted), "{wanted} is missing in {text}");
        }
        assert!(!text.contains("s3cret"));
        assert!(text.lines().all(|line| line.len() < 80), "a VGA console has 80 columns: {text}");
    }

    #[test]
    fn a_machine_without_a_driven_interface_says_which_adapters_work() {
        let problem = "this image is not personalised".to_owned();
        let text = Status {
            identity: &identity(),
            bootstrap: Err(&problem),
            entropy: false,
            disks: &Disks::default(),
            interfaces: &[],
            agent: None,
        }
        .to_string();
        assert!(text.contains("VMXNET3") && text.contains("not personalised") && text.contains("random"), "{text}");
        assert!(text.contains("none (still looking)"), "{text}");
    }
}

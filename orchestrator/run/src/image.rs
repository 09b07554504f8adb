//! The fleet's image: the worker image with the fleet's bootstrap data in it, brought to where the workers boot it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use hypervisor::{Bootstrap, Hypervisor, Image, WorkerSpec};
use worker_image::{AddressRange, BOOTSTRAP_VERSION, StaticAddressing};

use crate::journal::RunJournal;

/// The worker image of a place whose workers boot one that is brought there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerImage {
    /// The image, not personalised.
    pub path: PathBuf,
    /// MTU of the workers' interfaces, bytes; none leaves what DHCP or the driver says.
    pub mtu: Option<u32>,
    /// Addresses where there is no DHCP.
    pub addresses: Option<FirstAddress>,
}

/// Addresses of workers on a network without DHCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstAddress {
    /// Address of a fleet's first worker; each next one has the next.
    pub first: Ipv4Addr,
    /// Length of the network prefix, bits.
    pub prefix: u8,
    /// Router for addresses outside the network.
    pub gateway: Option<Ipv4Addr>,
}

impl FirstAddress {
    /// The addresses of these workers, by the MACs that the place gives them.
    fn of_workers(self, workers: &[WorkerSpec], hypervisor: &dyn Hypervisor) -> Result<StaticAddressing, String> {
        let range = |(number, worker): (u32, &WorkerSpec)| {
            let mac = hypervisor.mac_of(worker).ok_or("the place does not say which MAC a worker will have")?;
            let first_mac = mac.parse().map_err(|error| format!("worker {}: {error}", worker.name))?;
            let first_address = u32::from(self.first).checked_add(number).ok_or("there are not that many addresses")?;
            Ok(AddressRange { first_mac, first_address: first_address.into(), count: 1 })
        };
        let ranges = (0..).zip(workers).map(range).collect::<Result<_, String>>()?;
        Ok(StaticAddressing { ranges, prefix: self.prefix, gateway: self.gateway })
    }
}

/// Makes the fleet's image and brings it to the hosts; answers its name there.
pub(crate) async fn bring(
    hypervisor: &dyn Hypervisor,
    image: &WorkerImage,
    (fleet, workers): (&str, &[WorkerSpec]),
    bootstrap: &Bootstrap,
    journal: &RunJournal<'_>,
) -> Result<Option<String>, String> {
    let hosts: BTreeSet<String> = workers.iter().filter_map(|worker| worker.host.clone()).collect();
    let hosts: Vec<String> = hosts.into_iter().collect();
    let addressing = image.addresses.map(|first| first.of_workers(workers, hypervisor)).transpose()?;
    // It holds the enrolment token, so that it is for its owner alone and gone once it is brought.
    let dir = tempfile::Builder::new().prefix("fourcorners-").tempdir();
    let dir = dir.map_err(|error| format!("no directory for the fleet's image: {error}"))?;
    let path = dir.path().join("worker.iso");
    let digest = personalise(image, path.clone(), bootstrap, addressing).await?;
    let image = Image { path, digest, fleet: fleet.to_owned() };
    hypervisor.upload_image(&image, &hosts, journal).await.map_err(|error| error.to_string())
}

/// Writes the personal image; answers the digest of the image that it was made from.
async fn personalise(
    image: &WorkerImage,
    out: PathBuf,
    bootstrap: &Bootstrap,
    static_addressing: Option<StaticAddressing>,
) -> Result<String, String> {
    let content = worker_image::Bootstrap {
        version: BOOTSTRAP_VERSION,
        orchestrator_urls: bootstrap.urls.clone(),
        ca_sha256: bootstrap.ca_sha256.clone(),
        token: bootstrap.token.clone(),
        mtu: image.mtu,
        static_addressing,
    };
    let source = image.path.clone();
    let written = tokio::task::spawn_blocking(move || {
        let digest = worker_image::inspect(&source).map_err(|error| error.to_string())?.base_sha256;
        worker_image::personalise(&source, &out, &content).map_err(|error| error.to_string())?;
        Ok(digest)
    });
    written.await.map_err(|error| error.to_string())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypervisor::local::Local;
    use hypervisor::proxmox::{Guard, Proxmox, Settings, Timing, Token};

    #[test]
    fn each_worker_has_the_next_address_by_its_mac() {
        let settings: Settings = serde_json::from_value(serde_json::json!({
            "endpoint": "https://pve1", "token": {"id": "a@pve!b"}, "storage": "s", "iso_storage": "i", "bridge": "b",
            "tls": {"fingerprint": "00".repeat(32)},
        }))
        .unwrap();
        let token = Token::new("a@pve!b", "x").unwrap();
        let place = Proxmox::new(settings, Guard::default(), token, Timing::default()).unwrap();
        let worker = |uuid: &str| WorkerSpec { uuid: uuid.into(), ..WorkerSpec::default() };
        let workers = [worker("6a1c0000-0000-4000-8000-000000000001"), worker("6a1c0000-0000-4000-8000-000000000002")];
        let first = FirstAddress { first: Ipv4Addr::new(192, 0, 2, 50), prefix: 24, gateway: None };
        let addressing = first.of_workers(&workers, &place).unwrap();
        for (worker, last) in workers.iter().zip([50, 51]) {
            let mac = place.mac_of(worker).unwrap().parse().unwrap();
            assert_eq!(addressing.for_mac(mac).unwrap().address, Ipv4Addr::new(192, 0, 2, last));
        }
        let processes = Local::new("/d".into(), "/l".into(), "/p".into());
        assert!(first.of_workers(&workers, &processes).unwrap_err().contains("MAC"));
    }
}

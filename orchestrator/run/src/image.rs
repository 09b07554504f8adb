//! The fleet's image: the worker image with the fleet's bootstrap data in it, brought to where the workers boot it.

use std::path::PathBuf;

use hypervisor::{Bootstrap, Hypervisor, Image};
use worker_image::{BOOTSTRAP_VERSION, StaticAddressing};

use crate::journal::RunJournal;

/// The worker image of a place whose workers boot one that is brought there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerImage {
    /// The image, not personalised.
    pub path: PathBuf,
    /// MTU of the workers' interfaces, bytes; none leaves what DHCP or the driver says.
    pub mtu: Option<u32>,
    /// Addresses where there is no DHCP.
    pub static_addressing: Option<StaticAddressing>,
}

/// Makes the fleet's image and brings it to the hosts; answers its name there.
pub(crate) async fn bring(
    hypervisor: &dyn Hypervisor,
    image: &WorkerImage,
    (fleet, hosts): (&str, &[String]),
    bootstrap: &Bootstrap,
    journal: &RunJournal<'_>,
) -> Result<Option<String>, String> {
    // It holds the enrolment token, so that it is for its owner alone and gone once it is brought.
    let dir = tempfile::Builder::new().prefix("fourcorners-").tempdir();
    let dir = dir.map_err(|error| format!("no directory for the fleet's image: {error}"))?;
    let path = dir.path().join("worker.iso");
    let digest = personalise(image, path.clone(), bootstrap).await?;
    let image = Image { path, digest, fleet: fleet.to_owned() };
    hypervisor.upload_image(&image, hosts, journal).await.map_err(|error| error.to_string())
}

/// Writes the personal image; answers the digest of the image that it was made from.
async fn personalise(image: &WorkerImage, out: PathBuf, bootstrap: &Bootstrap) -> Result<String, String> {
    let content = worker_image::Bootstrap {
        version: BOOTSTRAP_VERSION,
        orchestrator_urls: bootstrap.urls.clone(),
        ca_sha256: bootstrap.ca_sha256.clone(),
        token: bootstrap.token.clone(),
        mtu: image.mtu,
        static_addressing: image.static_addressing.clone(),
    };
    let source = image.path.clone();
    let written = tokio::task::spawn_blocking(move || {
        let digest = worker_image::digest(&source)
            .map_err(|error| format!("{}: cannot read the worker image: {error}", source.display()))?;
        worker_image::personalise(&source, &out, &content).map_err(|error| error.to_string())?;
        Ok(digest)
    });
    written.await.map_err(|error| error.to_string())?
}

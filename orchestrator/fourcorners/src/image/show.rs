//! `image show`: what an image is, and what its slot says.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use worker_image::{Bootstrap, Inspection};

use super::{blocking, places};
use crate::output;

/// In place of a token.
const MASK: &str = "(secret)";

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The image; by default the one that plans find
    image: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub(super) async fn show(data_dir: &Path, args: &ShowArgs) -> anyhow::Result<()> {
    let image = args.image.clone().unwrap_or_else(|| places::of_data_dir(data_dir));
    shown(image, args.json).await
}

/// Shows an image, as it is on the disk now.
pub(super) async fn shown(image: PathBuf, json: bool) -> anyhow::Result<()> {
    let path = image.clone();
    let inspection = blocking(move || worker_image::inspect(&path)).await?;
    let text = if json { format!("{}\n", document(&image, &inspection)) } else { text(&image, &inspection) };
    output::result(&text)
}

fn document(image: &Path, inspection: &Inspection) -> Value {
    let Inspection { size_bytes, sha256, base_sha256, bootstrap } = inspection;
    json!({
        "image": image,
        "size_bytes": size_bytes,
        "sha256": sha256,
        "base_sha256": base_sha256,
        "bootstrap": bootstrap.as_ref().ok().map(|found| found.as_ref().map(masked)),
        "problem": bootstrap.as_ref().err().map(ToString::to_string),
    })
}

fn masked(bootstrap: &Bootstrap) -> Bootstrap {
    Bootstrap { token: MASK.into(), ..bootstrap.clone() }
}

fn text(image: &Path, inspection: &Inspection) -> String {
    let mut rows = vec![("sha256", inspection.sha256.clone()), ("base sha256", inspection.base_sha256.clone())];
    match &inspection.bootstrap {
        Err(problem) => rows.push(("problem", problem.to_string())),
        Ok(None) => rows.push(("slot", "empty: the image is not personal".into())),
        Ok(Some(bootstrap)) => rows.extend(slot_rows(bootstrap)),
    }
    let mut text = format!("{}: {} bytes\n", image.display(), inspection.size_bytes);
    rows.iter().for_each(|(name, value)| text.push_str(&format!("{name:<12} {value}\n")));
    text
}

fn slot_rows(bootstrap: &Bootstrap) -> Vec<(&'static str, String)> {
    let mut rows: Vec<_> = bootstrap.orchestrator_urls.iter().map(|url| ("url", url.clone())).collect();
    rows.push(("ca sha256", bootstrap.ca_sha256.clone()));
    rows.push(("token", MASK.into()));
    rows.push(("mtu", bootstrap.mtu.map_or("as DHCP or the driver says".into(), |mtu| mtu.to_string())));
    let Some(addressing) = &bootstrap.static_addressing else {
        rows.push(("addresses", "by DHCP".into()));
        return rows;
    };
    rows.extend(addressing.ranges.iter().map(|range| {
        let (count, mac, address) = (range.count, range.first_mac, range.first_address);
        ("addresses", format!("{count} from {address}/{} on, for the MACs from {mac} on", addressing.prefix))
    }));
    rows.push(("gateway", addressing.gateway.map_or("none".into(), |gateway| gateway.to_string())));
    rows
}

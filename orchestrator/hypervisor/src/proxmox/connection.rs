//! A first look at a cluster, before anything about a test is known.

use super::client::Client;
use super::cluster;
use super::privileges::{self, Permissions};
use super::secret::Token;
use super::settings::Timing;
use super::tls::Trust;
use crate::{Finding, HypervisorError, Inventory};

/// What a token sees of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What there is to choose from.
    pub inventory: Inventory,
    /// Privileges that a test needs and that the token has on no path.
    pub lacking: Vec<Finding>,
}

/// Looks at the cluster of `endpoint` with a token; nothing is changed.
///
/// # Errors
/// The endpoint is malformed, does not answer, shows a certificate that `trust` refuses, or refuses the token.
pub async fn look_at(endpoint: &str, trust: &Trust, token: Token, timing: Timing) -> Result<Seen, HypervisorError> {
    let id = token.id().to_owned();
    let client = Client::new(endpoint, trust, token, timing)?;
    let permissions: Permissions = client.get(&["access", "permissions"], &[]).await?;
    let lacking = privileges::lacking_everywhere(&permissions, &id);
    let inventory = match cluster::inventory(&client).await {
        Ok(inventory) => inventory,
        // What it may not read follows from what it lacks.
        Err(_) if !lacking.is_empty() => Inventory::default(),
        Err(error) => return Err(error),
    };
    Ok(Seen { inventory, lacking })
}

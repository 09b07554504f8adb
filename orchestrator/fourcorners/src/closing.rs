//! Stores that are closed when the work with them is over, so that what a data directory holds is in its database and in no log beside it.

use store::Store;

/// Works with a store, and closes it however that ended. What the work says goes before what the closing says.
///
/// # Errors
/// The work's, else that of closing.
pub(crate) async fn with_store<T>(
    store: Store,
    work: impl AsyncFnOnce(&Store) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let done = work(&store).await;
    let closed = store.close().await;
    let done = done?;
    closed?;
    Ok(done)
}

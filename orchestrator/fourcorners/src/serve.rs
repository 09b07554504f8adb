//! `serve`: the web report.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use store::{DataDir, Store};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::ServeArgs;

pub(crate) async fn serve(data_dir: &Path, args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let dir = DataDir::new(data_dir);
    let _lock = dir.lock()?;
    let listener = bind(args.listen).await?;
    until_interrupted(listener, Store::open(&dir).await?).await?;
    Ok(ExitCode::SUCCESS)
}

/// Takes the address, or says that somebody else has it.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("{address}: the web report cannot listen there; choose another with --listen ADDRESS:PORT")
    })
}

/// Serves until Ctrl-C or a TERM signal.
pub(crate) async fn until_interrupted(listener: TcpListener, store: Store) -> anyhow::Result<()> {
    println!("Web report: http://{}/ (Ctrl-C ends it)", listener.local_addr()?);
    web::serve(listener, store, interrupted()).await.context("the web report")
}

/// Waits for Ctrl-C or a TERM signal.
pub(crate) async fn interrupted() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        // Without the handler a TERM signal ends the process, which is what is wanted; Ctrl-C is still awaited.
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

//! `serve`: the web report; also beside a run, which it then shows live.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use analysis::export::Export;
use anyhow::Context;
use run::Progress;
use store::{DataDir, Refusal, RunId, Store, StoreError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use uuid::Uuid;
use web::{AllowedHosts, RunSource, RunSummary, SourceError};

use crate::cli::ServeArgs;
use crate::interrupt::Interrupts;
use crate::{output, recover};

pub(crate) async fn serve(data_dir: &Path, args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let dir = DataDir::new(data_dir);
    let _lock = dir.lock()?;
    let listener = bind(args.listen).await?;
    let store = Store::open(&dir).await?;
    recover::recover(data_dir, &store).await?;
    let mut interrupts = Interrupts::listen()?;
    output::result(&format!("Web report: {} (Ctrl-C ends it)\n", url(&listener)?))?;
    let (_, nothing_runs) = watch::channel(Progress::default());
    until(listener, store, nothing_runs, async move { interrupts.next().await }).await?;
    Ok(ExitCode::SUCCESS)
}

/// Takes the address, or says that somebody else has it.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("{address}: the web report cannot listen there; choose another with --listen ADDRESS:PORT")
    })
}

/// Where a browser finds the report.
pub(crate) fn url(listener: &TcpListener) -> anyhow::Result<String> {
    Ok(format!("http://{}/", listener.local_addr()?))
}

/// Serves what the store holds, and the progress of the run that goes on, until `end`.
pub(crate) async fn until(
    listener: TcpListener,
    store: Store,
    progress: watch::Receiver<Progress>,
    end: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let hosts = AllowedHosts::listening_on(listener.local_addr()?);
    web::serve(listener, Arc::new(StoreSource { store, progress }), hosts, end).await.context("the web report")
}

/// The store as the pages ask for it.
struct StoreSource {
    store: Store,
    progress: watch::Receiver<Progress>,
}

impl RunSource for StoreSource {
    async fn list_runs(&self, limit: u32) -> Result<Vec<RunSummary>, SourceError> {
        Ok(self.store.list_runs(limit).await?.into_iter().map(summary).collect())
    }

    async fn load_export(&self, id: Uuid) -> Result<Option<Export>, SourceError> {
        match self.store.load_export(RunId(id)).await {
            Ok(export) => Ok(Some(export)),
            Err(StoreError::Refused { reason, .. }) if matches!(*reason, Refusal::Absent { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn progress(&self, id: Uuid) -> Option<web::Progress> {
        let now = self.progress.borrow().clone();
        let ended = ["done", "failed", "cancelled"].contains(&now.state.as_str());
        (now.run_id == id.to_string() && !ended).then(|| web::Progress {
            case: (now.case > 0).then(|| format!("case {} of {}", now.case, now.cases)),
            phase: now.step,
            percent: now.fraction * 100.0,
            iops: now.iops,
            mib_per_s: now.mib_per_s,
            seconds_left: now.seconds_left,
        })
    }
}

fn summary(run: store::RunSummary) -> RunSummary {
    RunSummary {
        id: run.id.0,
        name: run.name,
        state: run.state.to_string(),
        complete: run.complete,
        reason: run.reason,
        started: run.started,
        finished: run.finished,
    }
}

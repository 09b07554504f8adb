//! `demo` and `run`: a plan from its start to its report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use analysis::export::Export;
use anyhow::Context;
use plan::{Profiles, TestPlan};
use run::fleet::Authority;
use run::{Brake, CanaryReport, Place, Progress, Request};
use store::{DataDir, DataDirLock, RunId, Store};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use web::{Hub, Onlooker};

use crate::cli::{AfterArgs, DemoArgs, DoorArgs, RunArgs, WorkerArgs};
use crate::closing::with_store;
use crate::interrupt::Interrupts;
use crate::place::Scene;
use crate::{CANCELLED, NOT_COMPLETE, image, live, output, place, plan_file, progress, recover, serve, table};

/// Who interrupts a run: whoever is at the terminal.
const WHO: &str = "the user";

const CANCELLING: &str =
    "\nCancelling: the workers stop, what was measured is kept, disks are removed. Once more to break off at once.";

pub(crate) async fn demo(data_dir: &Path, args: &DemoArgs) -> anyhow::Result<ExitCode> {
    if args.vm {
        // Before the minutes that making the image may take.
        hypervisor::vm::qemu_version().await?;
        image::ensure(data_dir).await?;
    }
    let yaml = if args.vm { plan::DEMO_VM_PLAN } else { plan::DEMO_PLAN }.to_owned();
    let plan = plan::parse("the built-in demo plan", &yaml, &Profiles::shipped())?;
    execute(data_dir, request(plan, yaml), &WorkerArgs::default(), &args.after).await
}

pub(crate) async fn run(data_dir: &Path, args: &RunArgs) -> anyhow::Result<ExitCode> {
    match plan_file::read(&args.plan)? {
        Ok(file) => {
            let plan = if args.rehearse { file.plan.rehearsal() } else { file.plan };
            execute(data_dir, request(plan, file.yaml), &args.workers, &args.after).await
        }
        Err(errors) => {
            plan_file::show_errors(&errors);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// A plan with how its place wants it carried out.
pub(crate) fn request(plan: plan::TestPlan, plan_yaml: String) -> Request {
    let options = place::options(&plan);
    Request { plan, plan_yaml, options }
}

/// Boots one worker on each host that the plan would use, and removes it.
pub(crate) async fn canary(data_dir: &Path, request: &Request, workers: &WorkerArgs) -> anyhow::Result<CanaryReport> {
    let (store, site) = Site::open(data_dir, request, workers).await?;
    with_store(store, async |store| flown(store, &site, request).await).await
}

async fn flown(store: &Store, site: &Site, request: &Request) -> anyhow::Result<CanaryReport> {
    let mut interrupts = Interrupts::listen()?;
    let (progress, watched) = watch::channel(Progress::default());
    let brake = Brake::default();
    let shown = tokio::spawn(progress::show(watched));
    let place = site.place();
    let flown = run::canary(store, &place, request, progress, brake.clone());
    tokio::pin!(flown);
    let report = tokio::select! {
        report = &mut flown => report,
        () = interrupts.next() => {
            brake.cancel(WHO);
            output::note(CANCELLING);
            flown.await
        }
    };
    let _ = shown.await;
    Ok(report?)
}

/// The data directory, held, and the place of the workers.
struct Site {
    scene: Scene,
    authority: Arc<Authority>,
    _lock: DataDirLock,
}

impl Site {
    /// What an earlier orchestrator left is removed first.
    async fn open(data_dir: &Path, request: &Request, workers: &WorkerArgs) -> anyhow::Result<(Store, Self)> {
        let scene = Scene::of_plan(data_dir, &request.plan, workers)?;
        let dir = DataDir::new(data_dir);
        let lock = dir.lock()?;
        let store = Store::open(&dir).await?;
        let authority = Arc::new(Authority::open(&data_dir.join("tls"))?);
        recover::recover(data_dir, &store, None).await?;
        Ok((store, Self { scene, authority, _lock: lock }))
    }

    fn place(&self) -> Place<'_> {
        self.scene.place(&self.authority)
    }
}

async fn execute(
    data_dir: &Path,
    request: Request,
    workers: &WorkerArgs,
    after: &AfterArgs,
) -> anyhow::Result<ExitCode> {
    let (store, site) = Site::open(data_dir, &request, workers).await?;
    with_store(store, async |store| carry_out(data_dir, (store, &site), &request, after).await).await
}

async fn carry_out(
    data_dir: &Path,
    (store, site): (&Store, &Site),
    request: &Request,
    after: &AfterArgs,
) -> anyhow::Result<ExitCode> {
    // Before hours of load, not after them.
    let listener = if after.serve { Some(serve::bind(after.listen)?) } else { None };
    place::introduce(&request.plan, site.scene.hypervisor.as_ref()).await;
    let place = site.place();
    let interrupts = Interrupts::listen()?;
    let (progress, watched) = watch::channel(Progress::default());
    let pages = Pages::open(listener, data_dir, store, (&request.plan, &watched))?;
    let (id, interrupts) = cancellable(store, &place, request, (progress, watched), interrupts).await?;
    let export = store.load_export(id).await?;
    conclude(data_dir, store, &export, after.json)?;
    pages.until_interrupted(interrupts).await?;
    Ok(exit_code(&export))
}

/// Shows the result, then writes the report: what was measured is seen also where the disk is full.
fn conclude(data_dir: &Path, store: &Store, export: &Export, json: bool) -> anyhow::Result<()> {
    if json {
        output::result(&format!("{}\n", web::export_json(export)?))?;
    } else {
        output::result(&table::render(export))?;
    }
    let report = write_report(data_dir, export)?;
    if json {
        return Ok(());
    }
    let database = std::path::absolute(store.file())?;
    output::result(&format!("Report:   {}\nDatabase: {}\n", report.display(), database.display()))
}

/// The web interface beside a run and after it, where it was asked for. Who has the terminal gets in by a link.
struct Pages {
    served: Option<Served>,
}

struct Served {
    app: web::App,
    hub: Arc<Hub>,
    /// Where the first page is, without the path.
    base: String,
    end: CancellationToken,
    task: JoinHandle<()>,
}

impl Pages {
    fn open(
        listener: Option<TcpListener>,
        data_dir: &Path,
        store: &Store,
        (plan, progress): (&TestPlan, &watch::Receiver<Progress>),
    ) -> anyhow::Result<Self> {
        let Some(listener) = listener else { return Ok(Self { served: None }) };
        let hub = Arc::<Hub>::default();
        let onlooker = Arc::new(Onlooker::new(Arc::clone(&hub)));
        let site = serve::Site::open(listener, data_dir, store, onlooker, &DoorArgs::default())?;
        tokio::spawn(show_live(store.clone(), Arc::clone(&hub), plan.clone(), progress.clone()));
        let (app, end) = (site.app.clone(), CancellationToken::new());
        let base = site.urls("").into_iter().next().context("the web interface has no address")?;
        if !site.trust.is_empty() {
            output::note(site.trust.trim_end());
        }
        let task = tokio::spawn(site.serve(end.clone().cancelled_owned()));
        let served = Served { app, hub, base, end, task };
        output::note(format!("Web report, live: {}", served.link()?));
        Ok(Self { served: Some(served) })
    }

    async fn until_interrupted(self, mut interrupts: Interrupts) -> anyhow::Result<()> {
        let Some(served) = self.served else { return Ok(()) };
        output::note(format!("Web report: {} (Ctrl-C ends it)", served.link()?));
        interrupts.next().await;
        served.hub.close();
        served.end.cancel();
        served.task.await.context("the web interface")
    }
}

/// Viewers follow the run to its end.
async fn show_live(store: Store, hub: Arc<Hub>, plan: TestPlan, progress: watch::Receiver<Progress>) {
    if let Some((id, end)) = live::follow(store, Arc::clone(&hub), plan, progress).await {
        hub.end(id, end);
    }
}

impl Served {
    /// Lets in once.
    fn link(&self) -> anyhow::Result<String> {
        Ok(format!("{}{}", self.base, self.app.enter_link()?))
    }
}

/// Runs with progress on the terminal; an interrupt cancels. Gives the interrupts back.
async fn cancellable(
    store: &Store,
    place: &Place<'_>,
    request: &Request,
    (progress, watched): (watch::Sender<Progress>, watch::Receiver<Progress>),
    mut interrupts: Interrupts,
) -> anyhow::Result<(RunId, Interrupts)> {
    let brake = Brake::default();
    // A display that fails is no reason to lose a run.
    let shown = tokio::spawn(progress::show(watched));
    let run = run::execute(store, place, request, progress, brake.clone());
    tokio::pin!(run);
    let ended = tokio::select! {
        ended = &mut run => ended,
        () = interrupts.next() => {
            brake.cancel(WHO);
            output::note(CANCELLING);
            tokio::select! {
                ended = &mut run => ended,
                () = interrupts.next() => {
                    output::note("Broken off; the next start cleans up what this run left.");
                    std::process::exit(i32::from(CANCELLED));
                }
            }
        }
    };
    let _ = shown.await;
    Ok((ended?, interrupts))
}

fn write_report(data_dir: &Path, export: &Export) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(DataDir::new(data_dir).report(export.run.id.parse()?))?;
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("{}: cannot create the directory", dir.display()))?;
    }
    std::fs::write(&path, web::report_html(export)?)
        .with_context(|| format!("{}: cannot write the report", path.display()))?;
    Ok(path)
}

fn exit_code(export: &Export) -> ExitCode {
    match (export.run.complete, export.run.state.as_str()) {
        (true, _) => ExitCode::SUCCESS,
        (false, "cancelled") => ExitCode::from(CANCELLED),
        (false, _) => ExitCode::from(NOT_COMPLETE),
    }
}

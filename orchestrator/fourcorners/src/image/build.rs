//! `image build`: the image's programs by cargo, then the ISO around them.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use tokio::process::Command;
use worker_image::build::{epoch_of_environment, missing_tools};
use worker_image::{BuildOptions, BuildReport};

use super::{blocking, places};
use crate::output;

#[derive(Debug, Default, Args)]
pub(crate) struct BuildArgs {
    /// The image to write; by default fourcorners-worker.iso in the data directory, where plans find it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Use the .deb files of this directory, and no network
    #[arg(long, value_name = "DIR")]
    debs: Option<PathBuf>,
    /// Source tree whose programs go into the image; by default the one that this program was built in
    #[arg(long, value_name = "DIR", conflicts_with = "worker")]
    source: Option<PathBuf>,
    /// The static worker agent, in place of building it
    #[arg(long, value_name = "FILE", requires = "init")]
    worker: Option<PathBuf>,
    /// The static worker-init, in place of building it
    #[arg(long, value_name = "FILE", requires = "worker")]
    init: Option<PathBuf>,
    /// Time of all files in the image, seconds since 1970; by default SOURCE_DATE_EPOCH, else when the kernel was built
    #[arg(long, value_name = "SECONDS")]
    source_date_epoch: Option<u32>,
    /// Machine-readable output: what was built, from what
    #[arg(long)]
    json: bool,
}

pub(super) async fn build(data_dir: &Path, args: &BuildArgs) -> anyhow::Result<()> {
    let report = make(data_dir, args).await?;
    if args.json {
        return output::result(&format!("{}\n", serde_json::to_string(&report)?));
    }
    let BuildReport { iso, sha256, size_bytes, manifest } = report;
    output::result(&format!(
        "{}: {size_bytes} bytes, kernel {}\nsha256 {sha256}\nIt is not signed: Secure Boot has to be off.\n",
        iso.display(),
        manifest.kernel
    ))
}

/// The image for VMs on this machine: the one that is there, else one made now.
pub(crate) async fn ensure(data_dir: &Path) -> anyhow::Result<()> {
    if places::found(data_dir).is_some() {
        return Ok(());
    }
    let looked: Vec<_> = places::looked_at(data_dir).iter().map(|path| path.display().to_string()).collect();
    output::note(format!("There is no worker image ({}): one is made now.", looked.join(", ")));
    let report = make(data_dir, &BuildArgs::default()).await.context("the worker image cannot be made")?;
    output::note(format!("It is kept as {}.", report.iso.display()));
    Ok(())
}

async fn make(data_dir: &Path, args: &BuildArgs) -> anyhow::Result<BuildReport> {
    // Before the minutes that building the programs may take.
    if let Some(missing) = missing_tools(args.debs.is_none()) {
        return Err(missing.into());
    }
    let source_date_epoch = match args.source_date_epoch {
        Some(epoch) => Some(epoch),
        None => epoch_of_environment().map_err(anyhow::Error::msg)?,
    };
    let began = Instant::now();
    let programs = programs(args).await?;
    let packages = if args.debs.is_some() { "the packages given" } else { "Debian packages, downloaded where missing" };
    output::note(format!("Making the image from {packages} ..."));
    let options = BuildOptions {
        worker: programs.worker,
        init: programs.init,
        out: args.output.clone().unwrap_or_else(|| places::in_data_dir(data_dir)),
        cache_dir: programs.packages.unwrap_or_else(|| data_dir.join("image-packages")),
        debs: args.debs.clone(),
        source_date_epoch,
    };
    let report = blocking(move || worker_image::build(&options)).await?;
    output::note(format!("Made in {} s.", began.elapsed().as_secs()));
    Ok(report)
}

/// The programs that go into the image.
struct Programs {
    worker: PathBuf,
    init: PathBuf,
    /// Where the source tree keeps downloaded packages.
    packages: Option<PathBuf>,
}

async fn programs(args: &BuildArgs) -> anyhow::Result<Programs> {
    if let (Some(worker), Some(init)) = (&args.worker, &args.init) {
        return Ok(Programs { worker: worker.clone(), init: init.clone(), packages: None });
    }
    let Some(root) = args.source.clone().or_else(places::source_tree) else {
        bail!(
            "this program is not in the source tree that it was built in, so the image's programs cannot be built; name that tree \
             (--source) or static programs (--worker, --init), or put a ready fourcorners-worker.iso beside this program"
        );
    };
    output::note("Building the image's static programs with cargo; the first time, this takes minutes ...");
    built_by_cargo(&root).await
}

async fn built_by_cargo(root: &Path) -> anyhow::Result<Programs> {
    let script = root.join(places::BUILD_SCRIPT);
    let built = Command::new(&script)
        .arg("--programs")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{}: cannot be run; --source names the root of the source tree", script.display()))?;
    // Not `output()`, which keeps what cargo says to itself.
    let built = built.wait_with_output().await?;
    if !built.status.success() {
        bail!("{} failed ({}): its reasons are above", script.display(), built.status);
    }
    let said = String::from_utf8(built.stdout).context("the names of the image's programs")?;
    match said.lines().collect::<Vec<_>>()[..] {
        [worker, init] => {
            let target = Path::new(init).ancestors().nth(4);
            Ok(Programs {
                worker: worker.into(),
                init: init.into(),
                packages: target.map(|target| target.join("image-packages")),
            })
        }
        _ => bail!("{} names no programs: {said:?}", script.display()),
    }
}

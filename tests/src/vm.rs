//! What tests on VMs share: the real worker image, made by the program itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::{Answer, Site, binary, workspace};

/// The worker image and how it was made.
#[derive(Debug)]
pub struct Image {
    /// The ISO.
    pub path: PathBuf,
    /// What `image build --json` said.
    pub report: Value,
}

/// The image, made once a test program; else why there can be none here.
///
/// # Panics
/// Where it should be possible to make it and is not.
pub fn image() -> Result<&'static Image, &'static str> {
    static IMAGE: OnceLock<Result<Image, String>> = OnceLock::new();
    IMAGE.get_or_init(made).as_ref().map_err(String::as_str)
}

/// Why no image can be made or booted here, if so.
#[must_use]
pub fn lacking() -> Option<String> {
    if Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_err() {
        let install = "no qemu-system-x86_64; on Debian: apt-get install --no-install-recommends qemu-system-x86";
        return Some(install.into());
    }
    worker_image::build::missing_tools(true).map(|missing| missing.to_string())
}

fn made() -> Result<Image, String> {
    if let Some(reason) = lacking() {
        return Err(reason);
    }
    let path = workspace().join("target/tmp/fourcorners-worker.iso");
    let site = Site::new();
    let mut build = site.command(["image", "build", "--json", "--source"]);
    let answer = Answer::from(build.arg(workspace()).arg("--output").arg(&path).output().unwrap());
    if !answer.ok() && answer.stderr.contains("apt knows no way") {
        return Err(answer.stderr);
    }
    assert!(answer.ok(), "{answer:?}");
    Ok(Image { path, report: serde_json::from_str(&answer.stdout).unwrap() })
}

/// A directory with the program and its image side by side, as the field kit has them.
///
/// # Panics
/// Where they cannot be put there.
#[must_use]
pub fn kit(dir: &Path, image: &Image) -> PathBuf {
    let program = dir.join("fourcorners");
    std::fs::copy(binary(), &program).unwrap();
    std::fs::copy(&image.path, dir.join("fourcorners-worker.iso")).unwrap();
    program
}

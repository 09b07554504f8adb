//! Where the worker image is.

use std::path::{Path, PathBuf};

/// File name of the worker image.
const NAME: &str = "fourcorners-worker.iso";
/// The program, from the root of the source tree, that builds the image's own programs.
pub(super) const BUILD_SCRIPT: &str = "worker-image/image/build";

/// Where an image is looked for: beside the program (the field kit), in the data directory, where the source tree's script puts it.
pub(super) fn looked_at(data_dir: &Path) -> Vec<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(NAME)));
    let built = source_tree().map(|root| root.join("target").join(NAME));
    beside.into_iter().chain([in_data_dir(data_dir)]).chain(built).collect()
}

/// The image that is there.
pub(super) fn found(data_dir: &Path) -> Option<PathBuf> {
    looked_at(data_dir).into_iter().find(|image| image.is_file())
}

/// Where an image is put that is made here.
pub(super) fn in_data_dir(data_dir: &Path) -> PathBuf {
    data_dir.join(NAME)
}

/// The image of whoever names none: the one that is there, else where one would be made.
pub(crate) fn of_data_dir(data_dir: &Path) -> PathBuf {
    found(data_dir).unwrap_or_else(|| in_data_dir(data_dir))
}

/// The source tree that the program was built in, if that is still there.
pub(super) fn source_tree() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.ancestors().find(|dir| dir.join(BUILD_SCRIPT).is_file()).map(Path::to_path_buf)
}

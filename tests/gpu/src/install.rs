//! Puts the stand-in where a program finds it, beside NVIDIA's compiler and headers.

use crate::settings::Settings;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// What the libraries are called, by which the loader finds them.
pub const NAMES: [&str; 5] = [
    "libcuda.so",
    "libcuda.so.1",
    "libcupti.so.12",
    "libnvidia-ml.so.1",
    "libnvjpeg.so.12",
];

/// Puts links to the stand-in into `folder` under `names`, and the settings in a file there, whose path is returned.
/// The library lies where Cargo builds `program`, or in `deps` there.
///
/// # Panics
/// The library is not built, or a file cannot be made.
pub fn install(program: &Path, folder: &Path, names: &[&str], settings: &Settings) -> PathBuf {
    let built = program.parent().unwrap();
    let library = "libstallscope_stand_in_gpu.so";
    let found = [built.join("deps").join(library), built.join(library)];
    let found = found.iter().find(|path| path.exists());
    let found = found.unwrap_or_else(|| panic!("{library} is not in {built:?}"));
    fs::create_dir_all(folder).unwrap();
    for name in names {
        symlink(found, folder.join(name)).unwrap();
    }
    let file = folder.join("stand-in.json");
    fs::write(&file, serde_json::to_vec(settings).unwrap()).unwrap();
    file
}

/// NVIDIA's compiler and headers of CUDA `version`, which scripts/nvrtc-setup.sh fetches into `target/cuda` of the
/// repository at `root`; `None`, with a reason printed, where it did not.
///
/// # Panics
/// STALLSCOPE_REQUIRE_NVRTC is set, and they are not there.
pub fn toolkit(root: &Path, version: &str) -> Option<PathBuf> {
    let folder = root.join("target/cuda").join(version);
    if folder.join("include/cuda_runtime.h").exists() {
        return Some(folder);
    }
    let required = std::env::var_os("STALLSCOPE_REQUIRE_NVRTC").is_some();
    assert!(!required, "no {}", folder.display());
    println!(
        "skipped: no {}; `scripts/nvrtc-setup.sh {version}` fetches it from PyPI",
        folder.display()
    );
    None
}

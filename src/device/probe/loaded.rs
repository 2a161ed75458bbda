//! The CUPTI that fits a process which uses CUDA already, as PyTorch's does: another version than its CUDA's own would
//! record nothing.
//!
//! Invariant: looks only; opens no library. May use: `probe` (its types), `search`.

use super::{Missing, search};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Names the library to use, or is `off`.
pub const VARIABLE: &str = "STALLSCOPE_CUPTI";

/// What a library named by hand may be called where there shall be none.
const OFF: &str = "off";

/// The library that [`VARIABLE`] names; an error where it says that there shall be none.
pub(super) fn named() -> Option<Result<PathBuf, Missing>> {
    let named = env::var_os(VARIABLE).filter(|named| !named.is_empty())?;
    Some(match named == OFF {
        true => Err(missing(
            format!("{VARIABLE}={OFF}"),
            format!("unset {VARIABLE}"),
        )),
        false => Ok(PathBuf::from(named)),
    })
}

fn missing(detail: String, remedy: String) -> Missing {
    Missing {
        piece: "CUPTI (libcupti.so)",
        detail,
        remedy,
    }
}

/// Where the libcupti lies that fits this process: the one that [`VARIABLE`] names; or is loaded; or lies beside the CUDA
/// runtime that is loaded; or in NVIDIA's Python packages, whose folders `packages` are, for the version `cuda` (`12.8`); or
/// where our own runs look for it.
///
/// # Errors
/// There is none.
pub fn cupti_of_process(packages: &[PathBuf], cuda: &str) -> Result<PathBuf, Missing> {
    if let Some(named) = named() {
        return named;
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let major = major_of(cuda);
    let found = beside(&maps, packages, &major).or_else(|| {
        let name = format!("libcupti.so.{major}");
        search::libraries(&[&name]).into_iter().next()
    });
    found.ok_or_else(|| {
        // From CUDA 13 on NVIDIA's names have no suffix.
        let package = match major.as_str() {
            "11" | "12" => format!("nvidia-cuda-cupti-cu{major}"),
            _ => format!("'nvidia-cuda-cupti=={major}.*'"),
        };
        missing(
            format!(
                "neither loaded, nor among NVIDIA's Python packages, nor in a CUDA {major} toolkit"
            ),
            format!(
                "`pip install {package}`, or set {VARIABLE} to the path of libcupti.so.{major}"
            ),
        )
    })
}

fn major_of(version: &str) -> String {
    let digits = version.chars().take_while(char::is_ascii_digit);
    digits.collect()
}

/// The same among what `maps`, as the kernel lists them, says is loaded, and in `packages`.
fn beside(maps: &str, packages: &[PathBuf], major: &str) -> Option<PathBuf> {
    let loaded = |name: &str| {
        let paths = maps
            .lines()
            .filter_map(|line| line.find('/').map(|at| &line[at..]));
        let mut paths = paths.map(Path::new);
        let is_it = |path: &&Path| {
            let file = path.file_name().and_then(|file| file.to_str());
            file.is_some_and(|file| file.starts_with(name) && file.contains(".so"))
        };
        paths.find(is_it).map(Path::to_path_buf)
    };
    if let Some(cupti) = loaded("libcupti") {
        return Some(cupti);
    }
    let runtime = loaded("libcudart");
    let own = runtime.as_deref().and_then(|path| {
        let (_, version) = path.file_name()?.to_str()?.split_once(".so.")?;
        Some(major_of(version))
    });
    let major = own
        .filter(|own| !own.is_empty())
        .unwrap_or(major.to_owned());
    let folder = runtime.as_deref().and_then(Path::parent);
    let near = ["", "../../cuda_cupti/lib", "../extras/CUPTI/lib64"];
    let near = folder
        .into_iter()
        .flat_map(|folder| near.map(|way| folder.join(way)));
    let within = ["cuda_cupti/lib".to_owned(), format!("cu{major}/lib")];
    let within = packages
        .iter()
        .flat_map(|package| within.iter().map(|way| package.join(way)));
    let name = format!("libcupti.so.{major}");
    let mut candidates = near.chain(within).map(|folder| folder.join(&name));
    candidates.find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(folder: &Path, path: &str) -> PathBuf {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    fn map(path: &Path) -> String {
        format!("7f00-7f10 r-xp 00000000 08:01 42    {}\n", path.display())
    }

    #[test]
    fn what_is_loaded_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let bundled = library(folder.path(), "torch/lib/libcupti-0b47ad5b.so.12");
        let runtime = library(folder.path(), "nvidia/cuda_runtime/lib/libcudart.so.12");
        let own = library(folder.path(), "nvidia/cuda_cupti/lib/libcupti.so.12");
        let maps = map(&runtime) + &map(&bundled);
        assert_eq!(beside(&maps, &[], "13"), Some(bundled));
        let beside_runtime = beside(&map(&runtime), &[], "13").unwrap();
        assert_eq!(
            fs::canonicalize(beside_runtime).unwrap(),
            fs::canonicalize(own).unwrap()
        );
    }

    #[test]
    fn the_version_is_that_of_the_runtime_or_of_torch() {
        let folder = tempfile::tempdir().unwrap();
        let packages = [folder.path().join("nvidia")];
        let old = library(folder.path(), "nvidia/cuda_cupti/lib/libcupti.so.12");
        let new = library(folder.path(), "nvidia/cu13/lib/libcupti.so.13");
        let elsewhere = library(folder.path(), "cuda/libcudart.so.12.8.90");
        assert_eq!(beside("", &packages, "13"), Some(new));
        assert_eq!(beside(&map(&elsewhere), &packages, "13"), Some(old));
        assert_eq!(beside("", &packages, "11"), None);
        assert_eq!(major_of("13.2"), "13");
    }
}

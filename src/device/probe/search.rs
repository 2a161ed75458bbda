//! Where CUDA's pieces lie on disk, found without loading any of them.
//!
//! Invariant: looks only; opens no library and starts no process.
//!
//! May use: nothing of this crate.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The CUDA toolkit's folder, chosen exactly as burn's CUDA backend (cubecl-cuda) chooses it, so
/// that what is found here is what kernels are compiled with.
pub fn toolkit() -> Option<PathBuf> {
    if let Some(path) = env::var_os("CUDA_PATH") {
        return Some(PathBuf::from(path));
    }
    let installed = ["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from);
    let found = installed.into_iter().find(|path| path.exists());
    found.or_else(|| {
        Path::new("/usr/bin/nvcc")
            .exists()
            .then(|| PathBuf::from("/usr"))
    })
}

/// Where `names` lie that the loader or a CUDA installation keeps, in the order of `names`; one file is listed once.
pub fn libraries(names: &[&str]) -> Vec<PathBuf> {
    let folders = folders();
    let cache = fs::read("/etc/ld.so.cache").unwrap_or_default();
    let mut found: Vec<PathBuf> = Vec::new();
    let mut files: Vec<PathBuf> = Vec::new();
    for name in names {
        let beside = folders.iter().map(|folder| folder.join(name));
        for path in beside.chain(in_loader_cache(&cache, name)) {
            // Links to one library lie side by side.
            match fs::canonicalize(&path) {
                Ok(file) if !files.contains(&file) => {
                    files.push(file);
                    found.push(path);
                }
                _ => {}
            }
        }
    }
    found
}

fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = env::var_os("LD_LIBRARY_PATH")
        .map(|paths| {
            env::split_paths(&paths)
                .filter(|path| path.is_absolute())
                .collect()
        })
        .unwrap_or_default();
    for root in toolkit()
        .into_iter()
        .chain([PathBuf::from("/usr/local/cuda")])
    {
        for inside in [
            "lib64",
            "extras/CUPTI/lib64",
            "targets/x86_64-linux/lib",
            "targets/sbsa-linux/lib",
            "lib",
        ] {
            folders.push(root.join(inside));
        }
    }
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(prefix) = env::var_os(variable) {
            folders.push(Path::new(&prefix).join("lib"));
            folders.extend(wheels(Path::new(&prefix)));
        }
    }
    let system = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ];
    folders.extend(system.map(PathBuf::from));
    folders
}

/// NVIDIA's Python wheels: `lib/python3.X/site-packages/nvidia/<package>/lib`.
fn wheels(prefix: &Path) -> Vec<PathBuf> {
    let pythons = list(&prefix.join("lib"));
    let packages = pythons
        .iter()
        .flat_map(|python| list(&python.join("site-packages/nvidia")));
    packages
        .map(|package| package.join("lib"))
        .filter(|folder| folder.is_dir())
        .collect()
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The loader's cache holds its paths as NUL-terminated strings: the one that ends in `/name`.
fn in_loader_cache(cache: &[u8], name: &str) -> Option<PathBuf> {
    let ending = format!("/{name}");
    let strings = cache
        .split(|byte| *byte == 0)
        .filter_map(|bytes| std::str::from_utf8(bytes).ok());
    strings
        .into_iter()
        .find(|text| text.starts_with('/') && text.ends_with(&ending))
        .map(PathBuf::from)
}

/// The value of `#define NAME number` in a C header.
pub fn defined_number(header: &Path, name: &str) -> Option<u32> {
    let text = fs::read_to_string(header).ok()?;
    let mut lines = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("#define"));
    lines.find_map(|line| {
        let (defined, value) = line.trim().split_once(char::is_whitespace)?;
        (defined == name)
            .then(|| value.trim().parse().ok())
            .flatten()
    })
}

/// What there is of an NVIDIA GPU when its driver cannot be used.
pub fn hardware() -> &'static str {
    if Path::new("/proc/driver/nvidia/version").exists() || Path::new("/dev/nvidiactl").exists() {
        return "the kernel's NVIDIA driver is loaded, so this looks like a container without it: \
                start it with the NVIDIA container runtime (`docker run --gpus all`)";
    }
    let devices = list(Path::new("/sys/bus/pci/devices"));
    let nvidia_display = |device: &PathBuf| {
        let read = |file: &str| fs::read_to_string(device.join(file)).unwrap_or_default();
        read("vendor").trim() == "0x10de" && read("class").starts_with("0x03")
    };
    if devices.iter().any(nvidia_display) {
        "there is an NVIDIA GPU in this machine: install its driver (https://www.nvidia.com/drivers)"
    } else {
        "no NVIDIA GPU is visible either: use `--device cpu`, or a machine with one"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_library_in_the_loader_cache() {
        let cache =
            b"glibc-ld.so.cache1.1\0libx.so.1\0/opt/a/libxx.so.1\0/opt/b/libx.so.1\0\xff\xfe\0";
        assert_eq!(
            in_loader_cache(cache, "libx.so.1"),
            Some(PathBuf::from("/opt/b/libx.so.1"))
        );
        assert_eq!(in_loader_cache(cache, "liby.so.1"), None);
    }

    #[test]
    fn reads_a_version_from_a_header() {
        let folder = tempfile::tempdir().unwrap();
        let header = folder.path().join("x.h");
        fs::write(
            &header,
            "#define CUDART_VERSION_X 1\n  #define CUDART_VERSION  12040\n",
        )
        .unwrap();
        assert_eq!(defined_number(&header, "CUDART_VERSION"), Some(12040));
        assert_eq!(defined_number(&header, "OTHER"), None);
    }
}

//! A folder for a GPU's kernels, compiled and tuned, below the user's cache folder.
//!
//! May use `device`.

use crate::device::probe::CudaProbe;
use std::path::{Path, PathBuf};

/// Has burn keep its kernels for `cuda:ordinal` below `cache`, or where the user's `cubecl.toml` says. To be called
/// before the device comes up. Says where, or why not.
pub fn keep_kernels(cache: Option<&Path>, probe: &CudaProbe, ordinal: usize) -> String {
    let Some(folder) = cache.and_then(|cache| folder_of(cache, probe, ordinal)) else {
        return "not kept: there is no cache folder; set XDG_CACHE_HOME or HOME".to_owned();
    };
    match stallscope_trainer::keep_kernels(&folder) {
        Ok(Some(folder)) => format!("kept in {}", folder.display()),
        Ok(None) => "kept as cubecl.toml or burn.toml says".to_owned(),
        Err(reason) => format!("not kept: {reason}"),
    }
}

/// What is compiled for one GPU's model by one compiler is of no use to another, and CubeCL's own keys name neither.
fn folder_of(cache: &Path, probe: &CudaProbe, ordinal: usize) -> Option<PathBuf> {
    let gpu = probe.device(ordinal).ok()?;
    let nvrtc = probe.nvrtc.as_ref().ok()?.version.as_deref();
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || c == '.' => c,
        _ => '-',
    };
    let capability = gpu.compute_capability.unwrap_or(0);
    let name = format!(
        "{} sm_{capability} nvrtc {}",
        gpu.name,
        nvrtc.unwrap_or("unknown")
    );
    Some(
        cache
            .join("kernels")
            .join(name.chars().map(plain).collect::<String>()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::probe::{CudaVersion, Driver, Gpu, Missing, Piece};

    #[test]
    fn each_gpu_and_compiler_has_a_folder() {
        let gone = |piece| Missing {
            piece,
            detail: "gone".to_owned(),
            remedy: "get it".to_owned(),
        };
        let gpu = Gpu {
            ordinal: 0,
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            memory_bytes: 1,
            pci_bus_id: None,
            compute_capability: Some(90),
        };
        let mut probe = CudaProbe {
            driver: Ok(Driver {
                cuda_version: CudaVersion::new(12, 9),
                devices: vec![gpu],
            }),
            nvml: Err(gone("NVML")),
            cupti: Err(gone("CUPTI")),
            cupti_others: Vec::new(),
            nvjpeg: None,
            nvrtc: Ok(Piece {
                path: "libnvrtc.so.12".into(),
                version: Some("12.9".to_owned()),
            }),
            headers: Err(gone("headers")),
        };
        let folder = folder_of(Path::new("/cache/stallscope"), &probe, 0).unwrap();
        let expected = "/cache/stallscope/kernels/NVIDIA-H100-80GB-HBM3-sm-90-nvrtc-12.9";
        assert_eq!(folder, Path::new(expected));
        assert_eq!(folder_of(Path::new("/cache"), &probe, 1), None);
        probe.nvrtc = Err(gone("NVRTC"));
        assert!(keep_kernels(Some(Path::new("/cache")), &probe, 0).starts_with("not kept"));
        assert!(keep_kernels(None, &probe, 0).contains("XDG_CACHE_HOME"));
    }
}

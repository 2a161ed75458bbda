//! Versions of CUDA, and the packages that hold its pieces.
//!
//! May use: nothing of this crate.

use std::fmt;

/// A version of CUDA, as the driver and NVRTC number it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion {
    pub major: u32,
    pub minor: u32,
}

impl CudaVersion {
    pub const fn new(major: u32, minor: u32) -> CudaVersion {
        CudaVersion { major, minor }
    }

    /// CUDA counts versions as 1000 x major + 10 x minor.
    pub const fn of_number(number: u32) -> CudaVersion {
        CudaVersion::new(number / 1000, number % 1000 / 10)
    }

    /// Whether a driver that supports CUDA up to `driver` loads the PTX that NVRTC of this version makes. CUDA's
    /// compatibility between minor versions does not cover PTX: each version of CUDA has its own of PTX, but for
    /// 12.5 and 12.6, which share one.
    pub fn compiles_for(self, driver: CudaVersion) -> bool {
        let shared = (CudaVersion::new(12, 6), CudaVersion::new(12, 5));
        self <= driver || (self, driver) == shared
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// A part of the CUDA toolkit that is packaged by itself.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Package {
    Nvrtc,
    /// `cuda_runtime.h`, `mma.h`, `cooperative_groups.h` and the types of numbers.
    Runtime,
    /// `crt/`, which comes with nvcc before CUDA 13.
    Crt,
    /// libcu++: `cuda/` and `nv/`.
    Cccl,
    Cupti,
    NvJpeg,
}

impl Package {
    /// Of a header's name as it is included.
    pub fn of_header(name: &str) -> Package {
        match name.split_once('/') {
            Some(("crt", _)) => Package::Crt,
            Some(("cuda" | "nv" | "cub" | "thrust", _)) => Package::Cccl,
            _ => Package::Runtime,
        }
    }

    /// In NVIDIA's repository for Debian and Ubuntu.
    fn apt(self, version: CudaVersion) -> String {
        let name = match self {
            Package::Nvrtc => "cuda-nvrtc",
            Package::Runtime => "cuda-cudart-dev",
            Package::Crt => "cuda-nvcc",
            Package::Cccl => "cuda-cccl",
            Package::Cupti => "cuda-cupti",
            Package::NvJpeg => "libnvjpeg",
        };
        // The driver has a 12.7 that no toolkit goes with.
        let minor = match (version.major, version.minor) {
            (12, 7) => 6,
            (_, minor) => minor,
        };
        format!("{name}-{}-{minor}", version.major)
    }

    /// On PyPI: the newest that is not newer than `version`.
    fn pip(self, version: CudaVersion) -> String {
        let CudaVersion { major, minor } = version;
        let name = match self {
            Package::Nvrtc => "nvidia-cuda-nvrtc",
            Package::Runtime => "nvidia-cuda-runtime",
            Package::Crt if major < 13 => "nvidia-cuda-nvcc",
            Package::Crt => "nvidia-cuda-crt",
            Package::Cccl => "nvidia-cuda-cccl",
            Package::Cupti => "nvidia-cuda-cupti",
            Package::NvJpeg => "nvidia-nvjpeg",
        };
        // From CUDA 13 on the names have no suffix.
        match major {
            ..13 => format!("'{name}-cu{major}<{major}.{}'", minor + 1),
            13.. => format!("'{name}>={major},<{major}.{}'", minor + 1),
        }
    }
}

/// How to get `packages` of CUDA `version`, as one sentence without its end.
pub fn install(packages: &[Package], version: CudaVersion) -> String {
    let mut packages = packages.to_vec();
    packages.sort_unstable();
    packages.dedup();
    let list = |name: fn(Package, CudaVersion) -> String| {
        let names: Vec<String> = packages
            .iter()
            .map(|package| name(*package, version))
            .collect();
        names.join(" ")
    };
    format!(
        "`apt-get install {}` from NVIDIA's repository, or `pip install --target ~/cuda {}`, then \
         `cp -rsf ~/cuda/nvidia/*/. ~/cuda` and \
         `export CUDA_PATH=~/cuda LD_LIBRARY_PATH=~/cuda/lib:$LD_LIBRARY_PATH`",
        list(Package::apt),
        list(Package::pip)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_nvidia_writes_them() {
        assert_eq!(CudaVersion::of_number(13_000).to_string(), "13.0");
        assert_eq!(CudaVersion::of_number(12_040).to_string(), "12.4");
    }

    #[test]
    fn a_driver_loads_the_ptx_of_no_newer_version() {
        let version = CudaVersion::new;
        assert!(version(12, 4).compiles_for(version(12, 4)));
        assert!(version(12, 9).compiles_for(version(13, 0)));
        assert!(version(12, 6).compiles_for(version(12, 5)));
        assert!(!version(12, 9).compiles_for(version(12, 4)));
        assert!(!version(13, 0).compiles_for(version(12, 9)));
    }

    #[test]
    fn packages_are_those_of_the_version() {
        let packages = [Package::Cccl, Package::Crt, Package::Cccl];
        let old = install(&packages, CudaVersion::new(12, 9));
        assert!(
            old.contains("cuda-nvcc-12-9 cuda-cccl-12-9`")
                && old.contains("'nvidia-cuda-nvcc-cu12<12.10' 'nvidia-cuda-cccl-cu12<12.10'`"),
            "{old}"
        );
        let new = install(&packages, CudaVersion::new(13, 0));
        assert!(
            new.contains("cuda-nvcc-13-0 cuda-cccl-13-0`")
                && new.contains("'nvidia-cuda-crt>=13,<13.1' 'nvidia-cuda-cccl>=13,<13.1'`"),
            "{new}"
        );
        let driver_only = install(&[Package::Nvrtc], CudaVersion::new(12, 7));
        assert!(
            driver_only.contains("cuda-nvrtc-12-6`")
                && driver_only.contains("nvidia-cuda-nvrtc-cu12<12.8"),
            "{driver_only}"
        );
    }
}

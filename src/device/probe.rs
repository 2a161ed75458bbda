//! Which pieces of CUDA are usable on this machine, and how to get those that are not.
//!
//! burn's CUDA backend panics, or fails deep inside a kernel's compilation, when a piece is
//! missing; asking here first gives the user a name for it instead.
//!
//! Invariants: never panics; whatever is absent is a [`Missing`], not an error; CUPTI is never
//! loaded before the driver has answered. Libraries stay loaded once opened: the driver does not
//! survive being unloaded.
//!
//! May use: nothing of this crate.

pub(super) mod libraries;
mod loaded;
mod search;

pub use loaded::{VARIABLE as CUPTI_VARIABLE, cupti_of_process};

use std::fmt;
use std::path::PathBuf;

/// Everything a run on `cuda:N` needs, piece by piece.
#[derive(Debug, Clone)]
pub struct CudaProbe {
    pub driver: Result<Driver, Missing>,
    /// For GPU-Util, the figure nvidia-smi prints.
    pub nvml: Result<Piece, Missing>,
    /// For kernel and copy timestamps.
    pub cupti: Result<Piece, Missing>,
    /// Compiles burn's kernels.
    pub nvrtc: Result<Piece, Missing>,
    /// What they are compiled with.
    pub headers: Result<Piece, Missing>,
}

/// The driver, answering.
#[derive(Debug, Clone)]
pub struct Driver {
    /// The newest CUDA version it supports.
    pub cuda_version: String,
    pub devices: Vec<Gpu>,
}

#[derive(Debug, Clone)]
pub struct Gpu {
    pub ordinal: usize,
    pub name: String,
    pub memory_bytes: u64,
    /// `domain:bus:device.function`, by which NVML knows the same GPU; ordinals differ between the two.
    pub pci_bus_id: Option<String>,
}

/// A library or a folder that was found.
#[derive(Debug, Clone)]
pub struct Piece {
    /// What to open: a full path, or a bare name that the loader resolves.
    pub path: PathBuf,
    /// As the piece itself says it; `None` where it could not be asked.
    pub version: Option<String>,
}

/// A piece that is not there or does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub piece: &'static str,
    /// What was found instead, and where it was looked for.
    pub detail: String,
    /// How to get it.
    pub remedy: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: {}\n  try: {}",
            self.piece, self.detail, self.remedy
        )
    }
}

impl std::error::Error for Missing {}

impl Missing {
    /// The same, for where there is but one line.
    pub fn in_one_line(&self) -> String {
        let Missing {
            piece,
            detail,
            remedy,
        } = self;
        format!("{piece}: {detail}; try: {remedy}")
    }
}

impl CudaProbe {
    /// The device `cuda:ordinal`, whatever else is missing.
    ///
    /// # Errors
    /// No driver, or no such device.
    pub fn device(&self, ordinal: usize) -> Result<&Gpu, Missing> {
        let driver = self.driver.as_ref().map_err(Missing::clone)?;
        driver.device(ordinal)
    }

    /// The device `cuda:ordinal`, or every piece that it still needs.
    pub fn require(&self, ordinal: usize) -> Result<&Gpu, Vec<Missing>> {
        let gpu = self.device(ordinal);
        let compiler = [&self.nvrtc, &self.headers]
            .into_iter()
            .filter_map(|piece| piece.as_ref().err());
        let missing: Vec<Missing> = gpu
            .as_ref()
            .err()
            .into_iter()
            .chain(compiler)
            .cloned()
            .collect();
        gpu.ok().filter(|_| missing.is_empty()).ok_or(missing)
    }
}

impl Driver {
    fn device(&self, ordinal: usize) -> Result<&Gpu, Missing> {
        let gpu = self.devices.get(ordinal);
        gpu.ok_or_else(|| self.no_such_device(ordinal))
    }

    fn no_such_device(&self, ordinal: usize) -> Missing {
        let count = self.devices.len();
        let name = |gpu: &Gpu| format!("cuda:{} ({})", gpu.ordinal, gpu.name);
        let names: Vec<String> = self.devices.iter().map(name).collect();
        Missing {
            piece: "CUDA device",
            detail: format!("there is no cuda:{ordinal}: the driver shows {count} device(s)"),
            remedy: match names.is_empty() {
                true => "check CUDA_VISIBLE_DEVICES and `nvidia-smi`".to_owned(),
                false => format!("use {}, or check CUDA_VISIBLE_DEVICES", names.join(" or ")),
            },
        }
    }
}

/// Asks for every piece. Takes milliseconds without a GPU, and as long as `cuInit` with one.
pub fn cuda() -> CudaProbe {
    let driver = libraries::driver();
    let cupti = libraries::cupti(driver.is_ok());
    CudaProbe {
        driver,
        nvml: libraries::nvml(),
        cupti,
        nvrtc: libraries::nvrtc(),
        headers: headers(),
    }
}

/// The device `cuda:ordinal` as its driver describes it, without looking for the other pieces.
///
/// # Errors
/// No driver, or no such device.
pub fn gpu(ordinal: usize) -> Result<Gpu, Missing> {
    libraries::driver()?.device(ordinal).cloned()
}

/// CUDA counts versions as 1000 x major + 10 x minor.
fn cuda_version(number: u32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

fn headers() -> Result<Piece, Missing> {
    let missing = |detail: String| {
        Missing {
        piece: "CUDA headers (include/cuda_runtime.h)",
        detail,
        remedy: "install the CUDA toolkit (Debian and Ubuntu: the package cuda-cudart-dev-13-0) and set \
                 CUDA_PATH to its folder"
            .to_owned(),
    }
    };
    let nowhere = "CUDA_PATH is not set, and there is no /usr/local/cuda nor /opt/cuda";
    let toolkit = search::toolkit().ok_or_else(|| missing(nowhere.to_owned()))?;
    let include = toolkit.join("include");
    if !include.join("cuda_runtime.h").exists() {
        return Err(missing(format!("not in {}", include.display())));
    }
    let number = search::defined_number(&include.join("cuda_runtime_api.h"), "CUDART_VERSION");
    let version = number.map(cuda_version);
    Ok(Piece {
        path: include,
        version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece() -> Result<Piece, Missing> {
        Ok(Piece {
            path: "/x".into(),
            version: None,
        })
    }

    fn missing(piece: &'static str) -> Missing {
        Missing {
            piece,
            detail: "gone".into(),
            remedy: "get it".into(),
        }
    }

    fn probe(driver: Result<Driver, Missing>) -> CudaProbe {
        CudaProbe {
            driver,
            nvml: piece(),
            cupti: piece(),
            nvrtc: piece(),
            headers: piece(),
        }
    }

    fn one_gpu() -> Result<Driver, Missing> {
        let gpu = Gpu {
            ordinal: 0,
            name: "H200".into(),
            memory_bytes: 1,
            pci_bus_id: None,
        };
        Ok(Driver {
            cuda_version: "13.0".into(),
            devices: vec![gpu],
        })
    }

    #[test]
    fn a_complete_machine_has_its_device() {
        assert_eq!(probe(one_gpu()).require(0).unwrap().name, "H200");
        let missing = probe(one_gpu()).require(1).unwrap_err();
        assert!(
            missing[0].to_string().contains("cuda:0 (H200)"),
            "{}",
            missing[0]
        );
    }

    #[test]
    fn every_missing_piece_is_named_but_optional_ones() {
        let mut probe = probe(Err(missing("driver")));
        probe.headers = Err(missing("headers"));
        probe.cupti = Err(missing("cupti"));
        let pieces: Vec<_> = probe
            .require(0)
            .unwrap_err()
            .iter()
            .map(|m| m.piece)
            .collect();
        assert_eq!(pieces, ["driver", "headers"]);
    }

    #[test]
    fn probing_this_machine_never_panics() {
        let probe = cuda();
        if let Err(missing) = &probe.driver {
            assert!(!missing.detail.is_empty() && !missing.remedy.is_empty());
        }
    }

    #[test]
    fn versions_read_as_nvidia_writes_them() {
        assert_eq!(cuda_version(13_000), "13.0");
        assert_eq!(cuda_version(12_040), "12.4");
    }
}

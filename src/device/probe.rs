//! Which pieces of CUDA are usable on this machine, and how to get those that are not.
//!
//! burn's CUDA backend panics, or fails deep inside a kernel's compilation, when a piece is
//! missing; asking here first gives the user a name for it instead.
//!
//! Invariants: never panics; whatever is absent is a [`Missing`], not an error; CUPTI is never
//! loaded before the driver has answered. Libraries stay loaded once opened: the driver does not
//! survive being unloaded.
//!
//! `search` looks on disk, `libraries` and `compiler` call NVIDIA's libraries, `headers` knows what kernels include,
//! `packages` how to get a piece.
//!
//! May use: nothing of this crate.

mod compiler;
mod headers;
pub(crate) mod libraries;
mod loaded;
mod packages;
mod search;

pub use loaded::{VARIABLE as CUPTI_VARIABLE, cupti_of_process};
pub use packages::CudaVersion;

use compiler::Nvrtc;
use std::fmt;
use std::path::{Path, PathBuf};

/// What is assumed where no driver answers: an H100, and a CUDA that knows it.
const ASSUMED_CAPABILITY: u32 = 90;
const ASSUMED_VERSION: CudaVersion = CudaVersion::new(13, 0);

/// Everything a run on `cuda:N` needs, piece by piece.
#[derive(Debug, Clone)]
pub struct CudaProbe {
    pub driver: Result<Driver, Missing>,
    /// For GPU-Util, the figure nvidia-smi prints.
    pub nvml: Result<Piece, Missing>,
    /// For kernel and copy timestamps.
    pub cupti: Result<Piece, Missing>,
    /// Where other CUPTIs lie, in the order to try once that one is refused. May name that one again.
    pub cupti_others: Vec<PathBuf>,
    /// Decodes JPEG on the device. `None` unless kernels were compiled on a driver that answers: a run loads it only if it
    /// is to decode there.
    pub nvjpeg: Option<Result<Piece, Missing>>,
    /// Compiles burn's kernels.
    pub nvrtc: Result<Piece, Missing>,
    /// What they are compiled with.
    pub headers: Result<Piece, Missing>,
}

/// The driver, answering.
#[derive(Debug, Clone)]
pub struct Driver {
    /// The newest CUDA version it supports.
    pub cuda_version: CudaVersion,
    pub devices: Vec<Gpu>,
}

#[derive(Debug, Clone)]
pub struct Gpu {
    pub ordinal: usize,
    pub name: String,
    pub memory_bytes: u64,
    /// `domain:bus:device.function`, by which NVML knows the same GPU; ordinals differ between the two.
    pub pci_bus_id: Option<String>,
    /// Ten times its major number plus its minor one: 90 for an H100. `None` where the driver does not say.
    pub compute_capability: Option<u32>,
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

    /// Where CUPTI may be, in the order to try.
    pub fn cupti_paths(&self) -> impl Iterator<Item = &Path> {
        let first = self.cupti.iter().map(|piece| piece.path.as_path());
        first.chain(self.cupti_others.iter().map(PathBuf::as_path))
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
    pub(crate) fn device(&self, ordinal: usize) -> Result<&Gpu, Missing> {
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
    ask(false)
}

/// As [`cuda`], and has NVRTC compile a kernel with every header that burn's kernels may include; takes some
/// seconds.
pub fn cuda_with_compiling() -> CudaProbe {
    ask(true)
}

/// How to get CUPTI for a driver that supports CUDA up to `version`.
pub fn cupti_for(version: CudaVersion) -> String {
    packages::install(&[packages::Package::Cupti], version)
}

fn ask(compile: bool) -> CudaProbe {
    let driver = libraries::driver();
    let version = driver.as_ref().ok().map(|driver| driver.cuda_version);
    let gpu = driver
        .as_ref()
        .ok()
        .and_then(|driver| driver.devices.first());
    let nvrtc = compiler::find(version);
    let compiles = nvrtc.as_ref().ok().map(|nvrtc| nvrtc.version);
    let target = headers::Target {
        capability: gpu
            .and_then(|gpu| gpu.compute_capability)
            .unwrap_or(ASSUMED_CAPABILITY),
        version: compiles.or(version).unwrap_or(ASSUMED_VERSION),
    };
    let mut headers = headers::find(target);
    let mut compiler = nvrtc.as_ref().map(Nvrtc::piece).map_err(Missing::clone);
    if let (true, Ok(nvrtc), Ok(folder)) = (compile, &nvrtc, &headers)
        && let Err(missing) = headers::compile(nvrtc, &folder.path, target)
    {
        match missing.piece {
            compiler::PIECE => compiler = Err(missing),
            _ => headers = Err(missing),
        }
    }
    let (cupti, cupti_others) = libraries::cupti(version);
    CudaProbe {
        nvml: libraries::nvml(),
        nvjpeg: version
            .filter(|_| compile)
            .map(|version| libraries::nvjpeg(version).map(|(_, piece)| piece)),
        cupti,
        cupti_others,
        nvrtc: compiler,
        headers,
        driver,
    }
}

/// The device `cuda:ordinal` as its driver describes it, without looking for the other pieces.
///
/// # Errors
/// No driver, or no such device.
pub fn gpu(ordinal: usize) -> Result<Gpu, Missing> {
    libraries::driver()?.device(ordinal).cloned()
}

#[cfg(test)]
mod tests;

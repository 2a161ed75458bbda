//! The headers that CubeCL's kernels include, and whether they compile.
//!
//! Which they are, the include path and NVRTC's options are those of cubecl-cpp and cubecl-cuda 0.10. Invariant: a
//! header that is absent is named without the compiler's help, which stops at the first one.
//!
//! May use: `probe` (its types), `compiler`, `packages`, `search`.

use std::path::{Path, PathBuf};

use super::compiler::{Nvrtc, Refused};
use super::packages::{CudaVersion, Package, install};
use super::{Missing, Piece, search};

/// What kernels are compiled for.
#[derive(Copy, Clone, Debug)]
pub(super) struct Target {
    /// Ten times the compute capability's major number, plus its minor one.
    pub(super) capability: u32,
    /// Of the packages to install: NVRTC's, or else the driver's.
    pub(super) version: CudaVersion,
}

/// A header and the compute capabilities whose kernels may include it.
struct Header {
    name: &'static str,
    from: u32,
    below: u32,
}

const fn header(name: &'static str, from: u32, below: u32) -> Header {
    Header { name, from, below }
}

const ANY: u32 = u32::MAX;
/// In CubeCL's order, in which they are included.
const INCLUDED: [Header; 12] = [
    header("cuda_runtime.h", 0, ANY),
    header("cuda_fp4.h", 100, 130),
    header("cuda_fp6.h", 100, 130),
    header("cuda_fp8.h", 89, ANY),
    header("cuda_bf16.h", 0, ANY),
    header("cuda_fp16.h", 0, ANY),
    header("mma.h", 70, ANY),
    header("cooperative_groups/memcpy_async.h", 70, ANY),
    header("cuda/pipeline", 70, ANY),
    header("cooperative_groups.h", 70, ANY),
    header("cuda/barrier", 70, ANY),
    header("cuda/ptx", 90, ANY),
];
/// What those include from other packages than their own.
const INSIDE: [Header; 2] = [header("crt/mma.h", 70, ANY), header("nv/target", 70, ANY)];

impl Target {
    fn of<'a>(&self, headers: &'a [Header]) -> impl Iterator<Item = &'a str> + use<'a> {
        let capability = self.capability;
        headers
            .iter()
            .filter(move |header| (header.from..header.below).contains(&capability))
            .map(|header| header.name)
    }

    /// As CubeCL passes it to NVRTC.
    fn architecture(&self) -> String {
        let specific = if self.capability >= 90 { "a" } else { "" };
        format!("--gpu-architecture=sm_{}{specific}", self.capability)
    }
}

/// The folder of headers that CubeCL takes, with all that it includes.
///
/// # Errors
/// There is no such folder, or the headers that are not in it.
pub(super) fn find(target: Target) -> Result<Piece, Missing> {
    let nowhere = "CUDA_PATH is not set, and there is neither /usr/local/cuda nor /opt/cuda";
    let Some(toolkit) = search::toolkit() else {
        let everything = [Package::Runtime, Package::Crt, Package::Cccl];
        let remedy = format!(
            "{}; set CUDA_PATH to the folder",
            install(&everything, target.version)
        );
        return Err(missing(nowhere.to_owned(), remedy));
    };
    find_in(&toolkit.join("include"), target)
}

pub(super) fn find_in(include: &Path, target: Target) -> Result<Piece, Missing> {
    let folders = include_folders(include);
    let absent: Vec<&str> = target
        .of(&INCLUDED)
        .chain(target.of(&INSIDE))
        .filter(|name| !folders.iter().any(|folder| folder.join(name).exists()))
        .collect();
    if !absent.is_empty() {
        return Err(not_in(include, &absent, target));
    }
    let number = search::defined_number(&include.join("cuda_runtime_api.h"), "CUDART_VERSION");
    Ok(Piece {
        path: include.to_owned(),
        version: number.map(|number| CudaVersion::of_number(number).to_string()),
    })
}

/// CubeCL's include path.
fn include_folders(include: &Path) -> Vec<PathBuf> {
    let cccl = include.join("cccl");
    let cccl = cccl.exists().then_some(cccl);
    [include.to_owned()].into_iter().chain(cccl).collect()
}

/// Has `nvrtc` compile a kernel with every header in `include`, as CubeCL would.
///
/// # Errors
/// What is missing: the architecture or a library of NVRTC's, or headers that do not compile.
pub(super) fn compile(nvrtc: &Nvrtc, include: &Path, target: Target) -> Result<(), Missing> {
    let names: Vec<&str> = target.of(&INCLUDED).collect();
    let Err(refused) = compile_one(nvrtc, include, target, &names) else {
        return Ok(());
    };
    if let Some(missing) = own_fault(nvrtc, &refused, target) {
        return Err(missing);
    }
    let mut failed: Vec<(&str, Refused)> = Vec::new();
    for name in &names {
        match compile_one(nvrtc, include, target, &[names[0], name]) {
            Ok(()) => {}
            Err(refused) => failed.push((name, refused)),
        }
        if failed.len() == 1 && failed[0].0 == names[0] {
            // All others include it.
            break;
        }
    }
    let unopened: Vec<&str> = failed
        .iter()
        .filter_map(|(_, refused)| unopened_file(&refused.log))
        .collect();
    if unopened.len() == failed.len() && !unopened.is_empty() {
        return Err(not_in(include, &unopened, target));
    }
    let (name, refused) = failed
        .into_iter()
        .next()
        .unwrap_or(("all of them together", refused));
    let line = refused.log.lines().find(|line| line.contains("error"));
    let detail = format!(
        "{name} in {} does not compile with NVRTC {}: {}",
        include.display(),
        nvrtc.version,
        line.unwrap_or(&refused.log).trim()
    );
    let packages = [Package::of_header(name), Package::Nvrtc];
    let remedy = format!(
        "use headers and NVRTC of one version: {}",
        install(&packages, target.version)
    );
    Err(missing(detail, remedy))
}

fn compile_one(
    nvrtc: &Nvrtc,
    include: &Path,
    target: Target,
    headers: &[&str],
) -> Result<(), Refused> {
    let includes: String = headers
        .iter()
        .map(|name| format!("#include <{name}>\n"))
        .collect();
    let kernel = "extern \"C\" __global__ void probe(float *out) { out[threadIdx.x] = 1.0f; }\n";
    let mut options = vec![target.architecture()];
    options.extend(
        include_folders(include)
            .iter()
            .map(|folder| format!("--include-path={}", folder.display())),
    );
    options.insert(2, "-lineinfo".to_owned());
    nvrtc.compile(&format!("{includes}{kernel}"), &options)
}

/// What is wrong with NVRTC itself.
fn own_fault(nvrtc: &Nvrtc, refused: &Refused, target: Target) -> Option<Missing> {
    const INVALID_OPTION: u32 = 5;
    const BUILTINS: u32 = 7;
    let (detail, remedy) = match refused.code {
        INVALID_OPTION => {
            let (major, minor) = (target.capability / 10, target.capability % 10);
            let detail = format!(
                "NVRTC {} does not compile for this GPU (compute capability {major}.{minor})",
                nvrtc.version
            );
            let remedy = match major {
                ..8 => "install NVRTC 12, the last to know such GPUs".to_owned(),
                8.. => "install a newer NVRTC, no newer than the driver".to_owned(),
            };
            (detail, remedy)
        }
        BUILTINS => {
            let folder = nvrtc.path.parent().filter(|folder| folder.is_absolute());
            let remedy = match folder {
                Some(folder) => format!(
                    "export LD_LIBRARY_PATH={}:$LD_LIBRARY_PATH",
                    folder.display()
                ),
                None => install(&[Package::Nvrtc], nvrtc.version),
            };
            let line = refused.log.lines().next().unwrap_or("no builtins");
            (line.trim_start_matches("nvrtc: error: ").to_owned(), remedy)
        }
        _ => return None,
    };
    Some(Missing {
        piece: super::compiler::PIECE,
        detail,
        remedy,
    })
}

/// The file that the compiler could not open.
fn unopened_file(log: &str) -> Option<&str> {
    let (_, rest) = log.split_once("cannot open source file \"")?;
    rest.split_once('"').map(|(name, _)| name)
}

fn not_in(include: &Path, names: &[&str], target: Target) -> Missing {
    let packages: Vec<Package> = names.iter().copied().map(Package::of_header).collect();
    let mut shown: Vec<&str> = Vec::new();
    for name in names {
        if !shown.contains(name) {
            shown.push(name);
        }
    }
    let detail = format!("no {} in {}", shown.join(", "), include.display());
    missing(detail, install(&packages, target.version))
}

fn missing(detail: String, remedy: String) -> Missing {
    Missing {
        piece: "CUDA headers (include/cuda_runtime.h and others)",
        detail,
        remedy,
    }
}

//! Calls of NVIDIA's libraries: the one place where the probe is `unsafe`.
//!
//! Invariants: a library once opened is never closed; CUPTI is opened only when the driver answers.
//!
//! May use: `probe` (its types), `compiler` (the order of libraries), `packages`, `search`.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::path::{Path, PathBuf};

use libloading::Library;
use nvml_wrapper::Nvml;

use super::compiler::by_fit;
use super::packages::{CudaVersion, Package, install};
use super::{Driver, Gpu, Missing, Piece, loaded, search};

pub(super) fn open(name: &Path) -> Result<&'static Library, libloading::Error> {
    // SAFETY: NVIDIA's libraries have initialisers without preconditions on the caller. The
    // library is leaked, so that nothing it started can outlive its code.
    let library = unsafe { Library::new(name) }?;
    Ok(Box::leak(Box::new(library)))
}

/// A function of a library, if it has it.
pub(crate) fn function<T: Copy>(library: &'static Library, name: &str) -> Option<T> {
    // SAFETY: each caller names a function of NVIDIA's stable C interface with the type that its
    // header declares.
    unsafe { library.get::<T>(name.as_bytes()) }
        .ok()
        .map(|symbol| *symbol)
}

type WriteInt = unsafe extern "C" fn(*mut c_int) -> c_int;

/// Calls a function that stores one number and returns 0 on success.
fn read_int(call: WriteInt) -> Option<c_int> {
    let mut number: c_int = 0;
    // SAFETY: `number` is a valid place for the one integer that the function stores.
    let status = unsafe { call(&mut number) };
    (status == 0).then_some(number)
}

fn text_of(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer
        .iter()
        .take_while(|c| **c != 0)
        .map(|c| *c as u8)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What is wrong with a library that is there but too old, or not NVIDIA's.
const STALE: &str = "the library lacks a function that every driver has";
/// What is wrong with a library that is not there.
pub(super) const ABSENT: &str = "neither on the loader's path nor in a CUDA toolkit";

const DRIVER: &str = "NVIDIA driver (libcuda.so.1)";

pub(crate) fn driver() -> Result<Driver, Missing> {
    let library = open(Path::new("libcuda.so.1")).map_err(|error| Missing {
        piece: DRIVER,
        detail: unopened(&error),
        remedy: search::hardware().to_owned(),
    })?;
    let stale = || Missing {
        piece: DRIVER,
        detail: STALE.to_owned(),
        remedy: "reinstall the NVIDIA driver".to_owned(),
    };
    let init: unsafe extern "C" fn(c_uint) -> c_int =
        function(library, "cuInit").ok_or_else(stale)?;
    let version: WriteInt = function(library, "cuDriverGetVersion").ok_or_else(stale)?;
    let count: WriteInt = function(library, "cuDeviceGetCount").ok_or_else(stale)?;
    // SAFETY: cuInit takes flags, which must be 0, and may be called any number of times.
    let status = unsafe { init(0) };
    if status != 0 {
        return Err(driver_refused(library, status));
    }
    let devices = read_int(count).unwrap_or(0);
    let devices = (0..devices)
        .filter_map(|ordinal| gpu(library, ordinal))
        .collect();
    Ok(Driver {
        cuda_version: CudaVersion::of_number(read_int(version).unwrap_or(0).unsigned_abs()),
        devices,
    })
}

fn gpu(library: &'static Library, ordinal: c_int) -> Option<Gpu> {
    let get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int = function(library, "cuDeviceGet")?;
    let name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int =
        function(library, "cuDeviceGetName")?;
    let memory: unsafe extern "C" fn(*mut usize, c_int) -> c_int =
        function(library, "cuDeviceTotalMem_v2")?;
    let (mut device, mut memory_bytes, mut text) = (0, 0_usize, [0; 256]);
    // SAFETY: cuInit succeeded; every pointer is to a live local, and the name's length is passed
    // with its buffer, which stays NUL-terminated because one byte is held back.
    let status = unsafe {
        match get(&mut device, ordinal) {
            0 => name(text.as_mut_ptr(), 255, device) | memory(&mut memory_bytes, device),
            status => status,
        }
    };
    let (ordinal, name) = (usize::try_from(ordinal).ok()?, text_of(&text));
    (status == 0).then_some(Gpu {
        ordinal,
        name,
        memory_bytes: memory_bytes as u64,
        pci_bus_id: pci_bus_id(library, device),
        compute_capability: compute_capability(library, device),
    })
}

fn compute_capability(library: &'static Library, device: c_int) -> Option<u32> {
    /// Of `CUdevice_attribute`.
    const MAJOR: c_int = 75;
    const MINOR: c_int = 76;
    let get: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int =
        function(library, "cuDeviceGetAttribute")?;
    let read = |attribute| {
        let mut value: c_int = 0;
        // SAFETY: `value` is a place for the one number; the device is one that cuDeviceGet stored.
        let status = unsafe { get(&mut value, attribute, device) };
        (status == 0).then_some(value.unsigned_abs())
    };
    Some(read(MAJOR)? * 10 + read(MINOR)?)
}

fn pci_bus_id(library: &'static Library, device: c_int) -> Option<String> {
    let get: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int =
        function(library, "cuDeviceGetPCIBusId")?;
    let mut text = [0; 64];
    // SAFETY: `device` is one that cuDeviceGet stored; the buffer is passed with one byte less than its length,
    // so it stays NUL-terminated.
    let status = unsafe { get(text.as_mut_ptr(), 63, device) };
    (status == 0).then(|| text_of(&text))
}

/// What cuInit's most common refusals mean.
fn driver_refused(library: &'static Library, status: c_int) -> Missing {
    let detail = match error_text(library, status) {
        Some(text) => format!("cuInit failed with {status}: {text}"),
        None => format!("cuInit failed with {status}"),
    };
    Missing {
        piece: DRIVER,
        detail,
        remedy: init_remedy(status).to_owned(),
    }
}

/// What to try where cuInit ended with that status.
pub(crate) fn init_remedy(status: c_int) -> &'static str {
    match status {
        34 => "the loader found the toolkit's stub: take `.../stubs` out of LD_LIBRARY_PATH",
        100 => "check that `nvidia-smi` lists a GPU and that CUDA_VISIBLE_DEVICES does not hide it",
        803 => "libcuda and the kernel's driver differ: reboot, or reload the nvidia modules",
        804 => "take CUDA's `compat` folder out of LD_LIBRARY_PATH: this GPU does not support it",
        _ => "check `nvidia-smi` and the kernel log (`dmesg | grep -i nvrm`)",
    }
}

fn error_text(library: &'static Library, status: c_int) -> Option<String> {
    let describe: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int =
        function(library, "cuGetErrorString")?;
    let mut text = std::ptr::null();
    // SAFETY: the function stores a pointer to a static NUL-terminated string, or null.
    unsafe {
        describe(status, &mut text);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

const NVML: &str = "NVML (libnvidia-ml.so.1)";

pub(super) fn nvml() -> Result<Piece, Missing> {
    let missing = |detail: String| Missing {
        piece: NVML,
        detail,
        remedy: "it comes with the NVIDIA driver; without it there is no GPU-Util to show"
            .to_owned(),
    };
    // Opened here too, so that it stays loaded after the question.
    open(Path::new("libnvidia-ml.so.1")).map_err(|error| missing(unopened(&error)))?;
    let version = Nvml::init().and_then(|nvml| nvml.sys_driver_version());
    Ok(Piece {
        path: "libnvidia-ml.so.1".into(),
        version: Some(version.map_err(|error| {
            missing(format!("it does not report the driver's version: {error}"))
        })?),
    })
}

pub(crate) const NVJPEG: &str = "nvJPEG (libnvjpeg.so)";
const NVJPEG_NAMES: [&str; 3] = ["libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so"];

/// nvJPEG for a driver that supports CUDA up to `driver`, opened.
pub(crate) fn nvjpeg(driver: CudaVersion) -> Result<(&'static Library, Piece), Missing> {
    let usual = by_fit(NVJPEG_NAMES.map(PathBuf::from).to_vec(), Some(driver));
    let on_disk = by_fit(search::libraries(&NVJPEG_NAMES), Some(driver));
    let mut candidates = usual.into_iter().chain(on_disk);
    let opened = candidates.find_map(|path| open(&path).ok().map(|library| (library, path)));
    let (library, path) = opened.ok_or_else(|| Missing {
        piece: NVJPEG,
        detail: ABSENT.to_owned(),
        remedy: nvjpeg_remedy(driver),
    })?;
    let get: Option<unsafe extern "C" fn(c_int, *mut c_int) -> c_int> =
        function(library, "nvjpegGetProperty");
    // Of `libraryPropertyType`: major, minor and patch.
    let part = |which| {
        let mut number: c_int = 0;
        // SAFETY: takes which number is asked for and a place for it.
        let status = unsafe { get?(which, &mut number) };
        (status == 0).then_some(number)
    };
    let version = part(0).zip(part(1)).zip(part(2));
    let version = version.map(|((major, minor), patch)| format!("{major}.{minor}.{patch}"));
    Ok((library, Piece { path, version }))
}

/// How to get nvJPEG for a driver that supports CUDA up to `version`.
pub(crate) fn nvjpeg_remedy(version: CudaVersion) -> String {
    install(&[Package::NvJpeg], version)
}

/// Newest first; those of the driver's own version are tried before.
const CUPTI_NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];

/// CUPTI for a driver that supports CUDA up to `driver`, and where others lie, in the order to try.
pub(super) fn cupti(driver: Option<CudaVersion>) -> (Result<Piece, Missing>, Vec<PathBuf>) {
    let version = driver.unwrap_or(super::ASSUMED_VERSION);
    let missing = || Missing {
        piece: "CUPTI (libcupti.so)",
        detail: ABSENT.to_owned(),
        remedy: install(&[Package::Cupti], version),
    };
    let named = match loaded::named().transpose() {
        Ok(named) => named,
        Err(off) => return (Err(off), Vec::new()),
    };
    let is_named = named.is_some();
    let on_disk = match named {
        Some(named) => vec![named],
        None => by_fit(search::libraries(&CUPTI_NAMES), driver),
    };
    // CUPTI hooks the driver when it is loaded: without one, only look.
    if driver.is_none() {
        let found = on_disk.into_iter().next().map(|path| Piece {
            path,
            version: None,
        });
        return (found.ok_or_else(missing), Vec::new());
    }
    let usual = CUPTI_NAMES.iter().filter(|_| !is_named);
    let names = by_fit(usual.map(PathBuf::from).collect(), driver);
    let mut candidates = names.into_iter().chain(on_disk);
    let opened = candidates.find_map(|path| open(&path).ok().map(|library| (path, library)));
    let found = opened.map(|(path, library)| {
        let version = function::<WriteInt>(library, "cuptiGetVersion").and_then(read_int);
        Piece {
            path,
            version: version.map(|number| format!("API {number}")),
        }
    });
    (found.ok_or_else(missing), candidates.collect())
}

/// The loader's message without the function it was called through.
fn unopened(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    let text = source.unwrap_or_else(|| error.to_string());
    let reason = text
        .rsplit_once(": ")
        .map_or(text.as_str(), |(_, last)| last);
    format!("the loader cannot open it: {reason}")
}

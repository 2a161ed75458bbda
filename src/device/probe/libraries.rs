//! Calls of NVIDIA's libraries: the one place where the probe is `unsafe`.
//!
//! Invariants: a library once opened is never closed; CUPTI is opened only when the driver answers.
//!
//! May use: `probe` (its types), `search`.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::path::{Path, PathBuf};

use libloading::Library;
use nvml_wrapper::Nvml;

use super::{Driver, Gpu, Missing, Piece, cuda_version, loaded, search};

fn open(name: &Path) -> Result<&'static Library, libloading::Error> {
    // SAFETY: NVIDIA's libraries have initialisers without preconditions on the caller. The
    // library is leaked, so that nothing it started can outlive its code.
    let library = unsafe { Library::new(name) }?;
    Ok(Box::leak(Box::new(library)))
}

/// A function of a library, if it has it.
fn function<T: Copy>(library: &'static Library, name: &str) -> Option<T> {
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
const ABSENT: &str = "not on the loader's path nor in a CUDA toolkit";

const DRIVER: &str = "NVIDIA driver (libcuda.so.1)";

pub(super) fn driver() -> Result<Driver, Missing> {
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
        cuda_version: cuda_version(read_int(version).unwrap_or(0).unsigned_abs()),
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
    })
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

/// Newest first: the one that matches the newest toolkit knows the newest driver.
const CUPTI_NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];

pub(super) fn cupti(driver_answers: bool) -> Result<Piece, Missing> {
    let missing = || {
        Missing {
        piece: "CUPTI (libcupti.so)",
        detail: ABSENT.to_owned(),
        remedy: "install the CUDA toolkit (Debian and Ubuntu: the package libcupti-dev or cuda-cupti-13-0), \
                 or `pip install nvidia-cuda-cupti` into the active virtual environment"
            .to_owned(),
    }
    };
    let named = loaded::named().transpose()?;
    let is_named = named.is_some();
    let on_disk = named.or_else(|| search::library(&CUPTI_NAMES));
    // CUPTI hooks the driver when it is loaded: without one, only look.
    if !driver_answers {
        let found = on_disk.map(|path| Piece {
            path,
            version: None,
        });
        return found.ok_or_else(missing);
    }
    let usual = CUPTI_NAMES.iter().filter(|_| !is_named);
    let names = usual.map(PathBuf::from).chain(on_disk);
    let opened = names
        .into_iter()
        .find_map(|path| open(&path).ok().map(|library| (path, library)));
    let (path, library) = opened.ok_or_else(missing)?;
    let version = function::<WriteInt>(library, "cuptiGetVersion").and_then(read_int);
    Ok(Piece {
        path,
        version: version.map(|number| format!("API {number}")),
    })
}

/// The names under which burn's backend (cudarc) looks for NVRTC.
const NVRTC_NAMES: [&str; 3] = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"];

pub(super) fn nvrtc() -> Result<Piece, Missing> {
    let opened = NVRTC_NAMES
        .iter()
        .find_map(|name| open(Path::new(name)).ok().map(|library| (name, library)));
    if let Some((name, library)) = opened {
        return Ok(Piece {
            path: PathBuf::from(name),
            version: nvrtc_version(library),
        });
    }
    let piece = "NVRTC (libnvrtc.so)";
    let folder = search::library(&NVRTC_NAMES);
    Err(match folder.as_deref().and_then(Path::parent) {
        Some(folder) => Missing {
            piece,
            detail: format!(
                "it lies in {}, where the loader does not look",
                folder.display()
            ),
            remedy: format!(
                "export LD_LIBRARY_PATH={}:$LD_LIBRARY_PATH",
                folder.display()
            ),
        },
        None => Missing {
            piece,
            detail: ABSENT.to_owned(),
            remedy: "install the CUDA toolkit (Debian and Ubuntu: the package cuda-nvrtc-13-0)"
                .to_owned(),
        },
    })
}

fn nvrtc_version(library: &'static Library) -> Option<String> {
    let call: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int =
        function(library, "nvrtcVersion")?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are to live locals of the type that the function stores.
    let status = unsafe { call(&mut major, &mut minor) };
    (status == 0).then(|| format!("{major}.{minor}"))
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

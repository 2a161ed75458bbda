//! NVRTC, which compiles burn's kernels: the one that burn's backend will open, and calls of it.
//!
//! burn's backend (cudarc) opens the first of its [`names`] that the loader finds. Where it would find none, the best one
//! on disk is loaded here by its path: the loader then gives that one to whoever asks for its name. Invariant: a
//! library once opened is never closed.
//!
//! May use: `probe` (its types), `libraries`, `packages`, `search`.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

use libloading::Library;

use super::libraries::{ABSENT, function, open};
use super::packages::{CudaVersion, Package, install};
use super::{Missing, Piece, search};

pub(super) const PIECE: &str = "NVRTC (libnvrtc.so)";
/// Without burn's backend, which names its own.
#[cfg(not(feature = "cuda"))]
const NAMES: [&str; 3] = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"];

/// The names by which burn's backend looks for NVRTC, in its order. They depend on the CUDA that it was built for.
fn names() -> Vec<String> {
    #[cfg(feature = "cuda")]
    return cudarc::get_lib_name_candidates("nvrtc");
    #[cfg(not(feature = "cuda"))]
    NAMES.map(str::to_owned).to_vec()
}

/// NVRTC, opened.
pub(super) struct Nvrtc {
    library: &'static Library,
    /// Full, or a name that the loader resolves.
    pub(super) path: PathBuf,
    pub(super) version: CudaVersion,
}

/// What NVRTC did not compile.
pub(super) struct Refused {
    /// Of `nvrtcResult`.
    pub(super) code: u32,
    pub(super) log: String,
}

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> u32;

impl Nvrtc {
    fn open(path: &Path) -> Option<Nvrtc> {
        let library = open(path).ok()?;
        let call: unsafe extern "C" fn(*mut c_int, *mut c_int) -> u32 =
            function(library, "nvrtcVersion")?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to live locals of the type that the function stores.
        let status = unsafe { call(&mut major, &mut minor) };
        (status == 0).then(|| Nvrtc {
            library,
            path: path.to_owned(),
            version: CudaVersion::new(major.unsigned_abs(), minor.unsigned_abs()),
        })
    }

    pub(super) fn piece(&self) -> Piece {
        Piece {
            path: self.path.clone(),
            version: Some(self.version.to_string()),
        }
    }

    /// Compiles `source`; what comes out is thrown away.
    ///
    /// # Errors
    /// What the compiler says.
    pub(super) fn compile(&self, source: &str, options: &[String]) -> Result<(), Refused> {
        let refused = |code, log: &str| Refused {
            code,
            log: log.to_owned(),
        };
        let incomplete = || refused(0, "error: the library lacks a function of NVRTC's");
        let text = |text: &str| CString::new(text).map_err(|_| refused(0, "error: a NUL byte"));
        let create: Create = function(self.library, "nvrtcCreateProgram").ok_or_else(incomplete)?;
        let compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> u32 =
            function(self.library, "nvrtcCompileProgram").ok_or_else(incomplete)?;
        let destroy: unsafe extern "C" fn(*mut Program) -> u32 =
            function(self.library, "nvrtcDestroyProgram").ok_or_else(incomplete)?;
        let source = text(source)?;
        let options: Vec<CString> = options
            .iter()
            .map(|option| text(option))
            .collect::<Result<_, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = null_mut();
        // SAFETY: the source ends with a NUL; there is no name and there are no headers to pass.
        let status = unsafe { create(&mut program, source.as_ptr(), null(), 0, null(), null()) };
        if status != 0 {
            return Err(refused(status, "error: nvrtcCreateProgram failed"));
        }
        // SAFETY: the program was made above, and as many texts are passed as are counted. It is destroyed once,
        // after its log is read.
        unsafe {
            let status = compile(program, options.len() as c_int, options.as_ptr());
            let log = if status == 0 { None } else { self.log(program) };
            destroy(&mut program);
            match status {
                0 => Ok(()),
                code => Err(refused(code, log.as_deref().unwrap_or("error: no log"))),
            }
        }
    }

    /// What the compiler wrote.
    ///
    /// # Safety
    /// `program` was made by this library and is not destroyed.
    unsafe fn log(&self, program: Program) -> Option<String> {
        let size_of: unsafe extern "C" fn(Program, *mut usize) -> u32 =
            function(self.library, "nvrtcGetProgramLogSize")?;
        let read: unsafe extern "C" fn(Program, *mut c_char) -> u32 =
            function(self.library, "nvrtcGetProgramLog")?;
        let mut bytes = 0_usize;
        // SAFETY: the caller's promise; the buffer has the size that the library names.
        unsafe {
            if size_of(program, &mut bytes) != 0 {
                return None;
            }
            let mut buffer = vec![0_u8; bytes];
            if read(program, buffer.as_mut_ptr().cast()) != 0 {
                return None;
            }
            buffer.truncate(bytes.saturating_sub(1));
            Some(String::from_utf8_lossy(&buffer).into_owned())
        }
    }
}

/// The NVRTC that burn's backend will open, on a driver that supports CUDA up to `driver`.
///
/// # Errors
/// There is none, or it is too new for the driver.
pub(super) fn find(driver: Option<CudaVersion>) -> Result<Nvrtc, Missing> {
    let names = names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    find_among(&names, || search::libraries(&names), driver)
}

pub(super) fn find_among(
    names: &[&str],
    on_disk: impl FnOnce() -> Vec<PathBuf>,
    driver: Option<CudaVersion>,
) -> Result<Nvrtc, Missing> {
    let fits = |nvrtc: &Nvrtc| driver.is_none_or(|driver| nvrtc.version.compiles_for(driver));
    let on_path = names.iter().find_map(|name| Nvrtc::open(Path::new(name)));
    if let Some(found) = on_path {
        if fits(&found) {
            return Ok(found);
        }
        let other = by_fit(on_disk(), driver)
            .into_iter()
            .find(|other| Nvrtc::open(other).is_some_and(|other| fits(&other)));
        return Err(too_new(&found, driver, other.as_deref()));
    }
    let mut newer = None;
    for path in by_fit(on_disk(), driver) {
        match Nvrtc::open(&path) {
            Some(nvrtc) if fits(&nvrtc) => {
                open_builtins(&nvrtc);
                return Ok(nvrtc);
            }
            other => newer = newer.or(other),
        }
    }
    let version = driver.unwrap_or(CudaVersion::new(13, 0));
    Err(match newer {
        Some(newer) => too_new(&newer, driver, None),
        None => Missing {
            piece: PIECE,
            detail: ABSENT.to_owned(),
            remedy: install(&[Package::Nvrtc], version),
        },
    })
}

/// Libraries of the driver's major version first.
pub(super) fn by_fit(mut paths: Vec<PathBuf>, driver: Option<CudaVersion>) -> Vec<PathBuf> {
    if let Some(driver) = driver {
        let ending = format!(".so.{}", driver.major);
        paths.sort_by_key(|path| !path.to_string_lossy().contains(&ending));
    }
    paths
}

/// NVRTC opens its builtins by name, and that of CUDA 13 does not look beside itself.
fn open_builtins(nvrtc: &Nvrtc) {
    let name = format!("libnvrtc-builtins.so.{}", nvrtc.version);
    if let Some(folder) = nvrtc.path.parent() {
        open(&folder.join(name)).ok();
    }
}

fn too_new(found: &Nvrtc, driver: Option<CudaVersion>, other: Option<&Path>) -> Missing {
    let driver = driver.unwrap_or(found.version);
    let remedy = match other {
        Some(other) => format!(
            "`mkdir -p ~/nvrtc && ln -sf {} ~/nvrtc/libnvrtc.so`, then `export \
             LD_LIBRARY_PATH=~/nvrtc:{}:$LD_LIBRARY_PATH`; or install a newer driver",
            other.display(),
            other.parent().unwrap_or(Path::new("/")).display()
        ),
        None => format!(
            "install a newer driver, or NVRTC of its version in place of this one: {}",
            install(&[Package::Nvrtc], driver)
        ),
    };
    Missing {
        piece: PIECE,
        detail: format!(
            "NVRTC {} ({}) is newer than the driver, which supports CUDA up to {driver} and refuses its kernels",
            found.version,
            found.path.display()
        ),
        remedy,
    }
}

//! Calls of CUDA's driver that run planted kernels: the one place of them that is `unsafe`.
//!
//! Invariants: the library is never unloaded; every handle used is one that the driver gave and that has not been
//! given back; a kernel writes into one slot of memory that lives as long as the context; everything is given
//! back when a [`Device`] is dropped.
//!
//! May use: `planted` (its types), `timeline`.

use super::{Planter, Stamp};
use crate::timeline::Nanos;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

/// As it stands in the PTX, and in CUPTI's records.
pub(super) const KERNEL_NAME: &str = "stallscope_planted";
const ENTRY: &CStr = c"stallscope_planted";
/// The driver compiles it, so neither NVRTC nor headers are needed.
const PTX: &str = concat!(include_str!("spin.ptx"), "\0");
/// Bytes of what a kernel writes: three numbers of 64 bits.
const STAMP_BYTES: usize = 24;
/// A stream that takes its turn with the null stream, on which memory is set and copied.
const STREAM_DEFAULT: c_uint = 0;

type Status = c_int;
type Handle = *mut c_void;
type Launch = unsafe extern "C" fn(
    Handle,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Handle,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Status;

/// What the driver refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    #[error("libcuda.so.1 cannot be opened: {reason}")]
    Unopened { reason: String },
    #[error("libcuda.so.1 has no function {function}")]
    Incomplete { function: &'static str },
    #[error("{call} failed with {code}{}", text.as_ref().map_or(String::new(), |text| format!(": {text}")))]
    Refused {
        call: &'static str,
        code: i32,
        text: Option<String>,
    },
}

impl DriverError {
    /// What to try.
    pub fn advice(&self) -> &'static str {
        match self {
            DriverError::Unopened { .. } => "`stallscope doctor` says how to get the driver",
            DriverError::Incomplete { .. } => "install the NVIDIA driver of CUDA 11 or newer",
            DriverError::Refused { code: 2, .. } => {
                "the device's memory is full: see in `nvidia-smi` who has it"
            }
            DriverError::Refused { code: 46, .. } => {
                "another process has the device for itself: end it, or `nvidia-smi -c DEFAULT`"
            }
            DriverError::Refused {
                code: 218 | 222, ..
            } => "the driver cannot compile the kernel for this GPU: install a newer driver",
            DriverError::Refused { .. } => {
                "check `nvidia-smi` and the kernel log (`dmesg | grep -i nvrm`)"
            }
        }
    }
}

/// The functions of libcuda that are used, as `cuda.h` declares them.
#[derive(Copy, Clone)]
struct Functions {
    init: unsafe extern "C" fn(c_uint) -> Status,
    device_get: unsafe extern "C" fn(*mut c_int, c_int) -> Status,
    context_retain: unsafe extern "C" fn(*mut Handle, c_int) -> Status,
    context_release: unsafe extern "C" fn(c_int) -> Status,
    context_set_current: unsafe extern "C" fn(Handle) -> Status,
    module_load: unsafe extern "C" fn(*mut Handle, *const c_void) -> Status,
    module_unload: unsafe extern "C" fn(Handle) -> Status,
    module_function: unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> Status,
    stream_create: unsafe extern "C" fn(*mut Handle, c_uint) -> Status,
    stream_destroy: unsafe extern "C" fn(Handle) -> Status,
    stream_synchronize: unsafe extern "C" fn(Handle) -> Status,
    allocate: unsafe extern "C" fn(*mut u64, usize) -> Status,
    free: unsafe extern "C" fn(u64) -> Status,
    set_bytes: unsafe extern "C" fn(u64, u8, usize) -> Status,
    copy_to_host: unsafe extern "C" fn(*mut c_void, u64, usize) -> Status,
    launch: Launch,
    error_string: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
}

/// A device that runs planted kernels.
pub(super) struct Device {
    functions: Functions,
    /// The driver's handle of it.
    device: c_int,
    has_context: bool,
    /// Null until it is made, as are the other handles.
    module: Handle,
    stream: Handle,
    kernel: Handle,
    /// Address on the device of `slots` stamps.
    stamps: u64,
    slots: usize,
}

impl Device {
    /// Brings up `cuda:ordinal` and the kernel, with room for `slots` stamps.
    ///
    /// # Errors
    /// What the driver refused; what had been made is given back.
    pub(super) fn open(ordinal: usize, slots: usize) -> Result<Device, DriverError> {
        // SAFETY: libcuda's initialisers have no preconditions. It is leaked, so that its code outlives the
        // threads that it starts.
        let library =
            unsafe { Library::new("libcuda.so.1") }.map_err(|error| DriverError::Unopened {
                reason: error.to_string(),
            })?;
        let functions = Functions::of(Box::leak(Box::new(library)))?;
        let mut device = Device {
            functions,
            device: 0,
            has_context: false,
            module: null_mut(),
            stream: null_mut(),
            kernel: null_mut(),
            stamps: 0,
            slots: slots.max(1),
        };
        device.bring_up_context(c_int::try_from(ordinal).unwrap_or(c_int::MAX))?;
        device.load()?;
        Ok(device)
    }

    fn bring_up_context(&mut self, ordinal: c_int) -> Result<(), DriverError> {
        let functions = self.functions;
        // SAFETY: takes flags, which must be 0, and may be called any number of times.
        functions.check("cuInit", unsafe { (functions.init)(0) })?;
        // SAFETY: stores one number; refuses an ordinal that there is not.
        let status = unsafe { (functions.device_get)(&mut self.device, ordinal) };
        functions.check("cuDeviceGet", status)?;
        let mut context = null_mut();
        // SAFETY: the device is one that cuDeviceGet stored; stores one handle.
        let status = unsafe { (functions.context_retain)(&mut context, self.device) };
        functions.check("cuDevicePrimaryCtxRetain", status)?;
        self.has_context = true;
        // SAFETY: the context was retained above and is released when this is dropped.
        let status = unsafe { (functions.context_set_current)(context) };
        functions.check("cuCtxSetCurrent", status)
    }

    fn load(&mut self) -> Result<(), DriverError> {
        let functions = self.functions;
        // SAFETY: a context is current; the text ends with a NUL, and is copied.
        let status = unsafe { (functions.module_load)(&mut self.module, PTX.as_ptr().cast()) };
        functions.check("cuModuleLoadData", status)?;
        // SAFETY: the module was loaded above; the name ends with a NUL; stores one handle.
        let status =
            unsafe { (functions.module_function)(&mut self.kernel, self.module, ENTRY.as_ptr()) };
        functions.check("cuModuleGetFunction", status)?;
        // SAFETY: a context is current; stores one handle.
        let status = unsafe { (functions.stream_create)(&mut self.stream, STREAM_DEFAULT) };
        functions.check("cuStreamCreate", status)?;
        let bytes = self.slots * STAMP_BYTES;
        // SAFETY: a context is current; stores one address.
        let status = unsafe { (functions.allocate)(&mut self.stamps, bytes) };
        functions.check("cuMemAlloc", status)?;
        // SAFETY: the memory was allocated above and has this many bytes.
        let status = unsafe { (functions.set_bytes)(self.stamps, 0, bytes) };
        functions.check("cuMemsetD8", status)
    }
}

impl Planter for Device {
    fn run(&mut self, slot: usize, length: Nanos) -> Result<(), DriverError> {
        // Never past the end: the stamp that is missing then tells.
        let slot = slot.min(self.slots - 1);
        let functions = self.functions;
        let mut address = self.stamps + (slot * STAMP_BYTES) as u64;
        let mut length_ns = length.0;
        let mut parameters = [
            (&raw mut address).cast::<c_void>(),
            (&raw mut length_ns).cast::<c_void>(),
        ];
        let (function, stream) = (self.kernel, self.stream);
        // SAFETY: kernel and stream belong to the current context. The kernel takes two numbers of 64 bits, which
        // the driver copies before it returns, and writes 24 bytes from `address` on, which lie in `stamps`.
        let status = unsafe {
            let parameters = parameters.as_mut_ptr();
            (functions.launch)(
                function,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream,
                parameters,
                null_mut(),
            )
        };
        functions.check("cuLaunchKernel", status)?;
        // SAFETY: the stream belongs to the current context.
        let status = unsafe { (functions.stream_synchronize)(stream) };
        functions.check("cuStreamSynchronize", status)
    }

    fn stamps(&mut self) -> Result<Vec<Stamp>, DriverError> {
        let functions = self.functions;
        let mut words = vec![[0_u64; 3]; self.slots];
        // SAFETY: source and destination have this many bytes; the call returns when they are copied.
        let status = unsafe {
            let to = words.as_mut_ptr().cast();
            (functions.copy_to_host)(to, self.stamps, self.slots * STAMP_BYTES)
        };
        functions.check("cuMemcpyDtoH", status)?;
        let stamp = |[start_ns, end_ns, finest_step_ns]: [u64; 3]| Stamp {
            start_ns,
            end_ns,
            finest_step_ns,
        };
        Ok(words.into_iter().map(stamp).collect())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let functions = self.functions;
        // What is refused here cannot be helped; the driver gives everything back at the process's end.
        // SAFETY: each handle was made by the driver, belongs to the context that is current, and is given back
        // once; the context comes last.
        unsafe {
            if !self.stream.is_null() {
                (functions.stream_synchronize)(self.stream);
                (functions.stream_destroy)(self.stream);
            }
            if self.stamps != 0 {
                (functions.free)(self.stamps);
            }
            if !self.module.is_null() {
                (functions.module_unload)(self.module);
            }
            if self.has_context {
                (functions.context_set_current)(null_mut());
                (functions.context_release)(self.device);
            }
        }
    }
}

/// A function of the library.
fn function<T: Copy>(library: &'static Library, function: &'static str) -> Result<T, DriverError> {
    // SAFETY: every caller asks for a function with the type that `cuda.h` declares.
    let symbol = unsafe { library.get::<T>(function.as_bytes()) };
    symbol
        .map(|symbol| *symbol)
        .map_err(|_| DriverError::Incomplete { function })
}

impl Functions {
    fn of(library: &'static Library) -> Result<Functions, DriverError> {
        Ok(Functions {
            init: function(library, "cuInit")?,
            device_get: function(library, "cuDeviceGet")?,
            context_retain: function(library, "cuDevicePrimaryCtxRetain")?,
            context_release: function(library, "cuDevicePrimaryCtxRelease_v2")?,
            context_set_current: function(library, "cuCtxSetCurrent")?,
            module_load: function(library, "cuModuleLoadData")?,
            module_unload: function(library, "cuModuleUnload")?,
            module_function: function(library, "cuModuleGetFunction")?,
            stream_create: function(library, "cuStreamCreate")?,
            stream_destroy: function(library, "cuStreamDestroy_v2")?,
            stream_synchronize: function(library, "cuStreamSynchronize")?,
            allocate: function(library, "cuMemAlloc_v2")?,
            free: function(library, "cuMemFree_v2")?,
            set_bytes: function(library, "cuMemsetD8_v2")?,
            copy_to_host: function(library, "cuMemcpyDtoH_v2")?,
            launch: function(library, "cuLaunchKernel")?,
            error_string: function(library, "cuGetErrorString")?,
        })
    }

    fn check(&self, call: &'static str, code: Status) -> Result<(), DriverError> {
        if code == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: stores the address of a string that is never freed, or null.
        unsafe { (self.error_string)(code, &mut text) };
        let text = (!text.is_null()).then(|| {
            // SAFETY: not null, so it is one of the driver's strings, which end with a NUL.
            let text = unsafe { CStr::from_ptr(text) };
            text.to_string_lossy().into_owned()
        });
        Err(DriverError::Refused { call, code, text })
    }
}

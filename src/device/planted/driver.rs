//! Calls of CUDA's driver that run planted kernels: the one place of them that is `unsafe`.
//!
//! Invariants: the driver has answered before, so that its library is there; every handle used is one that the driver
//! gave and that has not been given back; a kernel writes into one slot of memory that lives as long as the context;
//! everything is given back when a [`Device`] is dropped.
//!
//! May use: `planted` (its types), `timeline`.

use super::{Planter, Stamp};
use crate::probe::libraries::init_remedy;
use cudarc::driver::result::{self, stream::StreamKind};
use cudarc::driver::sys;
use stallscope_core::timeline::Nanos;
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

/// As it stands in the PTX, and in CUPTI's records.
pub(super) const KERNEL_NAME: &str = "stallscope_planted";
/// The driver compiles it, so neither NVRTC nor headers are needed.
const PTX: &str = concat!(include_str!("spin.ptx"), "\0");
/// What a kernel writes.
type Words = [u64; 3];
const STAMP_BYTES: usize = size_of::<Words>();

/// What the driver refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed with {code}{}", text.as_ref().map_or(String::new(), |text| format!(": {text}")))]
pub struct DriverError {
    call: &'static str,
    code: u32,
    text: Option<String>,
}

impl DriverError {
    /// What to try.
    pub fn advice(&self) -> &'static str {
        match self.code {
            2 => "the device's memory is full: see in `nvidia-smi` who has it",
            46 => "another process has the device for itself: end it, or `nvidia-smi -c DEFAULT`",
            218 | 222 => {
                "the driver cannot compile the kernel for this GPU: install a newer driver"
            }
            status => init_remedy(status as c_int),
        }
    }
}

/// That `call` was refused.
fn refused(call: &'static str) -> impl Fn(result::DriverError) -> DriverError {
    move |error| DriverError {
        call,
        code: error.0 as u32,
        text: error
            .error_string()
            .ok()
            .map(|text| text.to_string_lossy().into_owned()),
    }
}

/// A device that runs planted kernels.
pub(super) struct Device {
    /// The driver's handle of it.
    device: sys::CUdevice,
    has_context: bool,
    /// Null until it is made, as are the other handles.
    module: sys::CUmodule,
    stream: sys::CUstream,
    kernel: sys::CUfunction,
    /// Address on the device of `slots` stamps.
    stamps: sys::CUdeviceptr,
    slots: usize,
}

impl Device {
    /// Brings up `cuda:ordinal` and the kernel, with room for `slots` stamps.
    ///
    /// # Errors
    /// What the driver refused; what had been made is given back.
    pub(super) fn open(ordinal: usize, slots: usize) -> Result<Device, DriverError> {
        result::init().map_err(refused("cuInit"))?;
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        let mut device = Device {
            device: result::device::get(ordinal).map_err(refused("cuDeviceGet"))?,
            has_context: false,
            module: null_mut(),
            stream: null_mut(),
            kernel: null_mut(),
            stamps: 0,
            slots: slots.max(1),
        };
        device.bring_up_context()?;
        device.load()?;
        Ok(device)
    }

    fn bring_up_context(&mut self) -> Result<(), DriverError> {
        // SAFETY: the device is one that cuDeviceGet gave.
        let context = unsafe { result::primary_ctx::retain(self.device) };
        let context = context.map_err(refused("cuDevicePrimaryCtxRetain"))?;
        self.has_context = true;
        // SAFETY: the context was retained above and is released when this is dropped.
        unsafe { result::ctx::set_current(context) }.map_err(refused("cuCtxSetCurrent"))
    }

    fn load(&mut self) -> Result<(), DriverError> {
        // SAFETY: a context is current; the text ends with a NUL, and is copied.
        let module = unsafe { result::module::load_data(PTX.as_ptr().cast()) };
        self.module = module.map_err(refused("cuModuleLoadData"))?;
        let name = CString::new(KERNEL_NAME).unwrap_or_default();
        // SAFETY: the module was loaded above.
        let kernel = unsafe { result::module::get_function(self.module, name) };
        self.kernel = kernel.map_err(refused("cuModuleGetFunction"))?;
        // One that takes its turn with the null stream, on which memory is set and copied.
        let stream = result::stream::create(StreamKind::Default);
        self.stream = stream.map_err(refused("cuStreamCreate"))?;
        let bytes = self.slots * STAMP_BYTES;
        // SAFETY: a context is current.
        let stamps = unsafe { result::malloc_sync(bytes) };
        self.stamps = stamps.map_err(refused("cuMemAlloc"))?;
        // SAFETY: the memory was allocated above and has this many bytes.
        unsafe { result::memset_d8_sync(self.stamps, 0, bytes) }.map_err(refused("cuMemsetD8"))
    }
}

impl Planter for Device {
    fn run(&mut self, slot: usize, length: Nanos) -> Result<(), DriverError> {
        // Never past the end: the stamp that is missing then tells.
        let slot = slot.min(self.slots - 1);
        let mut address = self.stamps + (slot * STAMP_BYTES) as u64;
        let mut length_ns = length.0;
        let mut parameters = [
            (&raw mut address).cast::<c_void>(),
            (&raw mut length_ns).cast::<c_void>(),
        ];
        let (one, stream) = ((1, 1, 1), self.stream);
        // SAFETY: kernel and stream belong to the current context. The kernel takes two numbers of 64 bits, which
        // the driver copies before it returns, and writes 24 bytes from `address` on, which lie in `stamps`.
        unsafe { result::launch_kernel(self.kernel, one, one, 0, stream, &mut parameters) }
            .map_err(refused("cuLaunchKernel"))?;
        // SAFETY: the stream belongs to the current context.
        unsafe { result::stream::synchronize(stream) }.map_err(refused("cuStreamSynchronize"))
    }

    fn stamps(&mut self) -> Result<Vec<Stamp>, DriverError> {
        let mut words: Vec<Words> = vec![[0; 3]; self.slots];
        // SAFETY: source and destination have as many bytes; the call returns when they are copied.
        unsafe { result::memcpy_dtoh_sync(&mut words, self.stamps) }
            .map_err(refused("cuMemcpyDtoH"))?;
        let stamp = |[start_ns, end_ns, finest_step_ns]: Words| Stamp {
            start_ns,
            end_ns,
            finest_step_ns,
        };
        Ok(words.into_iter().map(stamp).collect())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // What is refused here cannot be helped; the driver gives everything back at the process's end.
        // SAFETY: each handle was made by the driver, belongs to the context that is current, and is given back
        // once; the context comes last.
        unsafe {
            if !self.stream.is_null() {
                result::stream::synchronize(self.stream).ok();
                result::stream::destroy(self.stream).ok();
            }
            if self.stamps != 0 {
                result::free_sync(self.stamps).ok();
            }
            if !self.module.is_null() {
                result::module::unload(self.module).ok();
            }
            if self.has_context {
                result::ctx::set_current(null_mut()).ok();
                result::primary_ctx::release(self.device).ok();
            }
        }
    }
}

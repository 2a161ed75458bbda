//! JPEG decoded on a GPU, by NVIDIA's nvJPEG, into host memory.
//!
//! Types and numbers are those of NVIDIA's `nvjpeg.h`. `unsafe`, as it calls nvJPEG and the driver. Invariants: the library is never
//! closed, and the device's primary context stays; a decoder's handles are used by one thread at a time, with that context
//! current; the driver has answered before.
//!
//! May use: `probe`.

use crate::probe::{Missing, libraries};
use cudarc::driver::result::{self, stream::StreamKind};
use cudarc::driver::sys;
use libloading::Library;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_uchar};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Threads that decode.
static THREADS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

thread_local! {
    static IS_KNOWN: Cell<bool> = const { Cell::new(false) };
}

/// Threads that have decoded on a GPU, by the system's number of each: their kernels belong to no step.
pub fn threads() -> Vec<u32> {
    let threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    threads.iter().copied().collect()
}

fn note_thread() {
    if !IS_KNOWN.replace(true) {
        let thread = nix::unistd::gettid().as_raw().unsigned_abs();
        let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        threads.insert(thread);
    }
}

/// `nvjpegStatus_t` of pictures that nvJPEG does not take: bad, not supported, not implemented, cut off.
const NOT_TAKEN: [c_int; 4] = [3, 4, 9, 10];
/// `NVJPEG_OUTPUT_RGBI`.
const INTERLEAVED_RGB: c_int = 5;
const COMPONENTS: usize = 4;
const RGB: usize = 3;

/// `nvjpegImage_t`: where each plane lies on the device, and the bytes of its rows.
#[repr(C)]
struct Image {
    channel: [*mut c_uchar; COMPONENTS],
    pitch: [usize; COMPONENTS],
}

type Handle = *mut std::ffi::c_void;
type Create = unsafe extern "C" fn(*mut Handle) -> c_int;
type CreateState = unsafe extern "C" fn(Handle, *mut Handle) -> c_int;
type Destroy = unsafe extern "C" fn(Handle) -> c_int;
type GetInfo = unsafe extern "C" fn(
    Handle,
    *const c_uchar,
    usize,
    *mut c_int,
    *mut c_int,
    *mut c_int,
    *mut c_int,
) -> c_int;
type Decode = unsafe extern "C" fn(
    Handle,
    Handle,
    *const c_uchar,
    usize,
    c_int,
    *mut Image,
    sys::CUstream,
) -> c_int;

/// Why nvJPEG decodes nothing more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NvJpegError {
    #[error("{path} has no {name}: it is no nvJPEG, or too old")]
    Lacks { path: String, name: &'static str },
    #[error("{call} failed with {status}{}", words(*.status))]
    Refused { call: &'static str, status: c_int },
    #[error("{call} failed: {reason}")]
    Driver { call: &'static str, reason: String },
}

/// Of what `nvjpegStatus_t` says, what tells a user what to do.
fn words(status: c_int) -> &'static str {
    match status {
        5 => " (out of memory)",
        7 => " (this nvJPEG does not support this GPU)",
        _ => "",
    }
}

fn accepted(call: &'static str, status: c_int) -> Result<(), NvJpegError> {
    match status {
        0 => Ok(()),
        status => Err(NvJpegError::Refused { call, status }),
    }
}

fn driver(call: &'static str) -> impl Fn(result::DriverError) -> NvJpegError {
    move |error| NvJpegError::Driver {
        call,
        reason: format!("{error:?}"),
    }
}

/// nvJPEG on one device, for all decoders there.
pub struct NvJpeg {
    ordinal: usize,
    create: Create,
    create_state: CreateState,
    destroy_state: Destroy,
    info: GetInfo,
    decode: Decode,
    /// The device's context and nvJPEG's handle, once a decoder has asked for them.
    opened: OnceLock<Result<Opened, NvJpegError>>,
}

#[derive(Copy, Clone)]
struct Opened {
    context: sys::CUcontext,
    handle: Handle,
}

// SAFETY: a context may be current in any thread; nvJPEG's handle serves threads that have a state each.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl NvJpeg {
    /// Finds and loads the library; the device is left alone until something is decoded.
    ///
    /// # Errors
    /// No driver, no such device, or no nvJPEG.
    pub fn load(ordinal: usize) -> Result<Arc<NvJpeg>, Missing> {
        let driver = libraries::driver()?;
        driver.device(ordinal)?;
        let (library, piece) = libraries::nvjpeg(driver.cuda_version)?;
        let path = piece.path.display().to_string();
        NvJpeg::of(library, &path, ordinal).map_err(|error| Missing {
            piece: libraries::NVJPEG,
            detail: error.to_string(),
            remedy: libraries::nvjpeg_remedy(driver.cuda_version),
        })
    }

    fn of(
        library: &'static Library,
        path: &str,
        ordinal: usize,
    ) -> Result<Arc<NvJpeg>, NvJpegError> {
        fn function<T: Copy>(
            library: &'static Library,
            path: &str,
            name: &'static str,
        ) -> Result<T, NvJpegError> {
            libraries::function(library, name).ok_or_else(|| NvJpegError::Lacks {
                path: path.to_owned(),
                name,
            })
        }
        Ok(Arc::new(NvJpeg {
            ordinal,
            create: function(library, path, "nvjpegCreateSimple")?,
            create_state: function(library, path, "nvjpegJpegStateCreate")?,
            destroy_state: function(library, path, "nvjpegJpegStateDestroy")?,
            info: function(library, path, "nvjpegGetImageInfo")?,
            decode: function(library, path, "nvjpegDecode")?,
            opened: OnceLock::new(),
        }))
    }

    /// The device's primary context, current in this thread, and nvJPEG's handle there.
    fn enter(&self) -> Result<Opened, NvJpegError> {
        let opened = self.opened.get_or_init(|| self.open()).clone()?;
        // SAFETY: the context was retained and is never released.
        unsafe { result::ctx::set_current(opened.context) }.map_err(driver("cuCtxSetCurrent"))?;
        Ok(opened)
    }

    fn open(&self) -> Result<Opened, NvJpegError> {
        let ordinal = c_int::try_from(self.ordinal).unwrap_or(c_int::MAX);
        let device = result::device::get(ordinal).map_err(driver("cuDeviceGet"))?;
        // SAFETY: the device is one that cuDeviceGet gave.
        let context = unsafe { result::primary_ctx::retain(device) };
        let context = context.map_err(driver("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: the context was retained above and is never released.
        unsafe { result::ctx::set_current(context) }.map_err(driver("cuCtxSetCurrent"))?;
        let mut handle = null_mut();
        // SAFETY: a place for one handle; a context is current.
        accepted("nvjpegCreateSimple", unsafe { (self.create)(&mut handle) })?;
        Ok(Opened { context, handle })
    }

    /// A decoder with a stream of its own.
    ///
    /// # Errors
    /// What the driver or nvJPEG refuses.
    pub fn decoder(self: &Arc<Self>) -> Result<GpuDecoder, NvJpegError> {
        let opened = self.enter()?;
        let mut state = null_mut();
        // SAFETY: the handle is nvJPEG's; a place for one state.
        let status = unsafe { (self.create_state)(opened.handle, &mut state) };
        accepted("nvjpegJpegStateCreate", status)?;
        let mut decoder = GpuDecoder {
            nvjpeg: self.clone(),
            state,
            stream: null_mut(),
            pixels: 0,
            bytes: 0,
        };
        // One that does not wait for the null stream.
        let stream = result::stream::create(StreamKind::NonBlocking);
        decoder.stream = stream.map_err(driver("cuStreamCreate"))?;
        Ok(decoder)
    }
}

/// Decodes one picture after another.
pub struct GpuDecoder {
    nvjpeg: Arc<NvJpeg>,
    state: Handle,
    /// Null until it is made.
    stream: sys::CUstream,
    /// Device memory for a picture of as many bytes; 0 for none.
    pixels: sys::CUdeviceptr,
    bytes: usize,
}

// SAFETY: its handles may be used from any thread by one at a time; they are owned here and used through `&mut`.
unsafe impl Send for GpuDecoder {}

impl GpuDecoder {
    /// Decodes the picture in `jpeg`, which is stored with this width and height, and brings its `rows` into `out`, as
    /// interleaved 8-bit RGB. `false`, with `out` as it was: nvJPEG does not take this picture.
    ///
    /// # Errors
    /// The device or nvJPEG fails, whatever the picture.
    pub fn decode(
        &mut self,
        jpeg: &[u8],
        (width, height): (u32, u32),
        rows: Range<u32>,
        out: &mut Vec<u8>,
    ) -> Result<bool, NvJpegError> {
        note_thread();
        let opened = self.nvjpeg.enter()?;
        if !self.is_taken(opened.handle, jpeg, (width, height))? {
            return Ok(false);
        }
        let row_bytes = width as usize * RGB;
        self.make_room(row_bytes * height as usize)?;
        let mut image = Image {
            channel: [null_mut(); COMPONENTS],
            pitch: [0; COMPONENTS],
        };
        image.channel[0] = self.pixels as *mut c_uchar;
        image.pitch[0] = row_bytes;
        // SAFETY: handle, state and stream are of the current context; the picture has as many bytes, which live until the
        // stream has been waited for, and there is room for its pixels on the device.
        let status = unsafe {
            (self.nvjpeg.decode)(
                opened.handle,
                self.state,
                jpeg.as_ptr(),
                jpeg.len(),
                INTERLEAVED_RGB,
                &mut image,
                self.stream,
            )
        };
        let mut decoded = match NOT_TAKEN.contains(&status) {
            true => Ok(false),
            false => accepted("nvjpegDecode", status).map(|()| true),
        };
        if matches!(decoded, Ok(true)) {
            out.resize(row_bytes * rows.len(), 0);
            let from = self.pixels + (row_bytes * rows.start as usize) as u64;
            // SAFETY: the rows lie in the picture, for which `pixels` has room; `out` lives until the stream has been waited
            // for.
            let copied = unsafe { result::memcpy_dtoh_async(out, from, self.stream) };
            decoded = copied.map_err(driver("cuMemcpyDtoHAsync")).map(|()| true);
        }
        // Also after an error: until then the device may read the picture.
        // SAFETY: the stream is of the current context.
        let waited = unsafe { result::stream::synchronize(self.stream) };
        let is_decoded = decoded?;
        waited.map_err(driver("cuStreamSynchronize"))?;
        Ok(is_decoded)
    }

    /// Whether the picture has three components and the size that its header was read to have.
    fn is_taken(
        &self,
        handle: Handle,
        jpeg: &[u8],
        (width, height): (u32, u32),
    ) -> Result<bool, NvJpegError> {
        let (mut components, mut subsampling) = (0, 0);
        let (mut widths, mut heights) = ([0; COMPONENTS], [0; COMPONENTS]);
        // SAFETY: the picture has as many bytes; there is room for two numbers, and for one of each component twice.
        let status = unsafe {
            (self.nvjpeg.info)(
                handle,
                jpeg.as_ptr(),
                jpeg.len(),
                &mut components,
                &mut subsampling,
                widths.as_mut_ptr(),
                heights.as_mut_ptr(),
            )
        };
        if NOT_TAKEN.contains(&status) {
            return Ok(false);
        }
        accepted("nvjpegGetImageInfo", status)?;
        let size = [widths[0], heights[0]].map(c_int::unsigned_abs);
        Ok(components == RGB as c_int && size == [width, height])
    }

    /// Device memory for `bytes` at least.
    fn make_room(&mut self, bytes: usize) -> Result<(), NvJpegError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        self.give_memory_back();
        let bytes = bytes.next_power_of_two();
        // SAFETY: a context is current.
        let pixels = unsafe { result::malloc_sync(bytes) };
        self.pixels = pixels.map_err(driver("cuMemAlloc"))?;
        self.bytes = bytes;
        Ok(())
    }

    fn give_memory_back(&mut self) {
        if self.pixels != 0 {
            // What is refused here cannot be helped.
            // SAFETY: the memory was allocated by `make_room`, and nothing that uses it is under way.
            unsafe { result::free_sync(self.pixels) }.ok();
            (self.pixels, self.bytes) = (0, 0);
        }
    }
}

impl Drop for GpuDecoder {
    fn drop(&mut self) {
        // What is refused here cannot be helped; the driver gives everything back at the process's end.
        if self.nvjpeg.enter().is_err() {
            return;
        }
        self.give_memory_back();
        // SAFETY: state and stream were made for this decoder, in the context that is current, and are given back once.
        unsafe {
            (self.nvjpeg.destroy_state)(self.state);
            if !self.stream.is_null() {
                result::stream::destroy(self.stream).ok();
            }
        }
    }
}

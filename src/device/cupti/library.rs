//! Calls of libcupti, and the callbacks it makes: the one place of the kernel timeline that is `unsafe`.
//!
//! CUPTI asks for empty buffers and hands back full ones, from threads of its own and from those that call
//! CUDA. Both callbacks only move pointers through channels; records are read by whoever polls.
//! Invariants: a buffer is owned by exactly one of CUPTI, a channel or the code that reads it; no callback
//! blocks or panics; the library is never unloaded.
//!
//! May use: `timeline`, `decode`, `activity`.

use super::activity::{Activity, Api};
use super::decode::{
    self, KIND_CONCURRENT_KERNEL, KIND_DRIVER, KIND_MEMCPY, KIND_MEMSET, KIND_RUNTIME,
    OLDEST_VERSION,
};
use super::{CuptiError, RecordCount};
use crossbeam_channel::{Receiver, Sender, unbounded};
use libloading::Library;
use stallscope_core::timeline::Clock;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of one buffer: some 2,000 launches, a few steps of a large network. As long as the device has work, CUPTI
/// gives back full ones only, so that larger ones would come seconds late.
const BUFFER_BYTES: usize = 512 << 10;
/// Buffers there may be, 256 MiB of them; past that CUPTI drops records and counts them.
const MOST_BUFFERS: usize = 512;

pub(super) const MAX_LIMIT_REACHED: u32 = 12;
pub(super) const FLUSH_FORCED: u32 = 1;
/// Operating system's thread ids, instead of pthread's.
pub(super) const THREAD_ID_SYSTEM: u32 = 1;
pub(super) const DOMAIN_DRIVER: u32 = 1;
pub(super) const DOMAIN_RUNTIME: u32 = 2;
/// No driver has more functions than this; names past the last are refused one by one.
const MOST_FUNCTIONS: u32 = 4096;
/// What puts work on a device, by the names of the driver's functions.
const LAUNCHES: [&str; 4] = ["cuLaunch", "cuMemcpy", "cuMemset", "cuGraphLaunch"];

type Status = u32;
type RequestBuffer = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type BufferCompleted = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The functions of libcupti that are used, as `cupti_activity.h` declares them.
#[derive(Copy, Clone)]
struct Functions {
    register_callbacks: unsafe extern "C" fn(RequestBuffer, BufferCompleted) -> Status,
    register_timestamp: unsafe extern "C" fn(unsafe extern "C" fn() -> u64) -> Status,
    enable: unsafe extern "C" fn(u32) -> Status,
    disable: unsafe extern "C" fn(u32) -> Status,
    flush_all: unsafe extern "C" fn(u32) -> Status,
    next_record: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Status,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Status,
    result_string: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    callback_name: unsafe extern "C" fn(u32, u32, *mut *const c_char) -> Status,
    version: unsafe extern "C" fn(*mut u32) -> Status,
    /// Only in newer libraries.
    set_thread_id_type: Option<unsafe extern "C" fn(u32) -> Status>,
    enable_driver_api: Option<unsafe extern "C" fn(u32, u8) -> Status>,
}

/// libcupti, opened.
pub struct Cupti {
    functions: Functions,
    version: u32,
}

/// A buffer of CUPTI's, to be read or to be filled.
struct Buffer {
    memory: Box<[u64]>,
    /// Bytes that hold records.
    valid: usize,
}

/// The ends that the callbacks use, made once in the life of the process.
struct Callbacks {
    clock: Arc<dyn Clock>,
    full: Sender<Buffer>,
    empty: Receiver<Buffer>,
    buffers: AtomicUsize,
    /// The other ends, for one recording at a time.
    completed: Receiver<Buffer>,
    returned: Sender<Buffer>,
    recording: AtomicBool,
    /// CUPTI has the clock: told again, it would give wrong times.
    has_clock: AtomicBool,
}

static CALLBACKS: OnceLock<Callbacks> = OnceLock::new();

// None of the callbacks unwinds: a clock that panicked, or an allocation that failed, would end the process.

/// CUPTI's timestamps are those of the run's own clock.
unsafe extern "C" fn timestamp() -> u64 {
    CALLBACKS
        .get()
        .map_or(0, |callbacks| callbacks.clock.now().0)
}

unsafe extern "C" fn request_buffer(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let taken = CALLBACKS.get().and_then(Callbacks::take);
    let memory = taken.map_or(std::ptr::null_mut(), |taken| {
        Box::into_raw(taken.memory).cast::<u8>()
    });
    // SAFETY: CUPTI passes three places to write to. A null buffer tells it that there is none.
    unsafe {
        *size = if memory.is_null() { 0 } else { BUFFER_BYTES };
        *buffer = memory;
        *most = 0;
    }
}

unsafe extern "C" fn buffer_completed(
    _: *mut c_void,
    _: u32,
    memory: *mut u8,
    size: usize,
    valid: usize,
) {
    if memory.is_null() || size != BUFFER_BYTES {
        return;
    }
    let words = std::ptr::slice_from_raw_parts_mut(memory.cast::<u64>(), BUFFER_BYTES / 8);
    // SAFETY: CUPTI gives back what `request_buffer` gave it, once, and keeps no reference to it.
    let memory = unsafe { Box::from_raw(words) };
    if let Some(callbacks) = CALLBACKS.get() {
        let valid = valid.min(BUFFER_BYTES);
        callbacks.full.send(Buffer { memory, valid }).ok();
    }
}

impl Callbacks {
    /// An empty buffer, a new one where none is left.
    fn take(&self) -> Option<Buffer> {
        if let Ok(buffer) = self.empty.try_recv() {
            return Some(buffer);
        }
        if self.buffers.fetch_add(1, Ordering::Relaxed) >= MOST_BUFFERS {
            self.buffers.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let memory = vec![0_u64; BUFFER_BYTES / 8].into_boxed_slice();
        Some(Buffer { memory, valid: 0 })
    }
}

impl Cupti {
    /// Opens the library at `path`. Only once the driver has answered: some versions overflow the stack where
    /// there is none.
    ///
    /// # Errors
    /// What is wrong with the library.
    pub fn open(path: &Path) -> Result<Cupti, CuptiError> {
        let shown = || path.display().to_string();
        // SAFETY: libcupti's initialisers have no preconditions but a driver, which the caller vouches for.
        let library = unsafe { Library::new(path) }.map_err(|error| CuptiError::Unopened {
            path: shown(),
            reason: error.to_string(),
        })?;
        // It hooks the driver, and cannot be taken out again.
        let library: &'static Library = Box::leak(Box::new(library));
        let functions = Functions::of(library).map_err(|function| CuptiError::Incomplete {
            path: shown(),
            function,
        })?;
        let mut version = 0_u32;
        // SAFETY: the function stores one 32-bit number.
        let status = unsafe { (functions.version)(&mut version) };
        functions.check("cuptiGetVersion", status)?;
        if version < OLDEST_VERSION {
            return Err(CuptiError::TooOld {
                path: shown(),
                version,
            });
        }
        Ok(Cupti { functions, version })
    }

    /// What `cuptiGetVersion` says: a count before CUDA 13, then the version of CUDA.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Starts recording, with times of `clock`. Kernels, copies and memory sets of the whole process are
    /// recorded, and the calls that launched them. Another recording may follow one that is over, with the same clock.
    ///
    /// # Errors
    /// What CUPTI refused; nothing is recorded then.
    pub fn record(self, clock: Arc<dyn Clock>) -> Result<Recording, CuptiError> {
        let callbacks = CALLBACKS.get_or_init(|| {
            let (full, completed) = unbounded();
            let (returned, empty) = unbounded();
            Callbacks {
                clock: clock.clone(),
                full,
                empty,
                buffers: AtomicUsize::new(0),
                completed,
                returned,
                recording: AtomicBool::new(false),
                has_clock: AtomicBool::new(false),
            }
        });
        let is_same = Arc::ptr_eq(&callbacks.clock, &clock);
        if !is_same || callbacks.recording.swap(true, Ordering::AcqRel) {
            return Err(CuptiError::OtherClock);
        }
        while let Ok(buffer) = callbacks.completed.try_recv() {
            callbacks.returned.send(buffer).ok();
        }
        let (completed, returned) = (callbacks.completed.clone(), callbacks.returned.clone());
        let mut recording = self.recording(completed, returned);
        recording.is_live = true;
        recording.start(callbacks)?;
        Ok(recording)
    }

    fn recording(self, completed: Receiver<Buffer>, returned: Sender<Buffer>) -> Recording {
        Recording {
            functions: self.functions,
            version: self.version,
            completed,
            returned,
            enabled: Vec::new(),
            launches: Vec::new(),
            names: HashMap::new(),
            functions_seen: HashMap::new(),
            count: RecordCount::default(),
            is_live: false,
        }
    }
}

/// A recording in progress.
pub struct Recording {
    functions: Functions,
    version: u32,
    completed: Receiver<Buffer>,
    returned: Sender<Buffer>,
    enabled: Vec<u32>,
    /// Functions of the driver's whose calls are recorded.
    launches: Vec<u32>,
    /// Kernels' names by their address: CUPTI keeps one copy of each.
    names: HashMap<u64, Arc<str>>,
    functions_seen: HashMap<(Api, u32), Arc<str>>,
    count: RecordCount,
    /// It has the callbacks.
    is_live: bool,
}

impl Recording {
    fn start(&mut self, callbacks: &Callbacks) -> Result<(), CuptiError> {
        let functions = self.functions;
        if let Some(set) = functions.set_thread_id_type {
            // SAFETY: takes one of the header's numbers. Refused, threads have other numbers.
            unsafe { set(THREAD_ID_SYSTEM) };
        }
        if !callbacks.has_clock.load(Ordering::Acquire) {
            // SAFETY: the callback is a plain function that lives as long as the process.
            let status = unsafe { (functions.register_timestamp)(timestamp) };
            functions.check("cuptiActivityRegisterTimestampCallback", status)?;
            callbacks.has_clock.store(true, Ordering::Release);
        }
        // SAFETY: both callbacks keep CUPTI's contract, see there.
        let status = unsafe { (functions.register_callbacks)(request_buffer, buffer_completed) };
        functions.check("cuptiActivityRegisterCallbacks", status)?;
        for kind in [
            KIND_CONCURRENT_KERNEL,
            KIND_MEMCPY,
            KIND_MEMSET,
            KIND_RUNTIME,
        ] {
            self.enable(kind)?;
        }
        if !self.enable_launches() {
            self.enable(KIND_DRIVER)?;
        }
        Ok(())
    }

    fn enable(&mut self, kind: u32) -> Result<(), CuptiError> {
        // SAFETY: takes one of the header's numbers.
        let status = unsafe { (self.functions.enable)(kind) };
        if let Err(error) = self.functions.check("cuptiActivityEnable", status) {
            self.disable();
            return Err(error);
        }
        self.enabled.push(kind);
        Ok(())
    }

    /// Of the driver's calls only those that put work on a device are worth a record: burn's backend asks for
    /// events far more often. Says whether the library can tell them apart.
    fn enable_launches(&mut self) -> bool {
        let Some(enable) = self.functions.enable_driver_api else {
            return false;
        };
        for function in 1..MOST_FUNCTIONS {
            let name = self.functions.name_of(Api::Driver, function);
            let wanted =
                name.is_some_and(|name| LAUNCHES.iter().any(|launch| name.starts_with(launch)));
            // SAFETY: takes the number of a function, which the library has just named, and a flag.
            if wanted && unsafe { enable(function, 1) } == 0 {
                self.launches.push(function);
            }
        }
        !self.launches.is_empty()
    }

    /// Reads what has been completed, oldest buffer first; with `flush` CUPTI is asked for what it holds back.
    pub fn poll(&mut self, flush: bool, mut take: impl FnMut(Activity)) {
        if flush {
            // SAFETY: takes flags. Completed buffers come back in the course of the call.
            unsafe { (self.functions.flush_all)(0) };
        }
        self.read_completed(&mut take);
    }

    /// Stops recording and reads the rest. The device must have done all its work: records of work in progress
    /// have no end yet.
    pub fn finish(&mut self, mut take: impl FnMut(Activity)) {
        // SAFETY: takes flags.
        unsafe { (self.functions.flush_all)(FLUSH_FORCED) };
        self.disable();
        self.read_completed(&mut take);
    }

    /// What became of the records so far.
    pub fn count(&self) -> RecordCount {
        self.count
    }

    /// As [`Cupti::version`].
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The name of a function of CUDA's.
    pub fn function_name(&mut self, api: Api, function: u32) -> Arc<str> {
        let functions = self.functions;
        let name = self
            .functions_seen
            .entry((api, function))
            .or_insert_with(|| {
                let name = functions.name_of(api, function);
                name.map_or_else(|| format!("{api:?} call {function}").into(), Arc::from)
            });
        name.clone()
    }

    fn disable(&mut self) {
        for kind in self.enabled.drain(..) {
            // SAFETY: takes a kind that was enabled.
            unsafe { (self.functions.disable)(kind) };
        }
        if let Some(enable) = self.functions.enable_driver_api {
            for function in self.launches.drain(..) {
                // SAFETY: takes a function that was enabled, and a flag.
                unsafe { enable(function, 0) };
            }
        }
    }

    fn read_completed(&mut self, take: &mut impl FnMut(Activity)) {
        while let Ok(mut buffer) = self.completed.try_recv() {
            self.read(&mut buffer, take);
            self.returned.send(buffer).ok();
        }
        let mut dropped = 0_usize;
        // SAFETY: a null context asks for the global queue; `dropped` is a place for one number.
        if unsafe { (self.functions.dropped)(std::ptr::null_mut(), 0, &mut dropped) } == 0 {
            self.count.dropped += dropped as u64;
        }
    }

    fn read(&mut self, buffer: &mut Buffer, take: &mut impl FnMut(Activity)) {
        let start = buffer.memory.as_mut_ptr().cast::<u8>();
        let end = start as usize + buffer.valid;
        let mut record: *mut u8 = std::ptr::null_mut();
        loop {
            // SAFETY: the buffer is one that CUPTI filled, with this many valid bytes; `record` is null or what
            // the call before left there.
            let status = unsafe { (self.functions.next_record)(start, buffer.valid, &mut record) };
            if status == MAX_LIMIT_REACHED {
                return;
            }
            if status != 0 || record.is_null() {
                self.count.unusable += u64::from(status != 0);
                return;
            }
            let left = end.saturating_sub(record as usize);
            if left < 4 {
                self.count.unusable += 1;
                return;
            }
            // SAFETY: the record lies in the buffer, and at least four bytes of it do.
            let kind = unsafe { record.cast::<u32>().read_unaligned() };
            let length = decode::bytes_read(kind).unwrap_or(4).min(left);
            // SAFETY: `length` bytes from `record` on lie in the valid part of the buffer.
            let bytes = unsafe { std::slice::from_raw_parts(record, length) };
            let names = &mut self.names;
            match decode::decode(bytes, |address| kernel_name(names, address)) {
                Ok(activity) => {
                    self.count.read += 1;
                    take(activity);
                }
                Err(rejected) => self.count.reject(rejected),
            }
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.disable();
        if let Some(callbacks) = CALLBACKS.get().filter(|_| self.is_live) {
            callbacks.recording.store(false, Ordering::Release);
        }
    }
}

fn kernel_name(names: &mut HashMap<u64, Arc<str>>, address: u64) -> Arc<str> {
    let name = names.entry(address).or_insert_with(|| {
        let pointer = address as *const c_char;
        if pointer.is_null() {
            return "kernel".into();
        }
        // SAFETY: the address is the name field of a record of CUPTI's, which owns the string and keeps it.
        let name = unsafe { CStr::from_ptr(pointer) };
        name.to_string_lossy().into()
    });
    name.clone()
}

/// A function of the library, or its name where it has none such.
fn function<T: Copy>(library: &'static Library, name: &'static str) -> Result<T, &'static str> {
    // SAFETY: every caller asks for a function with the type that CUPTI's headers declare.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|_| name)
}

impl Functions {
    fn of(library: &'static Library) -> Result<Functions, &'static str> {
        Ok(Functions {
            register_callbacks: function(library, "cuptiActivityRegisterCallbacks")?,
            register_timestamp: function(library, "cuptiActivityRegisterTimestampCallback")?,
            enable: function(library, "cuptiActivityEnable")?,
            disable: function(library, "cuptiActivityDisable")?,
            flush_all: function(library, "cuptiActivityFlushAll")?,
            next_record: function(library, "cuptiActivityGetNextRecord")?,
            dropped: function(library, "cuptiActivityGetNumDroppedRecords")?,
            result_string: function(library, "cuptiGetResultString")?,
            callback_name: function(library, "cuptiGetCallbackName")?,
            version: function(library, "cuptiGetVersion")?,
            set_thread_id_type: function(library, "cuptiSetThreadIdType").ok(),
            enable_driver_api: function(library, "cuptiActivityEnableDriverApi").ok(),
        })
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), CuptiError> {
        if status == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: the function stores the address of a string that is never freed.
        let named = unsafe { (self.result_string)(status, &mut text) } == 0;
        Err(CuptiError::Refused {
            call,
            code: status,
            name: named.then(|| text_at(text)).flatten(),
        })
    }

    fn name_of(&self, api: Api, function: u32) -> Option<String> {
        let domain = match api {
            Api::Driver => DOMAIN_DRIVER,
            Api::Runtime => DOMAIN_RUNTIME,
        };
        let mut text = std::ptr::null();
        // SAFETY: the function stores the address of a string that is never freed, or refuses the number.
        let named = unsafe { (self.callback_name)(domain, function, &mut text) } == 0;
        named.then(|| text_at(text)).flatten()
    }
}

/// A string of the library's.
fn text_at(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: CUPTI's own strings end with a NUL and are never freed.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;

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
use super::functions::Functions;
use super::{CuptiError, RecordCount};
use crossbeam_channel::{Receiver, Sender, unbounded};
use libloading::Library;
use stallscope_core::timeline::Clock;
use std::collections::HashMap;
use std::collections::HashSet;
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
/// libcupti, opened.
#[derive(Copy, Clone)]
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
    /// The function of the library that has the clock: told again, it would give wrong times.
    clock_of: AtomicUsize,
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

/// The ends of the callbacks' channels that a recording has, for as long as it has them.
#[derive(Clone)]
pub(super) struct Buffers {
    completed: Receiver<Buffer>,
    returned: Sender<Buffer>,
    _taken: Arc<Taken>,
}

/// That a recording has the callbacks, until this is dropped.
pub(super) struct Taken;

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(callbacks) = CALLBACKS.get() {
            callbacks.recording.store(false, Ordering::Release);
        }
    }
}

impl Buffers {
    /// Takes the callbacks, which one recording can have at a time, always with the same clock.
    pub(super) fn take(clock: &Arc<dyn Clock>) -> Result<Buffers, CuptiError> {
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
                clock_of: AtomicUsize::new(0),
            }
        });
        let is_same = Arc::ptr_eq(&callbacks.clock, clock);
        if !is_same || callbacks.recording.swap(true, Ordering::AcqRel) {
            return Err(CuptiError::OtherClock);
        }
        // Of the recording before.
        while let Ok(buffer) = callbacks.completed.try_recv() {
            callbacks.returned.send(buffer).ok();
        }
        Ok(Buffers {
            completed: callbacks.completed.clone(),
            returned: callbacks.returned.clone(),
            _taken: Arc::new(Taken),
        })
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
        self.start(&Buffers::take(&clock)?)
    }

    /// As [`record`](Self::record), into `buffers`.
    pub(super) fn start(self, buffers: &Buffers) -> Result<Recording, CuptiError> {
        let mut recording = self.recording(buffers.clone());
        recording.start()?;
        Ok(recording)
    }

    /// Whether this is the library that `other` is, opened by another name.
    pub(super) fn is(&self, other: &Cupti) -> bool {
        self.functions.enable as usize == other.functions.enable as usize
    }

    fn recording(self, buffers: Buffers) -> Recording {
        Recording {
            functions: self.functions,
            version: self.version,
            buffers,
            enabled: Vec::new(),
            launches: Vec::new(),
            wanted: None,
            names: HashMap::new(),
            functions_seen: HashMap::new(),
            count: RecordCount::default(),
        }
    }
}

/// A recording in progress.
pub struct Recording {
    functions: Functions,
    version: u32,
    buffers: Buffers,
    enabled: Vec<u32>,
    /// Functions of the driver's whose calls are recorded.
    launches: Vec<u32>,
    /// Where all of the driver's calls are recorded, the functions whose calls are read.
    wanted: Option<HashSet<u32>>,
    /// Kernels' names by their address: CUPTI keeps one copy of each.
    names: HashMap<u64, Arc<str>>,
    functions_seen: HashMap<(Api, u32), Arc<str>>,
    count: RecordCount,
}

impl Recording {
    fn start(&mut self) -> Result<(), CuptiError> {
        let functions = self.functions;
        if let Some(set) = functions.set_thread_id_type {
            // SAFETY: takes one of the header's numbers. Refused, threads have other numbers.
            unsafe { set(THREAD_ID_SYSTEM) };
        }
        let clock_of = CALLBACKS.get().map(|callbacks| &callbacks.clock_of);
        let library = functions.register_timestamp as usize;
        if clock_of.is_none_or(|of| of.load(Ordering::Acquire) != library) {
            // SAFETY: the callback is a plain function that lives as long as the process.
            let status = unsafe { (functions.register_timestamp)(timestamp) };
            functions.check("cuptiActivityRegisterTimestampCallback", status)?;
            if let Some(of) = clock_of {
                of.store(library, Ordering::Release);
            }
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
        let launches = functions.launches();
        if !self.enable_launches(&launches) {
            self.enable(KIND_DRIVER)?;
            self.wanted = Some(launches.into_iter().collect());
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

    /// Has only the calls of `launches` recorded. Says whether the library can tell the driver's calls apart.
    fn enable_launches(&mut self, launches: &[u32]) -> bool {
        let Some(enable) = self.functions.enable_driver_api else {
            return false;
        };
        for function in launches {
            // SAFETY: takes the number of a function, which the library has named, and a flag.
            if unsafe { enable(*function, 1) } == 0 {
                self.launches.push(*function);
            }
        }
        !self.launches.is_empty()
    }

    /// Whether CUPTI records every call of the driver's, also those that launch nothing: it has no
    /// `cuptiActivityEnableDriverApi`, or refused it.
    pub fn records_all_driver_calls(&self) -> bool {
        self.wanted.is_some()
    }

    /// Reads what has been completed, oldest buffer first; with `flush` CUPTI is asked for what it holds back.
    pub fn poll(&mut self, flush: bool, mut take: impl FnMut(Activity)) {
        if flush {
            // SAFETY: takes flags. Completed buffers come back in the course of the call.
            unsafe { (self.functions.flush_all)(0) };
        }
        self.read_completed(&mut take);
    }

    /// Forgets what was recorded and lost so far.
    pub fn forget(&mut self) {
        self.poll(true, |_| {});
        self.count = RecordCount::default();
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
        while let Ok(mut buffer) = self.buffers.completed.try_recv() {
            self.read(&mut buffer, take);
            self.buffers.returned.send(buffer).ok();
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
            if let Some(wanted) = &self.wanted
                && decode::driver_call(bytes).is_some_and(|function| !wanted.contains(&function))
            {
                self.count.other_calls += 1;
                continue;
            }
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

#[cfg(test)]
mod tests;

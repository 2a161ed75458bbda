//! CUPTI's activity API on the stand-in's timeline.

use crate::clock::now;
use crate::stream::{Copy, Direction};
use crate::world::world;
use libc::{c_char, c_void};
use stallscope_device::cupti::synthetic::{Buffer, CUDA_12_9};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const MEMCPY: u32 = 1;
const MEMSET: u32 = 2;
const DRIVER: u32 = 4;
const KERNEL: u32 = 10;

const INVALID_PARAMETER: u32 = 1;
const MAX_LIMIT_REACHED: u32 = 12;
/// `CUPTI_ERROR_NOT_INITIALIZED`.
const NOT_INITIALIZED: u32 = 15;

type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The driver's functions, numbered from 1, as callbacks name them.
const FUNCTIONS: [&str; 13] = [
    "cuLaunchKernel",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpy2DAsync_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD8_v2",
    "cuMemsetD8Async",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuCtxSynchronize",
    "cuMemAllocAsync",
];

#[derive(Default)]
struct Recorder {
    callbacks: Option<(Request, Completed)>,
    /// Added to CLOCK_MONOTONIC it is what the program's clock says.
    shift: i64,
    enabled: HashSet<u32>,
    functions: BTreeSet<u32>,
    buffer: Option<Filling>,
    dropped: usize,
    names: HashMap<String, u64>,
}

struct Filling {
    memory: usize,
    size: usize,
    used: usize,
}

static RECORDS: AtomicU64 = AtomicU64::new(0);
static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

fn recorder() -> MutexGuard<'static, Option<Recorder>> {
    let mut recorder = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    recorder.get_or_insert_with(Recorder::default);
    recorder
}

impl Recorder {
    fn time(&self, at: u64) -> u64 {
        at.saturating_add_signed(self.shift)
    }

    /// Adds a record. `fill` writes it to the buffer that it is given.
    fn add(&mut self, device: u32, fill: impl FnOnce(&mut Buffer)) {
        let Some((request, _)) = self.callbacks else {
            return;
        };
        let number = RECORDS.fetch_add(1, Ordering::Relaxed) + 1;
        if world().fault_of_work("record", number).is_some() {
            self.dropped += 1;
            return;
        }
        let mut record = Buffer::new(CUDA_12_9);
        record.device = device;
        fill(&mut record);
        let length = record.bytes.len().next_multiple_of(8);
        if self
            .buffer
            .as_ref()
            .is_some_and(|buffer| buffer.used + length > buffer.size)
        {
            self.complete();
        }
        if self.buffer.is_none() {
            let (mut memory, mut size, mut most) = (std::ptr::null_mut(), 0, 0);
            // SAFETY: the program's own callback, which stores three values.
            unsafe { request(&mut memory, &mut size, &mut most) };
            if memory.is_null() || size < length {
                self.dropped += 1;
                return;
            }
            self.buffer = Some(Filling {
                memory: memory as usize,
                size,
                used: 0,
            });
        }
        let Some(buffer) = &mut self.buffer else {
            return;
        };
        // SAFETY: the buffer is the stand-in's until it is completed, and has room.
        unsafe {
            let to = (buffer.memory as *mut u8).add(buffer.used);
            std::ptr::copy_nonoverlapping(record.bytes.as_ptr(), to, record.bytes.len());
        }
        buffer.used += length;
    }

    fn complete(&mut self) {
        if let (Some(buffer), Some((_, completed))) = (self.buffer.take(), self.callbacks) {
            // SAFETY: gives back what the program gave.
            unsafe {
                completed(
                    std::ptr::null_mut(),
                    0,
                    buffer.memory as *mut u8,
                    buffer.size,
                    buffer.used,
                )
            };
        }
    }

    /// Where a kernel's name lies, for as long as the process lives.
    fn name(&mut self, name: &str) -> u64 {
        let address = self.names.entry(name.to_owned());
        *address.or_insert_with(|| CString::new(name).unwrap_or_default().into_raw() as u64)
    }
}

fn record(kind: u32, fill: impl FnOnce(&mut Recorder)) {
    if let Some(recorder) = recorder()
        .as_mut()
        .filter(|recorder| recorder.enabled.contains(&kind))
    {
        fill(recorder);
    }
}

/// Where work is done.
#[derive(Copy, Clone)]
pub struct Place {
    pub device: u32,
    pub stream: u32,
}

pub fn kernel(name: &str, (start, end): (u64, u64), place: Place, correlation: u32) {
    record(KERNEL, |recorder| {
        let times = [recorder.time(start), recorder.time(end)];
        let address = recorder.name(name);
        recorder.add(place.device, |buffer| {
            buffer.kernel_at(address, times, place.stream, correlation)
        });
    });
}

pub fn copy(copy: &Copy, bytes: u64, (start, end): (u64, u64), place: Place, correlation: u32) {
    record(MEMCPY, |recorder| {
        let times = [recorder.time(start), recorder.time(end)];
        let host = if copy.pinned { 2 } else { 1 };
        let kinds = match copy.direction {
            Direction::ToDevice => [1, host, 3],
            Direction::ToHost => [2, 3, host],
            Direction::OnDevice => [8, 3, 3],
        };
        recorder.add(place.device, |buffer| {
            buffer.copy(kinds, bytes, times, place.stream, correlation)
        });
    });
}

pub fn set(bytes: u64, (start, end): (u64, u64), place: Place, correlation: u32) {
    record(MEMSET, |recorder| {
        let times = [recorder.time(start), recorder.time(end)];
        recorder.add(place.device, |buffer| {
            buffer.set(bytes, times, place.stream, correlation)
        });
    });
}

/// A call of the driver's.
pub fn call(name: &str, (start, end): (u64, u64), correlation: u32) {
    let mut recorder = recorder();
    let Some(recorder) = recorder.as_mut() else {
        return;
    };
    if recorder.callbacks.is_none() {
        return;
    }
    let Some(function) = FUNCTIONS.iter().position(|known| *known == name) else {
        return;
    };
    let function = function as u32 + 1;
    if recorder.enabled.contains(&DRIVER) || recorder.functions.contains(&function) {
        let times = [recorder.time(start), recorder.time(end)];
        // SAFETY: the call takes nothing.
        let thread = unsafe { libc::gettid() } as u32;
        recorder.add(0, |buffer| {
            buffer.call(function, times, thread, correlation)
        });
    }
}

/// Counts a call, with what is planted for it.
fn planted(name: &'static str) -> Result<(), u32> {
    world().begin(name).map(|_| ())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetVersion(version: *mut u32) -> u32 {
    // SAFETY: C's contract.
    unsafe { *version = world().settings.cupti_version };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityRegisterCallbacks(
    request: Option<Request>,
    completed: Option<Completed>,
) -> u32 {
    let (Some(request), Some(completed)) = (request, completed) else {
        return INVALID_PARAMETER;
    };
    if let Err(code) = planted("cuptiActivityRegisterCallbacks") {
        return code;
    }
    if let Some(recorder) = recorder().as_mut() {
        recorder.callbacks = Some((request, completed));
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityRegisterTimestampCallback(
    clock: Option<unsafe extern "C" fn() -> u64>,
) -> u32 {
    let Some(clock) = clock else {
        return INVALID_PARAMETER;
    };
    // The clocks run alike: the closest of some readings tells how far apart they are.
    let reading = |_| {
        let before = now();
        // SAFETY: the program's own function, which takes nothing.
        let theirs = unsafe { clock() };
        let after = now();
        (
            after - before,
            theirs.wrapping_sub(before + (after - before) / 2) as i64,
        )
    };
    let shift = (0..64).map(reading).min().map_or(0, |(_, shift)| shift);
    if let Some(recorder) = recorder().as_mut() {
        recorder.shift = shift;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityEnable(kind: u32) -> u32 {
    if let Err(code) = planted("cuptiActivityEnable") {
        return code;
    }
    let mut recorder = recorder();
    let Some(recorder) = recorder
        .as_mut()
        .filter(|recorder| recorder.callbacks.is_some())
    else {
        return NOT_INITIALIZED;
    };
    recorder.enabled.insert(kind);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityDisable(kind: u32) -> u32 {
    if let Some(recorder) = recorder().as_mut() {
        recorder.enabled.remove(&kind);
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityEnableDriverApi(function: u32, enable: u8) -> u32 {
    if let Some(recorder) = recorder().as_mut() {
        match enable {
            0 => recorder.functions.remove(&function),
            _ => recorder.functions.insert(function),
        };
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityFlushAll(_: u32) -> u32 {
    if let Err(code) = planted("cuptiActivityFlushAll") {
        return code;
    }
    if let Some(recorder) = recorder().as_mut() {
        recorder.complete();
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut u8,
) -> u32 {
    // SAFETY: `record` is null or what the call before left, and both lie in a buffer of `valid` bytes.
    unsafe {
        let at = match (*record).is_null() {
            true => 0,
            false => {
                let kind = (*record).cast::<u32>().read_unaligned();
                (*record as usize - buffer as usize)
                    + Buffer::length_of(CUDA_12_9, kind).next_multiple_of(8)
            }
        };
        if at + 4 > valid {
            return MAX_LIMIT_REACHED;
        }
        *record = buffer.add(at);
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNumDroppedRecords(
    _: *mut c_void,
    _: u32,
    dropped: *mut usize,
) -> u32 {
    let count = recorder()
        .as_mut()
        .map_or(0, |recorder| std::mem::take(&mut recorder.dropped));
    // SAFETY: C's contract.
    unsafe { *dropped = count };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetResultString(status: u32, text: *mut *const c_char) -> u32 {
    let name = match status {
        0 => c"CUPTI_SUCCESS",
        1 => c"CUPTI_ERROR_INVALID_PARAMETER",
        12 => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
        15 => c"CUPTI_ERROR_NOT_INITIALIZED",
        35 => c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        39 => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
        _ => c"CUPTI_ERROR_UNKNOWN",
    };
    // SAFETY: C's contract.
    unsafe { *text = name.as_ptr() };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetCallbackName(
    domain: u32,
    function: u32,
    text: *mut *const c_char,
) -> u32 {
    let name = (function as usize)
        .checked_sub(1)
        .and_then(|at| FUNCTIONS.get(at))
        .filter(|_| domain == 1);
    let (Some(name), Some(recorder)) = (name, &mut *recorder()) else {
        return INVALID_PARAMETER;
    };
    // SAFETY: C's contract.
    unsafe { *text = recorder.name(name) as *const c_char };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSetThreadIdType(_: u32) -> u32 {
    0
}

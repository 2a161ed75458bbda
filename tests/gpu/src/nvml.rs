//! NVML, as far as the program reads it. GPU-Util is the share of the last second in which a kernel ran, as NVIDIA's
//! documentation has it (its period is between 1/6 s and 1 s, by product).

use crate::clock::now;
use crate::driver::pci_bus_id;
use crate::world::world;
use libc::{c_char, c_int, c_uint};
use std::ffi::CStr;

const INVALID_ARGUMENT: c_int = 2;
const NOT_FOUND: c_int = 6;
const PERIOD_NS: u64 = 1_000_000_000;

#[repr(C)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct Memory {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// What is planted for a call.
fn planted(name: &'static str) -> c_int {
    world().begin(name).err().map_or(0, |code| code as c_int)
}

macro_rules! store {
    ($name:literal, $to:expr, $value:expr) => {{
        let planted = planted($name);
        if planted != 0 {
            return planted;
        }
        if $to.is_null() {
            return INVALID_ARGUMENT;
        }
        // SAFETY: C's contract: a place for one value.
        unsafe { *$to = $value };
        0
    }};
}

fn ordinal(device: usize) -> usize {
    device - 1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlInit_v2() -> c_int {
    planted("nvmlInit_v2")
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlShutdown() -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(text: *mut c_char, length: c_uint) -> c_int {
    copy_text(c"575.57.08", text, length)
}

fn copy_text(from: &CStr, to: *mut c_char, length: c_uint) -> c_int {
    let bytes = from.to_bytes_with_nul();
    if to.is_null() || (length as usize) < bytes.len() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: there is room, as checked.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlErrorString(code: c_int) -> *const c_char {
    match code {
        0 => c"Success",
        2 => c"Invalid Argument",
        6 => c"Not Found",
        15 => c"GPU is lost",
        _ => c"Unknown Error",
    }
    .as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_int {
    store!(
        "nvmlDeviceGetCount_v2",
        count,
        world().settings.devices as c_uint
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    id: *const c_char,
    device: *mut usize,
) -> c_int {
    // SAFETY: C's contract.
    let id = unsafe { CStr::from_ptr(id) }
        .to_string_lossy()
        .to_uppercase();
    let found =
        (0..world().settings.devices).find(|&ordinal| id.ends_with(&pci_bus_id(ordinal)[4..]));
    match found {
        Some(found) => store!("nvmlDeviceGetHandleByPciBusId_v2", device, found + 1),
        None => NOT_FOUND,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    device: usize,
    rates: *mut Utilization,
) -> c_int {
    let end = now();
    let start = end.saturating_sub(PERIOD_NS);
    let spans = world().state().busy_since(ordinal(device), start);
    let busy: u64 = spans
        .iter()
        .map(|&(from, to)| to.min(end).saturating_sub(from.max(start)))
        .sum();
    let gpu = (busy * 100 / PERIOD_NS) as c_uint;
    store!(
        "nvmlDeviceGetUtilizationRates",
        rates,
        Utilization {
            gpu,
            memory: gpu / 2
        }
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: usize, memory: *mut Memory) -> c_int {
    let state = world().state();
    let of_device = &state.devices[ordinal(device)].memory;
    let (total, used) = (of_device.total(), of_device.used());
    drop(state);
    store!(
        "nvmlDeviceGetMemoryInfo_v2",
        memory,
        Memory {
            version: 0x0200_0028,
            total,
            reserved: 0,
            free: total - used,
            used
        }
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(_: usize, _: c_int, mhz: *mut c_uint) -> c_int {
    store!("nvmlDeviceGetClockInfo", mhz, 1980)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(_: usize, milliwatts: *mut c_uint) -> c_int {
    store!("nvmlDeviceGetPowerUsage", milliwatts, 350_000)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    _: usize,
    _: c_int,
    celsius: *mut c_uint,
) -> c_int {
    store!("nvmlDeviceGetTemperature", celsius, 45)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPcieThroughput(
    _: usize,
    counter: c_int,
    kilobytes: *mut c_uint,
) -> c_int {
    std::thread::sleep(std::time::Duration::from_millis(20));
    let since = now().saturating_sub(20_000_000);
    let state = world().state();
    // Counter 0 is what the device sends.
    let copies = if counter == 0 {
        &state.truth.copies_out
    } else {
        &state.truth.copies_in
    };
    let bytes: u64 = copies
        .iter()
        .rev()
        .take_while(|copy| copy.end > since)
        .map(|copy| copy.bytes)
        .sum();
    drop(state);
    store!(
        "nvmlDeviceGetPcieThroughput",
        kilobytes,
        (bytes / 20) as c_uint
    )
}

//! The functions of libcupti that are used, and what it names.
//!
//! May use: `activity`, `cupti` (its errors).

use super::CuptiError;
use super::activity::Api;
use libloading::Library;
use std::ffi::{CStr, c_char, c_void};

pub(super) const DOMAIN_DRIVER: u32 = 1;
pub(super) const DOMAIN_RUNTIME: u32 = 2;
/// No driver has more functions than this; names past the last are refused one by one.
const MOST_FUNCTIONS: u32 = 4096;
/// How the names of functions go on that put work on a device, behind `cu` (the driver's) or `cuda` (the runtime's).
const LAUNCHES: [&str; 4] = ["Launch", "Memcpy", "Memset", "GraphLaunch"];

/// Whether a call of CUDA's function `name` puts work on a device.
pub fn puts_work_on_device(name: &str) -> bool {
    let interfaces = ["cuda", "cu"].iter();
    let mut behind = interfaces.filter_map(|start| name.strip_prefix(start));
    behind.any(|rest| LAUNCHES.iter().any(|launch| rest.starts_with(launch)))
}

pub(super) type Status = u32;
pub(super) type RequestBuffer = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(super) type BufferCompleted = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The functions of libcupti that are used, as `cupti_activity.h` declares them.
#[derive(Copy, Clone)]
pub(super) struct Functions {
    pub(super) register_callbacks: unsafe extern "C" fn(RequestBuffer, BufferCompleted) -> Status,
    pub(super) register_timestamp: unsafe extern "C" fn(unsafe extern "C" fn() -> u64) -> Status,
    pub(super) enable: unsafe extern "C" fn(u32) -> Status,
    pub(super) disable: unsafe extern "C" fn(u32) -> Status,
    pub(super) flush_all: unsafe extern "C" fn(u32) -> Status,
    pub(super) next_record: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Status,
    pub(super) dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Status,
    pub(super) result_string: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    pub(super) callback_name: unsafe extern "C" fn(u32, u32, *mut *const c_char) -> Status,
    pub(super) version: unsafe extern "C" fn(*mut u32) -> Status,
    /// Only in newer libraries.
    pub(super) set_thread_id_type: Option<unsafe extern "C" fn(u32) -> Status>,
    pub(super) enable_driver_api: Option<unsafe extern "C" fn(u32, u8) -> Status>,
}

/// A function of the library, or its name where it has none such.
fn function<T: Copy>(library: &'static Library, name: &'static str) -> Result<T, &'static str> {
    // SAFETY: every caller asks for a function with the type that CUPTI's headers declare.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|_| name)
}

impl Functions {
    pub(super) fn of(library: &'static Library) -> Result<Functions, &'static str> {
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

    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<(), CuptiError> {
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

    /// The numbers of the driver's functions that put work on a device. Of its calls only those are worth a record:
    /// burn's backend asks for events far more often.
    pub(super) fn launches(&self) -> Vec<u32> {
        let launches = |function: &u32| {
            let name = self.name_of(Api::Driver, *function);
            name.is_some_and(|name| puts_work_on_device(&name))
        };
        (1..MOST_FUNCTIONS).filter(launches).collect()
    }

    pub(super) fn name_of(&self, api: Api, function: u32) -> Option<String> {
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

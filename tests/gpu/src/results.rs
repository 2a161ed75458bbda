//! What the driver's results are called and say.

use crate::driver::store;
use crate::world::{INVALID_VALUE, Status};
use libc::c_char;
use std::ffi::CStr;

/// Names of the results that the stand-in gives, and of those that faults may.
fn result_name(status: Status) -> Option<(&'static CStr, &'static CStr)> {
    Some(match status {
        0 => (c"CUDA_SUCCESS", c"no error"),
        1 => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        3 => (c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
        46 => (
            c"CUDA_ERROR_DEVICE_UNAVAILABLE",
            c"CUDA-capable device(s) is/are busy or unavailable",
        ),
        100 => (
            c"CUDA_ERROR_NO_DEVICE",
            c"no CUDA-capable device is detected",
        ),
        101 => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        200 => (
            c"CUDA_ERROR_INVALID_IMAGE",
            c"device kernel image is invalid",
        ),
        201 => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
        209 => (
            c"CUDA_ERROR_NO_BINARY_FOR_GPU",
            c"no kernel image is available for execution on the device",
        ),
        218 => (c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
        222 => (
            c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            c"the provided PTX was compiled with an unsupported toolchain.",
        ),
        400 => (c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
        500 => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
        600 => (c"CUDA_ERROR_NOT_READY", c"device not ready"),
        700 => (
            c"CUDA_ERROR_ILLEGAL_ADDRESS",
            c"an illegal memory access was encountered",
        ),
        701 => (
            c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
            c"too many resources requested for launch",
        ),
        702 => (
            c"CUDA_ERROR_LAUNCH_TIMEOUT",
            c"the launch timed out and was terminated",
        ),
        712 => (
            c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
            c"part or all of the requested memory range is already mapped",
        ),
        713 => (
            c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
            c"pointer does not correspond to a registered memory region",
        ),
        719 => (c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
        999 => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
        _ => return None,
    })
}

/// Stores the name of `status`, or what it says.
fn told(status: Status, is_name: bool, text: *mut *const c_char) -> Status {
    let told = result_name(status).map(|(name, said)| if is_name { name } else { said });
    let (told, code) = told.map_or((std::ptr::null(), INVALID_VALUE), |told| (told.as_ptr(), 0));
    store(text, told).err().unwrap_or(code)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(status: Status, text: *mut *const c_char) -> Status {
    told(status, true, text)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(status: Status, text: *mut *const c_char) -> Status {
    told(status, false, text)
}

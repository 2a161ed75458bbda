//! What is asked of CUDA's driver in more than one place.
//!
//! `unsafe`, as it calls CUDA's driver interface.

use cudarc::driver::{DriverError, result, sys};

/// The context that CubeCL uses on the device `ordinal`, current in this thread. It lives as long as the process.
fn retained(ordinal: usize) -> Result<sys::CUcontext, DriverError> {
    let device = result::device::get(ordinal as i32)?;
    // SAFETY: the device exists; its primary context is CubeCL's too, and stays retained.
    let context = unsafe { result::primary_ctx::retain(device) }?;
    // SAFETY: the context has just been retained.
    unsafe { result::ctx::set_current(context) }?;
    Ok(context)
}

/// The same, with the error in words.
pub(super) fn current(ordinal: usize) -> Result<sys::CUcontext, String> {
    retained(ordinal).map_err(said("cuDevicePrimaryCtxRetain"))
}

/// Makes a context current that [`current`] returned.
pub(super) fn make_current(context: sys::CUcontext) -> Result<(), String> {
    // SAFETY: it stays retained.
    unsafe { result::ctx::set_current(context) }.map_err(said("cuCtxSetCurrent"))
}

/// What the driver says of the context that CubeCL uses on the device `ordinal`, if it is lost: every call fails then,
/// with what lost it.
pub(super) fn lost(ordinal: usize) -> Option<String> {
    let asked = retained(ordinal).and_then(|_| result::mem_get_info());
    asked.err().map(|error| format!("{error:?}"))
}

pub(super) fn said(call: &'static str) -> impl Fn(DriverError) -> String {
    move |error| format!("{call} failed: {error}")
}

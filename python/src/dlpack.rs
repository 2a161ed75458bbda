//! Memory of ours as tensors of others, without a copy: DLPack, the format in which array libraries pass memory on.
//!
//! Invariant: whoever holds the capsule, or the tensor made of it, holds the memory; the last one drops it, in whatever
//! thread, without the interpreter.

use pyo3::ffi;
use pyo3::prelude::*;
use stallscope::pipeline::KeptBuffer;
use std::ffi::{CStr, c_void};
use std::ptr;

/// The name of a capsule whose tensor nobody has taken.
const UNTAKEN: &CStr = c"dltensor";

/// `DLTensor` of DLPack 0.8, which all later ones read.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    /// 1 is the CPU.
    device_type: i32,
    device_id: i32,
    dimensions: i32,
    /// 0 is an integer, 2 a float.
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    /// Null: without gaps, in C's order.
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    delete: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// A tensor with all that it points to.
struct Owned<T> {
    managed: Managed,
    shape: Vec<i64>,
    _memory: T,
}

/// The batch's floats, in this shape.
pub fn floats(py: Python<'_>, mut data: KeptBuffer, shape: Vec<i64>) -> PyResult<Py<PyAny>> {
    let first = data.bytes().as_mut_ptr();
    capsule(py, data, first.cast(), (2, 32), shape)
}

/// 64-bit integers in a row.
pub fn integers(py: Python<'_>, mut values: Vec<i64>) -> PyResult<Py<PyAny>> {
    let (first, shape) = (values.as_mut_ptr(), vec![values.len() as i64]);
    capsule(py, values, first.cast(), (0, 64), shape)
}

/// A capsule of the `memory` whose values, of a kind and size, lie from `first` on; moving `memory` must not move those.
fn capsule<T: Send>(
    py: Python<'_>,
    memory: T,
    first: *mut c_void,
    (code, bits): (u8, u8),
    shape: Vec<i64>,
) -> PyResult<Py<PyAny>> {
    let tensor = Tensor {
        data: first,
        device_type: 1,
        device_id: 0,
        dimensions: shape.len() as i32,
        code,
        bits,
        lanes: 1,
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let owned = Box::into_raw(Box::new(Owned {
        managed: Managed {
            tensor,
            context: ptr::null_mut(),
            delete: Some(delete::<T>),
        },
        shape,
        _memory: memory,
    }));
    // SAFETY: `owned` is a box's own pointer that nobody else has; the capsule gets it, and frees it once.
    unsafe {
        (*owned).managed.context = owned.cast();
        (*owned).managed.tensor.shape = (*owned).shape.as_mut_ptr();
        let managed = &raw mut (*owned).managed;
        let made = ffi::PyCapsule_New(managed.cast(), UNTAKEN.as_ptr(), Some(untaken));
        let made = Bound::from_owned_ptr_or_err(py, made);
        made.map(Bound::unbind)
            .inspect_err(|_| delete::<T>(managed))
    }
}

/// Frees a tensor and its memory.
unsafe extern "C" fn delete<T>(managed: *mut Managed) {
    // SAFETY: whoever holds the tensor calls this once, with the pointer from the capsule; the context is the box it is in.
    unsafe { drop(Box::from_raw((*managed).context.cast::<Owned<T>>())) };
}

/// Frees the tensor of a capsule that nobody took.
unsafe extern "C" fn untaken(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this with a capsule of ours; who took its tensor has renamed it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, UNTAKEN.as_ptr()) == 1 {
            let managed: *mut Managed = ffi::PyCapsule_GetPointer(capsule, UNTAKEN.as_ptr()).cast();
            if let Some(delete) = (*managed).delete {
                delete(managed);
            }
        }
    }
}

//! Types of callables whose calls pass no tuple of arguments (PEP 590), and make no object for a bound method. The only
//! file with `unsafe` for calls.
//!
//! The stable ABI has this from CPython 3.12 on, interpreters from 3.11: it is looked for where the library runs.

use crate::timed::Timed;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::ffi::{CStr, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

/// `Py_TPFLAGS_HAVE_VECTORCALL`; the interpreter has it before the stable ABI does.
const HAVE_VECTORCALL: c_uint = 1 << 11;

/// `PyObject_Vectorcall`.
fn vectorcall() -> Option<ffi::vectorcallfunc> {
    static FOUND: OnceLock<Option<ffi::vectorcallfunc>> = OnceLock::new();
    let find = || {
        let found = symbol(c"PyObject_Vectorcall")?;
        // SAFETY: it has had this signature in every version that exports it.
        Some(unsafe { std::mem::transmute::<*mut c_void, ffi::vectorcallfunc>(found) })
    };
    *FOUND.get_or_init(find)
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// How a [`Timed`] is called.
#[repr(C)]
pub struct Entry {
    /// Read by the interpreter, where the type says where it lies.
    entry: ffi::vectorcallfunc,
    /// `PyObject_Vectorcall`, here since a call reads this memory anyway.
    vectorcall: Option<ffi::vectorcallfunc>,
}

impl Entry {
    pub fn new() -> Entry {
        Entry {
            entry: call_timed,
            vectorcall: vectorcall(),
        }
    }
}

/// Calls what a [`Timed`] wraps.
unsafe extern "C" fn call_timed(
    timed: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this, attached, with an instance of a type that was derived from `Timed`, which lives
    // through the call; the arguments are passed on as they came. Such a type is only made where there is a `vectorcall`.
    unsafe {
        let timed = Borrowed::from_ptr(Python::assume_attached(), timed);
        let timed = timed.cast_unchecked::<Timed>().get();
        match timed.entry.vectorcall {
            Some(call) => timed.time(|wrapped| call(wrapped.as_ptr(), arguments, count, names)),
            None => ptr::null_mut(),
        }
    }
}

/// The type derived from [`Timed`] that is called the fastest, given an `example` of [`Timed`], where its [`Entry`] lies in
/// each; as a class's attribute it is a method, or not. [`Timed`] itself where the interpreter has no such calls.
pub fn derive<'py>(example: &Bound<'py, Timed>, is_method: bool) -> PyResult<Bound<'py, PyType>> {
    let base = example.get_type();
    // The latter passes a tuple on to what wants none.
    let (Some(_), Some(call)) = (vectorcall(), symbol(c"PyVectorcall_Call")) else {
        return Ok(base);
    };
    let entry = &raw const example.get().entry;
    let offset = entry.addr().wrapping_sub(example.as_ptr().addr());
    let mut members = [
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: offset as isize,
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ];
    let slot = |slot, pfunc| ffi::PyType_Slot { slot, pfunc };
    let end = ffi::PyType_Slot::default();
    let mut slots = [
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_call, call),
        end,
        end,
    ];
    let mut flags = ffi::Py_TPFLAGS_DEFAULT as c_uint | HAVE_VECTORCALL;
    if is_method {
        flags |= ffi::Py_TPFLAGS_METHOD_DESCRIPTOR as c_uint;
        // What is such a descriptor must have it itself.
        // SAFETY: the base is a type made at run time, which this may be asked of.
        let get = unsafe { ffi::PyType_GetSlot(base.as_type_ptr(), ffi::Py_tp_descr_get) };
        slots[2] = slot(ffi::Py_tp_descr_get, get);
    }
    let mut spec = ffi::PyType_Spec {
        name: c"stallscope._native.Timed".as_ptr(),
        basicsize: 0,
        itemsize: 0,
        flags,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the name lives on, slots and members are copied and end with empty ones, and the offset is that of a field of
    // the base, whose size the type inherits. One base may stand for a tuple from CPython 3.10 on.
    let made = unsafe {
        let made = ffi::PyType_FromSpecWithBases(&raw mut spec, base.as_ptr());
        Bound::from_owned_ptr_or_err(base.py(), made)?
    };
    // That of what is wrapped, instead of none.
    made.setattr("__doc__", base.getattr("__dict__")?.get_item("__doc__")?)?;
    Ok(made.cast_into::<PyType>()?)
}

//! Types of callables whose calls pass no tuple of arguments (PEP 590), and make no object for a bound method. The only
//! file with `unsafe` for calls.
//!
//! The stable ABI has this from CPython 3.12 on, interpreters from 3.11: it is looked for where the library runs.

use crate::timed::Timed;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};
use std::ffi::{CStr, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

/// `Py_TPFLAGS_HAVE_VECTORCALL`; the interpreter has it before the stable ABI does.
const HAVE_VECTORCALL: c_uint = 1 << 11;

/// `PyVectorcall_Call`.
type Call = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// What the interpreter has for such calls.
struct Interpreter {
    /// `PyObject_Vectorcall`.
    vectorcall: ffi::vectorcallfunc,
    /// `PyVectorcall_Call`, by which a tuple is passed to what wants none.
    call: Call,
}

fn interpreter() -> Option<&'static Interpreter> {
    static FOUND: OnceLock<Option<Interpreter>> = OnceLock::new();
    let find = || {
        // SAFETY: both have had these signatures in every version that exports them.
        unsafe {
            Some(Interpreter {
                vectorcall: std::mem::transmute::<*mut c_void, ffi::vectorcallfunc>(symbol(
                    c"PyObject_Vectorcall",
                )?),
                call: std::mem::transmute::<*mut c_void, Call>(symbol(c"PyVectorcall_Call")?),
            })
        }
    };
    FOUND.get_or_init(find).as_ref()
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// A [`Timed`]'s pointer to what is called, which the interpreter reads.
#[repr(transparent)]
pub struct Entry(Option<ffi::vectorcallfunc>);

impl Entry {
    pub fn new() -> Entry {
        Entry(interpreter().map(|_| call_timed as ffi::vectorcallfunc))
    }
}

/// Calls what a [`Timed`] wraps.
unsafe extern "C" fn call_timed(
    timed: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let Some(interpreter) = interpreter() else {
        return ptr::null_mut();
    };
    // SAFETY: the interpreter calls this, attached, with an instance of a type that was derived from `Timed`, which lives
    // through the call; the arguments are passed on as they came.
    unsafe {
        let timed = Borrowed::from_ptr(Python::assume_attached(), timed);
        let timed = timed.cast_unchecked::<Timed>().get();
        timed.time(|wrapped| (interpreter.vectorcall)(wrapped.as_ptr(), arguments, count, names))
    }
}

/// A type derived from [`Timed`], whose `example` tells where its [`Entry`] lies; as a class's attribute it is a method,
/// or not. `None` where the interpreter has no such calls.
pub fn derive(example: &Bound<'_, Timed>, is_method: bool) -> PyResult<Option<Py<PyType>>> {
    let Some(interpreter) = interpreter() else {
        return Ok(None);
    };
    let (py, base) = (example.py(), example.get_type());
    let entry = &raw const *example.get().entry();
    let member = ffi::PyMemberDef {
        name: c"__vectorcalloffset__".as_ptr(),
        type_code: ffi::Py_T_PYSSIZET,
        offset: entry.addr().wrapping_sub(example.as_ptr().addr()) as isize,
        flags: ffi::Py_READONLY,
        doc: ptr::null(),
    };
    // The type points to them for as long as it lives.
    let members = Box::leak(Box::new([member, ffi::PyMemberDef::default()]));
    let mut slots = [
        ffi::PyType_Slot {
            slot: ffi::Py_tp_members,
            pfunc: members.as_mut_ptr().cast(),
        },
        ffi::PyType_Slot {
            slot: ffi::Py_tp_call,
            pfunc: interpreter.call as *mut c_void,
        },
        ffi::PyType_Slot::default(),
    ];
    let method = if is_method {
        ffi::Py_TPFLAGS_METHOD_DESCRIPTOR
    } else {
        0
    };
    let mut spec = ffi::PyType_Spec {
        name: c"stallscope._native.Timed".as_ptr(),
        basicsize: 0,
        itemsize: 0,
        flags: ffi::Py_TPFLAGS_DEFAULT as c_uint | HAVE_VECTORCALL | method as c_uint,
        slots: slots.as_mut_ptr(),
    };
    let bases = PyTuple::new(py, [&base])?;
    // SAFETY: the spec's texts and members live on, its slots end with an empty one, and the offset is that of a field of
    // the base, whose size the type inherits.
    let made = unsafe {
        let made = ffi::PyType_FromSpecWithBases(&raw mut spec, bases.as_ptr());
        Bound::from_owned_ptr_or_err(py, made)?
    };
    // That of what is wrapped, instead of none.
    made.setattr("__doc__", base.getattr("__dict__")?.get_item("__doc__")?)?;
    Ok(Some(made.cast_into::<PyType>()?.unbind()))
}

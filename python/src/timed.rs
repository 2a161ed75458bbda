//! Callables that take the time of what they call as a part of the sample that is being made.

use crate::desk;
use crate::process;
use crate::vectorcall::{self, Entry};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use stallscope_torch::event::Event;

/// Calls `wrapped`, whose time is the part `name`. It has the attributes of what it wraps, is a method where that is one,
/// and is pickled as the name under which it is found.
#[pyclass(frozen, subclass, weakref, module = "stallscope._native")]
pub struct Timed {
    pub entry: Entry,
    wrapped: Py<PyAny>,
    name: String,
    part: u16,
    /// A part of its user's, which is told outside of samples, too.
    is_stage: bool,
    /// It becomes a method; a class or a built-in function does not.
    binds: bool,
}

/// Opens the part where this thread makes a sample, or tells its stages.
#[inline]
fn open(part: u16, is_stage: bool) -> Option<u32> {
    if !process::is_active() {
        return None;
    }
    desk::with(|desk| (is_stage || desk.collects()).then(|| desk.open(part))).flatten()
}

#[inline]
fn close(part: u16, depth: Option<u32>) {
    let Some(depth) = depth else { return };
    let told = desk::with(|desk| Some((desk.close(depth)?, desk.tid())));
    if let Some((span, tid)) = told.flatten() {
        process::write_as(tid, &Event::Stage { part, span });
    }
}

impl Timed {
    /// Takes the time of `call`, which calls what is wrapped.
    pub fn time<R>(&self, call: impl FnOnce(&Py<PyAny>) -> R) -> R {
        let depth = open(self.part, self.is_stage);
        let result = call(&self.wrapped);
        close(self.part, depth);
        result
    }
}

/// `wrapped`, whose time is the part `name`, as a [`Timed`] of the type that is called the fastest.
#[pyfunction]
#[pyo3(signature = (wrapped, name, is_stage = false))]
pub fn timed<'py>(
    wrapped: Bound<'py, PyAny>,
    name: String,
    is_stage: bool,
) -> PyResult<Bound<'py, PyAny>> {
    static TYPES: [PyOnceLock<Py<PyType>>; 2] = [PyOnceLock::new(), PyOnceLock::new()];
    let (py, binds) = (wrapped.py(), binds(&wrapped)?);
    let of = TYPES[usize::from(binds)].get_or_try_init(py, || {
        let example = Timed::new(wrapped.clone(), name.clone(), is_stage)?;
        vectorcall::derive(&Bound::new(py, example)?, binds).map(Bound::unbind)
    })?;
    of.bind(py).call1((wrapped, name, is_stage))
}

/// Whether `wrapped` becomes a method as a class's attribute; bound methods and static ones do not.
fn binds(wrapped: &Bound<'_, PyAny>) -> PyResult<bool> {
    static STATIC: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let (py, of) = (wrapped.py(), wrapped.get_type());
    let is_static = of.is(STATIC.import(py, "builtins", "staticmethod")?) || of.is(method(py)?);
    Ok(!is_static && of.hasattr("__get__")?)
}

/// `types.MethodType`.
fn method(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static METHOD: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    METHOD.import(py, "types", "MethodType")
}

#[pymethods]
impl Timed {
    #[new]
    #[pyo3(signature = (wrapped, name, is_stage = false))]
    fn new(wrapped: Bound<'_, PyAny>, name: String, is_stage: bool) -> PyResult<Timed> {
        let part = process::part(&name);
        let binds = binds(&wrapped)?;
        Ok(Timed {
            entry: Entry::new(),
            wrapped: wrapped.unbind(),
            name,
            part,
            is_stage,
            binds,
        })
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.time(|wrapped| wrapped.bind(args.py()).call(args, kwargs))
    }

    /// As a function does: bound to the instance it is looked up on.
    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        instance: Option<&Bound<'py, PyAny>>,
        owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _owner = owner;
        match instance {
            Some(instance) if slf.get().binds => method(slf.py())?.call1((slf, instance)),
            _ => Ok(slf.clone().into_any()),
        }
    }

    fn __getattr__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.wrapped.bind(py).getattr(name)
    }

    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.wrapped.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.wrapped.bind(py).repr()?.to_string())
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.wrapped.bind(py).hash()
    }

    /// It is what it wraps, to sets and dictionaries that know that.
    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let wrapped = self.wrapped.bind(py);
        match other.cast::<Timed>() {
            Ok(other) => wrapped.eq(&other.get().wrapped),
            Err(_) => wrapped.eq(other),
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Some(name) = found_as(slf) {
            // What was pickled is found without stallscope, too.
            let resolve = py.import("pkgutil")?.getattr("resolve_name")?;
            return Ok((resolve, (name,)).into_pyobject(py)?.into_any());
        }
        let timed = slf.get();
        let arguments = (timed.wrapped.bind(py), &timed.name, timed.is_stage);
        let make = py.import("stallscope._native")?.getattr("timed")?;
        let call = (make, arguments.into_pyobject(py)?);
        Ok(call.into_pyobject(py)?.into_any())
    }
}

/// The name under which the module of `timed` has it, if it has, as `pkgutil.resolve_name` finds it.
fn found_as(timed: &Bound<'_, Timed>) -> Option<String> {
    let py = timed.py();
    let wrapped = timed.get().wrapped.bind(py);
    let text = |name: &str| wrapped.getattr(name).ok()?.extract::<String>().ok();
    let (module, name) = (text("__module__")?, text("__qualname__")?);
    let modules = py.import("sys").ok()?.getattr("modules").ok()?;
    let mut at = modules.get_item(&module).ok()?;
    for step in name.split('.') {
        at = at.getattr(step).ok()?;
    }
    at.is(timed).then(|| format!("{module}:{name}"))
}

thread_local! {
    /// Parts open through `with`, in the order in which they were opened by this thread.
    static WITH: std::cell::RefCell<Vec<(u16, Option<u32>)>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// A `with` block of the user's part `part` begins.
#[pyfunction]
pub fn enter_stage(part: u16) {
    let depth = open(part, true);
    WITH.with_borrow_mut(|with| with.push((part, depth)));
}

/// It ends; takes what `__exit__` is given.
#[pyfunction]
#[pyo3(signature = (_kind, _error, _traceback, /))]
pub fn leave_stage(
    _kind: &Bound<'_, PyAny>,
    _error: &Bound<'_, PyAny>,
    _traceback: &Bound<'_, PyAny>,
) {
    if let Some((part, depth)) = WITH.with_borrow_mut(|with| with.pop()) {
        close(part, depth);
    }
}

/// Whether this thread makes a sample, or puts samples together.
#[pyfunction]
pub fn collects() -> bool {
    process::is_active() && desk::with(|desk| desk.collects()).unwrap_or(false)
}

/// The number of the part called `name`.
#[pyfunction]
pub fn part(name: &str) -> u16 {
    process::part(name)
}

/// What a part called `name` is called.
#[pyfunction]
pub fn part_name(name: &str) -> String {
    process::part_name(name)
}

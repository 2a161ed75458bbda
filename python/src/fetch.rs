//! How batches are made: what stands for the data set and the collating function in a fetcher, and takes their times.

use crate::desk::{self, Desk};
use crate::process;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use stallscope_torch::clock::{now, thread_cpu};
use stallscope_torch::event::{Batch, Event, Pass, Span};

/// The index of a sample that has none.
const NO_INDEX: u64 = u64::MAX;

/// A sample, or all of a batch, that is being made.
struct Sample {
    begun: u64,
    cpu: u64,
}

fn begin() -> Option<Sample> {
    if !process::is_active() {
        return None;
    }
    desk::with(|desk| {
        let cpu = desk.fetch.as_ref()?.sample_cpu;
        desk.collect();
        Some(Sample { begun: now(), cpu })
    })
    .flatten()
}

fn end(sample: Option<Sample>, index: u64, samples: u32) {
    let Some(sample) = sample else { return };
    desk::with(|desk| {
        let (cpu, until) = (thread_cpu(), now());
        desk.stop_collecting();
        let (tid, mut parts) = (desk.tid(), std::mem::take(&mut desk.parts));
        if let Some(fetch) = &mut desk.fetch {
            let event = Event::Sample {
                batch: fetch.batch,
                place: fetch.place,
                index,
                samples,
                span: Span {
                    start: sample.begun,
                    end: until,
                },
                cpu: cpu.saturating_sub(sample.cpu),
                parts,
            };
            fetch.place += samples;
            fetch.sample_cpu = cpu;
            process::write_as(tid, &event);
            if let Event::Sample { parts: again, .. } = event {
                parts = again;
            } else {
                parts = Vec::new();
            }
        }
        desk.parts = parts;
    });
}

/// Stands for a data set in a fetcher.
#[pyclass(frozen, module = "stallscope._native")]
pub struct Items {
    dataset: Py<PyAny>,
    /// Its `__getitems__` does no more than its `__getitem__`, which tells more.
    hides_getitems: bool,
}

#[pymethods]
impl Items {
    #[new]
    fn new(dataset: Py<PyAny>, hides_getitems: bool) -> Items {
        Items {
            dataset,
            hides_getitems,
        }
    }

    fn __getitem__<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let sample = begin();
        let item = self.dataset.bind(index.py()).get_item(index);
        if sample.is_some() {
            let (first, samples) = match index.extract::<u64>() {
                Ok(number) => (number, 1),
                Err(_) => (NO_INDEX, several(index)),
            };
            end(sample, first, samples);
        }
        item
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.dataset.bind(py).len()
    }

    fn __getattr__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.hides_getitems && name == "__getitems__" {
            return Err(PyAttributeError::new_err("__getitems__"));
        }
        let attribute = self.dataset.bind(py).getattr(name)?;
        // `__getitems__ = None` says that there is none.
        if name == "__getitems__" && attribute.is_callable() {
            let all = All {
                getter: attribute.unbind(),
            };
            return Ok(Bound::new(py, all)?.into_any());
        }
        Ok(attribute)
    }
}

/// How many samples are made for `index`, which is no number.
fn several(index: &Bound<'_, PyAny>) -> u32 {
    match index.cast::<PyList>() {
        Ok(list) => list.len().try_into().unwrap_or(u32::MAX).max(1),
        Err(_) => 1,
    }
}

/// Stands for a data set's `__getitems__`.
#[pyclass(frozen)]
struct All {
    getter: Py<PyAny>,
}

#[pymethods]
impl All {
    fn __call__<'py>(&self, indices: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let sample = begin();
        let items = self.getter.bind(indices.py()).call1((indices,));
        let samples = indices.len().unwrap_or(1);
        end(
            sample,
            NO_INDEX,
            samples.try_into().unwrap_or(u32::MAX).max(1),
        );
        items
    }
}

/// Stands for an iterable data set's iterator in a fetcher.
#[pyclass(frozen, module = "stallscope._native")]
pub struct Stream {
    iterator: Py<PyAny>,
}

#[pymethods]
impl Stream {
    #[new]
    fn new(iterator: Py<PyAny>) -> Stream {
        Stream { iterator }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let sample = begin();
        static NEXT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        // Not `call_method0("__next__")`: the slot is what `next()` calls.
        match NEXT
            .import(py, "builtins", "next")?
            .call1((&self.iterator,))
        {
            Ok(item) => {
                end(sample, NO_INDEX, 1);
                Ok(Some(item))
            }
            Err(error) if error.is_instance_of::<pyo3::exceptions::PyStopIteration>(py) => {
                desk::with(Desk::stop_collecting);
                Ok(None)
            }
            Err(error) => {
                end(sample, NO_INDEX, 1);
                Err(error)
            }
        }
    }

    fn __getattr__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.iterator.bind(py).getattr(name)
    }
}

/// Stands for the collating function in a fetcher.
#[pyclass(frozen, module = "stallscope._native")]
pub struct Collate {
    function: Py<PyAny>,
}

#[pymethods]
impl Collate {
    #[new]
    fn new(function: Py<PyAny>) -> Collate {
        Collate { function }
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let sample = begin();
        let result = self.function.bind(args.py()).call(args, kwargs);
        if let Some(Sample { begun: start, .. }) = sample {
            desk::with(|desk| {
                let end = now();
                desk.stop_collecting();
                let parts = std::mem::take(&mut desk.parts);
                if let Some(fetch) = &mut desk.fetch {
                    fetch.collate = Span { start, end };
                    fetch.parts = parts;
                }
            });
        }
        result
    }

    fn __getattr__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.function.bind(py).getattr(name)
    }
}

/// This thread begins a batch of the pass (`iterator`, `epoch`); it waited for its indices from `since` to `until`.
#[pyfunction]
#[pyo3(signature = (iterator, epoch, number, worker, samples, since, until))]
pub fn begin_batch(
    iterator: u32,
    epoch: u32,
    number: u64,
    worker: u32,
    samples: u32,
    since: u64,
    until: u64,
) {
    if process::is_active() {
        let pass = Pass { iterator, epoch };
        let wait = Span {
            start: since,
            end: until,
        };
        desk::with(|desk| desk.begin(Batch { pass, number }, worker, samples, wait));
    }
}

/// The batch has been handed over, or the data set had `ended` before its first sample; returns when.
#[pyfunction]
pub fn end_batch(ended: bool) -> u64 {
    let end = now();
    desk::with(|desk| {
        let (tid, used) = (desk.tid(), desk.used());
        let Some(fetch) = desk.fetch.take() else {
            return;
        };
        let span = Span {
            start: fetch.wait.end,
            end,
        };
        let event = Event::Fetch {
            batch: fetch.batch,
            worker: fetch.worker,
            samples: fetch.samples.max(fetch.place),
            wait: fetch.wait,
            span,
            collate: fetch.collate,
            used: used.since(fetch.used),
            parts: fetch.parts,
            ended,
        };
        process::write_as(tid, &event);
    });
    end
}

//! What `stallscope.torch.Loader` stands on: the engine, whose batches it gets as capsules of DLPack.

use crate::dlpack;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use stallscope::config::Settings;
use stallscope::pipeline::sampler::Share;
use stallscope::session::HostLoader;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// The place of a batch in its epoch, its pictures and its labels.
type Batch = (u64, Py<PyAny>, Py<PyAny>);

/// A loader of finished batches, and the process whose threads it has.
#[pyclass(frozen, module = "stallscope._native")]
pub struct Engine {
    loader: ManuallyDrop<Mutex<HostLoader>>,
    /// What a signal's handler raised while a batch was waited for.
    raised: Arc<Mutex<Option<PyErr>>>,
    process: u32,
}

#[pymethods]
impl Engine {
    /// Opens the data of the file `pipeline`, if any, with `key=value` texts on top.
    #[new]
    fn new(
        py: Python<'_>,
        pipeline: Option<PathBuf>,
        sets: Vec<String>,
        rank: usize,
        world_size: usize,
    ) -> PyResult<Engine> {
        let raised = Arc::new(Mutex::new(None));
        let signals = raised.clone();
        let give_up = move || match Python::attach(|py| py.check_signals()) {
            Ok(()) => false,
            Err(error) => {
                *locked(&signals) = Some(error);
                true
            }
        };
        let open = || {
            let settings = match pipeline {
                Some(path) => Settings::load(&path, &sets).map_err(|error| error.to_string())?,
                None => Settings::recorded("loader", &[], &sets),
            };
            let config = settings.resolve().map_err(|error| error.to_string())?;
            let share = Share {
                rank,
                of: world_size,
            };
            HostLoader::open(config, settings.typed_keys(), share, give_up)
                .map_err(|error| error.to_string())
        };
        let loader = py.detach(open).map_err(PyValueError::new_err)?;
        Ok(Engine {
            loader: ManuallyDrop::new(Mutex::new(loader)),
            raised,
            process: std::process::id(),
        })
    }

    /// Begins the pass over `epoch` at its batch number `batch`.
    fn begin(&self, py: Python<'_>, epoch: u64, batch: u64) -> PyResult<()> {
        self.with(py, |loader| loader.begin(epoch, batch))?
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// The next batch of the pass; `None` at its end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let (next, shape) = self.with(py, |loader| (loader.next_batch(), loader.shape()))?;
        if let Some(error) = locked(&self.raised).take() {
            return Err(error);
        }
        let next = next.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let Some(batch) = next else { return Ok(None) };
        let shape = std::iter::once(batch.labels.len()).chain(shape);
        let shape = shape.map(|side| side as i64).collect();
        Ok(Some((
            batch.number,
            dlpack::floats(py, batch.data, shape)?,
            dlpack::integers(py, batch.labels)?,
        )))
    }

    /// Stops the threads, and closes the trace.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        match self.process == std::process::id() {
            true => self.with(py, HostLoader::stop),
            // They are another process's.
            false => Ok(()),
        }
    }

    /// The report as JSON; `None` before the first pass.
    fn report(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let report = self.with(py, |loader| {
            let report = loader.report();
            report.map(|report| serde_json::to_string(&report))
        })?;
        let report = report.transpose();
        report.map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// What a position in an epoch depends on: settings, and samples and batches of this process in an epoch.
    fn figures(&self) -> PyResult<Vec<(&'static str, u64)>> {
        let loader = self.loader()?;
        let config = loader.config();
        Ok(vec![
            ("seed", config.seed),
            ("batch_size", config.pipeline.batch.size as u64),
            ("drop_last", config.pipeline.drop_last.into()),
            ("samples", loader.samples() as u64),
            ("classes", loader.classes() as u64),
            ("batches", loader.batches()),
        ])
    }

    /// What a user should know of the data.
    fn warnings(&self) -> PyResult<Vec<String>> {
        Ok(self.loader()?.warnings())
    }
}

impl Engine {
    /// Does `work`, while other threads of the interpreter run.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut HostLoader) -> T + Send,
    ) -> PyResult<T> {
        let mut guard = self.loader()?;
        let loader: &mut HostLoader = &mut guard;
        Ok(py.detach(move || work(loader)))
    }

    fn loader(&self) -> PyResult<MutexGuard<'_, HostLoader>> {
        if self.process != std::process::id() {
            return Err(PyRuntimeError::new_err(format!(
                "this Loader belongs to process {}, from which this one was forked without its threads; make a Loader in each process",
                self.process
            )));
        }
        match self.loader.try_lock() {
            Ok(loader) => Ok(loader),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err(
                "another thread is waiting for a batch of this Loader; make a Loader for each thread",
            )),
        }
    }
}

impl Drop for Engine {
    /// A forked child has none of the threads, and would wait for them for ever.
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.loader) };
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

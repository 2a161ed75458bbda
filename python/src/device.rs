//! What the GPU of this process does: CUPTI's recording of it, and steps that CUDA events tell of.

use crate::{desk, process};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use stallscope_torch::clock::now;
use stallscope_torch::device::cupti_of_process;
use stallscope_torch::event::{Api, DeviceEvent, Event, Kind, Span};
use stallscope_torch::recording::GpuRecording;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static RECORDING: Mutex<Option<GpuRecording>> = Mutex::new(None);
/// Correlations of steps, which count down so as not to meet CUPTI's.
static STEPS: AtomicU32 = AtomicU32::new(u32::MAX);
/// No stream of CUDA's.
const NO_STREAM: u32 = u32::MAX;

fn recording() -> MutexGuard<'static, Option<GpuRecording>> {
    RECORDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts recording what `device` does by CUPTI, which is looked for in the folders `packages`, too, for CUDA's version
/// `cuda`; returns CUPTI's version. Only once CUDA is initialised.
#[pyfunction]
pub fn device_start(
    py: Python<'_>,
    device: u32,
    packages: Vec<PathBuf>,
    cuda: &str,
) -> PyResult<u32> {
    let failed = |error: String| PyRuntimeError::new_err(error);
    let rings = process::rings().ok_or_else(|| failed("nothing is recorded".to_owned()))?;
    let path =
        cupti_of_process(&packages, cuda).map_err(|missing| failed(missing.in_one_line()))?;
    let started = py.detach(|| GpuRecording::start(&path, device, &rings));
    let started = started.map_err(|error| failed(error.to_string()))?;
    let version = started.version();
    *recording() = Some(started);
    Ok(version)
}

/// Whether CUPTI records in this process.
#[pyfunction]
pub fn device_records() -> bool {
    recording().is_some()
}

/// Ends CUPTI's recording; then others may use it.
#[pyfunction]
pub fn device_finish(py: Python<'_>) {
    let ended = recording().take();
    if let Some(ended) = ended {
        py.detach(|| ended.finish());
    }
}

/// A stream worked on a step from `when` on, whose work was launched from `launched` on.
#[pyfunction]
pub fn device_step(when: (u64, u64), launched: u64) {
    let correlation = STEPS.fetch_sub(1, Ordering::Relaxed);
    let (start, end) = when;
    let thread = desk::with(desk::Desk::tid).unwrap_or(0);
    let events = [
        DeviceEvent::Call {
            api: Api::Runtime,
            function: u32::MAX,
            thread,
            correlation,
            span: Span {
                start: launched,
                end: launched,
            },
        },
        DeviceEvent::Work {
            kind: Kind::Timed,
            about: 0,
            stream: NO_STREAM,
            correlation,
            span: Span { start, end },
            other: None,
        },
        DeviceEvent::Told {
            at: now(),
            read: 0,
            lost: 0,
        },
    ];
    for event in events {
        process::write(&Event::Device(event));
    }
}

/// In a child, after a fork: the recording is the parent's, whose thread the child does not have.
pub fn forked() {
    std::mem::forget(recording().take());
}

//! What the hooks in the main process say, one function for each event; what is in a tuple is a pass or a span.

use crate::desk::{self, Desk};
use crate::device::{self, device_finish};
use crate::process;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stallscope_torch::clock;
use stallscope_torch::event::{Batch, Compute, Event, Main, Pass, Span, TextKind, Used};
use std::path::PathBuf;

type Two = (u32, u32);
type FromTo = (u64, u64);
type Two64 = (u64, u64);

fn pass((iterator, epoch): Two) -> Pass {
    Pass { iterator, epoch }
}

fn batch(of: Two, number: u64) -> Batch {
    let pass = pass(of);
    Batch { pass, number }
}

fn span((start, end): FromTo) -> Span {
    Span { start, end }
}

/// Nanoseconds of CLOCK_MONOTONIC.
#[pyfunction]
pub fn now() -> u64 {
    clock::now()
}

/// CPU time of this thread, in nanoseconds.
#[pyfunction]
pub fn thread_cpu() -> u64 {
    clock::thread_cpu()
}

/// CPU time and run delay of this thread, in nanoseconds.
#[pyfunction]
pub fn used() -> Two64 {
    let used = desk::with(Desk::used).unwrap_or_default();
    (used.cpu, used.delay)
}

fn used_since((cpu, delay): Two64) -> Used {
    let used = desk::with(Desk::used).unwrap_or_default();
    used.since(Used { cpu, delay })
}

fn used_by_process() -> Used {
    desk::with(Desk::used_by_process).unwrap_or_default()
}

/// Makes the memory that events go through; returns its descriptor.
#[pyfunction]
pub fn create_rings() -> PyResult<i32> {
    Ok(process::create()?)
}

/// Opens another process's.
#[pyfunction]
pub fn open_rings(path: PathBuf) -> PyResult<()> {
    Ok(process::open(&path)?)
}

/// The descriptor of the memory that this process has; `None` where it has none.
#[pyfunction]
pub fn rings_fd() -> Option<i32> {
    process::rings().map(|rings| rings.fd())
}

/// Begins to record; false where there is no memory, or too many processes record already.
#[pyfunction]
pub fn start() -> bool {
    process::start()
}

/// Whether this process records.
#[pyfunction]
pub fn is_active() -> bool {
    process::is_active()
}

/// Records no more, until it is started again.
#[pyfunction]
pub fn stop() {
    process::stop();
}

/// Tells the collector that all is said.
#[pyfunction]
pub fn finish(py: Python<'_>) {
    device_finish(py);
    process::finish();
}

/// To be called in a child, after a fork.
#[pyfunction]
pub fn forked() {
    device::forked();
    process::forked();
}

/// Writes a text: `session`, `loader`, `problem`, `failed`, `timeline` or `profiler`.
#[pyfunction]
pub fn text(kind: &str, subject: u32, text: &str) -> PyResult<()> {
    let kind = match kind {
        "session" => TextKind::Session,
        "loader" => TextKind::Loader,
        "problem" => TextKind::Problem,
        "failed" => TextKind::Failed,
        "timeline" => TextKind::Timeline,
        "profiler" => TextKind::Profiler,
        _ => return Err(PyValueError::new_err("no such kind of text")),
    };
    process::write_text(kind, subject, text);
    Ok(())
}

/// An iteration begins.
#[pyfunction]
pub fn pass_begins(of: Two, grad: bool, at: u64) {
    let pass = pass(of);
    process::write(&Event::PassBegins { pass, grad, at });
}

/// An iteration is over.
#[pyfunction]
pub fn pass_ends(of: Two, early: bool, at: u64) {
    let pass = pass(of);
    process::write(&Event::PassEnds { pass, early, at });
}

/// A batch's indices were drawn, and put into a worker's queue.
#[pyfunction]
pub fn dispatch(
    of: Two,
    number: u64,
    worker: u32,
    samples: u32,
    sampler: FromTo,
    cpu: u64,
    put: u64,
) {
    process::write(&Event::Dispatch {
        batch: batch(of, number),
        worker,
        samples,
        sampler: span(sampler),
        cpu,
        put,
    });
}

/// `next()` is being called.
#[pyfunction]
pub fn next_begins(of: Two) {
    let (pass, used) = (pass(of), used_by_process());
    // Asking for what was used is no part of the wait.
    let at = clock::now();
    process::write(&Event::NextBegins { pass, at, used });
}

/// `next()` returned.
#[pyfunction]
pub fn next_ends(of: Two, number: u64, is_some: bool, grad: bool, samples: u32, at: u64) {
    process::write(&Event::NextEnds {
        batch: batch(of, number),
        is_some,
        grad,
        samples,
        at,
        used: used_by_process(),
    });
}

/// A batch was received.
#[pyfunction]
pub fn receive(
    of: Two,
    number: u64,
    worker: u32,
    parked: bool,
    waited_from: u64,
    work: FromTo,
    bytes: u64,
) {
    process::write(&Event::Receive {
        batch: batch(of, number),
        worker,
        parked,
        waited_from,
        work: span(work),
        bytes,
    });
}

/// The device computed: `forward`, `inference`, `backward` or `optimizer`.
#[pyfunction]
pub fn compute(phase: &str, when: FromTo) -> PyResult<()> {
    let phase = match phase {
        "forward" => Compute::Forward,
        "inference" => Compute::Inference,
        "backward" => Compute::Backward,
        "optimizer" => Compute::Optimizer,
        _ => return Err(PyValueError::new_err("no such phase")),
    };
    let span = span(when);
    process::write(&Event::Compute { phase, span });
    Ok(())
}

/// The script's thread did something: `start_workers`, `stop_workers`, `copy`, `iter` or `synchronize`; it had `used` so
/// much before, where that was looked at.
#[pyfunction]
#[pyo3(signature = (work, of, subject, when, used = None))]
pub fn main_work(
    work: &str,
    of: Two,
    subject: u32,
    when: FromTo,
    used: Option<Two64>,
) -> PyResult<()> {
    let work = match work {
        "start_workers" => Main::StartWorkers,
        "stop_workers" => Main::StopWorkers,
        "copy" => Main::Copy,
        "iter" => Main::Iter,
        "synchronize" => Main::Synchronize,
        _ => return Err(PyValueError::new_err("no such work")),
    };
    process::write(&Event::Main {
        work,
        pass: pass(of),
        subject,
        span: span(when),
        used: used.map_or_else(Used::default, used_since),
    });
    Ok(())
}

/// A worker has begun.
#[pyfunction]
pub fn worker_begins(of: Two, worker: u32, when: FromTo) {
    process::write(&Event::WorkerBegins {
        pass: pass(of),
        worker,
        span: span(when),
        used: used_by_process(),
    });
}

/// A worker ends.
#[pyfunction]
pub fn worker_ends(of: Two, worker: u32, at: u64) {
    let pass = pass(of);
    process::write(&Event::WorkerEnds { pass, worker, at });
}

/// A batch was pickled to so many bytes, with so many of tensors in shared memory, and sent by this thread, which had `used` so much before.
#[pyfunction]
pub fn transport(
    of: Two,
    number: u64,
    worker: u32,
    pickle: FromTo,
    sent: u64,
    bytes: Two64,
    used: Two64,
) {
    let (bytes, shared) = bytes;
    process::write(&Event::Transport {
        batch: batch(of, number),
        worker,
        pickle: span(pickle),
        sent,
        bytes,
        shared,
        used: used_since(used),
    });
}

/// A batch was received, pinned and handed on.
#[pyfunction]
pub fn pin(of: Two, number: u64, receive: FromTo, pinned: FromTo, used: Two64) {
    process::write(&Event::Pin {
        batch: batch(of, number),
        receive: span(receive),
        pin: span(pinned),
        used: used_since(used),
    });
}

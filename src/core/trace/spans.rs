//! Spans of `tracing`, which anybody's code may open, in our trace file.
//!
//! tracing-chrome collects them and prints into a [`SpanStream`], which writes them where they belong. What is recorded
//! carries the run's own time and the lane and batch that its thread works on. It must not carry per-sample records: a
//! span costs 1-3 us and its channel is unbounded.
//!
//! Invariants:
//! - a process has one tracing-chrome layer, built once (its threads remember the first one they met); traces attach
//!   to it one after another, and while none is attached it records nothing;
//! - spans and events of a run's threads are recorded in the steps that are traced, and only down to `INFO`; past
//!   [`MOST_SPANS`] they are refused where they are created, so the channel is bounded too;
//! - nothing here stops a run: errors say what is lost and the run goes on without spans.
//!
//! May use: `timeline`.

use super::SharedTrace;
use super::span_stream::{SpanLanes, SpanStream};
use crate::timeline::{Clock, Nanos, Recorder};
use std::io::sink;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tracing::{Metadata, Subscriber};
use tracing_chrome::{ChromeLayerBuilder, EventOrSpan, FlushGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{DynFilterFn, LevelFilter};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// How long a closing trace waits for tracing-chrome's thread to print its backlog.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Spans and events of a trace at most; the rest is counted as left out.
const MOST_SPANS: u64 = 50_000;

/// The finest level that is recorded.
const FINEST: LevelFilter = LevelFilter::INFO;

/// Why spans are not recorded; the trace goes on without them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostSpansError {
    /// Another trace of the process is recording them.
    #[error(
        "host spans are not recorded: another trace of this process is recording them; finish that one first"
    )]
    Busy,
    /// The process has a tracing subscriber of its own, without the layer.
    #[error(
        "host spans are not recorded: this process has its own tracing subscriber; add trace::layer() to it"
    )]
    SubscriberTaken,
}

/// The one tracing-chrome layer of the process.
static CHROME: Mutex<Option<FlushGuard>> = Mutex::new(None);

/// The run whose trace gets spans.
static RUN: RwLock<Option<Run>> = RwLock::new(None);

fn chrome() -> MutexGuard<'static, Option<FlushGuard>> {
    CHROME.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Run {
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    /// Those that are traced.
    steps: Range<u64>,
    /// Spans and events that may still come.
    room: AtomicU64,
    refused: AtomicU64,
    refused_since: OnceLock<Nanos>,
}

fn with_run<T>(read: impl FnOnce(&Run) -> T) -> Option<T> {
    let run = RUN.read().unwrap_or_else(PoisonError::into_inner);
    run.as_ref().map(read)
}

impl Run {
    /// Whether a span that the calling thread creates is recorded; takes its place.
    fn admits(&self) -> bool {
        let traced = |batch: Option<u64>| batch.is_some_and(|batch| self.steps.contains(&batch));
        if self.recorder.here().is_some_and(|here| !traced(here.batch)) {
            return false;
        }
        let room = |room: u64| room.checked_sub(1);
        let order = Ordering::Relaxed;
        let taken = self.room.fetch_update(order, order, room).is_ok();
        if !taken {
            self.refused.fetch_add(1, order);
            self.refused_since.get_or_init(|| self.clock.now());
        }
        taken
    }
}

/// What a [`SpanStream`] is told of an event in place of its category: where its thread is, the time, the target, and the
/// number of the span.
fn category<S>(item: &EventOrSpan<'_, '_, S>) -> String
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let (target, number) = match item {
        EventOrSpan::Event(event) => (event.metadata().target(), 0),
        EventOrSpan::Span(span) => (span.metadata().target(), span.id().into_u64()),
    };
    let mark = with_run(|run| {
        let mark = (run.recorder.here(), run.clock.now(), target, number);
        serde_json::to_string(&mark).ok()
    });
    mark.flatten().unwrap_or_default()
}

/// For a subscriber of your own: brings its spans into the traces of runs, each to the lane of the thread that opened it.
/// To be called once in a process. Without a trace it records nothing.
///
/// ```
/// use tracing_subscriber::layer::{Context, SubscriberExt};
///
/// let subscriber = tracing_subscriber::registry().with(stallscope_core::trace::layer());
/// tracing::subscriber::set_global_default(subscriber)?;
/// # Ok::<(), tracing::subscriber::SetGlobalDefaultError>(())
/// ```
pub fn layer<S>() -> impl Layer<S> + Send + Sync + 'static
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let (layer, guard) = ChromeLayerBuilder::<S>::new()
        .writer(sink())
        .include_args(true)
        .include_locations(false)
        .category_fn(Box::new(category))
        .build();
    *chrome() = Some(guard);
    // Never `always`: each creation has to be admitted.
    let admits = |metadata: &Metadata<'_>, _: &Context<'_, S>| {
        *metadata.level() <= FINEST && with_run(Run::admits).unwrap_or_default()
    };
    layer.with_filter(DynFilterFn::new(admits).with_max_level_hint(FINEST))
}

/// Makes a subscriber with nothing but the [`layer`] that of the process, unless there is one with it.
///
/// # Errors
/// Somebody else's subscriber is in the way.
pub fn install_layer() -> Result<(), HostSpansError> {
    if chrome().is_some() {
        return Ok(());
    }
    if tracing::dispatcher::has_been_set() {
        return Err(HostSpansError::SubscriberTaken);
    }
    let subscriber = tracing_subscriber::registry().with(layer());
    tracing::subscriber::set_global_default(subscriber).map_err(|_| HostSpansError::SubscriberTaken)
}

/// Spans are recorded while this lives. Let it go before the trace is finished.
pub struct HostSpans {
    trace: SharedTrace,
    finished: Receiver<()>,
}

impl HostSpans {
    /// Records spans of the whole process into `trace`, those of the recorder's threads in the batches `steps`.
    ///
    /// # Errors
    /// Somebody else's trace is in the way, or there is no [`layer`].
    pub fn record(
        trace: SharedTrace,
        recorder: Recorder,
        clock: Arc<dyn Clock>,
        steps: Range<u64>,
    ) -> Result<HostSpans, HostSpansError> {
        HostSpans::attach(trace, recorder, clock, steps, MOST_SPANS)
    }

    fn attach(
        trace: SharedTrace,
        recorder: Recorder,
        clock: Arc<dyn Clock>,
        steps: Range<u64>,
        most: u64,
    ) -> Result<HostSpans, HostSpansError> {
        let chrome = chrome();
        let chrome = chrome.as_ref().ok_or(HostSpansError::SubscriberTaken)?;
        let mut run = RUN.write().unwrap_or_else(PoisonError::into_inner);
        if run.is_some() {
            return Err(HostSpansError::Busy);
        }
        let (done, finished) = channel();
        let lanes = SpanLanes::new(trace.clone(), recorder.clone());
        let stream = SpanStream::new(lanes, clock.clone(), done);
        chrome.start_new(Some(Box::new(stream)));
        *run = Some(Run {
            recorder,
            clock,
            steps,
            room: AtomicU64::new(most),
            refused: AtomicU64::default(),
            refused_since: OnceLock::new(),
        });
        Ok(HostSpans { trace, finished })
    }
}

impl Drop for HostSpans {
    /// Stops recording, waits until everything recorded is in the trace, and closes spans still open.
    fn drop(&mut self) {
        let run = RUN.write().unwrap_or_else(PoisonError::into_inner).take();
        let drained = chrome().as_ref().is_none_or(|chrome| {
            chrome.start_new(Some(Box::new(sink())));
            self.finished.recv_timeout(DRAIN_LIMIT).is_ok()
        });
        let Some(run) = run else { return };
        self.trace.with(|trace| {
            if let Some(since) = run.refused_since.get() {
                trace.leave_out(*since, run.refused.load(Ordering::Relaxed));
            }
            if !drained {
                // How many are stuck is unknown; that some are is not.
                trace.leave_out(run.clock.now(), 1);
            }
        });
    }
}

#[cfg(test)]
mod tests;

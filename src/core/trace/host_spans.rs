//! Coarse spans of `tracing` (phases, epochs, steps, burn's own, a user's own code) in our trace file.
//!
//! tracing-chrome collects them and prints into a `HostStream`, which writes them as lanes of
//! one process. It must not carry per-sample records: a span costs 1-3 us and its channel is unbounded.
//!
//! Invariants:
//! - a process has one tracing-chrome layer, built once (its threads remember the first one they met); traces attach
//!   to it one after another, and while none is attached it records nothing;
//! - only spans and events down to `INFO` are recorded, and past [`MOST_SPANS`] they are refused where they are
//!   created, so the channel is bounded too;
//! - nothing here stops a run: errors say what is lost and the run goes on without host spans.
//!
//! May use: `timeline`.

use super::SharedTrace;
use super::host_gate::{self, CoarseFilter};
use super::host_lanes::{ClockShift, HostLanes};
use super::host_stream::{HostStream, TraceClock};
use crate::timeline::Nanos;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing_chrome::{ChromeLayerBuilder, FlushGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

/// How long a closing trace waits for tracing-chrome's thread to print its backlog.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Spans and events of a trace at most; the rest is counted as left out.
const MOST_SPANS: u64 = 50_000;

/// Why host spans are not recorded; the trace goes on without them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostSpansError {
    /// Another trace of the process is recording them.
    #[error(
        "host spans are not recorded: another trace of this process is recording them; finish that one first"
    )]
    Busy,
    /// The process has a tracing subscriber of its own.
    #[error("host spans are not recorded: this process has its own tracing subscriber")]
    SubscriberTaken,
}

/// The one tracing-chrome layer of the process, and its zero of time.
struct ChromeThread {
    guard: FlushGuard,
    epoch: Instant,
    attached: bool,
}

static CHROME: Mutex<Option<ChromeThread>> = Mutex::new(None);

fn chrome() -> MutexGuard<'static, Option<ChromeThread>> {
    CHROME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The layer; once a process. It records while a trace is attached.
fn layer<S>() -> impl Layer<S> + Send + Sync + 'static
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let (layer, guard) = ChromeLayerBuilder::<S>::new()
        .writer(std::io::sink())
        .include_args(true)
        .include_locations(false)
        .build();
    // The layer reads its zero as the last thing in `build`, after it started its thread: of two readings around
    // the call the second is the near one (under 1 us away, where the middle of both is tens of us off).
    let epoch = Instant::now();
    *chrome() = Some(ChromeThread {
        guard,
        epoch,
        attached: false,
    });
    layer.with_filter(CoarseFilter)
}

/// Host spans are recorded while this lives. Let it go before the trace is finished.
pub struct HostSpans {
    trace: SharedTrace,
    clock: TraceClock,
    finished: Receiver<()>,
}

impl HostSpans {
    /// Records coarse spans of the whole process into `trace`, as process `pid` (one of their own). Sets the process's
    /// subscriber on the first call.
    ///
    /// # Errors
    /// Somebody else's trace or subscriber is in the way.
    pub fn record(
        trace: SharedTrace,
        pid: u32,
        clock: TraceClock,
    ) -> Result<HostSpans, HostSpansError> {
        if chrome().is_none() {
            if tracing::dispatcher::has_been_set() {
                return Err(HostSpansError::SubscriberTaken);
            }
            let subscriber = tracing_subscriber::registry().with(layer());
            tracing::subscriber::set_global_default(subscriber)
                .map_err(|_| HostSpansError::SubscriberTaken)?;
        }
        HostSpans::attach(trace, pid, clock, MOST_SPANS)
    }

    fn attach(
        trace: SharedTrace,
        pid: u32,
        clock: TraceClock,
        most: u64,
    ) -> Result<HostSpans, HostSpansError> {
        let mut chrome = chrome();
        let chrome = chrome.as_mut().ok_or(HostSpansError::SubscriberTaken)?;
        if std::mem::replace(&mut chrome.attached, true) {
            return Err(HostSpansError::Busy);
        }
        let shift = clock_shift(&clock, chrome.epoch);
        trace
            .with(|trace| trace.process(pid, "host spans", i32::try_from(pid).unwrap_or(i32::MAX)));
        let lanes = HostLanes::new(trace.clone(), pid, shift);
        let (done, finished) = channel();
        let stream = HostStream::new(lanes, clock.clone(), done);
        chrome.guard.start_new(Some(Box::new(stream)));
        host_gate::open(most);
        Ok(HostSpans {
            trace,
            clock,
            finished,
        })
    }
}

/// Where tracing-chrome's zero lies on the run's clock.
fn clock_shift(clock: &TraceClock, epoch: Instant) -> ClockShift {
    let before = clock();
    let since_epoch = epoch.elapsed();
    let after = clock();
    let now_ns = before.0 + after.0.saturating_sub(before.0) / 2;
    let whole_ns = |value: u128| i64::try_from(value).unwrap_or(i64::MAX);
    ClockShift {
        epoch_ns: whole_ns(u128::from(now_ns)) - whole_ns(since_epoch.as_nanos()),
    }
}

impl Drop for HostSpans {
    /// Stops recording, waits until everything recorded is in the trace, and closes spans still open.
    fn drop(&mut self) {
        let refused_spans = host_gate::close();
        let mut chrome = chrome();
        let Some(chrome) = chrome.as_mut() else {
            return;
        };
        chrome.guard.start_new(Some(Box::new(std::io::sink())));
        let drained = self.finished.recv_timeout(DRAIN_LIMIT).is_ok();
        chrome.attached = false;
        let now = (self.clock)();
        self.trace.with(|trace| {
            if let Some((age, spans)) = refused_spans {
                let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
                trace.leave_out(Nanos(now.0.saturating_sub(age_ns)), spans);
            }
            if !drained {
                // How many are stuck is unknown; that some are is not.
                trace.leave_out(now, 1);
            }
        });
    }
}

#[cfg(test)]
mod tests;

//! Decides, where a span is created, whether tracing-chrome gets to see it.
//!
//! Invariants: closed, it refuses everything; open, it admits as many spans and events as there is room for, down to
//! [`FINEST`], and counts the rest. One gate a process, as there is one layer. May use: nothing else of the crate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::Metadata;
use tracing::subscriber::Interest;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Filter};

/// The finest level that is recorded.
const FINEST: LevelFilter = LevelFilter::INFO;

static OPEN: AtomicBool = AtomicBool::new(false);
/// Spans and events that may still come.
static ROOM: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static REFUSED_SINCE: Mutex<Option<Instant>> = Mutex::new(None);

fn refused_since() -> std::sync::MutexGuard<'static, Option<Instant>> {
    REFUSED_SINCE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Admits up to `room` spans and events.
pub(super) fn open(room: u64) {
    ROOM.store(room, Ordering::Relaxed);
    REFUSED.store(0, Ordering::Relaxed);
    *refused_since() = None;
    OPEN.store(true, Ordering::Release);
}

/// Refuses everything from now on; how long ago there was no more room and how many it refused, where that was so.
pub(super) fn close() -> Option<(Duration, u64)> {
    OPEN.store(false, Ordering::Release);
    let since = refused_since().take()?;
    Some((since.elapsed(), REFUSED.load(Ordering::Relaxed)))
}

/// Takes one place; counts a refusal where none is left.
fn take_place() -> bool {
    let taken = ROOM.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| {
        room.checked_sub(1)
    });
    if taken.is_err() && REFUSED.fetch_add(1, Ordering::Relaxed) == 0 {
        refused_since().get_or_insert_with(Instant::now);
    }
    taken.is_ok()
}

/// The filter of the one layer.
pub(super) struct CoarseFilter;

impl<S> Filter<S> for CoarseFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _context: &Context<'_, S>) -> bool {
        *metadata.level() <= FINEST && OPEN.load(Ordering::Acquire) && take_place()
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Never `always`: each creation has to pass the gate.
        match *metadata.level() <= FINEST {
            true => Interest::sometimes(),
            false => Interest::never(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(FINEST)
    }
}

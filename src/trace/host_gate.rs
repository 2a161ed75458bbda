//! Decides, where a span is created, whether tracing-chrome gets to see it.
//!
//! Invariants: closed, it refuses everything; open, it admits at most `max_spans` spans and events of the levels asked
//! for and counts the rest. One gate a process, as there is one layer. May use: nothing else of the crate.

use super::HostSpansOptions;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tracing::Metadata;
use tracing::subscriber::Interest;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Filter};

/// What the attached trace admits; `None` while none is attached.
static ADMITTED: RwLock<Option<Targets>> = RwLock::new(None);
/// Spans and events that may still come.
static ROOM: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static REFUSED_SINCE: Mutex<Option<Instant>> = Mutex::new(None);

/// Admits what the options name.
pub(super) fn open(options: &HostSpansOptions) {
    let targets = Targets::new()
        .with_default(options.max_level)
        .with_targets(options.targets.iter().cloned());
    ROOM.store(options.max_spans, Ordering::Relaxed);
    REFUSED.store(0, Ordering::Relaxed);
    *REFUSED_SINCE.lock().unwrap_or_else(PoisonError::into_inner) = None;
    *ADMITTED.write().unwrap_or_else(PoisonError::into_inner) = Some(targets);
    tracing::callsite::rebuild_interest_cache();
}

/// Refuses everything from now on; how long ago the cap was reached and how many it refused, where it was.
pub(super) fn close() -> Option<(Duration, u64)> {
    *ADMITTED.write().unwrap_or_else(PoisonError::into_inner) = None;
    tracing::callsite::rebuild_interest_cache();
    let since = REFUSED_SINCE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()?;
    Some((since.elapsed(), REFUSED.load(Ordering::Relaxed)))
}

fn admits(metadata: &Metadata<'_>) -> bool {
    let admitted = ADMITTED.read().unwrap_or_else(PoisonError::into_inner);
    admitted
        .as_ref()
        .is_some_and(|targets| targets.would_enable(metadata.target(), metadata.level()))
}

/// Takes one place; counts a refusal where none is left.
fn take_place() -> bool {
    let taken = ROOM.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| {
        room.checked_sub(1)
    });
    if taken.is_err() && REFUSED.fetch_add(1, Ordering::Relaxed) == 0 {
        let mut since = REFUSED_SINCE.lock().unwrap_or_else(PoisonError::into_inner);
        since.get_or_insert_with(Instant::now);
    }
    taken.is_ok()
}

/// The filter of the one layer.
pub(super) struct CoarseFilter;

impl<S> Filter<S> for CoarseFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _context: &Context<'_, S>) -> bool {
        admits(metadata) && take_place()
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        // Never `always`: each creation has to pass the cap. Reopening the gate asks again.
        if admits(metadata) {
            Interest::sometimes()
        } else {
            Interest::never()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let admitted = ADMITTED.read().unwrap_or_else(PoisonError::into_inner);
        Some(match admitted.as_ref() {
            Some(targets) => targets
                .iter()
                .map(|(_, level)| level)
                .chain(targets.default_level())
                .max()
                .unwrap_or(LevelFilter::OFF),
            None => LevelFilter::OFF,
        })
    }
}

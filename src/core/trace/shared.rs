//! `SharedTrace`: one trace file that several threads write into.
//!
//! Invariants: a thread that panicked while it held the trace does not keep the others out; after `finish` every
//! later write is a silent no-op, so no one has to be told that the trace is over. May use: nothing else.

use super::{TraceSummary, TraceWriter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A handle on a trace; clones are the same trace.
#[derive(Clone)]
pub struct SharedTrace(Arc<Mutex<Option<TraceWriter>>>);

impl SharedTrace {
    /// The first handle on the trace that `writer` writes.
    pub fn new(writer: TraceWriter) -> SharedTrace {
        SharedTrace(Arc::new(Mutex::new(Some(writer))))
    }

    /// Writes under the lock; `None` where the trace is finished. Write many events in one call where there are many.
    pub fn with<R>(&self, write: impl FnOnce(&mut TraceWriter) -> R) -> Option<R> {
        self.lock().as_mut().map(write)
    }

    /// Finishes the trace for all its holders; `None` where one of them already did.
    pub fn finish(&self) -> Option<TraceSummary> {
        // Taken out first: compressing a large trace must not hold up a thread that still wants to write.
        let writer = self.lock().take();
        writer.map(TraceWriter::finish)
    }

    fn lock(&self) -> MutexGuard<'_, Option<TraceWriter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What threads do, for another profiler that watches them as they do it.

use super::Stage;

/// Shows a range for each unit of work on the thread that does it. Called around every unit, so that it has to be
/// quick.
pub trait Ranges: Send + Sync {
    /// The calling thread begins `stage` of `batch`.
    fn begin(&self, stage: Stage, batch: u64);

    /// It ends what it began last.
    fn end(&self);
}

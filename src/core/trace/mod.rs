//! The trace file: Chrome JSON that Perfetto opens, written while the run goes on.
//!
//! [`TraceWriter`] writes our own lanes (workers, trainer, device, counters, batch flows), [`HostSpans`] brings
//! coarse `tracing` spans into the same file. May use: `timeline`. Knows nothing of pipelines, devices or reports.

mod compress;
mod error;
mod event_file;
mod fields;
mod host_gate;
mod host_lanes;
mod host_spans;
mod host_stream;
mod shared;
#[cfg(test)]
#[path = "../../../tests/trace_files/mod.rs"]
pub(crate) mod test_files;
mod text;
mod writer;

pub use error::TraceError;
pub use fields::{Arg, Number};
pub use host_spans::{HostSpans, HostSpansError};
pub use host_stream::TraceClock;
pub use shared::SharedTrace;
pub use writer::{FlowPoint, TraceOptions, TraceSummary, TraceWriter};

//! The trace file: Chrome JSON that Perfetto opens, written while the run goes on.
//!
//! [`TraceWriter`] writes our own lanes (workers, trainer, device, counters, batch flows), [`HostSpans`] brings
//! `tracing` spans of anybody's code into the same file, and [`merge()`] puts the traces of several processes together. May use: `timeline`. Knows nothing of pipelines, devices or reports.

mod compress;
mod error;
mod event_file;
mod fields;
mod lanes;
mod merge;
mod shared;
mod span_stream;
mod spans;
#[cfg(test)]
#[path = "../../../tests/trace_files/mod.rs"]
pub(crate) mod test_files;
mod text;
mod writer;

pub use compress::unpacked;
pub use error::TraceError;
pub use fields::{Arg, Number};
pub use lanes::{GPU, HOST, LOADER, PROFILER, TRAINER, foreign, place};
pub use merge::{TracePart, merge};
pub use shared::SharedTrace;
pub use spans::{HostSpans, HostSpansError, install_layer, layer};
pub use writer::{FlowPoint, TraceOptions, TraceSummary, TraceWriter};

//! The report of a run: one model, written as JSON, printed to the terminal and shown as a page.
//!
//! Invariant: the JSON holds everything the terminal shows; its schema has a version. May use
//! `analysis`, `pipeline`, `text` and `timeline`.

mod json;
mod model;
mod nvml;
pub mod page;
mod profiler_trace;
mod terminal;
mod timeline;
mod torch;
mod whole_file;

pub use json::{FormatError, write_json};
pub use model::{
    CacheReport, DataReport, DeviceMemoryReport, DeviceReport, EmulatedReport, EpochCache,
    EpochReport, Evaluation, IdleCause, Machine, RecorderReport, Report, Score, ServiceThread,
    Status, StorageReport, StoreReport, TraceReport, Training,
};
pub use nvml::NvmlReport;
pub use page::{Axis, Grid, Predicted, page, write_page, write_page_to};
pub use profiler_trace::{JoinedRun, ProfilerTrace, StepTime, TraceCategory, TraceLosses};
pub use terminal::{percent, render, render_as};
pub use timeline::{CopyReport, OtherGpu, TimelineReport, TimelineSource};
pub use torch::{TorchLoader, TorchReport, TorchSession};

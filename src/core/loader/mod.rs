//! Pipelines of your own: closures become stages on the engine's queues and workers, and are profiled as our own are.
//!
//! ```
//! use stallscope_core::loader::source;
//! use stallscope_core::report::render;
//!
//! let lines = ["one two", "three four five", "six", "seven eight"];
//! let mut loader = source("fetch", lines.len(), move |key| Ok(lines[key.index as usize]))
//!     .then("tokenize", |_, line: &str| Ok(line.split(' ').map(str::len).collect::<Vec<_>>()))
//!     .collate(|rows| Ok(rows))
//!     .batch_size(2)
//!     .workers("tokenize", 2)
//!     .epochs(3)
//!     .start()?;
//! while let Some(batch) = loader.next() {
//!     let rows: Vec<Vec<usize>> = batch?;
//!     loader.step(|| rows.iter().map(Vec::len).sum::<usize>());
//! }
//! let report = loader.finish();
//! assert_eq!((report.steps, report.samples), (6, 12));
//! println!("{}", render(&report));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Samples and batches may be of any type and size. May use `report`, `analysis`, `pipeline`, `machine`, `tracing_feed`, `trace` and
//! `timeline`.

mod builder;
mod collector;
mod intake;
mod measured;
mod measurement;
mod other_programs;
mod pause;
mod predict;
mod running;
mod settings;
mod simulated;
mod work;

pub use crate::pipeline::Submitted;
pub use builder::{LoaderBuilder, LoaderError, Stages, source, stream};
pub use intake::{Intake, Pass};
pub use measured::{cpu_of, note_trace, recorder_report, this_machine, waking_profile};
pub use measurement::{Measurement, MeasurementError, MeasurementOptions, Standing};
pub use other_programs::OtherPrograms;
pub use pause::{A_QUARTER_FULL, LONGEST_PAUSE, SHORTEST_PAUSE, pause_after};
pub use predict::{PredictError, Predictor};
pub use running::Loader;
pub(crate) use settings::attached_settings;
pub use simulated::{batch_sizes, simulated_layout};

#[cfg(test)]
mod device_tests;
#[cfg(test)]
mod tests;

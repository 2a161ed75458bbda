//! What a trace of PyTorch's profiler holds, as records and a report of the same kind as a run's.
//!
//! `reader` takes Chrome JSON apart, `event` knows PyTorch's names in it, `trace` keeps what is needed, `breakdown` gives each
//! step's time to PyTorch's own categories, `steps` makes records of the rest and `analysis` reports on them. `joined` puts a
//! trace together with what hooks told of the same training: `heard` is what those told, `align` finds the clock, `slices` what the joined trace shows.
//!
//! Invariants: memory is bounded by what the file holds, and by far less than the file; whatever is in the file is used,
//! counted as not used, or named as lost.

mod align;
mod analysis;
mod breakdown;
mod device;
mod error;
mod event;
mod heard;
mod joined;
mod reader;
mod slices;
mod steps;
#[cfg(test)]
mod tests;
mod trace;

pub use analysis::{AnalyzeOptions, analyze, analyze_from, name_of};
pub use error::AnalyzeError;
pub use joined::join;
pub use reader::ReadError;

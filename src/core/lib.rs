//! What stallscope is made of, without burn, CUDA, TLS or a command line: records of time, the pipeline engine, the
//! analysis of where device idle time comes from, prediction, traces and reports.
//!
//! Modules may use only those below them: `attach` -> `loader`; `loader` -> `report`, `pipeline`, `machine`; `compare` ->
//! `report`; `report` -> `analysis`, `text`; `ranks` -> `analysis`, `machine`; `analysis` ->
//! `timeline`; `pipeline` -> `timeline`, `machine`; `trace` -> `timeline`; `tracing_feed` -> `trace`, `analysis`; `machine` uses nothing.

#![warn(missing_docs)]

// Some files of `tests` are compiled here, too, and name the program's crate as the tests there do.
#[cfg(test)]
extern crate self as stallscope;

pub mod analysis;
pub mod attach;
pub mod compare;
pub mod loader;
pub mod machine;
pub mod pipeline;
pub mod ranks;
pub mod report;
pub mod text;
pub mod timeline;
pub mod trace;
pub mod tracing_feed;

pub use pipeline::part;

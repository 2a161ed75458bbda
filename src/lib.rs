//! stallscope runs a training input pipeline stage by stage and shows which stage keeps the device idle.

// `tests/trace_files` is compiled here, too, and names this crate as the tests there do.
#[cfg(test)]
extern crate self as stallscope;

pub mod charts;
pub mod cli;
pub mod config;
pub mod live;
pub mod reproduce;
pub mod session;
pub mod train;
pub mod tune;

pub use stallscope_core::{
    analysis, compare, loader, machine, part, pipeline, ranks, report, text, timeline, trace,
    tracing_feed,
};
pub use stallscope_data as data;
pub use stallscope_device as device;

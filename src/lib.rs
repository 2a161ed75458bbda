//! stallscope runs a training input pipeline stage by stage and tells which stage every millisecond of
//! device idle time belongs to.

// `tests/virtual_clock` is compiled here, too, and names this crate as the tests there do.
#[cfg(test)]
extern crate self as stallscope;

pub mod analysis;
pub mod charts;
pub mod cli;
pub mod config;
pub mod data;
pub mod device;
pub mod pipeline;
pub mod report;
pub mod reproduce;
pub mod session;
pub mod timeline;
pub mod trace;
pub mod train;
pub mod tune;

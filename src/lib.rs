//! stallscope runs a training input pipeline stage by stage and tells which stage every millisecond of
//! device idle time belongs to.

// What the tests under tests/ share with those here names the library as they do.
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

//! stallscope runs a training input pipeline stage by stage and tells which stage every millisecond of
//! device idle time belongs to.

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

//! stallscope runs a training input pipeline stage by stage and tells which stage every millisecond of
//! device idle time belongs to.

pub mod data;
pub mod pipeline;
pub mod timeline;
pub mod train;

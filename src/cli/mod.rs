//! The command line: one file per verb.
//!
//! May use: everything below it.

pub mod args;
pub mod completions;
pub mod config;
pub mod data;
pub mod doctor;
mod file_limit;
mod interruption;
mod progress;
pub mod run;

pub use crate::pipeline::error_chain;

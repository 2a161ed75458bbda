//! The command line: one file per verb.
//!
//! May use: everything below it.

pub mod analyze;
pub mod args;
pub mod batch_size;
pub mod compare;
pub mod completions;
pub mod config;
pub mod data;
pub mod demo;
pub mod diagnose;
mod dispatch;
pub mod doctor;
mod exit_status;
mod fetch;
mod file_limit;
pub mod fit_search;
pub mod init;
mod interruption;
pub mod latest;
mod launcher;
pub mod man;
mod messages;
mod out_folder;
mod overview;
pub mod page;
pub mod predict;
mod progress;
mod renamed;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod sweep;
pub mod time_kernels;
pub mod tune;

pub use crate::pipeline::error_chain;
pub use dispatch::{command_line, torch_arguments, use_colour};
use exit_status::failure;

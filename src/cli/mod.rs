//! The command line: one file per verb.
//!
//! May use: everything below it.

pub mod args;
pub mod batch_size;
pub mod compare;
pub mod completions;
pub mod config;
pub mod data;
pub mod diagnose;
mod dispatch;
pub mod doctor;
mod exit_status;
mod fetch;
mod file_limit;
pub mod fit_search;
mod interruption;
mod out_folder;
pub mod predict;
mod progress;
pub mod reproduce;
pub mod run;
pub mod sweep;
pub mod time_kernels;
pub mod tune;

pub use crate::pipeline::error_chain;
pub use dispatch::{command_line, torch_arguments};
use exit_status::failure;

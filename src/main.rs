//! The command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    stallscope::cli::command_line(std::env::args_os())
}

//! The command line, run in the interpreter's process.

use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Exit status of a program that panicked.
const PANICKED: u8 = 101;

/// Does what `argv` says, the program's name first, and returns the exit status. `program` starts it again, for trials
/// that are processes of their own.
#[pyfunction]
pub fn main(py: Python<'_>, argv: Vec<OsString>, program: Vec<OsString>) -> u8 {
    stallscope::tune::set_program(program);
    py.detach(|| {
        let line = || number(stallscope::cli::command_line(argv));
        catch_unwind(AssertUnwindSafe(line)).unwrap_or(PANICKED)
    })
}

/// What `stallscope torch` was given, as JSON; or the exit status, where `argv` is wrong or asks for help.
#[pyfunction]
pub fn torch_arguments(argv: Vec<OsString>) -> Result<String, PyErr> {
    match stallscope::cli::torch_arguments(argv) {
        Ok(arguments) => Ok(arguments),
        Err(status) => Err(PySystemExit::new_err(number(status))),
    }
}

/// The number of an exit status, which the standard library does not say.
fn number(status: ExitCode) -> u8 {
    let all = 0..=u8::MAX;
    let mut same = all.filter(|number| ExitCode::from(*number) == status);
    same.next().unwrap_or(1)
}

//! The command that starts this program again.

use std::ffi::OsString;
use std::io;
use std::sync::OnceLock;

static GIVEN: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says how this program is started, where it is not the process's own executable: from Python that is an interpreter.
pub fn set_program(words: Vec<OsString>) {
    GIVEN.set(words).ok();
}

/// The program and its first arguments.
///
/// # Errors
/// A system that does not say which program this is.
pub fn program() -> io::Result<Vec<OsString>> {
    match GIVEN.get() {
        Some(words) => Ok(words.clone()),
        None => Ok(vec![std::env::current_exe()?.into()]),
    }
}

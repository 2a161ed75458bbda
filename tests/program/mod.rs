//! The program, as tests start it: with a deadline that kills it.

// No test needs all of it.
#![allow(dead_code)]

use assert_cmd::cargo::CommandCargoExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const DEADLINE_SECONDS: u32 = 600;

/// The program, which the system kills once the deadline is over; the trials that it starts die with it.
pub fn stallscope() -> Command {
    let mut command = Command::cargo_bin("stallscope").unwrap();
    // Each sentence is on a line of its own.
    command.env("COLUMNS", "500");
    with_deadline(command)
}

/// `command`, which the system kills once the deadline is over.
pub fn with_deadline(mut command: Command) -> Command {
    let set = || {
        // SAFETY: it only sets a timer of the new process, which stays when it becomes another program.
        unsafe { libc::alarm(DEADLINE_SECONDS) };
        Ok(())
    };
    // SAFETY: `set` calls nothing but alarm, which is safe between fork and exec.
    unsafe { command.pre_exec(set) };
    command
}

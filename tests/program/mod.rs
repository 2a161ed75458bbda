//! The program, as tests start it: with a deadline that kills it.

// No test needs all of it.
#![allow(dead_code)]

use assert_cmd::cargo::CommandCargoExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

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

/// What the program does in `folder`.
pub fn run_in(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = stallscope();
    command
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

/// What it prints where it succeeds, which it must.
pub fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = run_in(folder, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Why it fails, which it must.
pub fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = run_in(folder, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?}: {error}");
    error
}

/// 40 pictures of 4 classes in `images`.
pub fn images(folder: &Path) {
    let made = [
        "data",
        "generate",
        "images",
        "--images",
        "40",
        "--classes",
        "4",
    ];
    succeeds(folder, &made);
}

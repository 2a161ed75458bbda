//! `stallscope doctor --planted-kernels` of the real binary, with and without a GPU.

mod program;

use program::stallscope;
use std::process::Output;
use std::time::{Duration, Instant};

fn doctor(arguments: &[&str]) -> Output {
    let mut command = stallscope();
    command
        .args(["doctor", "--planted-kernels"])
        .args(arguments);
    command.output().unwrap()
}

fn has_gpu() -> bool {
    let mut command = stallscope();
    let out = command.args(["doctor", "--json"]).output().unwrap();
    let list: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let sections = list["sections"].as_array().unwrap();
    let mut rows = sections
        .iter()
        .flat_map(|section| section["rows"].as_array().unwrap());
    rows.any(|row| row["subject"] == "driver" && row["status"] == "ok")
}

#[test]
fn without_a_driver_the_piece_is_named_at_once() {
    if has_gpu() {
        return println!("skipped: this machine has an NVIDIA driver");
    }
    for arguments in [&[][..], &["--json"], &["--device", "cuda:3"]] {
        let started = Instant::now();
        let out = doctor(arguments);
        let errors = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{errors}");
        assert!(
            started.elapsed() < Duration::from_secs(2),
            "{:?}",
            started.elapsed()
        );
        assert!(
            errors.contains("libcuda.so.1") && errors.contains("try:"),
            "{errors}"
        );
        assert!(!errors.contains("panicked"), "{errors}");
        assert!(out.stdout.is_empty(), "{:?}", out.stdout);
    }
}

#[test]
fn with_a_gpu_the_timeline_is_right() {
    if !has_gpu() {
        return println!("skipped: no NVIDIA driver answers on this machine");
    }
    let out = doctor(&["--json"]);
    let found: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(found["pass"], true, "{found}");
    assert_eq!(out.status.code(), Some(0), "{found}");
}

#[test]
fn a_device_that_is_no_gpu_is_refused() {
    for device in ["cpu", "cuda:x", "emulated:a100"] {
        let out = doctor(&["--device", device]);
        let errors = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{errors}");
        assert!(
            errors.contains(device) && errors.contains("--device cuda:0"),
            "{errors}"
        );
    }
}

#[test]
fn flags_that_do_not_fit_together_are_refused() {
    assert_eq!(doctor(&["--data", "."]).status.code(), Some(2));
    let mut command = stallscope();
    let out = command
        .args(["doctor", "--device", "cuda:0"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2));
}

//! Runs that somebody stops leave what they have.

use crate::image_run::{
    ImageRun, assert_adds_up, assert_fills_the_window, assert_says, stderr, stdout,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use stallscope::report::{Report, Status};
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A run that takes hours, with `sets`, once it has measured some steps.
fn running(run: &ImageRun, sets: &[&str]) -> Child {
    let mut command = run.command(&["--set", "steps=1000000"]);
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    loop {
        let text = fs::read(run.path("out/report.json")).unwrap_or_default();
        if Report::from_json(&text).is_ok_and(|report| report.steps > 3) {
            return child;
        }
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "the run ended too early: {ended:?}");
        let is_late = began.elapsed() > Duration::from_secs(60);
        assert!(!is_late, "no report was written");
        sleep(Duration::from_millis(20));
    }
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

/// How a child that was stopped at `asked` ends, and after how long.
fn end(child: Child, asked: Instant) -> (Output, Duration) {
    let out = child.wait_with_output().unwrap();
    (out, asked.elapsed())
}

fn age_of_report(run: &ImageRun) -> Duration {
    let written = fs::metadata(run.path("out/report.json"))
        .unwrap()
        .modified()
        .unwrap();
    written.elapsed().unwrap_or_default()
}

/// The run was interrupted, and its report and trace are whole.
fn assert_interrupted(run: &ImageRun, out: &Output) {
    assert_eq!(out.status.code(), Some(130), "{}", stderr(out));
    assert_says(&stdout(out), &["verdict  ", "stopped after"]);
    let report = run.report();
    assert_eq!(report.status, Status::Interrupted);
    assert_adds_up(&report);
    let text = fs::read_to_string(run.path("out/trace.json")).unwrap();
    assert!(
        serde_json::from_str::<Vec<Value>>(&text).is_ok(),
        "the trace's array is closed"
    );
}

/// Puts a pipe in the place of each picture but the first: reading one waits for somebody who writes.
fn make_reads_hang(run: &ImageRun) {
    for number in 1..24 {
        let picture = run.image(number);
        let pipe = picture.with_extension("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        // At once: a picture that is not there would fail the run.
        fs::rename(&pipe, &picture).unwrap();
    }
    // Until all workers wait.
    sleep(Duration::from_millis(500));
}

#[test]
fn a_killed_run_leaves_its_trace_and_a_fresh_report() {
    let run = ImageRun::with_images(24);
    let mut child = running(&run, &[]);
    sleep(Duration::from_millis(2_500));
    child.kill().unwrap();
    let age = age_of_report(&run);
    child.wait().unwrap();
    assert!(age <= Duration::from_secs(2), "the report is {age:?} old");
    let report = run.report();
    assert_eq!(report.status, Status::Running);
    assert_adds_up(&report);
    assert!(run.trace().len() > 100);
}

#[test]
fn ctrl_c_and_sigterm_stop_soon_with_everything_whole() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let run = ImageRun::with_images(24);
        let child = running(&run, &[]);
        send(&child, signal);
        let (out, took) = end(child, Instant::now());
        assert_interrupted(&run, &out);
        assert_fills_the_window(&run.report());
        assert!(took <= Duration::from_secs(3), "stopping took {took:?}");
    }
}

/// In a worker's thread, and in the trainer's own.
#[test]
fn reads_that_hang_keep_no_stopped_run_alive() {
    for sets in [&[][..], &["num_workers=0"], &["num_workers=2"]] {
        let run = ImageRun::with_images(24);
        let child = running(&run, sets);
        make_reads_hang(&run);
        send(&child, Signal::SIGTERM);
        let (out, took) = end(child, Instant::now());
        assert_interrupted(&run, &out);
        assert_says(&stderr(&out), &["a read or a step takes longer"]);
        assert!(took <= Duration::from_secs(5), "{sets:?}: {took:?}");
    }
}

#[test]
fn a_second_ctrl_c_ends_a_run_at_once() {
    let run = ImageRun::with_images(24);
    let child = running(&run, &[]);
    make_reads_hang(&run);
    send(&child, Signal::SIGINT);
    sleep(Duration::from_millis(1_000));
    send(&child, Signal::SIGINT);
    let (out, took) = end(child, Instant::now());
    assert_eq!(out.status.code(), Some(130), "{}", stderr(&out));
    assert!(took <= Duration::from_secs(1), "{took:?}");
    assert_eq!(run.report().status, Status::Interrupted);
}

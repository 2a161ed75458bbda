//! Runs that somebody stops leave what they have.

use crate::image_run::{ImageRun, assert_adds_up, assert_fills_the_window, assert_says, stdout};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Waits until the report says that steps have been measured.
fn wait_for_steps(run: &ImageRun, child: &mut Child) {
    let began = Instant::now();
    loop {
        let text = fs::read(run.path("out/report.json")).unwrap_or_default();
        let report: Value = serde_json::from_slice(&text).unwrap_or_default();
        if report["steps"].as_u64().unwrap_or(0) > 3 {
            return;
        }
        assert!(
            child.try_wait().unwrap().is_none(),
            "the run ended too early"
        );
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "no report was written"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn age_of_report(run: &ImageRun) -> Duration {
    let written = fs::metadata(run.path("out/report.json"))
        .unwrap()
        .modified()
        .unwrap();
    written.elapsed().unwrap_or_default()
}

#[test]
fn a_killed_run_leaves_its_trace_and_a_fresh_report() {
    let run = ImageRun::with_images(24);
    let mut child = run.command(&["--set", "steps=1000000"]).spawn().unwrap();
    wait_for_steps(&run, &mut child);
    std::thread::sleep(Duration::from_millis(2_500));
    child.kill().unwrap();
    let age = age_of_report(&run);
    child.wait().unwrap();
    assert!(age <= Duration::from_secs(2), "the report is {age:?} old");
    let report = run.report();
    assert_eq!(report["status"], "running");
    assert_adds_up(&report);
    assert!(run.trace().len() > 100);
}

#[test]
fn ctrl_c_stops_within_a_second_with_everything_whole() {
    let run = ImageRun::with_images(24);
    let mut child = run
        .command(&["--set", "steps=1000000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_steps(&run, &mut child);
    let asked = Instant::now();
    let interrupt = format!("kill -INT {}", child.id());
    assert!(
        Command::new("bash")
            .args(["-c", &interrupt])
            .status()
            .unwrap()
            .success()
    );
    let out = child.wait_with_output().unwrap();
    let took = asked.elapsed();
    assert_eq!(out.status.code(), Some(130));
    assert!(took <= Duration::from_secs(1), "stopping took {took:?}");
    assert_says(&stdout(&out), &["verdict  ", "stopped after"]);
    let report = run.report();
    assert_eq!(report["status"], "interrupted");
    assert_adds_up(&report);
    assert_fills_the_window(&report);
    let text = fs::read_to_string(run.path("out/trace.json")).unwrap();
    assert!(
        serde_json::from_str::<Vec<Value>>(&text).is_ok(),
        "the trace's array is closed"
    );
}

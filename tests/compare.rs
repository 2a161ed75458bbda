//! `compare` and `run --fail-below-busy` through the whole program, on an emulated device.

#[allow(dead_code, reason = "a comparison needs the data alone")]
mod place;
mod program;
mod said;

use place::Place;
use program::stallscope;
use said::{assert_says, json, text};
use std::path::PathBuf;
use std::process::Output;

/// Runs with a device that takes `step` a step, in the folder `name`.
fn run(place: &Place, name: &str, step: &str, more: &[&str]) -> Output {
    let step = format!("emulated.step_base={step}");
    let sets = [
        "--set",
        "device=emulated:custom",
        "--set",
        "steps=40",
        "--set",
        &step,
        "--trace",
        "none",
        "-q",
    ];
    let mut command = stallscope();
    command.arg("run").arg(place.path("run.toml"));
    command.arg("--run-dir").arg(place.path(name));
    command.args(sets).args(more).output().unwrap()
}

fn compare(paths: &[PathBuf], more: &[&str]) -> Output {
    let mut command = stallscope();
    let command = command.arg("compare").args(paths).args(more);
    command.output().unwrap()
}

#[test]
fn a_slower_device_is_found_and_fails_the_check() {
    let place = Place::with_images(500);
    for (name, step) in [("fast", "10ms"), ("slow", "20ms")] {
        let out = run(&place, name, step, &[]);
        assert!(out.status.success(), "{}", text(&out.stderr));
    }
    let paths = ["fast", "slow"].map(|name| place.path(name));
    let found = json(&compare(&paths, &["--json"]));
    let against = &found["against_first"][0];
    assert_eq!(against["finding"], "slower");
    assert_eq!(against["samples_per_second"]["method"]["kind"], "blocks");
    assert_eq!(against["settings"][0]["key"], "emulated.step_base");
    let out = compare(&paths, &["--fail-if-slower", "3%"]);
    assert_eq!(out.status.code(), Some(1));
    assert_says(
        &text(&out.stdout),
        &["x as fast as A", "emulated.step_base"],
    );
    assert_says(&text(&out.stderr), &["error: B is slower than A by"]);
    let [fast, slow] = paths;
    let out = compare(&[slow, fast.clone()], &["--fail-if-slower", "3%", "-q"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let out = compare(&[fast], &[]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
}

#[test]
fn a_run_whose_device_is_too_idle_fails() {
    let place = Place::with_images(500);
    // Copying takes twice as long as the step.
    let sets = ["--set", "emulated.copy_latency=20ms", "--fail-below-busy"];
    let idle = run(&place, "idle", "10ms", &[&sets[..], &["90%"]].concat());
    assert_eq!(idle.status.code(), Some(1));
    assert_says(
        &text(&idle.stderr),
        &["error: device busy is", "below the 90.0 %"],
    );
    assert!(place.path("idle/report.json").is_file());
    let enough = run(&place, "enough", "10ms", &[&sets[..], &["0.01"]].concat());
    assert!(enough.status.success(), "{}", text(&enough.stderr));
    let alone = ["--mode", "loader-only", "--fail-below-busy", "0.5"];
    let alone = run(&place, "alone", "10ms", &alone);
    assert_eq!(alone.status.code(), Some(1));
    assert_says(&text(&alone.stderr), &["device busy is unknown", "try: "]);
}

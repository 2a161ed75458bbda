//! Device memory, running out of it, and the search for the batch size, through the whole program: on an
//! emulated device with a planted memory, where the right answer is arithmetic.

mod place;
mod program;
mod said;

use place::Place;
use program::stallscope;
use said::{assert_says, json, text};
use serde_json::Value;
use stallscope::report::{DeviceMemoryReport, Status};
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// 20 MiB and 1 MiB a sample, of 99 MiB: 79 samples fit, and of the sizes that are tried 72.
const MEMORY: [&str; 5] = [
    "device=emulated:custom",
    "emulated.step_base=1ms",
    "emulated.memory=99MiB",
    "emulated.memory_base=20MiB",
    "emulated.memory_per_sample=1MiB",
];

fn with<'a>(sets: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [sets, more].concat()
}

/// `stallscope batch-size` with `sets` and other `args`.
fn search(place: &Place, sets: &[&str], args: &[&str]) -> Command {
    let mut command = stallscope();
    command.arg("batch-size").arg(place.path("run.toml"));
    command.args(["--steps", "4"]).args(args);
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    command
}

#[test]
fn the_report_has_the_devices_memory() {
    let place = Place::with_images(200);
    let out = place.run(&with(&MEMORY, &["steps=5"]));
    assert!(out.status.success(), "{}", text(&out.stderr));
    let memory = DeviceMemoryReport {
        in_use_bytes: 70 << 20,
        reserved_bytes: 70 << 20,
        peak_in_use_bytes: 70 << 20,
        peak_reserved_bytes: 70 << 20,
        total_bytes: Some(99 << 20),
    };
    assert_eq!(place.last_report().device.unwrap().memory, Some(memory));
    assert_says(
        &text(&out.stdout),
        &["memory   at most 70.0 MiB in use", "of 99.0 MiB (70.7 %)"],
    );
    // A device whose memory nobody has planned says nothing of it.
    let report = place.report(&[MEMORY[0], MEMORY[1], "steps=5"]);
    assert_eq!(report.device.unwrap().memory, None);
}

#[test]
fn a_run_that_is_out_of_memory_names_a_size_that_fits() {
    let place = Place::with_images(200);
    let out = place.run(&with(&MEMORY, &["batch.size=100", "steps=5"]));
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    // 90 % of 99 MiB less 20 is 69.1; on the grid above 64 that is 64.
    assert_says(
        &said,
        &[
            "looking for a batch size that fits",
            "batch.size = 100 does not fit in the 99.0 MiB of emulated:custom, at step 0",
            "the step needs 120 MiB of 99.0 MiB",
            "--set batch.size=64, which fits",
            "stallscope batch-size",
        ],
    );
    let report = place.last_report();
    assert_eq!(report.status, Status::Failed);
    assert_says(&report.error.unwrap(), &["batch.size=64, which fits"]);
    let fits = place.run(&with(&MEMORY, &["batch.size=64", "steps=5"]));
    assert!(fits.status.success(), "{}", text(&fits.stderr));
}

#[test]
fn the_search_after_a_run_can_be_left_out() {
    let place = Place::with_images(200);
    let sets = with(&MEMORY, &["batch.size=100", "steps=5"]);
    let out = place
        .command(&sets)
        .arg("--no-fit-search")
        .output()
        .unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert_says(
        &said,
        &[
            "batch.size = 100 does not fit",
            "try: a batch.size below 100",
        ],
    );
    assert!(!said.contains("looking for"), "{said}");
}

#[test]
fn where_nothing_fits_no_size_is_named() {
    let place = Place::with_images(100);
    let sets = with(&MEMORY, &["emulated.memory=20MiB", "steps=5"]);
    let out = place.run(&sets);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert_says(
        &said,
        &[
            "batch.size = 50 does not fit in the 20.0 MiB of emulated:custom",
            "batch.size = 1: does not fit",
            "not even batch.size = 1 fits\n  try: a smaller model.kind",
        ],
    );
    assert!(!said.contains("a batch.size below"), "{said}");
    let out = search(&place, &sets, &["--min", "4"]).output().unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert_says(&said, &["not even batch.size = 4 fits", "emulated:custom"]);
}

#[test]
fn the_largest_size_is_found_and_confirmed() {
    let place = Place::with_images(400);
    let found = json(&search(&place, &MEMORY, &["--json"]).output().unwrap());
    assert_eq!(found["limited_by"], "memory");
    let largest = &found["largest"];
    assert_eq!(largest["batch_size"], 72);
    for run in ["first", "again"] {
        assert_eq!(largest[run]["memory"]["reserved_bytes"], 92 << 20, "{run}");
        assert!(largest[run]["samples_per_second"].as_f64().unwrap() > 0.0);
    }
    let command = found["largest_command"].as_str().unwrap();
    assert_says(
        command,
        &[
            "stallscope run",
            "--set emulated.memory=99MiB",
            "--set batch.size=72",
        ],
    );
    for trial in found["trials"].as_array().unwrap() {
        let fits = trial["batch_size"].as_u64().unwrap() <= 79;
        let result = if fits { "fits" } else { "out_of_memory" };
        assert_eq!(trial["result"], result, "{trial}");
    }
    let size = |answer: &Value| answer["batch_size"].as_u64().unwrap();
    assert!(size(&found["fastest"]) <= 72, "{found}");
}

#[test]
fn the_table_ends_with_the_answers() {
    let place = Place::with_images(100);
    let args = ["--min", "30", "--max", "60"];
    let out = search(&place, &MEMORY, &args).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_says(
        &text(&out.stdout),
        &[
            "batch size  fits  samples/s  device busy",
            "80.0 MiB",
            "largest  batch.size = 60 (the largest size tried; all fit)",
            "run twice: it fits",
            "fastest  batch.size = ",
            "--set batch.size=60",
        ],
    );
    assert_says(&text(&out.stderr), &["batch.size = 50: fits"]);
}

/// Without `--max` the data set's size is the end; one pass over it is not.
#[test]
fn everything_fits_up_to_the_data_sets_size() {
    let place = Place::with_images(90);
    let sets = [MEMORY[0], MEMORY[1], "epochs=1", "drop_last=true"];
    let found = json(&search(&place, &sets, &["--json"]).output().unwrap());
    assert_eq!(found["largest"]["batch_size"], 90);
    assert_eq!(found["limited_by"], "most");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::with_images(60);
    let refused = |sets: &[&str], args: &[&str], parts: &[&str]| {
        let out = search(&place, sets, args).output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
        assert_says(&text(&out.stderr), parts);
    };
    refused(&MEMORY, &["--min", "61"], &["--min 61 is above 60"]);
    place.refused(
        &["emulated.memory=1GiB"],
        &["emulated.memory", "has no effect"],
    );
    // A trial that fails for another reason ends the search, with what it said.
    let sets = with(
        &MEMORY,
        &[
            "preprocess.mean=[0.1]",
            "warmup_steps=0",
            "source.path=/nowhere",
        ],
    );
    refused(&sets, &[], &["/nowhere"]);
}

/// Nobody waits for the hour that a trial would take.
#[test]
fn it_can_be_stopped() {
    let place = Place::with_images(200);
    let sets = with(&MEMORY, &["emulated.step_base=3600s"]);
    let mut command = search(&place, &sets, &[]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let children = format!("/proc/{pid}/task/{pid}/children");
    let started = Instant::now();
    let trial = loop {
        let listed = fs::read_to_string(&children).unwrap_or_default();
        if let Some(trial) = listed.split_whitespace().next() {
            break trial.to_owned();
        }
        assert!(started.elapsed() < Duration::from_secs(20), "no trial");
        thread::sleep(Duration::from_millis(10));
    };
    let asked = Instant::now();
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(asked.elapsed() < Duration::from_secs(10));
    assert!(!fs::exists(format!("/proc/{trial}")).unwrap());
}

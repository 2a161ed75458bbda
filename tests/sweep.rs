//! Sweeps through the whole program, on an emulated device: killed and gone on with, out of memory, refused.

#[allow(dead_code, reason = "a sweep needs the data alone")]
mod place;
mod program;
mod said;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use place::Place;
use program::stallscope;
use said::{assert_says, json, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A device whose step takes 1 ms.
const DEVICE: [&str; 2] = ["device=emulated:custom", "emulated.step_base=1ms"];
const PATIENCE: Duration = Duration::from_secs(60);

/// `stallscope sweep` with `sets` and other `args`, in the folder `out` of `place`.
fn sweep(place: &Place, sets: &[&str], args: &[&str]) -> Command {
    let mut command = stallscope();
    command.arg("sweep").arg(place.path("run.toml"));
    command.args(["--steps", "4"]).args(args);
    command.arg("--out").arg(place.path("sweep"));
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    command.stdin(Stdio::null());
    command
}

/// The whole lines of the journal in `folder`.
fn journal(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("trials.jsonl")).unwrap_or_default();
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    lines.map(str::to_owned).collect()
}

/// Point, repeat and time of each record.
fn records(folder: &Path) -> Vec<(u64, u64, f64)> {
    let lines = journal(folder);
    let parsed = lines
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let number = |record: &Value, key: &str| record[key].as_u64().unwrap();
    parsed
        .map(|record| {
            let ended = record["ended_at_unix_seconds"].as_f64().unwrap();
            (number(&record, "point"), number(&record, "repeat"), ended)
        })
        .collect()
}

/// Waits until `done`.
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "no {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn children(child: &Child) -> Vec<PathBuf> {
    let pid = child.id();
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let listed = listed.unwrap_or_default();
    listed
        .split_whitespace()
        .map(|pid| PathBuf::from("/proc").join(pid))
        .collect()
}

/// Whether the process at `path` in /proc still does something.
fn is_alive(path: &Path) -> bool {
    let status = fs::read_to_string(path.join("status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

/// Starts `command` and kills it with a trial in flight, when `least` are noted in `folder`; returns when the trials have ended, too.
fn kill_in_flight(command: &mut Command, folder: &Path, least: usize) {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut trials = Vec::new();
    wait_for("trial in flight", || {
        trials = children(&child);
        journal(folder).len() >= least && !trials.is_empty()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("end of the trials", || {
        !trials.iter().any(|trial| is_alive(trial))
    });
}

#[test]
fn a_killed_sweep_goes_on_and_loses_nothing() {
    let place = Place::with_images(200);
    let folder = place.path("sweep");
    let args = [
        "--grid",
        "num_workers=0,1,2",
        "--grid",
        "batch.size=10,20",
        "--repeats",
        "3",
    ];
    let mut before = Vec::new();
    // Killed twice, each time with a trial in flight.
    for kills in 1..=2 {
        kill_in_flight(&mut sweep(&place, &DEVICE, &args), &folder, 4 * kills);
        let after = records(&folder);
        assert_eq!(after[..before.len()], before);
        assert!(after.len() < 18, "it ended before it was killed");
        before = after;
    }
    // And the last line torn, as by a machine that lost power.
    let torn = fs::read(folder.join("trials.jsonl")).unwrap();
    let torn = [&torn[..], b"{\"point\":1,\"rep"].concat();
    fs::write(folder.join("trials.jsonl"), torn).unwrap();

    let out = sweep(&place, &DEVICE, &args)
        .arg("--json")
        .output()
        .unwrap();
    let results = json(&out);
    let resuming = format!("resuming: {} of 18 trials are done", before.len());
    assert_says(&text(&out.stderr), &[&resuming, "[18/18]"]);
    // None lost, none that had ended run again: what was there is there, and the rest was run once.
    let after = records(&folder);
    assert_eq!(after[..before.len()], before);
    let places: BTreeSet<(u64, u64)> = after.iter().map(|(p, r, _)| (*p, *r)).collect();
    assert_eq!((after.len(), places.len()), (18, 18));
    let progress = text(&out.stderr)
        .lines()
        .filter(|line| line.starts_with('['))
        .count();
    assert_eq!(progress, 18 - before.len());
    assert_eq!(results["complete"], true);
    for point in results["points"].as_array().unwrap() {
        assert_eq!(point["samples_per_second"]["count"], 3, "{point}");
        assert!(point["data_wait_share"].is_number() && point["first_batch_ns"].is_number());
        assert!(point["elapsed_ns"].as_u64().unwrap() > 0);
    }
    let left: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let left: BTreeSet<&str> = left.iter().map(String::as_str).collect();
    let expected = [
        "heatmap.svg",
        "report.html",
        "results.csv",
        "results.json",
        "sweep.json",
        "sweep.lock",
        "trials.jsonl",
    ];
    assert_eq!(left, BTreeSet::from(expected));

    // Once more there is nothing to do; another sweep has no place here.
    let again = json(
        &sweep(&place, &DEVICE, &args)
            .arg("--json")
            .output()
            .unwrap(),
    );
    assert_eq!(again, results);
    let out = sweep(&place, &DEVICE, &[&args[..4], &["--repeats", "2"]].concat())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_says(
        &text(&out.stderr),
        &["holds another sweep", "repeats: 3 there, 2 here"],
    );
    let slower = [DEVICE[0], "emulated.step_base=2ms"];
    let out = sweep(&place, &slower, &args).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_says(
        &text(&out.stderr),
        &["emulated.step_base: \"1ms\" there, \"2ms\" here"],
    );
}

/// The journal's records have the machine on which a launcher had them run.
fn assert_launched(folder: &Path, all: usize) {
    let records = records(folder);
    let places: BTreeSet<(u64, u64)> = records.iter().map(|(p, r, _)| (*p, *r)).collect();
    assert_eq!((records.len(), places.len()), (all, all));
    for line in journal(folder) {
        let record: Value = serde_json::from_str(&line).unwrap();
        assert!(
            !record["node"]["host"].as_str().unwrap().is_empty(),
            "{line}"
        );
        assert_eq!(record["result"], "fits", "{line}");
    }
    assert!(!folder.join("launched").exists());
}

#[test]
fn launched_trials_go_on_where_their_sweep_is_killed() {
    let place = Place::with_images(200);
    let folder = place.path("sweep");
    let slots = place.path("slots");
    let launcher = format!("echo {{slot}} >> {}; sh -c {{}}", slots.display());
    let args = [
        "--grid",
        "num_workers=0,1,2",
        "--grid",
        "batch.size=10,20",
        "--repeats",
        "2",
        "--jobs",
        "2",
        "--launcher",
        &launcher,
    ];
    kill_in_flight(&mut sweep(&place, &DEVICE, &args), &folder, 3);
    let before = records(&folder);
    assert!(before.len() < 12, "it ended before it was killed");

    let out = sweep(&place, &DEVICE, &args).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_launched(&folder, 12);
    assert_eq!(records(&folder)[..before.len()], before);
    // What was in flight has left its record. One that was started as the sweep was killed may be run twice.
    let slots = fs::read_to_string(slots).unwrap();
    let slots: Vec<&str> = slots.lines().collect();
    assert!((12..=14).contains(&slots.len()), "{slots:?}");
    assert_eq!(BTreeSet::from_iter(slots), BTreeSet::from(["1", "2"]));
}

#[test]
fn what_is_lost_with_its_machine_is_run_again() {
    let place = Place::with_images(60);
    let folder = place.path("sweep");
    let mark = place.path("lost");
    // The first start of a trial of the second point comes to nothing.
    let launcher = format!(
        "case {{}} in *' 1-'*) mkdir {} 2> /dev/null && exit 9 ;; esac; sh -c {{}}",
        mark.display()
    );
    let args = [
        "--grid",
        "batch.size=10,20",
        "--repeats",
        "2",
        "--launcher",
        &launcher,
    ];
    let out = sweep(&place, &DEVICE, &args).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(mark.exists());
    assert_launched(&folder, 4);
}

#[test]
fn a_launcher_that_never_works_is_refused_and_nothing_is_noted() {
    let place = Place::with_images(60);
    let args = |launcher| {
        [
            "--grid",
            "batch.size=10,20",
            "--jobs",
            "4",
            "--launcher",
            launcher,
        ]
    };
    let out = sweep(&place, &DEVICE, &args("echo no such host >&2; exit 7; {}"));
    let out = { out }.output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_says(
        &text(&out.stderr),
        &[
            "0 of 6 trials are done",
            "exit status: 7",
            "no such host",
            "then go on with",
        ],
    );
    assert!(records(&place.path("sweep")).is_empty());
    let out = sweep(&place, &DEVICE, &args("ssh node")).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert_says(&text(&out.stderr), &["it has no {}"]);
}

/// Nobody would read what it measures in an hour.
#[test]
fn a_trial_ends_with_its_sweep() {
    let place = Place::with_images(60);
    let args = ["--grid", "emulated.launch=3600s"];
    let mut command = sweep(&place, &DEVICE, &args);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut trials = Vec::new();
    wait_for("trial", || {
        trials = children(&child);
        !trials.is_empty()
    });
    // It has to have come to where it asks for that.
    thread::sleep(Duration::from_secs(1));
    assert!(trials.iter().all(|trial| is_alive(trial)));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("end of the trial", || {
        !trials.iter().any(|trial| is_alive(trial))
    });
}

#[test]
fn a_point_that_is_out_of_memory_or_fails_is_a_result() {
    let place = Place::with_images(200);
    let memory = [
        "emulated.memory=99MiB",
        "emulated.memory_base=20MiB",
        "emulated.memory_per_sample=1MiB",
    ];
    let sets = [&DEVICE[..], &memory].concat();
    let data = place.path("data").display().to_string();
    let paths = format!("source.path={data},/nowhere");
    let args = [
        "--grid",
        &paths,
        "--grid",
        "batch.size=40,80",
        "--repeats",
        "2",
    ];
    let out = sweep(&place, &sets, &args).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_says(
        &text(&out.stdout),
        &[
            "60.0 MiB",
            "2  best, knee",
            "out of device memory",
            "/nowhere",
            "no memory",
            "failed",
        ],
    );
    let results = fs::read(place.path("sweep/results.json")).unwrap();
    let results: Value = serde_json::from_slice(&results).unwrap();
    let result = |point: usize| &results["points"][point]["trials"][0]["result"];
    assert_eq!(
        [0, 1, 2].map(|point| result(point).as_str().unwrap()),
        ["fits", "out_of_memory", "failed"]
    );
    assert_eq!((&results["best"], &results["knee"]), (&0.into(), &0.into()));
    let table = fs::read_to_string(place.path("sweep/results.csv")).unwrap();
    assert_eq!(
        table.lines().filter(|line| line.starts_with(&data)).count(),
        2
    );
    let map = fs::read_to_string(place.path("sweep/heatmap.svg")).unwrap();
    assert_says(
        &map,
        &[
            "</svg>",
            "\nno memory\n",
            "\nfailed\n",
            "prefers-color-scheme",
        ],
    );
}

#[test]
fn where_no_point_measures_anything_it_fails() {
    let place = Place::with_images(60);
    let args = ["--grid", "batch.size=40,50", "--repeats", "1"];
    let out = sweep(&place, &["source.path=/nowhere"], &args)
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_says(&text(&out.stderr), &["every trial failed", "/nowhere"]);
    let small = ["emulated.memory=1MiB", "emulated.memory_base=2MiB"];
    let sets = [&DEVICE[..], &small].concat();
    fs::remove_dir_all(place.path("sweep")).unwrap();
    let out = sweep(&place, &sets, &args).output().unwrap();
    assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
    assert_says(&text(&out.stderr), &["no point of the grid fits"]);
}

#[test]
fn a_wrong_grid_names_everything_at_once() {
    let place = Place::with_images(60);
    let args = [
        "--grid",
        "batch_size=32",
        "--grid",
        "batch.size=0,32",
        "--grid",
        "num_workers=1,many",
        "--grid",
        "batch.size=5",
        "--grid",
        "prefetch_factor=",
    ];
    let out = sweep(&place, &DEVICE, &args).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_says(
        &text(&out.stderr),
        &[
            "5 problems in the grid; nothing has been run",
            "`batch.size` is in the grid twice",
            "`prefetch_factor` has no values",
            "unknown key `batch_size`",
            "did you mean `batch.size`?",
            "(at every point)",
            "--set batch.size=0: `batch.size`",
            "(at batch_size=32 batch.size=0 num_workers=1; batch_size=32 batch.size=0 num_workers=many)",
            "--set num_workers=many: `num_workers`",
        ],
    );
    assert!(!place.path("sweep").exists());
}

/// Ctrl-C keeps what there is and says how to go on; meanwhile nobody else gets the folder.
#[test]
fn it_can_be_stopped_and_gone_on_with() {
    let place = Place::with_images(200);
    let folder = place.path("sweep");
    let args = [
        "--grid",
        "emulated.launch=0ms,3600s",
        "--grid",
        "num_workers=0,1",
        "--repeats",
        "1",
    ];
    let mut command = sweep(&place, &DEVICE, &args);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("lock", || folder.join("trials.jsonl").exists());
    let out = sweep(&place, &DEVICE, &args).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_says(
        &text(&out.stderr),
        &["another process is running the sweep in"],
    );
    let mut trials = Vec::new();
    wait_for("trial", || {
        trials = children(&child);
        !trials.is_empty()
    });
    thread::sleep(Duration::from_millis(300));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130), "{}", text(&out.stderr));
    assert_says(
        &text(&out.stderr),
        &[
            "stopped: ",
            " of 4 trials are done; to go on:\n  stallscope sweep ",
            "--steps 4",
            "--out ",
        ],
    );
    wait_for("end of the trial", || {
        !trials.iter().any(|trial| is_alive(trial))
    });
    for name in ["results.json", "results.csv", "heatmap.svg", "report.html"] {
        assert!(folder.join(name).exists(), "{name}");
    }
    let results: Value =
        serde_json::from_slice(&fs::read(folder.join("results.json")).unwrap()).unwrap();
    assert_eq!(results["complete"], false);
    assert_eq!(results["trials_done"], journal(&folder).len());
}

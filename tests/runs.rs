//! Whole runs of the binary: real files, real training; and everything that can go wrong with them.

use assert_cmd::cargo::CommandCargoExt;
use predicates::prelude::*;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder with data and room for a run.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// With `images` small JPEG files in 2 classes.
    fn with_images(images: usize) -> Place {
        let place = Place {
            folder: tempfile::tempdir().unwrap(),
        };
        let data = place.path("data");
        let out = stallscope()
            .args(["data", "generate", data.to_str().unwrap(), "--classes", "2"])
            .args(["--images", &images.to_string()])
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        place.config("");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `run.toml`: a small run, with `more` at its end.
    fn config(&self, more: &str) {
        let data = self.path("data");
        let text = format!(
            "source.path = \"{}\"\nbatch.size = 4\npreprocess.size = 32\nwarmup_steps = 1\nsteps = 6\n{more}\n",
            data.display()
        );
        fs::write(self.path("run.toml"), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = stallscope();
        command.arg("run").arg(self.path("run.toml"));
        command.arg("--run-dir").arg(self.path("out")).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn report(&self) -> Value {
        let text = fs::read(self.path("out/report.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// The trace's events; a trace that was cut off is closed first, as Perfetto does.
    fn trace(&self) -> Vec<Value> {
        let mut text = fs::read_to_string(self.path("out/trace.json")).unwrap();
        if !text.trim_end().ends_with(']') {
            let whole = text.rfind('\n').unwrap();
            text.truncate(whole);
            text = format!("{}]", text.trim_end().trim_end_matches(','));
        }
        serde_json::from_str(&text).unwrap()
    }

    fn image(&self, number: usize) -> PathBuf {
        let mut images: Vec<PathBuf> = ["data"]
            .iter()
            .flat_map(|folder| fs::read_dir(self.path(folder)).unwrap())
            .map(|class| class.unwrap().path())
            .filter(|class| class.is_dir())
            .flat_map(|class| fs::read_dir(class).unwrap())
            .map(|image| image.unwrap().path())
            .collect();
        images.sort();
        images.swap_remove(number)
    }
}

fn stallscope() -> Command {
    Command::cargo_bin("stallscope").unwrap()
}

fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn stdout(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(
            predicate::str::contains(*part).eval(text),
            "{part:?} is not in:\n{text}"
        );
    }
}

/// Causes add up to device idle, and nothing is unattributed.
fn assert_adds_up(report: &Value) {
    let idle = report["device"]["idle_ns"].as_u64().unwrap();
    let causes = report["idle_causes"].as_array().unwrap();
    let sum: u64 = causes
        .iter()
        .map(|cause| cause["ns"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, idle);
    assert!(
        report["unattributed_share"].as_f64().unwrap() <= 0.01,
        "{report:#}"
    );
}

/// Each worker's time is busy, starved or blocked, and the window's length in all.
fn assert_fills_the_window(report: &Value) {
    let window = report["window_ns"].as_u64().unwrap();
    for stage in report["stages"].as_array().unwrap() {
        let times = ["busy_ns", "starved_ns", "blocked_ns"];
        let spent: u64 = times.iter().map(|key| stage[key].as_u64().unwrap()).sum();
        let workers = stage["workers"].as_u64().unwrap();
        assert_eq!(spent, window * workers, "{stage:#}");
    }
}

#[test]
fn a_run_trains_and_leaves_a_verdict_a_trace_and_a_report() {
    let place = Place::with_images(40);
    let out = place.run(&[]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert_says(
        &stdout(&out),
        &[
            "verdict  ",
            "device idle by cause",
            "unattributed",
            "trace    ",
            "report   ",
        ],
    );
    let report = place.report();
    assert_eq!(report["status"], "complete");
    assert_eq!(report["steps"], 6);
    assert_eq!(report["samples"], 24);
    assert!(
        report["training"]["last_loss"]
            .as_f64()
            .unwrap()
            .is_finite()
    );
    assert_adds_up(&report);
    assert_fills_the_window(&report);
    let recorder = &report["recorder"];
    assert!(recorder["records"].as_u64().unwrap() > 28 * 3, "{recorder}");
    assert!(recorder["cpu_ns"].as_u64().unwrap() > 0, "{recorder}");
    let events = place.trace();
    let slices = |category: &str| {
        events
            .iter()
            .filter(|event| event["cat"] == category && event["ph"] == "X")
            .count()
    };
    assert_eq!(
        slices("decode") as u64,
        report["trace"]["decode_slices_expected"].as_u64().unwrap()
    );
    assert_eq!((slices("decode"), slices("step")), (28, 7));
}

#[test]
fn both_layouts_deliver_the_same_samples_whatever_the_workers() {
    let place = Place::with_images(24);
    let losses: Vec<Value> = [
        &["--set", "num_workers=0"][..],
        &["--set", "num_workers=3"],
        &["--set", "decode.workers=3", "--set", "preprocess.workers=2"],
        &["--set", "copy.workers=0"],
    ]
    .iter()
    .map(|args| {
        let out = place.run(args);
        assert!(out.status.success(), "{}", stderr(&out));
        assert_adds_up(&place.report());
        place.report()["training"]["last_loss"].clone()
    })
    .collect();
    assert!(losses.iter().all(|loss| *loss == losses[0]), "{losses:?}");
}

#[test]
fn the_loader_alone_runs_without_a_device() {
    let place = Place::with_images(24);
    let out = place.run(&["--mode", "loader-only", "--trace", "none"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(place.report()["device"].is_null());
    assert!(!place.path("out/trace.json").exists());
    assert_says(&stdout(&out), &["samples/s"]);
}

/// Nobody must take an emulated disk for a real one.
#[test]
fn an_emulated_disk_is_named_in_every_output() {
    let place = Place::with_images(24);
    let out = place.run(&[
        "--set",
        "storage.emulate=sata-ssd",
        "--set",
        "storage.latency=3ms",
    ]);
    assert!(out.status.success(), "{}", stderr(&out));
    let figures = "storage  emulated sata-ssd: latency 3.00 ms, 550 MB/s (Samsung 860 EVO";
    assert_says(&stdout(&out), &[figures]);
    let storage = &place.report()["storage"];
    assert_eq!(storage["name"], "sata-ssd");
    assert_eq!(storage["latency_ns"], 3_000_000);
    assert_eq!(storage["seek_ns"], 0);
    assert_eq!(storage["bytes_per_second"], 550_000_000);
    let events = place.trace();
    let loader = "loader (emulated storage: sata-ssd)";
    assert!(events.iter().any(|event| event["args"]["name"] == loader));
    let reads = events.iter().filter(|event| event["cat"] == "read");
    let shortest = reads.filter_map(|read| read["dur"].as_f64());
    assert!(shortest.fold(f64::INFINITY, f64::min) >= 3000.0);
}

#[test]
fn a_corrupt_image_names_itself_or_is_skipped_and_counted() {
    let place = Place::with_images(24);
    let image = place.image(5);
    fs::write(&image, b"\xff\xd8\xff\xe0 not an image at all").unwrap();
    let out = place.run(&[]);
    assert!(!out.status.success());
    let name = image.file_name().unwrap().to_str().unwrap();
    assert_says(
        &stderr(&out),
        &["decode failed on sample", name, "on_error = \"skip\""],
    );
    assert_eq!(place.report()["status"], "failed");

    let out = place.run(&["--set", "on_error=skip"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let report = place.report();
    assert_eq!(report["skipped"]["count"], 1);
    assert_eq!(report["skipped"]["listed"][0]["stage"], "decode");
    assert_adds_up(&report);
}

/// Each pass maps the file whole and finds it shorter when it reads: no SIGBUS may kill the run.
#[test]
fn a_file_that_shrinks_while_mapped_is_an_error_of_that_sample() {
    let place = Place::with_images(8);
    place.config(
        "on_error = \"skip\"\nread.mode = \"mmap\"\nread.prefetch = 8\nsteps = 400\nwarmup_steps = 0",
    );
    let text = fs::read_to_string(place.path("run.toml")).unwrap();
    let text = text.replacen("warmup_steps = 1\nsteps = 6\n", "", 1);
    fs::write(place.path("run.toml"), text).unwrap();
    let image = place.image(3);
    let whole = fs::read(&image).unwrap();
    let mut child = place
        .command(&["--trace", "none"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    // Shrinks and grows the same inode again and again while the run maps it.
    while child.try_wait().unwrap().is_none() {
        let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
        file.set_len(100).unwrap();
        std::thread::sleep(Duration::from_millis(3));
        fs::write(&image, &whole).unwrap();
        std::thread::sleep(Duration::from_millis(3));
        assert!(began.elapsed() < Duration::from_secs(120), "the run hangs");
    }
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{:?} {}", out.status, stderr(&out));
    assert!(place.report()["skipped"]["count"].as_u64().unwrap() > 0);
}

#[test]
fn what_cannot_work_is_said_before_anything_runs() {
    let place = Place::with_images(8);
    let says = |config: &str, args: &[&str], parts: &[&str]| {
        place.config(config);
        let out = place.run(args);
        assert_eq!(out.status.code(), Some(1), "{config} {args:?}");
        assert_says(&stderr(&out), parts);
    };
    says(
        "decode.wrokers = 2",
        &[],
        &["run.toml", "decode.wrokers", "decode.workers"],
    );
    says(
        "",
        &["--set", "batch.prefetch=0"],
        &["batch.prefetch", "at least 1"],
    );
    says(
        "",
        &["--set", "batch.size=100"],
        &["8 samples", "batch.size"],
    );
    says(
        "",
        &["--set", "source.path=/nonexistent"],
        &["/nonexistent"],
    );
    // Somebody's data that is not there is not made up.
    says(
        "generate.images = 8",
        &["--set", "source.path=/nonexistent/train"],
        &["/nonexistent/train", "does not exist"],
    );
    assert!(!Path::new("/nonexistent").exists());
    fs::create_dir(place.path("empty")).unwrap();
    let empty = format!("source.path={}", place.path("empty").display());
    says("", &["--set", &empty], &["empty"]);
    #[cfg(target_os = "linux")]
    if !Path::new("/dev/nvidiactl").exists() {
        says("", &["--device", "cuda:0"], &["cuda:0", "driver"]);
    }
}

/// A limit on the size of files stands for a full disk: writing fails in the middle of the trace.
#[test]
fn a_full_disk_under_the_trace_harms_neither_the_run_nor_the_report() {
    let place = Place::with_images(24);
    let program = stallscope().get_program().to_owned();
    let out = Command::new("bash")
        .arg("-c")
        .arg("ulimit -f 64; exec \"$@\"")
        .arg("bash")
        .arg(program)
        .arg("run")
        .arg(place.path("run.toml"))
        .arg("--run-dir")
        .arg(place.path("out"))
        .args(["--set", "steps=40"])
        .output()
        .unwrap();
    assert!(out.status.success(), "{:?} {}", out.status, stderr(&out));
    let report = place.report();
    assert_eq!(report["status"], "complete");
    assert!(
        report["trace"]["error"]
            .as_str()
            .is_some_and(|error| error.contains("trace.json")),
        "{report:#}"
    );
    assert_says(&stdout(&out), &["the trace is incomplete"]);
    place.trace();
}

/// Waits until the report says that steps have been measured.
fn wait_for_steps(place: &Place, child: &mut Child) {
    let began = Instant::now();
    loop {
        let text = fs::read(place.path("out/report.json")).unwrap_or_default();
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

fn age_of_report(place: &Place) -> Duration {
    let written = fs::metadata(place.path("out/report.json"))
        .unwrap()
        .modified()
        .unwrap();
    written.elapsed().unwrap_or_default()
}

#[test]
fn a_killed_run_leaves_its_trace_and_a_fresh_report() {
    let place = Place::with_images(24);
    let mut child = place.command(&["--set", "steps=1000000"]).spawn().unwrap();
    wait_for_steps(&place, &mut child);
    std::thread::sleep(Duration::from_millis(2_500));
    child.kill().unwrap();
    let age = age_of_report(&place);
    child.wait().unwrap();
    assert!(age <= Duration::from_secs(2), "the report is {age:?} old");
    let report = place.report();
    assert_eq!(report["status"], "running");
    assert_adds_up(&report);
    assert!(place.trace().len() > 100);
}

#[test]
fn ctrl_c_stops_within_a_second_with_everything_whole() {
    let place = Place::with_images(24);
    let mut child = place
        .command(&["--set", "steps=1000000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_steps(&place, &mut child);
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
    let report = place.report();
    assert_eq!(report["status"], "interrupted");
    assert_adds_up(&report);
    assert_fills_the_window(&report);
    let text = fs::read_to_string(place.path("out/trace.json")).unwrap();
    assert!(
        serde_json::from_str::<Vec<Value>>(&text).is_ok(),
        "the trace's array is closed"
    );
}

#[test]
fn a_run_of_which_nothing_is_left_fails_and_says_why() {
    let place = Place::with_images(8);
    for number in 0..8 {
        fs::write(place.image(number), b"not an image").unwrap();
    }
    let out = place.run(&["--set", "on_error=skip"]);
    assert_eq!(out.status.code(), Some(1), "{}", stdout(&out));
    // How many were skipped depends on how far ahead the loader was.
    let why = [
        "samples were skipped",
        "none of the last 2 batches",
        "decode",
        ".jpg",
    ];
    assert_says(&stderr(&out), &why);
    assert_eq!(place.report()["status"], "failed");
}

/// Batches of one sample, one of them unreadable: its batch is no step, and no time goes astray.
#[test]
fn a_batch_of_which_nothing_is_left_is_no_step() {
    let place = Place::with_images(8);
    fs::write(place.image(3), b"not an image").unwrap();
    for more in ["copy.workers=0", "copy.prefetch=1"] {
        let args = [
            "on_error=skip",
            "batch.size=1",
            "steps=40",
            "epochs=4",
            more,
        ];
        let out = place.run(&args.map(|set| ["--set", set]).concat());
        assert!(out.status.success(), "{}", stderr(&out));
        let report = place.report();
        assert_eq!(report["skipped"]["count"], 4);
        assert_eq!(report["training"]["steps"], 28);
        assert_eq!(report["steps"], 27);
        assert_adds_up(&report);
    }
}

#[test]
fn epochs_that_end_before_the_first_measured_step_are_refused() {
    let place = Place::with_images(8);
    let args = ["--set", "epochs=1", "--set", "warmup_steps=2"];
    let out = place.run(&args);
    assert_eq!(out.status.code(), Some(1), "{}", stdout(&out));
    assert_says(&stderr(&out), &["2 steps", "raise epochs"]);
    let out = place.run(&["--set", "epochs=2"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert_eq!(place.report()["steps"], 3);
}

/// Where the report cannot be written the run must not claim to have one.
#[test]
fn a_report_that_cannot_be_written_fails_the_run() {
    let place = Place::with_images(8);
    fs::create_dir_all(place.path("out/report.json")).unwrap();
    let out = place.run(&[]);
    assert_eq!(out.status.code(), Some(1), "{}", stdout(&out));
    assert_says(&stderr(&out), &["cannot write the report", "--run-dir"]);
    assert!(!stdout(&out).contains("report   "));
}

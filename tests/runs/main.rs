//! Whole runs of the binary: real files, real training; and everything that can go wrong with them.

mod image_run;
#[path = "../program/mod.rs"]
mod program;
mod stopped;

use image_run::{ImageRun, assert_adds_up, assert_fills_the_window, assert_says, stderr, stdout};
use program::{stallscope, with_deadline};
use serde_json::Value;
use stallscope::report::{Report, Status};
use stallscope::timeline::Nanos;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_report_of_an_older_version_is_refused() {
    let run = ImageRun::with_images(40);
    let out = run.run(&["--trace", "none"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let older = Report {
        schema_version: 2,
        ..run.report()
    };
    let text = serde_json::to_vec(&older).unwrap();
    let older = run.path("older.json");
    fs::write(&older, text).unwrap();
    let out = stallscope().arg("predict").arg(older).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_says(
        &stderr(&out),
        &["older.json", "schema_version is 2", "try: measure again"],
    );
}

#[test]
fn a_run_trains_and_leaves_a_verdict_a_trace_and_a_report() {
    let run = ImageRun::with_images(40);
    let out = run.run(&[]);
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
    let report = run.report();
    assert_eq!(report.status, Status::Complete);
    assert_eq!((report.steps, report.samples), (6, 24));
    assert!(report.training.last_loss.is_some_and(f64::is_finite));
    assert_adds_up(&report);
    assert_fills_the_window(&report);
    let recorder = &report.recorder;
    assert!(recorder.records > 28 * 3, "{recorder:?}");
    assert!(recorder.cpu_ns > Nanos::ZERO, "{recorder:?}");
    let events = run.trace();
    let slices = |category: &str| {
        events
            .iter()
            .filter(|event| event["cat"] == category && event["ph"] == "X")
            .count()
    };
    let trace = report.trace.unwrap();
    assert_eq!(slices("decode") as u64, trace.decode_slices_expected);
    assert_eq!((slices("decode"), slices("step")), (28, 7));
    let over_time = &report.over_time;
    assert_eq!(over_time.epochs[0].first_epoch, 0);
    let named = |event: &&Value| event["name"] == "idle by cause %" && event["ph"] == "C";
    assert!(events.iter().filter(named).count() > over_time.bins.len());
    let slowest = report.slowest_samples[0].name.as_ref().unwrap();
    assert!(Path::new(slowest).is_file(), "{slowest}");
    assert_says(&stdout(&out), &["slowest samples", slowest]);
}

#[test]
fn both_layouts_deliver_the_same_samples_whatever_the_workers() {
    let run = ImageRun::with_images(24);
    let losses: Vec<Option<f64>> = [
        &["--set", "num_workers=0"][..],
        &["--set", "num_workers=3"],
        &["--set", "decode.workers=3", "--set", "preprocess.workers=2"],
        &["--set", "copy.workers=0"],
    ]
    .iter()
    .map(|args| {
        let out = run.run(args);
        assert!(out.status.success(), "{}", stderr(&out));
        assert_adds_up(&run.report());
        run.report().training.last_loss
    })
    .collect();
    assert!(losses.iter().all(|loss| *loss == losses[0]), "{losses:?}");
}

/// Held out are ten times the images that are trained on.
#[test]
fn the_recorders_share_leaves_out_the_evaluation() {
    let run = ImageRun::with_images(330);
    run.config("split.validation = 300");
    let process_cpu = |args: &[&str]| {
        let out = run.run(args);
        assert!(out.status.success(), "{}", stderr(&out));
        let report = run.report();
        let cpu = report.recorder.cpu_ns.0 as f64 / report.recorder.cpu_share;
        (cpu, report.training.evaluations.len())
    };
    let (with, one) = process_cpu(&["--trace", "none"]);
    let (without, none) = process_cpu(&["--trace", "none", "--trial"]);
    assert_eq!((one, none), (1, 0));
    assert!(with < 2.0 * without, "{with} ns with it, {without} without");
}

#[test]
fn the_loader_alone_runs_without_a_device() {
    let run = ImageRun::with_images(24);
    let out = run.run(&["--mode", "loader-only", "--trace", "none"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(run.report().device.is_none());
    assert!(!run.path("out/trace.json").exists());
    assert_says(&stdout(&out), &["samples/s"]);
}

/// Nobody must take an emulated disk for a real one.
#[test]
fn an_emulated_disk_is_named_in_every_output() {
    let run = ImageRun::with_images(24);
    let out = run.run(&[
        "--set",
        "storage.emulate=sata-ssd",
        "--set",
        "storage.latency=3ms",
    ]);
    assert!(out.status.success(), "{}", stderr(&out));
    let figures = "storage  emulated sata-ssd: latency 3.00 ms, 550 MB/s (Samsung 860 EVO";
    assert_says(&stdout(&out), &[figures]);
    let storage = run.report().storage.unwrap();
    assert_eq!(storage.name, "sata-ssd");
    assert_eq!(storage.latency_ns, Nanos::from_millis(3));
    assert_eq!(storage.seek_ns, Nanos::ZERO);
    assert_eq!(storage.bytes_per_second, Some(550_000_000));
    let events = run.trace();
    let loader = "loader (emulated storage: sata-ssd)";
    assert!(events.iter().any(|event| event["args"]["name"] == loader));
    let reads = events.iter().filter(|event| event["cat"] == "read");
    let shortest = reads.filter_map(|read| read["dur"].as_f64());
    assert!(shortest.fold(f64::INFINITY, f64::min) >= 3000.0);
}

#[test]
fn a_corrupt_image_names_itself_or_is_skipped_and_counted() {
    let run = ImageRun::with_images(24);
    let image = run.image(5);
    fs::write(&image, b"\xff\xd8\xff\xe0 not an image at all").unwrap();
    let out = run.run(&[]);
    assert!(!out.status.success());
    let name = image.file_name().unwrap().to_str().unwrap();
    assert_says(
        &stderr(&out),
        &["decode failed on sample", name, "on_error = \"skip\""],
    );
    assert_eq!(run.report().status, Status::Failed);

    let out = run.run(&["--set", "on_error=skip"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let report = run.report();
    assert_eq!(report.skipped.count, 1);
    assert_eq!(report.skipped.listed[0].stage.name(), "decode");
    assert_adds_up(&report);
}

/// Each pass maps the file whole and finds it shorter when it reads: no SIGBUS may kill the run.
#[test]
fn a_file_that_shrinks_while_mapped_is_an_error_of_that_sample() {
    let run = ImageRun::with_images(8);
    run.config(
        "on_error = \"skip\"\nread.method = \"mmap\"\nread.prefetch = 8\nsteps = 400\nwarmup_steps = 0",
    );
    let text = fs::read_to_string(run.path("run.toml")).unwrap();
    let text = text.replacen("warmup_steps = 1\nsteps = 6\n", "", 1);
    fs::write(run.path("run.toml"), text).unwrap();
    let image = run.image(3);
    let whole = fs::read(&image).unwrap();
    let mut child = run
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
    assert!(run.report().skipped.count > 0);
}

#[test]
fn what_cannot_work_is_said_before_anything_runs() {
    let run = ImageRun::with_images(8);
    let says = |config: &str, args: &[&str], parts: &[&str]| {
        run.config(config);
        let out = run.run(args);
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
    fs::create_dir(run.path("empty")).unwrap();
    let empty = format!("source.path={}", run.path("empty").display());
    says("", &["--set", &empty], &["empty"]);
    #[cfg(target_os = "linux")]
    if !Path::new("/dev/nvidiactl").exists() {
        says("", &["--device", "cuda:0"], &["cuda:0", "driver"]);
    }
}

/// A limit on the size of files stands for a full disk: writing fails in the middle of the trace.
#[test]
fn a_full_disk_under_the_trace_harms_neither_the_run_nor_the_report() {
    let run = ImageRun::with_images(24);
    let program = stallscope().get_program().to_owned();
    let out = with_deadline(Command::new("bash"))
        .arg("-c")
        .arg("ulimit -f 256; exec \"$@\"")
        .arg("bash")
        .arg(program)
        .arg("run")
        .arg(run.path("run.toml"))
        .arg("--run-dir")
        .arg(run.path("out"))
        .args(["--set", "steps=400"])
        .output()
        .unwrap();
    assert!(out.status.success(), "{:?} {}", out.status, stderr(&out));
    let report = run.report();
    assert_eq!(report.status, Status::Complete);
    let error = report.trace.unwrap().error.unwrap();
    assert!(error.contains("trace.json"), "{error}");
    assert_says(&stdout(&out), &["the trace is incomplete"]);
    run.trace();
}

#[test]
fn a_run_of_which_nothing_is_left_fails_and_says_why() {
    let run = ImageRun::with_images(8);
    for number in 0..8 {
        fs::write(run.image(number), b"not an image").unwrap();
    }
    let out = run.run(&["--set", "on_error=skip"]);
    assert_eq!(out.status.code(), Some(1), "{}", stdout(&out));
    // How many were skipped depends on how far ahead the loader was.
    let why = [
        "samples were skipped",
        "none of the last 2 batches",
        "decode",
        ".jpg",
    ];
    assert_says(&stderr(&out), &why);
    assert_eq!(run.report().status, Status::Failed);
}

/// Batches of one sample, one of them unreadable: its batch is no step, and no time goes astray.
#[test]
fn a_batch_of_which_nothing_is_left_is_no_step() {
    let run = ImageRun::with_images(8);
    fs::write(run.image(3), b"not an image").unwrap();
    for more in ["copy.workers=0", "copy.prefetch=1"] {
        let args = [
            "on_error=skip",
            "batch.size=1",
            "steps=40",
            "epochs=4",
            more,
        ];
        let out = run.run(&args.map(|set| ["--set", set]).concat());
        assert!(out.status.success(), "{}", stderr(&out));
        let report = run.report();
        assert_eq!(report.skipped.count, 4);
        assert_eq!((report.training.steps, report.steps), (28, 27));
        assert_adds_up(&report);
    }
}

#[test]
fn epochs_that_end_before_the_first_measured_step_are_refused() {
    let run = ImageRun::with_images(8);
    let args = ["--set", "epochs=1", "--set", "warmup_steps=2"];
    let out = run.run(&args);
    assert_eq!(out.status.code(), Some(1), "{}", stdout(&out));
    assert_says(&stderr(&out), &["2 steps", "raise epochs"]);
    let out = run.run(&["--set", "epochs=2"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert_eq!(run.report().steps, 3);
}

/// Where the report cannot be written the run must not claim to have one.
#[test]
fn a_report_that_cannot_be_written_fails_the_run() {
    let run = ImageRun::with_images(8);
    fs::create_dir_all(run.path("out/report.json")).unwrap();
    let out = run.run(&[]);
    assert_eq!(out.status.code(), Some(1), "{}", stdout(&out));
    assert_says(&stderr(&out), &["cannot write the report", "--run-dir"]);
    assert!(!stdout(&out).contains("report   "));
}

#[test]
fn data_that_was_made_otherwise_is_said() {
    let run = ImageRun::with_images(24);
    run.config("generate.images = 24\ngenerate.classes = 2");
    let out = run.run(&[]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(!stderr(&out).contains("other options"), "{}", stderr(&out));
    let out = run.run(&["--quiet", "--set", "generate.images=300"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert_says(
        &stderr(&out),
        &[
            "warning: ",
            "images: 24 there, 300 asked",
            "used as they are",
        ],
    );
    assert_eq!(run.report().data.samples, 24);
}

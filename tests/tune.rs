//! The search for better settings, through the whole program: on emulated devices and disks, where the right
//! answer is arithmetic.

#[allow(dead_code)] // Other tests use all of it.
mod place;
mod program;
mod said;

use place::Place;
use program::stallscope;
use said::{assert_says, json, text};
use serde_json::Value;
use stallscope::report::Report;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A disk that takes 4 ms a read, any number of them at a time, and a device that takes 20 ms a batch of 10:
/// one worker feeds 250 samples/s, two the device's 500.
const SLOW_DISK: [&str; 8] = [
    "device=emulated:custom",
    "emulated.step_base=20ms",
    "storage.emulate=custom",
    "storage.latency=4ms",
    "storage.seek=0ms",
    "storage.bandwidth=10GB/s",
    "batch.size=10",
    "num_workers=1",
];

/// `stallscope tune` with `sets` and other `args`.
fn tune(place: &Place, sets: &[&str], args: &[&str]) -> Command {
    let mut command = stallscope();
    command.arg("tune").arg(place.path("run.toml"));
    command.arg("--out").arg(place.path("tuned"));
    command.args(["--steps", "20"]).args(args);
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    command
}

#[test]
fn the_smallest_that_feeds_the_device_is_found_and_confirmed() {
    let place = Place::with_images(400);
    let args = ["--json", "--max-workers", "6", "--trials", "7"];
    let found = json(&tune(&place, &SLOW_DISK, &args).output().unwrap());
    let trials = found["trials"].as_array().unwrap();
    assert!(trials.len() <= 7, "{found:#}");
    let winner = &found["winner"];
    assert!(
        (2..=3).contains(&winner["size"]["threads"].as_u64().unwrap()),
        "{found:#}"
    );
    let ratio = found["confirmation"]["ratio"].as_f64().unwrap();
    assert!(ratio > 1.6, "{found:#}");
    assert_eq!(found["confirmation"]["start_wins"], false);
    // Every trial is on disk.
    let noted = fs::read_to_string(place.path("tuned/trials.jsonl")).unwrap();
    let noted: Vec<Value> = noted
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(&noted, trials);
    let page = fs::read_to_string(place.path("tuned/report.html")).unwrap();
    assert!(page.contains("Predicted and measured") && page.contains("stallscope run "));
    // What was written runs as it says.
    let tuned = place.path("tuned/tuned.toml");
    assert_eq!(found["tuned_file"], tuned.display().to_string());
    let mut run = stallscope();
    run.arg("run").arg(&tuned).args(["--set", "steps=20"]);
    let out = run
        .arg("--run-dir")
        .arg(place.path("again"))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let report = fs::read(place.path("again/report.json")).unwrap();
    let again = Report::from_json(&report).unwrap().samples_per_second;
    let measured = winner["samples_per_second"].as_f64().unwrap();
    assert!((again / measured - 1.0).abs() < 0.15, "{again} {measured}");
}

/// A command in place of another machine; the disk is emulated, so that two trials do not slow each other down.
#[test]
fn trials_that_a_launcher_runs_two_at_once_find_as_much() {
    let place = Place::with_images(400);
    let slots = place.path("slots");
    let launcher = format!("echo {{slot}} >> {}; sh -c {{}}", slots.display());
    let args = [
        "--json",
        "--max-workers",
        "6",
        "--jobs",
        "2",
        "--launcher",
        &launcher,
    ];
    let found = json(&tune(&place, &SLOW_DISK, &args).output().unwrap());
    let trials = found["trials"].as_array().unwrap();
    let slots = fs::read_to_string(slots).unwrap();
    assert_eq!(slots.lines().count(), trials.len(), "{found:#}");
    // Not only start and winner, whose second runs are the last.
    let mut searching = slots.lines().take(trials.len() - 2);
    assert!(searching.any(|slot| slot == "2"), "{slots}");
    let ratio = found["confirmation"]["ratio"].as_f64().unwrap();
    assert!(ratio > 1.6, "{found:#}");
    // Who ran each trial is noted, and what the trials said is gone.
    let noted = fs::read_to_string(place.path("tuned/launched/trials.jsonl")).unwrap();
    assert_eq!(noted.matches("\"host\"").count(), trials.len(), "{noted}");
    assert!(!place.path("tuned/launched/launched").exists());
}

/// The slot is not free yet when the next trial is decided on, and the third trial is lost with its machine.
#[test]
fn a_command_that_ends_late_or_loses_a_trial_does_not_end_the_search() {
    let place = Place::with_images(400);
    let mark = place.path("lost");
    let launcher = format!(
        "case {{}} in *' 2-'*) mkdir {} 2> /dev/null && exit 9 ;; esac; sh -c {{}}; sleep 1",
        mark.display()
    );
    let args = ["--json", "--max-workers", "6", "--launcher", &launcher];
    let found = json(&tune(&place, &SLOW_DISK, &args).output().unwrap());
    assert!(mark.exists(), "{found:#}");
    let ratio = found["confirmation"]["ratio"].as_f64().unwrap();
    assert!(ratio > 1.6, "{found:#}");
    let trials = found["trials"].as_array().unwrap();
    assert!(
        trials.iter().all(|trial| trial["result"] == "fits"),
        "{found:#}"
    );
}

#[test]
fn a_launcher_that_dies_after_the_start_leaves_what_was_found() {
    let place = Place::with_images(100);
    let launcher = "case {} in *' 0-'*) sh -c {} ;; *) echo gone >&2; false ;; esac";
    let out = tune(&place, &SLOW_DISK, &["--launcher", launcher])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_says(
        &text(&out.stderr),
        &[
            "the search ended early because",
            "its command failed",
            "gone",
        ],
    );
    assert_says(&text(&out.stdout), &["best yet  nothing changed"]);
    assert!(place.path("tuned/tuned.toml").exists());
}

#[test]
fn a_launcher_that_never_works_ends_the_search() {
    let place = Place::with_images(60);
    let args = ["--launcher", "echo no such host >&2; false {}"];
    let out = tune(&place, &SLOW_DISK, &args).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_says(&text(&out.stderr), &["its command failed", "no such host"]);
}

#[test]
fn the_table_ends_with_the_answers() {
    let place = Place::with_images(400);
    let args = ["--max-workers", "4", "--trials", "6"];
    let out = tune(&place, &SLOW_DISK, &args).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_says(
        &text(&out.stdout),
        &[
            "predicted samples/s",
            "nothing changed",
            "winner    num_workers=",
            "knee      ",
            "confirmed ",
            "next      ",
            "run it    stallscope run ",
        ],
    );
    assert_says(
        &text(&out.stderr),
        &["settings to search", "trial 2, num_workers="],
    );
}

/// 20 MiB and 1 MiB a sample, of 99 MiB: 79 samples fit.
#[test]
fn a_batch_that_does_not_fit_is_a_result() {
    let place = Place::with_images(400);
    let sets = [
        &SLOW_DISK[..],
        &[
            "emulated.memory=99MiB",
            "emulated.memory_base=20MiB",
            "emulated.memory_per_sample=1MiB",
        ],
    ];
    let args = [
        "--json",
        "--only-searched",
        "--search",
        "batch.size=20,70,100",
        "--search",
        "num_workers=1,8",
    ];
    let found = json(&tune(&place, &sets.concat(), &args).output().unwrap());
    let fits = |trial: &Value| trial["result"] == "fits";
    let large = |trial: &Value| trial["sets"].to_string().contains("batch.size=100");
    for trial in found["trials"].as_array().unwrap() {
        assert_eq!(fits(trial), !large(trial), "{trial}");
    }
    assert!(
        !found["winner"]["sets"]
            .to_string()
            .contains("batch.size=100")
    );
}

/// A place whose `run.toml` reads pictures of 16 x 16, each of which takes 10 ms to come; a step takes 10 ms.
fn with_pictures() -> Place {
    let place = Place::with_images(10);
    for class in ["a", "b"] {
        let folder = place.path("pictures").join(class);
        fs::create_dir_all(&folder).unwrap();
        for number in 0..20 {
            let picture = image::RgbImage::from_pixel(16, 16, image::Rgb([number; 3]));
            picture.save(folder.join(format!("{number}.png"))).unwrap();
        }
    }
    let config = format!(
        "device = \"emulated:custom\"\nemulated.step_base = \"10ms\"\nbatch.size = 4\nwarmup_steps = 2\n\
         preprocess.size = 16\nstorage.emulate = \"custom\"\nstorage.latency = \"10ms\"\nstorage.seek = \"0ms\"\n\
         source.kind = \"image-folder\"\nsource.path = {:?}\n",
        place.path("pictures")
    );
    fs::write(place.path("run.toml"), config).unwrap();
    place
}

/// Whether a trial has all of `sets`, and no others.
fn has(trial: &Value, sets: &[&str]) -> bool {
    trial["sets"] == serde_json::json!(sets)
}

/// The example of the help. The start's run does not say what another way to read costs; its own run does.
#[test]
fn what_cannot_be_forecast_is_tried() {
    let place = with_pictures();
    let args = [
        "--json",
        "--only-searched",
        "--search",
        "read.method=mmap,pread",
        "--search",
        "read.workers=1..=4",
    ];
    let found = json(&tune(&place, &[], &args).output().unwrap());
    let trials = found["trials"].as_array().unwrap();
    let mapped = &trials[1];
    assert!(has(mapped, &["read.method=mmap"]), "{found:#}");
    assert_eq!(mapped["purpose"], "unmeasured");
    assert_eq!(
        (&mapped["predicted"], &mapped["not_learned"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(found["never_tried"], serde_json::json!([]));
    // With it every point has a forecast.
    assert_eq!(found["excluded"]["unforecastable"], 0);
    assert_eq!(found["forecast_points"], 8);
    // Four workers bring the batch of four in the time of a step; the disk serves any number at a time.
    let winner = found["winner"]["sets"].to_string();
    assert!(winner.contains("read.workers=4"), "{found:#}");
    assert!(
        found["confirmation"]["ratio"].as_f64().unwrap() > 2.0,
        "{found:#}"
    );
    let led = trials.iter().filter(|trial| trial["purpose"] == "best");
    for trial in led {
        assert!(
            trial["predicted"]["loader_memory_bytes"].is_u64(),
            "{trial}"
        );
    }
}

#[test]
fn what_there_were_no_trials_for_is_named() {
    let place = with_pictures();
    let args = [
        "--trials",
        "4",
        "--only-searched",
        "--search",
        "read.method=mmap,pread,ram",
    ];
    let out = tune(&place, &[], &args).output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_says(
        &text(&out.stdout),
        &[
            "never tried: read.method=ram;",
            "--trials 5 ",
            "read.method=mmap ",
        ],
    );
}

/// Less memory than the start's loader takes: only smaller ones are left.
#[test]
fn the_loaders_memory_can_be_limited() {
    let place = Place::with_images(400);
    // A batch of 10 pictures of 28 x 28 floats takes 31 kB; 64 batches of them 2 MB.
    let args = [
        "--json",
        "--max-memory",
        "500kB",
        "--only-searched",
        "--search",
        "num_workers=1,2",
        "--search",
        "prefetch_factor=1,2,32",
    ];
    let found = json(&tune(&place, &SLOW_DISK, &args).output().unwrap());
    assert_eq!(found["excluded"]["memory"], 2, "{found:#}");
    assert!(
        !found["winner"]["sets"].to_string().contains("32"),
        "{found:#}"
    );
}

#[test]
fn it_can_be_stopped() {
    let place = Place::with_images(400);
    let mut command = tune(&place, &SLOW_DISK, &[]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let noted = place.path("tuned/trials.jsonl");
    let started = Instant::now();
    while fs::read_to_string(&noted)
        .unwrap_or_default()
        .lines()
        .count()
        < 1
    {
        assert!(started.elapsed() < Duration::from_secs(60), "no trial");
        thread::sleep(Duration::from_millis(10));
    }
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(fs::read_to_string(&noted).unwrap().ends_with('\n'));
    assert!(fs::exists(place.path("tuned/tuned.toml")).unwrap());
}

#[test]
fn a_start_that_does_not_fit_is_told() {
    let place = Place::with_images(100);
    let memory = ["emulated.memory=1MiB", "emulated.memory_base=2MiB"];
    let out = tune(&place, &[&SLOW_DISK[..], &memory].concat(), &[])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
    assert_says(
        &text(&out.stderr),
        &["does not fit", "stallscope batch-size"],
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::with_images(60);
    let refused = |sets: &[&str], args: &[&str], code: i32, parts: &[&str]| {
        let out = tune(&place, sets, args).output().unwrap();
        assert_eq!(out.status.code(), Some(code), "{}", text(&out.stderr));
        assert_says(&text(&out.stderr), parts);
    };
    for mode in ["mode=device-only", "mode=host-resident"] {
        refused(&[mode], &[], 1, &["nothing to tune", "mode=normal"]);
        assert!(!place.path("tuned").exists());
    }
    refused(
        &[],
        &["--search", "num_wrokers=1,2"],
        1,
        &["--search num_wrokers=1", "did you mean `num_workers`?"],
    );
    refused(&[], &["--trials", "3"], 2, &["at least 4"]);
    refused(&[], &["--max-memory", "much"], 2, &["such as 8GiB"]);
    refused(&[], &["--only-searched"], 2, &["--search"]);
}

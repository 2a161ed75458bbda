//! The guard against too many workers, on the program itself: training on the CPU of the machine at hand, with real
//! images. Two of its cores are enough: on many more a loader of images as small as these crowds nobody.
//!
//! Other programs on the same cores hide what the loader does, so the best of three runs counts. How much decoding
//! costs beside training differs from machine to machine: the model's images are made as large as it takes here.

mod program;

use program::with_deadline;
use stallscope::report::Report;
use stallscope::timeline::LaneKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};
use tempfile::TempDir;

const CONFIG: &str = "pipeline = \"jpeg-folder.toml\"\ndevice = \"cpu\"\nwarmup_steps = 5\nsteps = 60\n\
                      trace.enabled = false\n\
                      [model]\nkind = \"small-cnn\"\n\
                      [generate]\nimages = 600\nclasses = 10\nformat = \"jpeg\"\n";
const LATENCY: [&str; 2] = ["storage.emulate=\"custom\"", "storage.latency=\"10ms\""];

/// A folder with the configuration; the data is made in it by the first run.
static PLACE: LazyLock<TempDir> = LazyLock::new(|| {
    let place = tempfile::tempdir().unwrap();
    let pipeline = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines/jpeg-folder.toml");
    std::fs::copy(pipeline, place.path().join("jpeg-folder.toml")).unwrap();
    std::fs::write(place.path().join("run.toml"), CONFIG).unwrap();
    place
});

/// CPU time of the loader over that of the trainer: more, and two cores have no time left; much less, and the
/// workers keep the trainer from nothing.
const LOADER_PER_TRAINER: f64 = 0.9;

/// Width of the images that the model is given, so that the two are so; one worker a stage tells what they cost.
static WIDTH: LazyLock<usize> = LazyLock::new(|| {
    let mut width = 96.0;
    for _ in 0..3 {
        let report = report_at(width as usize, &[]);
        let cpu = |trainer: bool| -> f64 {
            let threads = report.workers.iter();
            let threads = threads.filter(|worker| (worker.kind == LaneKind::Trainer) == trainer);
            threads
                .map(|worker| (worker.usage.user + worker.usage.system).seconds())
                .sum()
        };
        let found = cpu(false) / cpu(true);
        println!("images of {width:.0}: the loader takes {found:.2} of the trainer's CPU time");
        if (found / LOADER_PER_TRAINER - 1.0).abs() < 0.1 {
            break;
        }
        // Both costs of the model's images grow with their area.
        width = (width * (found / LOADER_PER_TRAINER).sqrt()).clamp(32.0, 256.0);
    }
    width as usize
});

/// Held by whoever runs.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Workers on the cores that a run gets, four for each.
const CORES: usize = 2;
const WORKERS: usize = 4 * CORES;

/// The numbers of that many cores of this machine; fewer where it has fewer.
fn cores() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let listed = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let ranges = listed.unwrap().trim().split(',');
    let numbers = ranges.flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse::<usize>().unwrap()..=last.parse::<usize>().unwrap()
    });
    numbers.take(CORES).map(|core| core.to_string()).collect()
}

/// The report of a run with `sets`.
fn report(sets: &[String]) -> Report {
    report_at(*WIDTH, sets)
}

/// The same on images of that width.
fn report_at(width: usize, sets: &[String]) -> Report {
    let out: PathBuf = PLACE.path().join("out");
    let mut command = with_deadline(Command::new("taskset"));
    command.args(["-c", &cores().join(",")]);
    command.arg(env!("CARGO_BIN_EXE_stallscope"));
    command.current_dir(PLACE.path()).args(["run", "run.toml"]);
    command.arg("--run-dir").arg(&out);
    command.args(["--set", &format!("preprocess.size={width}")]);
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    let ran = command.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{sets:?}: {said}");
    Report::from_json(&std::fs::read(out.join("report.json")).unwrap()).unwrap()
}

/// One of three runs with `sets` must do what `holds` asks.
fn best_of_three(sets: &[String], holds: impl Fn(&Report) -> bool) {
    let _alone = ONE_AT_A_TIME.lock();
    let mut reports = (0..3)
        .map(|_| report(sets))
        .map(|report| match holds(&report) {
            true => Ok(()),
            false => Err(format!(
                "guard {:?}, verdict {:?}, window {}, CPU {:?}, of others {:?}",
                report.guard,
                report.verdict,
                report.window_ns,
                report.process_cpu_ns,
                report.other_programs_cpu_ns
            )),
        });
    let mut refused = Vec::new();
    let held = reports.any(|tried| tried.map_err(|why| refused.push(why)).is_ok());
    assert!(held, "{sets:?}: {refused:#?}");
}

/// Four decode workers for each core, which the trainer's thread has to share with them.
#[test]
fn four_workers_a_core_are_too_many() {
    let found = cores().len();
    if found < CORES {
        return println!("skipped: with {found} core the trainer has none of its own to lose");
    }
    let sets = [format!("decode.workers={WORKERS}")];
    best_of_three(&sets, |report| {
        report.guard.as_ref().is_some_and(|guard| {
            guard.stage.is_some_and(|stage| stage.name() == "decode")
                && guard.workers == WORKERS
                && guard.enough < WORKERS
                && guard.lost_share > 0.05
                && guard.suggestion.at_most >= 1.05
        })
    });
}

/// As many read workers that wait for an emulated disk.
#[test]
fn workers_that_wait_for_the_disk_are_not() {
    let mut sets = vec![format!("read.workers={WORKERS}")];
    sets.extend(LATENCY.map(str::to_owned));
    best_of_three(&sets, |report| report.guard.is_none());
}

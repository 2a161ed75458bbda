//! Several processes that a launcher starts for one run: disjoint parts of the data, a report for each, one voice.

#[allow(dead_code, reason = "only good traces are checked here")]
#[path = "perfetto/engine.rs"]
mod engine;
#[allow(dead_code, reason = "runs have several ranks here")]
mod place;
mod program;

use place::Place;
use program::stallscope;
use serde_json::Value;
use stallscope::data::{GenerateOptions, generate};
use stallscope::report::{Report, Status};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const RANKS: usize = 3;
const DEVICE: [&str; 2] = ["device=emulated:custom", "emulated.step_base=1ms"];

/// `command` as the launcher that sets `variables` (of the rank, of their number) starts it as `rank` of `of`.
fn started(mut command: Command, variables: [&str; 2], rank: usize, of: usize) -> Child {
    command
        .env(variables[0], rank.to_string())
        .env(variables[1], of.to_string());
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().unwrap()
}

fn report(folder: &Path, rank: usize) -> Report {
    let path = folder.join(format!("rank-{rank}/report.json"));
    Report::from_json(&fs::read(path).unwrap()).unwrap()
}

fn ended(ranks: Vec<Child>) -> Vec<Output> {
    let ended = ranks
        .into_iter()
        .map(|rank| rank.wait_with_output().unwrap());
    let ended: Vec<Output> = ended.collect();
    for (rank, out) in ended.iter().enumerate() {
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "rank {rank}: {said}");
    }
    ended
}

#[test]
fn ranks_share_an_epoch_and_one_of_them_prints() {
    for variables in [
        ["RANK", "WORLD_SIZE"],
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
        ["PMI_RANK", "PMI_SIZE"],
        ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
    ] {
        // 334 each of 1,000, of which one rank's last is the epoch's first again: 6 full batches and the rest.
        let place = Place::with_images(1000);
        let sets = [&DEVICE[..], &["epochs=1", "warmup_steps=0"]].concat();
        let start = |rank| started(place.command(&sets), variables, rank, RANKS);
        let ended = ended((0..RANKS).map(start).collect());
        let printed: Vec<bool> = ended.iter().map(|out| !out.stdout.is_empty()).collect();
        assert_eq!(printed, [true, false, false], "{variables:?}");
        for rank in 0..RANKS {
            let report = report(&place.path("out"), rank);
            let (steps, samples) = (report.steps, report.samples);
            assert_eq!(report.status, Status::Complete);
            assert_eq!((steps, samples), (7, 334), "{variables:?}, rank {rank}");
            assert!(place.path(&format!("out/rank-{rank}/report.html")).exists());
            assert!(place.path(&format!("out/rank-{rank}/trace.json")).exists());
        }
    }
}

/// Nobody made the data before, and nobody names a folder.
#[test]
fn ranks_find_one_folder_and_make_the_data_once() {
    let place = tempfile::tempdir().unwrap();
    let config = "steps = 4\nbatch.size = 8\nsource.kind = \"image-folder\"\n\
                  source.path = \"photos\"\ngenerate.images = 120\npreprocess.size = 32\n\
                  device = \"emulated:custom\"\nemulated.step_base = \"1ms\"\n";
    fs::write(place.path().join("run.toml"), config).unwrap();
    let start = |rank| {
        let mut command = stallscope();
        command
            .args(["run", "run.toml", "--json"])
            .current_dir(place.path());
        started(command, ["RANK", "WORLD_SIZE"], rank, RANKS)
    };
    let ended = ended((0..RANKS).map(start).collect());
    let shown: serde_json::Value = serde_json::from_slice(&ended[0].stdout).unwrap();
    assert_eq!(shown["steps"], 4);
    let latest = fs::canonicalize(place.path().join("traces/latest")).unwrap();
    assert!(latest.ends_with("rank-0"), "{}", latest.display());
    let common = latest.parent().unwrap();
    for rank in 0..RANKS {
        assert_eq!(report(common, rank).data.samples, 120);
    }
}

#[test]
fn ranks_that_cannot_be_are_refused() {
    let place = Place::with_images(200);
    let sets = [&DEVICE[..], &["rank.index=2", "rank.world_size=2"]].concat();
    place.refused(&sets, &["rank.index", "of 2 ranks the last is 1"]);
    let sets = [&DEVICE[..], &["rank.world_size=2", "trace.path=x.json"]].concat();
    place.refused(
        &sets,
        &["trace.path", "each rank has a trace in its own folder"],
    );
}

/// A key wins over the launcher, which fills in the other.
#[test]
fn keys_win_over_the_launcher() {
    let place = Place::with_images(300);
    let sets = [&DEVICE[..], &["rank.index=2", "epochs=1", "warmup_steps=0"]].concat();
    ended(vec![started(
        place.command(&sets),
        ["RANK", "WORLD_SIZE"],
        0,
        RANKS,
    )]);
    assert_eq!(report(&place.path("out"), 2).samples, 100);
}

/// No settings of its own.
const ALIKE: &[&str] = &[];

/// Starts as many ranks as `sets_of` has settings for, with `sets` for all.
fn start_all(place: &Place, sets: &[&str], sets_of: &[&[&str]]) -> Vec<Child> {
    let ranks = sets_of.iter().enumerate().map(|(rank, own)| {
        let sets = [sets, &["rank.all_reduce=true"], own].concat();
        started(
            place.command(&sets),
            ["RANK", "WORLD_SIZE"],
            rank,
            sets_of.len(),
        )
    });
    ranks.collect()
}

/// What `stallscope report` says of all ranks.
fn merged(place: &Place) -> serde_json::Value {
    let mut command = stallscope();
    command.arg("report").arg(place.path("out")).arg("--json");
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    serde_json::from_slice(&out.stdout).unwrap()
}

/// The union of two ranks' batches is the batch of one process, and so is what they learn.
#[test]
#[cfg(feature = "cpu")]
fn ranks_that_average_gradients_train_one_model() {
    let sets = [
        "device=cpu",
        "model.kind=linear",
        "epochs=2",
        "steps=100",
        "warmup_steps=1",
    ];
    let alone = Place::with_images(200);
    let alone = alone.report(&[&sets[..], &["batch.size=20"]].concat());
    let place = Place::with_images(200);
    let sets = [&sets[..], &["batch.size=10"]].concat();
    ended(start_all(&place, &sets, &[ALIKE; 2]));
    let both = [0, 1].map(|rank| report(&place.path("out"), rank).training.losses);
    assert_eq!(alone.training.losses.len(), 20);
    for (step, expected) in alone.training.losses.iter().enumerate() {
        let [one, other] = both.each_ref().map(|losses| losses[step].unwrap());
        let (mean, expected) = (f64::midpoint(one, other), expected.unwrap());
        assert!(
            (mean - expected).abs() < 1e-4 * expected.max(0.01),
            "step {step}: {one} and {other} for {expected}"
        );
    }
    assert_ne!(both[0], both[1]);
}

/// Other programs may use the cores meanwhile, so `run` has three tries; not beside another one.
fn in_three_tries(run: impl Fn() -> Result<(), String>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let off: Vec<String> = (0..3).map_while(|_| run().err()).collect();
    assert!(off.len() < 3, "{off:#?}");
}

/// What is further off than a machine that does little else makes it: a name, what was found, what it is, and by how much the two
/// may differ.
fn compared(figures: &[(&str, f64, f64, f64)]) -> Result<(), String> {
    println!("{figures:.3?}");
    let off = |(_, found, own, most): &(&str, f64, f64, f64)| (found - own).abs() > *most;
    match figures.iter().any(off) {
        true => Err(format!("{figures:.3?}")),
        false => Ok(()),
    }
}

/// Samples a second of all ranks together.
fn rate(merged: &Value) -> f64 {
    let standing = merged["standing"].as_array().unwrap().iter();
    standing
        .map(|rank| rank["samples_per_second"].as_f64().unwrap())
        .sum()
}

/// Ranks and stages that others wait for, by the time. What only a core is lacking for is of no stage.
fn charged(merged: &Value) -> Vec<(u64, String)> {
    let mut times: BTreeMap<(u64, String), u64> = BTreeMap::new();
    for charge in merged["charges"].as_array().unwrap() {
        if let Some(stage) = charge["stage"].as_str() {
            let of = (charge["rank"].as_u64().unwrap(), stage.to_owned());
            *times.entry(of).or_default() += charge["ns"].as_u64().unwrap();
        }
    }
    let mut charged: Vec<_> = times.into_iter().collect();
    charged.sort_by_key(|(_, time)| Reverse(*time));
    charged.into_iter().map(|(of, _)| of).collect()
}

/// Four ranks with `sets`, of which rank 2 has `slow`, too, and is held up in `stage`, against four without.
fn straggle(sets: &[&str], slow: &[&str], stage: &str) -> Result<(), String> {
    let even = Place::with_images(2000);
    ended(start_all(&even, sets, &[ALIKE; 4]));
    let place = Place::with_images(2000);
    ended(start_all(&place, sets, &[ALIKE, ALIKE, slow, ALIKE]));
    let merged = [&even, &place].map(merged);
    let [even, late] = merged.each_ref().map(rate);
    let [_, merged] = merged;
    assert_eq!(charged(&merged)[0], (2, stage.to_owned()), "{merged}");
    assert_eq!(merged["mended"]["straggler"]["rank"], 2, "{merged}");
    // The reports of the others say how long they wait.
    let waited = |rank: usize| {
        let report = report(&place.path("out"), rank);
        let mut causes = report.idle_causes.iter();
        let wait = causes.find(|cause| cause.cause == "host: all-reduce");
        wait.map_or(0.0, |cause| cause.ns.0 as f64 / report.window_ns.0 as f64)
    };
    let gain = merged["mended"]["gain"]["value"].as_f64().unwrap();
    let share = merged["mended"]["share"].as_f64().unwrap();
    let mut figures = vec![
        ("gain", gain, even / late, 0.1 * even / late),
        ("share", share, 1.0 - late / even, 0.08),
    ];
    for rank in [0, 1, 3] {
        let found = &merged["ranks"][rank];
        let found = ["waited_for_others_ns", "window_ns"].map(|name| found[name].as_f64().unwrap());
        let own = waited(rank) - waited(2);
        figures.push(("wait", found[0] / found[1], own, 0.03));
    }
    compared(&figures)
}

/// A slow disk: a step of 40 ms, and a rank whose batches take 64 ms, since each of two workers reads 8 samples in 16 ms each.
#[test]
fn a_straggler_of_our_own_is_named_and_mending_it_is_predicted() {
    let sets = [
        "device=emulated:custom",
        "emulated.step_base=40ms",
        "batch.size=8",
        "num_workers=2",
        "steps=50",
        "warmup_steps=8",
    ];
    let slow = ["storage.emulate=custom", "storage.latency=16ms"];
    in_three_tries(|| straggle(&sets, &slow, "read"));
}

/// Steps that take less than a batch of large pictures does.
const OF_PICTURES: [&str; 8] = [
    "device=emulated:custom",
    "emulated.step_base=20ms",
    "batch.size=8",
    "num_workers=1",
    "warmup_steps=4",
    "drop_last=true",
    "source.kind=image-folder",
    "preprocess.size=32",
];

/// Small and large JPEG files of the same names, in `small` and `large` of the folder.
fn pictures() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, sides) in [("small", (64, 48)), ("large", (1600, 1200))] {
        let options = GenerateOptions {
            images: 64,
            classes: 2,
            width_range: sides.0..=sides.0,
            height_range: sides.1..=sides.1,
            ..GenerateOptions::new(folder.path().join(name))
        };
        generate(&options, &|_| ()).unwrap();
    }
    folder
}

/// A slow stage: a rank whose pictures nobody has shrunk.
#[test]
fn a_straggler_that_decodes_is_named_and_mending_it_is_predicted() {
    let pictures = pictures();
    let source = |name| format!("source.path={}", pictures.path().join(name).display());
    let (small, large) = (source("small"), source("large"));
    let sets = [&OF_PICTURES[..], &["steps=50", &small]].concat();
    in_three_tries(|| straggle(&sets, &[&large], "decode"));
}

/// Steps in a rank's log.
fn logged(place: &Place, rank: usize) -> usize {
    let log = fs::read_to_string(place.path(&format!("out/rank-{rank}/steps.jsonl")));
    let lines = log.map_or(0, |log| log.lines().count());
    // The first is about the rank.
    lines.saturating_sub(1)
}

const TURN: usize = 30;

/// Each rank in turn gets large pictures.
#[test]
fn a_straggler_of_our_own_that_changes_is_named_for_its_steps() {
    in_three_tries(change_stragglers);
}

fn change_stragglers() -> Result<(), String> {
    let pictures = pictures();
    let point = |rank: usize, size: &str| {
        let (link, new) = ["", ".new"]
            .map(|end| pictures.path().join(format!("{rank}{end}")))
            .into();
        symlink(pictures.path().join(size), &new).unwrap();
        fs::rename(new, link).unwrap();
    };
    let sources: Vec<String> = (0..4)
        .map(|rank| {
            format!(
                "source.path={}",
                pictures.path().join(rank.to_string()).display()
            )
        })
        .collect();
    let own: Vec<[&str; 1]> = sources.iter().map(|source| [source.as_str()]).collect();
    let own: Vec<&[&str]> = own.iter().map(|own| &own[..]).collect();
    let sets = [&OF_PICTURES[..], &["steps=116"]].concat();
    (0..4).for_each(|rank| point(rank, "small"));
    let even = Place::with_images(10);
    ended(start_all(&even, &sets, &own));
    point(0, "large");
    let place = Place::with_images(10);
    let ranks = start_all(&place, &sets, &own);
    let deadline = Instant::now() + Duration::from_secs(300);
    for rank in 1..4 {
        while logged(&place, 0) < TURN * rank {
            assert!(Instant::now() < deadline, "{} steps", logged(&place, 0));
            sleep(Duration::from_millis(5));
        }
        point(rank - 1, "small");
        point(rank, "large");
    }
    ended(ranks);
    let [even, merged] = [&even, &place].map(merged);
    let stretches = merged["stretches"].as_array().unwrap();
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap();
    let stragglers: Vec<u64> = stretches.iter().map(|own| number(own, "rank")).collect();
    if stragglers != [0, 1, 2, 3] {
        return Err(merged["stretches"].to_string());
    }
    for (rank, stretch) in stretches.iter().enumerate() {
        let first = number(stretch, "first_step") as usize;
        assert!(first.abs_diff(TURN * rank) <= 10, "{stretches:?}");
    }
    assert_eq!(merged["mended"]["straggler"], "changing");
    let mut most = charged(&merged);
    most.truncate(4);
    most.sort();
    let decode = [0, 1, 2, 3].map(|rank| (rank, "decode".to_owned()));
    if most != decode {
        return Err(merged["charges"].to_string());
    }
    let (gain, gave) = (
        merged["mended"]["gain"]["value"].as_f64().unwrap(),
        rate(&even) / rate(&merged),
    );
    compared(&[("gain", gain, gave, 0.12 * gave)])
}

/// How much later the clock of the other machine says it is, and how much faster it goes.
const LATER_NS: f64 = 3e6;
const DRIFT: f64 = 20e-6;

/// What a rank has written, as if its machine were another one, since when `at` its clock has gone wrong.
fn on_another_machine(folder: &Path) {
    let log = folder.join("steps.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let mut lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut header = lines.next().unwrap();
    let begun = header["clock_ns"].as_f64().unwrap();
    let wrong = |at: f64| (at + 7e9 + DRIFT * (at - begun)).round() as u64;
    for key in ["clock_ns", "monotonic_ns"] {
        header[key] = wrong(header[key].as_f64().unwrap()).into();
    }
    header["unix_ns"] = ((header["unix_ns"].as_f64().unwrap() + LATER_NS) as u64).into();
    header["boot_id"] = "another".into();
    let steps = lines.map(|line| match line.as_array() {
        Some(times) => times
            .iter()
            .map(|time| wrong(time.as_f64().unwrap()))
            .collect(),
        None => line,
    });
    let written: Vec<String> = std::iter::once(header)
        .chain(steps)
        .map(|line| line.to_string())
        .collect();
    fs::write(&log, written.join("\n") + "\n").unwrap();
    let path = folder.join("report.json");
    let mut report: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let base = &mut report["trace"]["base_ns"];
    let base_ns = base.as_f64().unwrap();
    *base = wrong(base_ns).into();
    fs::write(&path, report.to_string()).unwrap();
    let path = folder.join("trace.json");
    let mut events: Vec<Value> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for event in &mut events {
        let Some(start) = event["ts"].as_f64() else {
            continue;
        };
        // Whole nanoseconds, so that slices that touch still do.
        let wrong = |micros: f64| (1e3 * micros * (1.0 + DRIFT)).round();
        if let Some(length) = event["dur"].as_f64() {
            event["dur"] = ((wrong(start + length) - wrong(start)) / 1e3).into();
        }
        event["ts"] = (wrong(start) / 1e3).into();
    }
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    fs::write(&path, format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
}

/// When each step of the process whose name begins with `rank` ended, in nanoseconds.
fn step_ends(trace: &[Value], rank: &str) -> Vec<f64> {
    let named = |event: &&Value| {
        let name = event["args"]["name"].as_str().unwrap_or("");
        event["name"] == "process_name" && name == format!("{rank}: trainer and device")
    };
    let pid = &trace.iter().find(named).unwrap()["pid"];
    let own = trace
        .iter()
        .filter(|event| event["name"] == "step" && event["ph"] == "X");
    let own = own.filter(|event| event["pid"] == *pid);
    own.map(|event| 1e3 * (event["ts"].as_f64().unwrap() + event["dur"].as_f64().unwrap()))
        .collect()
}

/// Two real processes, whose files say the times of two machines: one trace of both has them on one clock.
#[test]
fn traces_of_two_machines_are_one_on_one_clock() {
    let place = Place::with_images(1000);
    let sets = [
        "device=emulated:custom",
        "emulated.step_base=5ms",
        "batch.size=8",
        "num_workers=1",
        "steps=300",
    ];
    ended(start_all(&place, &sets, &[ALIKE; 2]));
    on_another_machine(&place.path("out/rank-1"));
    let merged = merged(&place);
    let clock = &merged["clocks"][0];
    let number = |key: &str| clock[key].as_f64().unwrap();
    let error = number("error_ns");
    assert!(
        (number("later_ns") - LATER_NS).abs() <= error + 3e5,
        "{clock}"
    );
    let trace = place.path("out/trace.json");
    assert_eq!(merged["trace"], trace.display().to_string());
    let events: Vec<Value> = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
    let [own, other] = ["rank 0", "rank 1"].map(|rank| step_ends(&events, rank));
    assert!(
        own.len() > 100 && own.len() == other.len(),
        "{} and {}",
        own.len(),
        other.len()
    );
    let close = own
        .iter()
        .zip(&other)
        .filter(|(own, other)| (*own - *other).abs() <= error);
    let close = close.count() as f64 / own.len() as f64;
    assert!(
        close > 0.85,
        "{close} of the steps end within {error} ns of each other: {clock}"
    );
    if let Some(engine) = engine::engine() {
        engine::takes_all(&engine, &trace);
    }
}

#[test]
fn a_rank_that_is_waited_for_is_told_of() {
    let place = Place::with_images(200);
    let sets = [&DEVICE[..], &["rank.all_reduce=true", "steps=10"]].concat();
    let start = |rank| started(place.command(&sets), ["RANK", "WORLD_SIZE"], rank, 2);
    let mut early = start(1);
    let mut said = BufReader::new(early.stderr.take().unwrap()).lines();
    let waits = said.find(|line| line.as_ref().is_ok_and(|line| line.contains("waits")));
    let waits = waits.expect("it waits").unwrap();
    assert_eq!(waits, "rank 1 waits for rank 0 to start");
    ended(vec![start(0)]);
    assert!(early.wait().unwrap().success());
}

#[test]
fn a_rank_that_is_killed_ends_the_others_and_their_reports_say_so() {
    let place = Place::with_images(1000);
    let sets = [&DEVICE[..], &["steps=100000", "num_workers=1"]].concat();
    let mut ranks = start_all(&place, &sets, &[ALIKE; 3]);
    let logs = [0, 1, 2].map(|rank| place.path(&format!("out/rank-{rank}/steps.jsonl")));
    let deadline = Instant::now() + Duration::from_secs(60);
    // All are under way.
    while logs
        .iter()
        .any(|log| fs::metadata(log).map_or(0, |log| log.len()) < 2000)
    {
        assert!(Instant::now() < deadline, "no steps");
        sleep(Duration::from_millis(20));
    }
    ranks[1].kill().unwrap();
    let ended = ranks
        .into_iter()
        .map(|rank| rank.wait_with_output().unwrap());
    let ended: Vec<Output> = ended.collect();
    let said = |rank: usize| String::from_utf8_lossy(&ended[rank].stderr);
    assert!(Instant::now() < deadline, "{}", said(0));
    for rank in [0, 2] {
        assert_eq!(ended[rank].status.code(), Some(1), "{}", said(rank));
        assert_eq!(report(&place.path("out"), rank).status, Status::Failed);
    }
    assert!(said(2).contains("rank 1 is gone"), "{}", said(2));
    let merged = merged(&place);
    assert!(merged["steps"].as_u64().unwrap() > 10, "{merged}");
    assert_eq!(merged["missing"].as_array().unwrap().len(), 0);
}

//! The emulated device through the whole program: what it says is arithmetic, and every output says that it
//! is emulated.

mod place;
mod program;

use place::Place;
use stallscope::report::{DeviceReport, Report, Status};
use stallscope::timeline::Nanos;
use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A step takes 9.7 ms, the copy of its batch 10.
const COPY_BOUND: [&str; 3] = [
    "device=emulated:custom",
    "emulated.step_base=9.7ms",
    "emulated.copy_latency=10ms",
];

fn with<'a>(sets: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [sets, more].concat()
}

fn device(report: &Report) -> &DeviceReport {
    report.device.as_ref().unwrap()
}

fn utilization(device: &DeviceReport) -> f64 {
    device.emulated.as_ref().unwrap().accelerator_utilization
}

/// The causes of device idle time in all.
fn caused(report: &Report) -> Nanos {
    report.idle_causes.iter().map(|cause| cause.ns).sum()
}

/// Runs `body` while other threads keep every core computing.
fn under_load<T>(body: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let compute = || {
        let mut sum = 0u64;
        while !stop.load(Ordering::Relaxed) {
            sum = black_box((0..10_000u64).fold(sum, |sum, n| sum.wrapping_mul(31) ^ n));
        }
    };
    let cores = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(compute);
        }
        let result = body();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn it_is_as_busy_as_arithmetic_says_while_the_cores_are_loaded() {
    let place = Place::with_images(200);
    let sets = with(&COPY_BOUND, &["steps=200"]);
    // A machine that stands still for the length of two copies makes the device wait for the host.
    let mut attempts = (0..3).map(|_| under_load(|| place.report(&sets)));
    let as_planned = |report: &Report| (device(report).busy_share - 0.97).abs() <= 0.001;
    let report = attempts.find(as_planned).expect("97 % within 0.1 point");
    assert_eq!(utilization(device(&report)), device(&report).busy_share);
    let first = &report.idle_causes[0];
    assert_eq!(first.stage.unwrap().name(), "copy", "{first:?}");
    assert_eq!(caused(&report), device(&report).idle_ns);
}

/// Preprocessing on the device is busy time and no part of accelerator utilization; nor is what the first
/// step waits for part of that.
#[test]
fn utilization_is_time_in_steps() {
    let place = Place::with_images(200);
    let sets = [
        "device=emulated:custom",
        "emulated.step_per_sample=0.1ms",
        "emulated.preprocess_per_sample=0.1ms",
        "steps=20",
        "warmup_steps=0",
    ];
    let report = place.report(&sets);
    let device = device(&report);
    assert!((utilization(device) - 0.5).abs() < 0.01, "{device:?}");
    assert!((0.7..1.0).contains(&device.busy_share), "{device:?}");
}

#[test]
fn every_output_says_that_it_is_emulated() {
    let place = Place::with_images(200);
    let out = place.run(&["device=emulated:resnet50-h100", "steps=5"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    for part in [
        "emulated:resnet50-h100",
        "no model is trained",
        "AU ",
        "MLPerf",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert!(!said.contains("loss"), "{said}");
    let trace = fs::read_to_string(place.path("out/trace.json")).unwrap();
    for lane in ["device (emulated)", "copy engine (emulated)"] {
        assert!(trace.contains(lane), "{lane}");
    }
    let report = place.last_report();
    assert!(!device(&report).emulated.as_ref().unwrap().trains);
    assert_eq!(report.config["emulated"]["step_per_sample_ns"], 560_000);
    assert_eq!(report.training.last_loss, None);
}

/// Reads wait for an emulated store and steps for an emulated device, so that neither has to do with the cores.
#[test]
fn the_verdict_predicts_what_its_change_brings() {
    let place = Place::with_images(2_000);
    let sets = [
        "device=emulated:custom",
        "emulated.step_base=4ms",
        "storage.emulate=custom",
        "storage.latency=200us",
        "read.workers=1",
        "steps=38",
    ];
    let try_it = || {
        let before = place.report(&sets);
        let suggestion = before.verdict.unwrap().suggestion.unwrap();
        let change = &suggestion.sets()[0];
        assert!(change.starts_with("read.workers="), "{suggestion:?}");
        let predicted = suggestion.predicted.unwrap();
        assert!(predicted <= suggestion.at_most, "{suggestion:?}");
        let after = place.report(&with(&sets, &[change]));
        let gain = after.samples_per_second / before.samples_per_second;
        let agree = gain > 1.5 && (predicted / gain - 1.0).abs() < 0.15;
        (agree, format!("{suggestion:?}, gained {gain}"))
    };
    // A machine that stands still in one of the two runs is none that either can know of.
    let mut said = Vec::new();
    let agrees = (0..3).any(|_| {
        let (agree, what) = try_it();
        said.push(what);
        agree
    });
    assert!(agrees, "{said:#?}");
}

#[test]
fn burn_trains_beside_it_where_asked() {
    let place = Place::with_images(230);
    let sets = [
        "train=true",
        "model.kind=linear",
        "epochs=2",
        "split.test=30",
    ];
    let emulated = with(&sets, &["device=emulated:custom", "emulated.step_base=1ms"]);
    let report = place.report(&emulated);
    assert!(device(&report).emulated.as_ref().unwrap().trains);
    let (emulated, on_cpu) = (report.training, place.report(&sets[1..]).training);
    assert_eq!((emulated.parameters, emulated.steps), (Some(7850), 8));
    assert_eq!(emulated.losses, on_cpu.losses);
    assert_eq!(emulated.epochs, on_cpu.epochs);
    assert_eq!(emulated.evaluations[0].score, on_cpu.evaluations[0].score);
}

/// Nothing of the loader or of the copies is in the way, whatever they take.
#[test]
fn device_only_runs_at_the_rate_of_the_device() {
    let place = Place::with_images(300);
    let sets = [
        "device=emulated:custom",
        "emulated.step_base=2ms",
        "emulated.step_per_sample=20us",
        "emulated.copy_latency=12ms",
        "steps=150",
        "warmup_steps=0",
    ];
    let starved = place.report(&sets).samples_per_second;
    assert!(starved < 50.0 / 12e-3 * 1.01, "{starved}");
    let sets = with(&sets, &["mode=device-only"]);
    // A machine that stands still for two steps makes the device wait for the host.
    let mut attempts = (0..3).map(|_| place.report(&sets));
    let own = 50.0 / 3e-3;
    let report = attempts.find(|report| (report.samples_per_second / own - 1.0).abs() < 0.02);
    let report = report.expect("the device's own rate within 2 %");
    assert_eq!(report.config["mode"], "device-only");
    assert_eq!(report.config["warmup_steps"], 5);
    assert_eq!((report.steps, report.training.epoch), (150, 0));
    assert_eq!(report.stages, []);
    assert_eq!(report.verdict.as_ref().unwrap().title, "device-only");
    assert!(report.data_wait_share < 0.001, "{report:?}");
    assert_eq!(caused(&report), device(&report).idle_ns);
}

/// Fewer batches an epoch than would be kept, one of them short; epochs only say how many steps.
#[test]
fn device_only_needs_no_more_than_an_epoch() {
    let place = Place::with_images(70);
    let sets = [
        "device=emulated:custom",
        "emulated.step_base=1ms",
        "mode=device-only",
        "epochs=10",
    ];
    let out = place.run(&sets);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("mode     device-only"), "{said}");
    assert!(said.contains("the loader is out of the way"), "{said}");
    assert!(!said.contains("try --set"), "{said}");
    let report = place.last_report();
    assert_eq!(report.steps, 20);
    assert_eq!(report.samples, 700, "50 and 20 in turns, after 5 steps");
    assert_eq!(report.training.steps, 25);
    assert_eq!(report.trace.unwrap().step_slices_expected, 25);
}

/// Nobody waits for the hour that the device says it needs.
#[test]
fn a_run_can_be_stopped_while_the_device_is_busy() {
    let place = Place::with_images(200);
    let sets = ["device=emulated:custom", "emulated.step_base=3600s"];
    let mut child = place.command(&sets).spawn().unwrap();
    let report = place.path("out/report.json");
    let started = Instant::now();
    while !report.exists() && started.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(20));
    }
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let asked = Instant::now();
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let status = child.wait().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(2), "{status}");
    assert_eq!(place.last_report().status, Status::Interrupted);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::with_images(60);
    place.refused(
        &["device=emulated:h200"],
        &["emulated:NAME", "resnet50-a100"],
    );
    place.refused(
        &["device=emulated:custom"],
        &["takes no time", "emulated.step_base"],
    );
    place.refused(&["train=true"], &["`train`", "emulated"]);
    place.refused(
        &["device=emulated:custom", "emulated.step_base=5"],
        &["a time such as", "5"],
    );
    place.refused(&["storage.latency=5ms"], &["storage.emulate"]);
}

//! Pipelines of the user's own whose steps are done by a device beside the loop.

use super::*;
use crate::analysis::Cause;
use crate::report::{Report, Status, render};
use crate::timeline::Nanos;
use std::panic::catch_unwind;
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// `make` takes so many milliseconds a sample, of which a batch has 4.
fn loader(make: u64, devices: &[&str]) -> Loader<Vec<u32>> {
    let builder = source("make", 1_000, move |key| {
        sleep(Duration::from_millis(make));
        Ok(key.index)
    });
    let builder = builder.collate(Ok).batch_size(4).warmup_steps(5).steps(60);
    let builder = devices
        .iter()
        .fold(builder, |builder, name| builder.device(name));
    builder.start().unwrap()
}

/// A device that takes so many milliseconds for each thing it is given, in order.
fn device(takes: u64) -> (Sender<Submitted>, JoinHandle<()>) {
    let (give, given) = channel::<Submitted>();
    let thread = spawn(move || {
        for work in given {
            sleep(Duration::from_millis(takes));
            work.done();
        }
    });
    (give, thread)
}

/// Trains on one device, of which the loop runs up to two steps ahead.
fn run(make: u64, takes: u64) -> Report {
    let mut loader = loader(make, &["npu"]);
    let (give, thread) = device(takes);
    while let Some(batch) = loader.next() {
        batch.unwrap();
        give.send(loader.submit("npu").unwrap()).unwrap();
        loader.wait_for_room(2);
    }
    drop(give);
    thread.join().unwrap();
    let report = loader.finish();
    assert_eq!((report.status, &report.error), (Status::Complete, &None));
    assert_eq!((report.steps, report.samples), (55, 220));
    let device = report.device.as_ref().unwrap();
    assert_eq!(device.name, "npu");
    let causes: Nanos = report.idle_causes.iter().map(|cause| cause.ns).sum();
    assert_eq!(causes, device.idle_ns, "to the nanosecond");
    report
}

/// Other programs, and tests that run beside, disturb a run in real time: best of three.
fn best_of_three(attempt: fn()) {
    let fails = || catch_unwind(attempt).is_err();
    if fails() && fails() {
        attempt();
    }
}

#[test]
fn a_device_beside_the_loop_waits_for_a_slow_stage() {
    best_of_three(slow_stage);
}

fn slow_stage() {
    // 12 ms a batch, of which the device takes 4 ms.
    let report = run(3, 4);
    let busy = report.device.as_ref().unwrap().busy_share;
    assert!((0.2..0.45).contains(&busy), "{busy}");
    let make = report.pipeline.named("make").unwrap();
    assert_eq!(report.idle_causes[0].kind, Cause::Capacity(make));
    let text = render(&report);
    assert!(text.starts_with("verdict  loader-bound: make"), "{text}");
    // With four threads the device is the limit, and not the other programs of this moment.
    let mut alone = report.clone();
    alone.profile.as_mut().unwrap().other_programs_cores = 0.0;
    let forecast = Predictor::from_report(&alone).unwrap();
    let rate = |sets: &[&str]| forecast.predict(sets).unwrap().samples_per_second.value;
    let (same, four) = (rate(&[]), rate(&["make.workers=4"]));
    assert!(
        (0.9..1.1).contains(&(same / report.samples_per_second)),
        "{same}"
    );
    assert!(four > 1.8 * same && four < 4.0 / 0.004 + 10.0, "{four}");
}

#[test]
fn a_device_beside_the_loop_that_is_slow_is_busy() {
    best_of_three(slow_device);
}

fn slow_device() {
    let report = run(1, 9);
    let busy = report.device.as_ref().unwrap().busy_share;
    assert!(busy > 0.9, "{busy}");
    let text = render(&report);
    assert!(text.starts_with("verdict  device-bound"), "{text}");
    // The loop's own time is none of it: it waits for the device, and not the other way round.
    assert!(report.samples_per_second < 4.0 / 0.009 + 1.0);
}

#[test]
fn a_step_ends_with_the_last_of_its_devices() {
    best_of_three(two_devices);
}

fn two_devices() {
    let mut loader = loader(1, &["left", "right"]);
    let (short, long) = (device(2), device(8));
    while let Some(batch) = loader.next() {
        batch.unwrap();
        short.0.send(loader.submit("left").unwrap()).unwrap();
        long.0.send(loader.submit("right").unwrap()).unwrap();
        loader.wait_for_room(1);
    }
    loader.wait_for_room(0);
    let report = loader.finish();
    assert_eq!(
        (report.steps, report.samples, report.error),
        (55, 220, None)
    );
    assert!(report.samples_per_second < 4.0 / 0.008 + 1.0);
    assert!(report.device.unwrap().busy_share > 0.9);
}

#[test]
fn what_no_device_tells_of_is_left_out_and_said() {
    let mut loader = loader(0, &["npu"]);
    let mut kept = Vec::new();
    while let Some(batch) = loader.next() {
        let submitted = loader.submit("npu").unwrap();
        match batch.unwrap() {
            _ if kept.len() < 3 => kept.push(submitted),
            _ => submitted.done(),
        }
    }
    let report = loader.finish();
    let said = "3 steps were submitted and never said to be done";
    assert!(
        report
            .error
            .as_ref()
            .is_some_and(|error| error.starts_with(said))
    );
    assert_eq!((report.status, report.steps), (Status::Complete, 52));
    kept.into_iter().for_each(Submitted::done);
}

#[test]
fn a_device_that_is_given_nothing_is_said() {
    let mut unused = loader(0, &["npu"]);
    let error = unused.submit("gpu").err().unwrap().to_string();
    assert!(
        error.starts_with("there is no device `gpu`; the devices are npu"),
        "{error}"
    );
    assert!(matches!(unused.submit("npu"), Err(LoaderError::NoStep)));
    assert_eq!(unused.by_ref().map(Result::unwrap).count(), 60);
    let error = unused.finish().error.unwrap();
    assert!(
        error.starts_with("no step was given to the device"),
        "{error}"
    );
}

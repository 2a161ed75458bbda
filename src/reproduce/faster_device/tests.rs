//! What is said of loaders whose runs are made up.

use super::*;
use crate::report::{DataReport, Report};
use crate::reproduce::fixture::{device, idle, nanos};
use serde_json::json;

/// As published: between the middles of 14.4 to 15.2 s and 14.1 to 15.8 s.
const GAIN: f64 = 14.8 / 14.95;
const CLAIM: Span = Span {
    low: 5.0,
    high: 20.0,
};

fn report(on: &str, step_ns: f64, wait: f64, cause: &str) -> Report {
    Report {
        config: json!({"pipeline": {"batch": {"size": 100}, "drop_last": false}}),
        data: DataReport {
            samples: 10_000,
            ..DataReport::default()
        },
        steps: 1,
        window_ns: nanos(step_ns),
        samples_per_second: 1e11 / step_ns,
        data_wait_share: wait,
        device: device(on, 1.0 - wait),
        idle_causes: vec![idle(cause, wait * step_ns)],
        ..Report::default()
    }
}

fn loader<'a>(name: &'a str, report: &'a Report) -> Loader<'a> {
    Loader {
        name,
        run: Evidence::of(report),
        emulated: Vec::new(),
        gpu: None,
    }
}

fn tried(gain: f64, report: &Report) -> Tried<'_> {
    Tried {
        times: 20.0,
        gain: Measurement::of(&[gain]).unwrap(),
        run: Evidence::of(report),
    }
}

#[test]
fn a_device_shortens_only_what_does_not_wait() {
    assert_eq!(gain(0.0, 20.0), 20.0);
    assert_eq!(gain(1.0, 20.0), 1.0);
    assert!((gain(0.5, 10.0) - 1.0 / 0.55).abs() < 1e-12);
}

#[test]
fn a_slow_loader_is_the_answer_where_there_is_one() {
    let slow = report("cpu", 4e6, 0.95, "decode capacity");
    let fast = report("cpu", 0.25e6, 0.02, "copy");
    let said = explanation(&[loader("fast", &fast), loader("slow", &slow)], GAIN, CLAIM).join("\n");
    for part in [
        "With \"slow\" data binds: 95.0 % of an epoch waits for it (device busy 5.0 %;",
        "(device busy 5.0 %; idle by decode capacity (95.0 %)). By that share",
        "10 times as fast gains 1.05x",
        "With \"fast\" the device binds: only 2.0 % of an epoch waits for data (device busy 98.0 %; idle by copy (2.0 %)), so a faster one pays",
        "what a loader like \"slow\" lets any GPU be, 1.05x by its data wait.",
        "an epoch takes 25.0 ms in place of 400 ms",
        "can come true with \"fast\": a device 20 times as fast gains 14.5x by its data wait there",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn where_nothing_waits_for_data_the_device_is_what_binds() {
    let (one, other) = (
        report("cpu", 4e6, 0.01, "copy"),
        report("cpu", 2e6, 0.0, "copy"),
    );
    let said = explanation(&[loader("one", &one), loader("other", &other)], GAIN, CLAIM).join("\n");
    for part in [
        "With \"one\" the device binds",
        "With \"other\" the device binds",
        "one 20 times as fast 20.0x",
        "waiting for data does not explain it here",
        "can come true with \"other\"",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert!(!said.contains("data binds"), "{said}");
}

#[test]
fn where_everything_waits_the_claim_cannot_come_true() {
    let (one, other) = (
        report("cpu", 4e6, 0.9, "read capacity"),
        report("cpu", 2e6, 0.8, "copy"),
    );
    let said = explanation(&[loader("one", &one), loader("other", &other)], GAIN, CLAIM).join("\n");
    for part in [
        "what a loader like \"one\" lets any GPU be, 1.10x by its data wait.",
        "cannot come true with any of these loaders: with the best, \"other\", a device 20 times as fast gains 1.23x",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn a_loader_that_keeps_pace_and_no_more_is_found_by_trying() {
    let cpu = report("cpu", 4e6, 0.05, "copy");
    let starved = report("emulated:custom", 3.6e6, 0.9, "decode capacity");
    let tried = |gain| Loader {
        emulated: vec![tried(gain, &starved)],
        ..loader("one", &cpu)
    };
    let said = explanation(&[tried(1.1)], GAIN, CLAIM).join("\n");
    for part in [
        "With \"one\" data binds: 5.0 %",
        "gained 1.10x (device busy 10.0 %; idle by decode capacity (90.0 %)), since the loader delivers no more",
        "cannot come true",
        "gains 10.3x by its data wait and 1.10x emulated",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    let doubtful = Loader {
        emulated: vec![Tried {
            gain: Measurement::of(&[1.1, 1.4, 5.5]).unwrap(),
            ..super::tests::tried(1.4, &starved)
        }],
        ..loader("one", &cpu)
    };
    let said = explanation(&[doubtful], GAIN, CLAIM).join("\n");
    assert!(
        said.contains("what binds a faster device is open"),
        "{said}"
    );
    let said = explanation(&[tried(9.8)], GAIN, CLAIM).join("\n");
    assert!(said.contains("With \"one\" the device binds"), "{said}");
    assert!(!said.contains("delivers no more"), "{said}");
    // A device cannot gain what is waited for.
    let waiting = report("cpu", 4e6, 0.95, "copy");
    let noisy = Loader {
        emulated: vec![super::Tried {
            times: 20.0,
            gain: Measurement::of(&[9.8]).unwrap(),
            run: Evidence::of(&starved),
        }],
        ..loader("noisy", &waiting)
    };
    let said = explanation(&[noisy], GAIN, CLAIM).join("\n");
    assert!(said.contains("With \"noisy\" data binds: 95.0 %"), "{said}");
}

#[test]
fn an_emulation_that_waits_for_its_own_threads_is_no_evidence() {
    let cpu = report("cpu", 4e6, 0.013, "copy");
    let explained = |by: &str| {
        let mut starved = report("emulated:custom", 1e6, 0.9, "prefetch depth (copy)");
        starved.idle_causes = vec![
            idle(by, 0.3e6),
            idle("prefetch depth (copy)", 0.35e6),
            idle("CPU contention", 0.1e6),
        ];
        let emulated = vec![tried(3.53, &starved)];
        let loader = Loader {
            emulated,
            ..loader("one", &cpu)
        };
        explanation(&[loader], GAIN, CLAIM).join("\n")
    };
    let said = explained("wake-up");
    for part in [
        "With \"one\" what binds a faster device is open: 1.3 % of an epoch",
        "idle by prefetch depth (copy) (35.0 %), wake-up (30.0 %)",
        "the emulation itself waits for threads to wake and to get a core (40.0 % of the time), so it does not",
        "is left open with \"one\": a device 20 times as fast gains 16.0x by its data wait and 3.53x emulated there",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    for part in ["delivers no more", "cannot come true", "data binds"] {
        assert!(!said.contains(part), "{part:?} is in {said}");
    }
    let said = explained("decode capacity");
    for part in ["data binds in part", "delivers no more", "cannot come true"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn a_gpu_that_was_measured_is_told() {
    let (cpu, gpu) = (
        report("cpu", 4e6, 0.3, "copy"),
        report("cuda:0", 2e6, 0.6, "copy"),
    );
    let loader = Loader {
        gpu: Some(Evidence::of(&gpu)),
        emulated: vec![tried(2.75, &gpu)],
        ..loader("one", &cpu)
    };
    let said = explanation(&[loader], GAIN, CLAIM).join("\n");
    for part in [
        "data binds in part",
        "less than the 5 to 20 times",
        "emulated, the one 20 times as fast gained 2.75x (device busy 40.0 %; idle by copy (60.0 %)): less than",
        "cuda:0 is 2.00x as fast as cpu; there 60.0 % of an epoch waits for data",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

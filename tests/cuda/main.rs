//! Runs on `cuda:0` from loader to verdict, without a GPU: CubeCL, NVIDIA's compiler and CUPTI's records are as on
//! one, and the device is a stand-in whose truth is known.

#![cfg(feature = "cuda")]

mod decoding;
mod faults;
#[allow(dead_code, reason = "runs are made with a GPU here")]
#[path = "../place/mod.rs"]
mod place;
#[path = "../program/mod.rs"]
mod program;
mod script;
mod stand_in;

use stallscope::analysis::Cause;
use stallscope::report::{CopyReport, Report, TimelineReport, TimelineSource};
use stallscope::timeline::{HostWork, Nanos};
use stallscope_stand_in_gpu::check::Truth;
use stallscope_stand_in_gpu::settings::{Fault, Settings};
use stand_in::StandIn;
use std::fs;

fn timeline(report: &Report) -> &TimelineReport {
    report.device.as_ref().unwrap().timeline.as_ref().unwrap()
}

fn copies(report: &Report) -> &CopyReport {
    timeline(report).copies.as_ref().unwrap()
}

fn top(report: &Report) -> (Cause, Option<String>) {
    let cause = report
        .idle_causes
        .iter()
        .max_by_key(|cause| cause.ns)
        .unwrap();
    let stage = cause.stage.as_ref().map(ToString::to_string);
    (cause.kind, stage)
}

/// Busy is what the kernels were planted to take, to the nanosecond: they run one after another.
#[test]
fn busy_and_idle_are_what_was_planted() {
    let settings = Settings {
        kernel_ns: 40_000,
        ..Settings::default()
    };
    let Some(gpu) = StandIn::new(settings) else {
        return;
    };
    let (report, truth) = gpu.report(&["steps=100"]);
    let (timeline, device) = (timeline(&report), report.device.as_ref().unwrap());
    assert_eq!(timeline.source, TimelineSource::Cupti);
    assert_eq!((timeline.lost, timeline.late), (0, 0));
    let planted = Nanos(timeline.kernels * 40_000);
    assert_eq!((timeline.kernel_ns, device.busy_ns), (planted, planted));
    assert!(timeline.kernels >= 100 * 5, "{timeline:?}");
    assert!(truth.kernels.values().sum::<u64>() >= timeline.kernels);
    let caused: u64 = report.idle_causes.iter().map(|cause| cause.ns.0).sum();
    let apart = caused.abs_diff(device.idle_ns.0) as f64 / report.window_ns.0 as f64;
    assert!(
        apart < 0.001,
        "causes {caused} ns, idle {:?}",
        device.idle_ns
    );
    let kept = timeline.kernels_kept.as_ref().unwrap();
    assert!(kept.contains(gpu.cache().to_str().unwrap()), "{kept}");
    let kernels = gpu.cache().join("stallscope/kernels");
    assert_eq!(fs::read_dir(kernels).unwrap().count(), 1);
    copied_from_locked_pages(&report, &truth, 100);
    // From where the loader has them: its buffers are few, and locked once.
    let calls = |name: &str| truth.calls.get(name).copied().unwrap_or(0);
    let locked = calls("cuMemHostRegister_v2");
    assert!((1..=32).contains(&locked), "{locked}");
    assert_eq!(calls("cuMemHostUnregister"), locked);
}

/// Each rank has a device of its own.
#[test]
fn the_second_device_is_trained_on() {
    let settings = Settings {
        devices: 2,
        kernel_ns: 40_000,
        ..Settings::default()
    };
    let Some(gpu) = StandIn::new(settings) else {
        return;
    };
    let (report, truth) = gpu.report(&["steps=50", "device=cuda:1"]);
    let timeline = timeline(&report);
    assert_eq!((timeline.lost, timeline.late), (0, 0));
    assert!(timeline.kernels >= 50 * 5, "{timeline:?}");
    assert_eq!(timeline.kernel_ns, Nanos(timeline.kernels * 40_000));
    copied_from_locked_pages(&report, &truth, 50);
}

/// 50 pictures of 28 x 28 floats each step, and 50 labels.
fn copied_from_locked_pages(report: &Report, truth: &Truth, steps: u64) {
    let (images, labels) = (50 * 28 * 28 * 4, 50 * 4);
    let copies = copies(report);
    assert_eq!(copies.count, 2 * steps);
    let bytes = steps * (images + labels);
    assert_eq!((copies.bytes, copies.pinned_bytes), (bytes, bytes));
    let copied = truth.copies_in.iter().filter(|copy| copy.bytes == images);
    assert!(copied.clone().count() as u64 >= steps && copied.clone().all(|copy| copy.pinned));
}

/// A driver that does not lock the loader's buffers gets batches by way of memory of its own.
#[test]
fn buffers_that_cannot_be_locked_are_staged() {
    let settings = Settings {
        faults: vec![Fault {
            call: "cuMemHostRegister_v2".to_owned(),
            at: 1,
            code: 801,
            ..Fault::default()
        }],
        ..Settings::default()
    };
    let Some(gpu) = StandIn::new(settings) else {
        return;
    };
    let (report, truth) = gpu.report(&["steps=100"]);
    copied_from_locked_pages(&report, &truth, 100);
    assert_eq!(truth.calls["cuMemHostRegister_v2"], 1, "it is asked once");
}

#[test]
fn a_device_with_more_to_do_than_the_host_can_give_is_the_limit() {
    let settings = Settings {
        kernel_ns: 2_000_000,
        ..Settings::default()
    };
    let Some(gpu) = StandIn::new(settings) else {
        return;
    };
    let (report, _) = gpu.report(&["steps=30"]);
    let device = report.device.as_ref().unwrap();
    assert!(device.busy_share > 0.9, "{device:?}");
    let verdict = report.verdict.as_ref().unwrap();
    assert_eq!(verdict.title, "device-bound", "{verdict:?}");
    assert_eq!(timeline(&report).most_ahead, Some(2));
    // burn's own queues hold fewer than that.
    let (report, _) = gpu.report(&["steps=100", "gpu.run_ahead=64"]);
    let ahead = timeline(&report).most_ahead.unwrap();
    assert!((3..64).contains(&ahead), "{ahead}");
}

#[test]
fn a_device_that_is_through_with_its_kernels_before_the_next_is_launched_is_host_bound() {
    let settings = Settings {
        launch_ns: 300_000,
        ..Settings::default()
    };
    let Some(gpu) = StandIn::new(settings) else {
        return;
    };
    let (report, _) = gpu.report(&["steps=40"]);
    assert_eq!(
        top(&report).0,
        Cause::Host(HostWork::Launch),
        "{:?}",
        report.idle_causes
    );
    let verdict = report.verdict.as_ref().unwrap();
    assert_eq!(verdict.title, "host-bound", "{verdict:?}");
}

/// What a slow stage before the GPU costs is charged to it.
#[test]
fn a_starved_device_names_the_stage() {
    let Some(gpu) = StandIn::new(Settings::default()) else {
        return;
    };
    let (report, _) = gpu.report(&["steps=20", "storage.emulate=custom", "storage.latency=3ms"]);
    let (_, stage) = top(&report);
    assert_eq!(stage.as_deref(), Some("read"), "{:?}", report.idle_causes);
}

/// Kernels of half a millisecond, and copies of 3 MB in pieces of a quarter of a millisecond.
fn slow_copies() -> Settings {
    Settings {
        kernel_ns: 500_000,
        pinned_bytes_per_s: 1_000_000_000,
        ..Settings::default()
    }
}

#[test]
fn copies_run_beside_kernels_and_without_overlap_never_do() {
    let Some(gpu) = StandIn::new(slow_copies()) else {
        return;
    };
    let steps = [
        "steps=20",
        "epochs=20",
        "batch.size=1000",
        "batch.prefetch=4",
        "copy.prefetch=2",
    ];
    let (beside, _) = gpu.report(&steps);
    // In one piece, kernels' own small copies wait for all of it: 0.03 to 0.05.
    assert!(
        copies(&beside).overlapped_share > 0.1,
        "{:?}",
        copies(&beside)
    );
    let (apart, _) = gpu.report(&[&steps[..], &["copy.overlap=false"]].concat());
    assert_eq!(
        copies(&apart).overlapped_ns,
        Nanos::ZERO,
        "{:?}",
        copies(&apart)
    );
}

/// Nothing that the program does in many steps may be left behind, or done out of order.
#[test]
fn steps_that_run_ahead_break_no_rule_and_leave_nothing_behind() {
    let Some(gpu) = StandIn::new(Settings::default()) else {
        return;
    };
    for ahead in [0, 1, 2, 8] {
        let sets = |steps: usize| [format!("steps={steps}"), format!("gpu.run_ahead={ahead}")];
        let left = |steps: usize| {
            let sets = sets(steps);
            let (_, truth) = gpu.report(&sets.each_ref().map(String::as_str));
            truth.left
        };
        let (few, many) = (left(20), left(600));
        assert_eq!(few.allocations, many.allocations, "run_ahead {ahead}");
        assert!(
            many.events <= few.events + 2,
            "run_ahead {ahead}: {few:?} {many:?}"
        );
    }
}

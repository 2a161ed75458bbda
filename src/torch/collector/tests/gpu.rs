//! The same training on a GPU whose kernels are planted: what they leave idle is known to the nanosecond.

use super::*;
use crate::event::{Api, DeviceEvent, Kind};
use crate::gpu::Gpu;
use crate::translation::{Translation, Wanted};
use stallscope_core::analysis::{Analysis, Cause, WindowRule};
use stallscope_core::report::{OtherGpu, TimelineSource};
use stallscope_core::timeline::{HostWork, Record, StageKind};

const BATCHES: u64 = 40;
/// When a step's kernel is launched, when it starts, and how long it takes.
pub(super) const LAUNCHED: u64 = MS / 10;
pub(super) const STARTS: u64 = MS / 5;
pub(super) const KERNEL: u64 = 5 * MS;

/// Plants the kernel of the step that begins on the host at `at`.
fn kernel(writer: &mut RingWriter, number: u64, at: u64, kind: Kind) {
    let correlation = number as u32 + 1;
    let span = |start, end| Span { start, end };
    let events = [
        DeviceEvent::Call {
            api: Api::Runtime,
            function: 211,
            thread: 77,
            correlation,
            span: span(at, at + LAUNCHED),
        },
        DeviceEvent::Work {
            kind,
            about: 0,
            stream: 7,
            correlation,
            span: span(at + STARTS, at + STARTS + KERNEL),
            other: None,
        },
    ];
    for event in events {
        say(writer, &Event::Device(event));
    }
}

fn told(writer: &mut RingWriter, lost: u64) {
    let at = now();
    let read = 2 * BATCHES;
    say(writer, &Event::Device(DeviceEvent::Told { at, read, lost }));
}

fn timeline(writer: &mut RingWriter, source: &str, reason: Option<&str>, at: u64) {
    let said = serde_json::json!({
        "source": source, "reason": reason, "at": at, "version": 28, "device": "Planted GPU",
    });
    texts(writer, TextKind::Timeline, &said.to_string());
}

/// Busy time, and idle time by its causes, are as planted within 0.1 % of the window.
pub(super) fn check(report: &Report) {
    let device = report.device.as_ref().unwrap();
    let window = (device.busy_ns + device.idle_ns).0;
    let near = |found: Nanos, planted: u64, what: &str| {
        let apart = found.0.abs_diff(planted);
        assert!(1000 * apart <= window, "{what}: {found} and not {planted}");
    };
    let steps = report.steps;
    near(Nanos(window), steps * (FETCH + STEP), "the window");
    near(device.busy_ns, steps * KERNEL, "busy");
    let of = |wanted: Cause| -> Nanos {
        let causes = report.idle_causes.iter();
        let own = causes.filter(|cause| cause.kind == wanted);
        own.map(|cause| cause.ns).sum()
    };
    // The kernel of the step before runs on while the next batch is made; two thirds of that are decoding.
    let fetching = FETCH - (KERNEL + STARTS - STEP);
    let named = |name| Cause::Capacity(report.pipeline.named(name).unwrap());
    near(of(named("decode")), steps * fetching * 2 / 3, "decode");
    near(of(named("fetch")), steps * fetching / 3, "fetch");
    near(of(Cause::Host(HostWork::Launch)), steps * STARTS, "launch");
}

#[test]
fn a_planted_gpu_is_busy_and_idle_as_planted() {
    for (source, kind) in [("cupti", Kind::Kernel), ("events", Kind::Timed)] {
        let folder = tempfile::tempdir().unwrap();
        let rings = Rings::create().unwrap();
        let mut writer = rings.claim().unwrap();
        let reason = (source == "events").then_some("no CUPTI");
        timeline(&mut writer, source, reason, 1);
        let begun = training(&mut writer, BATCHES);
        let mut gpu = rings.claim().unwrap();
        for number in 0..BATCHES {
            let at = begun + number * (FETCH + STEP) + FETCH;
            kernel(&mut gpu, number, at, kind);
            let beside = DeviceEvent::Work {
                kind: Kind::Kernel,
                about: 0,
                stream: 7,
                correlation: 1_000 + number as u32,
                span: Span {
                    start: at,
                    end: at + MS,
                },
                other: Some(1),
            };
            say(&mut gpu, &Event::Device(beside));
        }
        told(&mut gpu, 0);
        drop((writer, gpu));
        rings.finish();
        let report = collect(&rings, options(folder.path()), None)
            .unwrap()
            .report;
        check(&report);
        let device = report.device.as_ref().unwrap();
        assert_eq!(device.name, "your training on Planted GPU");
        let timeline = device.timeline.as_ref().unwrap();
        assert_eq!((timeline.lost, timeline.late), (0, 0), "{timeline:?}");
        assert_eq!(timeline.fallback.as_deref(), reason);
        let is_cupti = timeline.source == TimelineSource::Cupti;
        assert_eq!(is_cupti, source == "cupti");
        assert_eq!(timeline.kernels, if is_cupti { 20 } else { 0 });
        let beside = OtherGpu {
            device: 1,
            kernels: BATCHES,
            kernel_ns: Nanos(BATCHES * MS),
            ..OtherGpu::default()
        };
        assert_eq!(timeline.other_gpus, [beside]);
        let trace = std::fs::read_to_string(folder.path().join("run/trace.json")).unwrap();
        assert!(trace.contains("cuda:1, stream 7"));
        let costs = report.torch.as_ref().unwrap().costs.batches();
        let busy = costs.iter().filter(|batch| batch.busy == KERNEL).count();
        assert_eq!((busy, costs.len()), (23, 23));
    }
}

#[test]
fn what_a_profiler_takes_over_events_go_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let rings = Rings::create().unwrap();
    let mut writer = rings.claim().unwrap();
    timeline(&mut writer, "cupti", None, 1);
    let begun = training(&mut writer, BATCHES);
    let mut gpu = rings.claim().unwrap();
    let at = |number| begun + number * (FETCH + STEP) + FETCH;
    for number in 0..15 {
        kernel(&mut gpu, number, at(number), Kind::Kernel);
    }
    told(&mut gpu, 3);
    // Between two steps, the fifteenth and the next.
    let taken = at(14) + STEP + MS;
    timeline(&mut writer, "events", Some("torch.profiler"), taken);
    for number in 15..BATCHES {
        kernel(&mut writer, number, at(number), Kind::Timed);
    }
    told(&mut writer, 0);
    rings.finish();
    let report = collect(&rings, options(folder.path()), None)
        .unwrap()
        .report;
    check(&report);
    let timeline = report.device.unwrap().timeline.unwrap();
    assert_eq!(timeline.source, TimelineSource::Cupti);
    assert_eq!(timeline.events_from, Some(16));
    assert_eq!(timeline.fallback.as_deref(), Some("torch.profiler"));
    assert_eq!((timeline.lost, timeline.kernels), (3, 12));
}

#[test]
fn of_a_process_that_was_killed_only_known_steps_count() {
    let rings = Rings::create().unwrap();
    let mut writer = rings.claim().unwrap();
    timeline(&mut writer, "cupti", None, 1);
    let begun = training(&mut writer, BATCHES);
    let mut gpu = rings.claim().unwrap();
    for number in 0..12 {
        let at = begun + number * (FETCH + STEP) + FETCH;
        kernel(&mut gpu, number, at, Kind::Kernel);
    }
    told(&mut gpu, 0);
    let mut translation = Translation::new(Wanted {
        main: rings.made_by(),
        steps: Some(23),
    });
    let mut known = Gpu::default();
    rings
        .reader()
        .drain(|_, pid, tid, words| match Event::read(words) {
            Some(Event::Device(event)) => known.take(event, &translation.names),
            Some(event) => translation.take(pid, tid, event),
            None => {}
        });
    let chunks = translation.translate(now(), true);
    let rule = WindowRule {
        warmup_steps: 3,
        steps: None,
        run_start: Nanos(begun),
        device_beside: true,
    };
    let mut analysis = Analysis::new(rule, CLAIMS);
    known.begin(
        translation.device_lanes().unwrap(),
        rule,
        &translation.names,
    );
    for chunk in &chunks {
        known.host(&chunk.records, translation.host_known_until());
    }
    let records = known.settle(Some(false), &translation.names, &mut analysis, None);
    let is_device = |(_, record): &&(u16, Record)| matches!(record, Record::Unit(unit) if unit.stage.kind() == StageKind::Device);
    // More of the twelfth may have been under way.
    assert_eq!(records.iter().filter(is_device).count(), 11);
}

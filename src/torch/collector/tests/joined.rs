//! The same training with a trace of torch's profiler of some of its steps, whose GPU was planted.

use super::gpu::{KERNEL, LAUNCHED, STARTS, check};
use super::*;
use crate::kineto::{AnalyzeError, AnalyzeOptions, join};
use serde_json::{Value, json};
use stallscope_core::report::TimelineSource;
use std::path::Path;

/// Batches that the profiler saw.
const FIRST: u64 = 12;
const BATCHES: u64 = 20;

/// A run of 40 batches that torch's profiler recorded, too; returns when it began.
fn recorded(folder: &Path) -> u64 {
    let rings = Rings::create().unwrap();
    let mut writer = rings.claim().unwrap();
    let begun = training(&mut writer, 40);
    texts(&mut writer, TextKind::Profiler, r#"{"of_script": true}"#);
    drop(writer);
    rings.finish();
    collect(&rings, options(folder), None).unwrap();
    begun
}

fn slice(category: &str, name: &str, at: u64, length: u64, args: &Value) -> Value {
    json!({
        "ph": "X", "cat": category, "name": name, "pid": 100, "tid": 100, "args": args,
        "ts": at as f64 / 1e3, "dur": length as f64 / 1e3,
    })
}

/// What the profiler wrote of batches from `FIRST` on, with times from `begun`, which its base time says; with the kernels of
/// a GPU where there is one.
fn trace(path: &Path, begun: u64, base: Option<u64>, has_gpu: bool) {
    let none = json!({});
    let mut events = Vec::new();
    for number in FIRST..FIRST + BATCHES {
        let at = number * (FETCH + STEP);
        let next = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
        let step = format!("ProfilerStep#{}", number - FIRST);
        let behind = at + FETCH;
        events.push(slice("user_annotation", &step, at, FETCH + STEP, &none));
        events.push(slice(
            "user_annotation",
            next,
            at + 4_000,
            FETCH - 8_000,
            &none,
        ));
        events.push(slice("cpu_op", "aten::linear", behind, STEP / 2, &none));
        // Neither within the other.
        events.push(slice(
            "cpu_op",
            "aten::mm",
            behind + STEP / 4,
            STEP / 2,
            &none,
        ));
        if has_gpu {
            // Behind the beginning of the step by both clocks.
            let of = json!({"correlation": number, "device": 0, "stream": 7});
            events.push(slice(
                "cuda_runtime",
                "cudaLaunchKernel",
                behind + 5_000,
                LAUNCHED,
                &of,
            ));
            events.push(slice("kernel", "gemm", behind + STARTS, KERNEL, &of));
        }
    }
    let mut whole = json!({"traceEvents": events});
    if has_gpu {
        whole["deviceProperties"] = json!([{"id": 0, "name": "Planted GPU"}]);
    }
    if let Some(base) = base {
        whole["baseTimeNanoseconds"] = base.into();
    }
    fs::write(path, whole.to_string()).unwrap();
    assert!(begun > 0);
}

/// Nanoseconds since 1970 of what CLOCK_MONOTONIC calls `at`.
fn unix_of(at: u64) -> u64 {
    unix_now() - now() + at
}

fn asked(folder: &Path) -> AnalyzeOptions {
    AnalyzeOptions {
        trace: folder.join("kineto.json"),
        out: Some(folder.join("joined")),
        traced_steps: 200,
        ..AnalyzeOptions::default()
    }
}

/// The slices of the joined trace: their process, lane, name, beginning and end.
fn slices(report: &Report) -> Vec<(u64, u64, String, f64, f64)> {
    let path = &report.trace.as_ref().unwrap().path;
    let events: Vec<Value> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let own = events.iter().filter(|event| event["ph"] == "X");
    let read = |event: &Value| {
        let number = |key: &str| event[key].as_u64().unwrap();
        let (at, length) = (
            event["ts"].as_f64().unwrap(),
            event["dur"].as_f64().unwrap(),
        );
        let name = event["name"].as_str().unwrap().to_owned();
        (number("pid"), number("tid"), name, at, at + length)
    };
    own.map(read).collect()
}

#[test]
fn a_gpu_that_only_the_trace_shows_is_idle_for_what_only_the_hooks_saw() {
    let folder = tempfile::tempdir().unwrap();
    let begun = recorded(folder.path());
    trace(
        &folder.path().join("kineto.json"),
        begun,
        Some(unix_of(begun)),
        true,
    );
    let run = folder.path().join("run");
    let report = join(&asked(folder.path()), &run).unwrap();
    let joined = report
        .profiler_trace
        .as_ref()
        .unwrap()
        .joined
        .clone()
        .unwrap();
    // The last step is asked for behind what the profiler recorded.
    // What the GPU still did of the step before the first is not in the trace.
    let steps = BATCHES - 1;
    assert_eq!((joined.first_step, report.steps), (FIRST + 2, steps));
    assert_eq!((joined.waits, joined.seen), (BATCHES, BATCHES));
    assert_eq!(joined.agree, BATCHES);
    assert!(joined.furthest_ns < Nanos(50_000), "{joined:?}");
    let device = report.device.as_ref().unwrap();
    let timeline = device.timeline.as_ref().unwrap();
    assert_eq!(
        (timeline.source, timeline.kernels),
        (TimelineSource::Trace, steps)
    );
    assert_eq!((&timeline.doubt, timeline.lost), (&None, 0));
    assert!(device.name.contains("Planted GPU"), "{}", device.name);
    check(&report);
}

#[test]
fn without_a_gpu_the_trace_shows_both_on_one_clock() {
    let folder = tempfile::tempdir().unwrap();
    let begun = recorded(folder.path());
    let path = folder.path().join("kineto.json");
    // The machine's time was set between: the waits must do. They are all alike, so the nearest fit is the right one.
    for base in [unix_of(begun), unix_of(begun) + 3 * MS] {
        trace(&path, begun, Some(base), false);
        let run = folder.path().join("run");
        let report = join(&asked(folder.path()), &run).unwrap();
        assert_eq!(report.samples, 2 * report.steps);
        let all = slices(&report);
        let profiler = u64::from(stallscope_core::trace::PROFILER);
        let waits: Vec<_> = all
            .iter()
            .filter(|own| own.0 == profiler && own.2.starts_with("enumerate"))
            .collect();
        assert_eq!(waits.len() as u64, report.steps);
        let drawn = all.iter().filter(|own| own.0 == profiler);
        let mut drawn: Vec<_> = drawn.collect();
        drawn.sort_by(|one, other| (one.1, one.3).partial_cmp(&(other.1, other.3)).unwrap());
        let lanes: std::collections::BTreeSet<u64> = drawn.iter().map(|own| own.1).collect();
        assert_eq!(lanes.len(), 2, "of two that overlap one is beside");
        for pair in drawn.windows(2).filter(|pair| pair[0].1 == pair[1].1) {
            let apart = pair[1].3 >= pair[0].4 - 1e-6;
            let nested = pair[1].4 <= pair[0].4 + 1e-6;
            assert!(apart || nested, "{pair:?}");
        }
        // Ours and theirs begin together.
        let ours = all
            .iter()
            .filter(|own| own.0 != profiler && own.2 == "fetch");
        assert_eq!(ours.count() as u64, 2 * report.steps);
    }
}

#[test]
fn a_trace_of_another_time_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let begun = recorded(folder.path());
    let run = folder.path().join("run");
    let path = folder.path().join("kineto.json");
    trace(&path, begun, Some(unix_of(begun) + 3_600_000 * MS), false);
    // It waited for half as long.
    let mut other: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for event in other["traceEvents"].as_array_mut().unwrap() {
        event["dur"] = (event["dur"].as_f64().unwrap() / 2.0).into();
    }
    fs::write(&path, other.to_string()).unwrap();
    let error = join(&asked(folder.path()), &run).err();
    assert!(
        matches!(&error, Some(AnalyzeError::OtherRun { found: 0, .. })),
        "{error:?}"
    );
    fs::remove_file(run.join(EVENTS)).unwrap();
    trace(&path, begun, Some(unix_of(begun)), false);
    let error = join(&asked(folder.path()), &run).err();
    assert!(matches!(error, Some(AnalyzeError::Run(_))), "{error:?}");
}

#[test]
fn damaged_files_are_an_error_or_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let begun = recorded(folder.path());
    let (run, path) = (folder.path().join("run"), folder.path().join("kineto.json"));
    trace(&path, begun, Some(unix_of(begun)), true);
    let (log, whole) = (
        fs::read(run.join(EVENTS)).unwrap(),
        fs::read(&path).unwrap(),
    );
    let mut number = 7_u64;
    let mut next = |below: usize| {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (number >> 33) as usize % below
    };
    let mut reports = 0;
    for round in 0..150 {
        let (mut log, mut text) = (log.clone(), whole.clone());
        // A byte, a word that is absurd, or the end is missing: of the log, of the trace, or of both.
        let damaged = [
            (round % 3 != 1).then_some(&mut log),
            (round % 3 != 0).then_some(&mut text),
        ];
        for bytes in damaged.into_iter().flatten() {
            let place = next(bytes.len() - 8);
            match next(3) {
                0 => bytes[place] ^= 1 << next(8),
                1 => bytes[place & !7..][..8].fill(0xff),
                _ => bytes.truncate(place),
            }
        }
        fs::write(run.join(EVENTS), log).unwrap();
        fs::write(&path, text).unwrap();
        reports += usize::from(join(&asked(folder.path()), &run).is_ok());
    }
    assert!(reports > 20, "{reports}");
}

/// A pass over the data in which `taken` of so many batches that were dealt are trained on; returns when the last was.
fn pass(writer: &mut RingWriter, epoch: u32, dealt: u64, taken: u64, begun: u64) -> u64 {
    let pass = Pass { iterator: 0, epoch };
    let of = |number| Batch { pass, number };
    let (grad, at) = (true, begun);
    say(writer, &Event::PassBegins { pass, grad, at });
    for number in 0..dealt {
        say(
            writer,
            &Event::Dispatch {
                batch: of(number),
                worker: 0,
                samples: 2,
                sampler: Span { start: at, end: at },
                put: at,
                cpu: 0,
            },
        );
    }
    let used = Used::default();
    for number in 0..taken {
        let at = begun + number * (FETCH + STEP);
        say(writer, &Event::NextBegins { pass, at, used });
        batch_of(writer, pass, number, at);
    }
    let at = begun + taken * (FETCH + STEP);
    let early = taken < dealt;
    say(writer, &Event::PassEnds { pass, early, at });
    at
}

#[test]
fn batches_that_were_dealt_and_never_trained_on_move_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let rings = Rings::create().unwrap();
    let mut writer = rings.claim().unwrap();
    session(&mut writer, 40);
    let begun = now() - 60 * (FETCH + STEP);
    // Of the first epoch four batches are left.
    let second = pass(&mut writer, 0, 12, 8, begun);
    pass(&mut writer, 1, 40, 40, second);
    texts(&mut writer, TextKind::Profiler, r#"{"of_script": true}"#);
    drop(writer);
    rings.finish();
    let whole = CollectOptions {
        steps: None,
        ..options(folder.path())
    };
    let outcome = collect(&rings, whole, None).unwrap();
    assert!(outcome.has_profiled);
    let path = folder.path().join("kineto.json");
    trace(&path, second, Some(unix_of(second)), true);
    let report = join(&asked(folder.path()), &folder.path().join("run")).unwrap();
    let joined = report.profiler_trace.as_ref().unwrap().joined.clone();
    assert_eq!(joined.unwrap().first_step, 8 + FIRST + 2);
    check(&report);
    let all = slices(&report);
    let of = |name: &str| all.iter().filter(|own| own.2 == name).count() as u64;
    // The first is not measured, but shown.
    assert_eq!((of("gemm"), of("step")), (BATCHES, BATCHES));
    // What the GPU did and what the host did are two processes.
    let pids = |name: &str| all.iter().find(|own| own.2 == name).unwrap().0;
    assert_ne!(pids("gemm"), pids("aten::linear"));
}

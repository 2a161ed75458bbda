//! A training without workers that this process writes into rings of its own.

mod gpu;
mod joined;

use super::*;
use crate::event::{Batch, Compute, Event, PartTime, Pass, Span, TextKind, Used};
use crate::ring::RingWriter;

const MS: u64 = 1_000_000;
/// Of each batch: its two samples, and its step.
const FETCH: u64 = 6 * MS;
const STEP: u64 = 4 * MS;
const PASS: Pass = Pass {
    iterator: 0,
    epoch: 0,
};

fn say(writer: &mut RingWriter, event: &Event) {
    let mut words = Vec::new();
    event.write(&mut words);
    writer.write(1, &words);
}

fn texts(writer: &mut RingWriter, kind: TextKind, text: &str) {
    for piece in Event::texts(kind, 0, text) {
        say(writer, &piece);
    }
}

/// The training asks for a batch.
fn asks(writer: &mut RingWriter, at: u64) {
    let (pass, used) = (PASS, Used::default());
    say(writer, &Event::NextBegins { pass, at, used });
}

/// One batch is drawn, made and trained on from `at` on.
fn batch(writer: &mut RingWriter, number: u64, at: u64) {
    let batch = Batch { pass: PASS, number };
    let span = Span { start: at, end: at };
    asks(writer, at);
    say(
        writer,
        &Event::Dispatch {
            batch,
            worker: 0,
            samples: 2,
            sampler: span,
            put: at,
            cpu: 0,
        },
    );
    batch_of(writer, PASS, number, at);
}

/// One batch that was drawn is made and trained on.
fn batch_of(writer: &mut RingWriter, pass: Pass, number: u64, at: u64) {
    let (batch, half) = (Batch { pass, number }, FETCH / 2);
    let span = |start, length| Span {
        start,
        end: start + length,
    };
    for place in 0..2 {
        let decode = PartTime {
            part: 0,
            count: 1,
            length: half - MS,
        };
        say(
            writer,
            &Event::Sample {
                batch,
                place,
                index: 2 * number + u64::from(place),
                samples: 1,
                span: span(at + u64::from(place) * half, half),
                cpu: 0,
                parts: vec![decode],
            },
        );
    }
    say(
        writer,
        &Event::Fetch {
            batch,
            worker: 0,
            samples: 2,
            wait: span(at, 0),
            span: span(at, FETCH),
            collate: span(at + FETCH, 0),
            used: Used::default(),
            parts: Vec::new(),
            ended: false,
        },
    );
    say(
        writer,
        &Event::NextEnds {
            batch,
            is_some: true,
            grad: true,
            samples: 2,
            at: at + FETCH,
            used: Used::default(),
        },
    );
    for (phase, start) in [
        (Compute::Forward, at + FETCH),
        (Compute::Optimizer, at + FETCH + STEP / 2),
    ] {
        say(
            writer,
            &Event::Compute {
                phase,
                span: span(start, STEP / 2),
            },
        );
    }
}

/// Says what the training is, whose passes have so many batches.
fn session(writer: &mut RingWriter, batches: u64) {
    let session = serde_json::json!({
        "torch": "2.x", "python": "3.x", "command": ["train.py"], "pid": std::process::id(),
        "rank": null, "world_size": 1, "threads": 1, "missing": [],
    });
    texts(writer, TextKind::Session, &session.to_string());
    texts(writer, TextKind::Part, "decode");
    let loader = serde_json::json!({"batch_size": 2, "num_workers": 0, "batches": batches, "samples": 2 * batches});
    texts(writer, TextKind::Loader, &loader.to_string());
}

/// Writes so many batches; returns when the first began.
fn training(writer: &mut RingWriter, batches: u64) -> u64 {
    session(writer, batches);
    let begun = now() - batches * (FETCH + STEP) - 10 * MS;
    say(
        writer,
        &Event::PassBegins {
            pass: PASS,
            grad: true,
            at: begun,
        },
    );
    for number in 0..batches {
        batch(writer, number, begun + number * (FETCH + STEP));
    }
    let at = begun + batches * (FETCH + STEP);
    asks(writer, at);
    say(
        writer,
        &Event::PassEnds {
            pass: PASS,
            early: false,
            at,
        },
    );
    begun
}

fn options(folder: &std::path::Path) -> CollectOptions {
    CollectOptions {
        run_dir: folder.join("run"),
        steps: Some(20),
        warmup_steps: 3,
        trace_steps: 10,
    }
}

#[test]
fn a_training_becomes_a_report_and_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let rings = Rings::create().unwrap();
    let mut writer = rings.claim().unwrap();
    training(&mut writer, 40);
    drop(writer);
    rings.finish();
    let outcome = collect(&rings, options(folder.path()), None).unwrap();
    let written = fs::read_to_string(folder.path().join("run/report.json")).unwrap();
    // As text: what serde_json reads may be off in a number's last digit.
    let returned = serde_json::to_string_pretty(&outcome.report).unwrap();
    assert!(written.trim_end() == returned, "{written}\n{returned}");
    let read = &outcome.report;
    assert_eq!((read.status, read.steps), (Status::Complete, 20));
    assert_eq!(read.recorder.dropped, 0);
    let device = read.device.as_ref().unwrap();
    let share = device.idle_ns.0 as f64 / (device.idle_ns + device.busy_ns).0 as f64;
    assert!((share - 0.6).abs() < 0.01, "{share}");
    let verdict = read.verdict.as_ref().unwrap();
    assert!(
        format!("{verdict:?}").contains("decode"),
        "the longest part is not named: {verdict:?}"
    );
    let trace = fs::read_to_string(folder.path().join("run/trace.json")).unwrap();
    let events: serde_json::Value = serde_json::from_str(&trace).unwrap();
    assert!(events.as_array().unwrap().len() > 40);
}

/// The part that [`options`] asks for.
fn part(folder: &std::path::Path) -> Part {
    Part {
        folder: Some(folder.to_owned()),
        warmup_steps: 3,
        steps: Some(20),
        traced: TracedSteps {
            first: 0,
            count: 10,
        },
        cores: usable_cores(),
        without_device: false,
        log_header: None,
    }
}

#[test]
fn what_was_told_gives_the_same_report_again() {
    let folder = tempfile::tempdir().unwrap();
    let rings = Rings::create().unwrap();
    let mut writer = rings.claim().unwrap();
    training(&mut writer, 40);
    texts(&mut writer, TextKind::Profiler, r#"{"of_script": true}"#);
    drop(writer);
    rings.finish();
    let outcome = collect(&rings, options(folder.path()), None).unwrap();
    let run = folder.path().join("run");
    assert_eq!(outcome.events, Some(run.join(EVENTS)));
    assert_eq!(outcome.profiled, None);
    let mut log = LoggedEvents::open(&run).unwrap();
    let mut account = Account::new(part(folder.path()), log.main);
    while let Some(told) = log.next() {
        account.tell(&told).unwrap();
    }
    let mut again = account.standing(true);
    account.measured(&mut again, &account.summary().unwrap());
    let mut first = outcome.report;
    // What is this machine's, the file's, or a prediction.
    first.machine = again.machine.clone();
    first.recorder = again.recorder.clone();
    first.trace = None;
    for report in [&mut first, &mut again] {
        report.written_at_unix_seconds = 0.0;
        report.verdict.as_mut().unwrap().suggestion = None;
        report.torch.as_mut().unwrap().costs.pages = Default::default();
    }
    let text = |report: &Report| serde_json::to_string_pretty(report).unwrap();
    assert!(
        text(&first) == text(&again),
        "{}\n{}",
        text(&first),
        text(&again)
    );
    // Where no profiler recorded, nothing is kept.
    let rings = Rings::create().unwrap();
    training(&mut rings.claim().unwrap(), 40);
    rings.finish();
    let outcome = collect(&rings, options(folder.path()), None).unwrap();
    assert_eq!((outcome.events, run.join(EVENTS).exists()), (None, false));
}

#[test]
fn an_error_of_the_script_is_said() {
    let folder = tempfile::tempdir().unwrap();
    for (text, status) in [
        ("ValueError: boo", Status::Failed),
        ("KeyboardInterrupt: ", Status::Interrupted),
    ] {
        let rings = Rings::create().unwrap();
        let mut writer = rings.claim().unwrap();
        training(&mut writer, 10);
        texts(&mut writer, TextKind::Failed, text);
        rings.finish();
        let report = collect(&rings, options(folder.path()), None)
            .unwrap()
            .report;
        assert_eq!(report.status, status);
        assert_eq!(report.error.as_deref(), Some(text));
    }
}

#[test]
fn events_without_room_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let rings = Rings::create().unwrap();
    let mut writer = rings.claim().unwrap();
    training(&mut writer, 20_000);
    rings.finish();
    let report = collect(&rings, options(folder.path()), None)
        .unwrap()
        .report;
    assert!(report.recorder.dropped > 0);
    assert_eq!(report.status, Status::Complete);
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run"), "a file").unwrap();
    let rings = Rings::create().unwrap();
    let error = collect(&rings, options(folder.path()), None).err().unwrap();
    assert!(error.to_string().starts_with("cannot write "), "{error}");
}

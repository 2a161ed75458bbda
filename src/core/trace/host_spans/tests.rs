//! Tests of host spans against the real tracing-chrome. One test, because a process has one layer.

use super::*;
use crate::trace::test_files::{shared_trace, spans};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use tracing::{debug_span, info_span};

fn clock_since(start: Instant) -> TraceClock {
    Arc::new(move || Nanos(u64::try_from(start.elapsed().as_nanos()).unwrap()))
}

fn nanos(value: &Value) -> u64 {
    (value.as_f64().unwrap() * 1000.0).round() as u64
}

#[test]
fn traces_take_turns_with_the_one_layer() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock_since(Instant::now() - Duration::from_secs(1));
    let subscriber = tracing_subscriber::registry().with(layer());
    tracing::subscriber::with_default(subscriber, || {
        spans_land_on_the_clock(folder.path(), &clock);
        a_second_trace_gets_only_its_own(folder.path(), &clock);
        past_the_cap_spans_are_refused(folder.path(), &clock);
    });
}

fn spans_land_on_the_clock(folder: &Path, clock: &TraceClock) {
    let (path, trace) = shared_trace(folder, "first.json");
    let guard = HostSpans::record(trace.clone(), 9, clock.clone()).unwrap();
    let busy = HostSpans::record(trace.clone(), 9, clock.clone());
    assert_eq!(busy.err(), Some(HostSpansError::Busy));
    let before = clock();
    info_span!("epoch", number = 3).in_scope(|| {
        debug_span!("too fine").in_scope(|| ());
        std::thread::sleep(Duration::from_millis(2));
    });
    let after = clock();
    let left_open = info_span!("left open").entered();
    drop(guard);
    drop(left_open);
    let summary = trace.finish().unwrap();
    assert_eq!((summary.malformed_events, summary.left_out_events), (0, 0));
    let spans = spans(&path);
    assert_eq!(spans.len(), 2, "{spans:?}");
    assert_eq!(
        (&spans[0]["name"], &spans[0]["args"]["number"]),
        (&"epoch".into(), &3.into())
    );
    assert_eq!(
        (&spans[0]["pid"], &spans[1]["args"]["unclosed"]),
        (&9.into(), &true.into())
    );
    let (start, length) = (nanos(&spans[0]["ts"]), nanos(&spans[0]["dur"]));
    assert!(length >= 2_000_000, "{length}");
    // Alignment is good to the few nanoseconds between two readings, unless this thread lost its core there.
    assert!(
        start + 200_000 >= before.0 && start + length <= after.0 + 200_000,
        "{before:?} {start} {after:?}"
    );
}

fn a_second_trace_gets_only_its_own(folder: &Path, clock: &TraceClock) {
    info_span!("between").in_scope(|| ());
    let (path, trace) = shared_trace(folder, "second.json");
    let guard = HostSpans::record(trace.clone(), 7, clock.clone()).unwrap();
    debug_span!("fine").in_scope(|| ());
    let worker = tracing::dispatcher::get_default(Clone::clone);
    let thread = std::thread::Builder::new().name("worker 0".into());
    let thread = thread.spawn(move || {
        tracing::dispatcher::with_default(&worker, || info_span!("in worker").in_scope(|| ()));
    });
    thread.unwrap().join().unwrap();
    drop(guard);
    trace.finish().unwrap();
    let names: Vec<String> = spans(&path)
        .iter()
        .map(|span| span["name"].to_string())
        .collect();
    assert_eq!(names, ["\"in worker\""]);
    assert!(
        std::fs::read_to_string(&path)
            .unwrap()
            .contains("\"args\":{\"name\":\"worker 0\"}")
    );
}

fn past_the_cap_spans_are_refused(folder: &Path, clock: &TraceClock) {
    let (path, trace) = shared_trace(folder, "third.json");
    let guard = HostSpans::attach(trace.clone(), 7, clock.clone(), 10).unwrap();
    (0..1_000).for_each(|_| info_span!("many").in_scope(|| ()));
    drop(guard);
    let summary = trace.finish().unwrap();
    assert_eq!((spans(&path).len(), summary.left_out_events), (10, 990));
    assert!(summary.left_out_since.is_some());
}

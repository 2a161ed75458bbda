//! Tests of spans against the real tracing-chrome. One test, because a process has one layer.

use super::*;
use crate::timeline::{LaneKind, MonotonicClock};
use crate::trace::test_files::{shared_trace, spans};
use serde_json::Value;
use std::path::Path;
use tracing::{debug_span, info_span};

fn nanos(value: &Value) -> u64 {
    (value.as_f64().unwrap() * 1000.0).round() as u64
}

struct Rig {
    clock: Arc<dyn Clock>,
    recorder: Recorder,
}

impl Rig {
    /// Attaches a trace of the batches 3 to 5.
    fn attach(&self, trace: &SharedTrace, most: u64) -> Result<HostSpans, HostSpansError> {
        let (recorder, clock) = (self.recorder.clone(), self.clock.clone());
        HostSpans::attach(trace.clone(), recorder, clock, 3..6, most)
    }
}

#[test]
fn traces_take_turns_with_the_one_layer() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig {
        clock: Arc::new(MonotonicClock::new()),
        recorder: Recorder::new(),
    };
    let (_, trace) = shared_trace(folder.path(), "none.json");
    assert_eq!(
        rig.attach(&trace, 9).err(),
        Some(HostSpansError::SubscriberTaken)
    );
    let subscriber = tracing_subscriber::registry().with(layer());
    tracing::subscriber::with_default(subscriber, || {
        spans_have_the_times_of_the_run(folder.path(), &rig);
        a_second_trace_gets_only_its_own(folder.path(), &rig);
        spans_are_where_their_thread_is(folder.path(), &rig);
        past_the_cap_spans_are_refused(folder.path(), &rig);
    });
}

fn spans_have_the_times_of_the_run(folder: &Path, rig: &Rig) {
    let (path, trace) = shared_trace(folder, "first.json");
    let guard = rig.attach(&trace, MOST_SPANS).unwrap();
    assert_eq!(rig.attach(&trace, 9).err(), Some(HostSpansError::Busy));
    let before = rig.clock.now();
    info_span!("epoch", number = 3).in_scope(|| {
        debug_span!("too fine").in_scope(|| ());
        std::thread::sleep(Duration::from_millis(2));
    });
    let after = rig.clock.now();
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
        (&3.into(), &true.into())
    );
    let (start, length) = (nanos(&spans[0]["ts"]), nanos(&spans[0]["dur"]));
    assert!(length >= 2_000_000, "{length}");
    assert!(
        start >= before.0 && start + length <= after.0,
        "{before:?} {start} {after:?}"
    );
}

fn a_second_trace_gets_only_its_own(folder: &Path, rig: &Rig) {
    info_span!("between").in_scope(|| ());
    let (path, trace) = shared_trace(folder, "second.json");
    let guard = rig.attach(&trace, MOST_SPANS).unwrap();
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

fn spans_are_where_their_thread_is(folder: &Path, rig: &Rig) {
    let (path, trace) = shared_trace(folder, "third.json");
    let guard = rig.attach(&trace, MOST_SPANS).unwrap();
    let lane = rig.recorder.lane("trainer", LaneKind::Trainer);
    lane.works_on(None, true);
    info_span!("between two").in_scope(|| ());
    for batch in [2, 3, 4, 6] {
        lane.works_on(Some(batch), true);
        info_span!("step", batch).in_scope(|| ());
    }
    lane.works_on(Some(5), true);
    let across = info_span!("across").entered();
    lane.works_on(Some(5), true);
    drop(across);
    // Another run's thread.
    let other = Recorder::new().lane("other", LaneKind::Trainer);
    other.works_on(Some(4), true);
    info_span!("elsewhere").in_scope(|| ());
    drop(guard);
    trace.finish().unwrap();
    let shown: Vec<(String, Value, Value)> = spans(&path)
        .iter()
        .map(|span| {
            let name = format!("{} {}", span["name"], span["args"]["batch"]);
            (name, span["pid"].clone(), span["tid"].clone())
        })
        .collect();
    let expected = [
        ("\"step\" 3", 2, 11),
        ("\"step\" 4", 2, 11),
        ("\"across\" null", 2, 11 + (1 << 17)),
        ("\"elsewhere\" null", 3, 1),
    ];
    let expected = expected.map(|(name, pid, tid)| (name.to_owned(), pid.into(), tid.into()));
    assert_eq!(shown, expected);
}

fn past_the_cap_spans_are_refused(folder: &Path, rig: &Rig) {
    let (path, trace) = shared_trace(folder, "fourth.json");
    let guard = rig.attach(&trace, 10).unwrap();
    (0..1_000).for_each(|_| info_span!("many").in_scope(|| ()));
    drop(guard);
    let summary = trace.finish().unwrap();
    assert_eq!((spans(&path).len(), summary.left_out_events), (10, 990));
    assert!(summary.left_out_since.is_some());
}

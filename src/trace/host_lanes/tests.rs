//! Tests of the lanes and of the stream before them, fed with text as tracing-chrome prints it.

use super::*;
use crate::trace::host_stream::HostStream;
use crate::trace::{TraceOptions, TraceWriter};
use proptest::prelude::*;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;

const EPOCH: ClockShift = ClockShift { epoch_ns: 5_000 };

fn trace() -> (tempfile::TempDir, PathBuf, SharedTrace) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let options = TraceOptions {
        base: Nanos(0),
        max_bytes: 1 << 20,
        compress: false,
    };
    let trace = SharedTrace::new(TraceWriter::create(&path, options).unwrap());
    (folder, path, trace)
}

/// What the lines become, as `kind name start+duration` in microseconds.
fn written(lines: &[&str], max_spans: u64) -> Vec<String> {
    let (_folder, path, trace) = trace();
    let lanes = HostLanes::new(trace.clone(), 9, EPOCH, max_spans);
    let (done, finished) = channel();
    let mut stream = HostStream::new(lanes, Arc::new(|| Nanos(100_000)), done);
    let text = format!("[\n{}\n]", lines.join(",\n"));
    // In small pieces, as a buffer might cut them.
    for piece in text.as_bytes().chunks(7) {
        stream.write_all(piece).unwrap();
    }
    drop(stream);
    finished.recv().unwrap();
    trace.finish().unwrap();
    let events: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    events
        .iter()
        .map(|event| match event["ph"].as_str().unwrap() {
            "X" => format!(
                "X {} {}+{} {}",
                event["name"], event["ts"], event["dur"], event["args"]
            ),
            "i" => format!("i {} {} {}", event["name"], event["ts"], event["args"]),
            _ => format!("M {} {}/{}", event["args"], event["pid"], event["tid"]),
        })
        .collect()
}

fn begin(name: &str, micros: f64) -> String {
    format!(
        "{{\"ph\":\"B\",\"pid\":1,\"ts\":{micros},\"name\":\"{name}\",\"cat\":\"c\",\"tid\":0}}"
    )
}

fn end(name: &str, micros: f64) -> String {
    begin(name, micros).replace("\"B\"", "\"E\"")
}

const MAIN: &str = r#"{"ph":"M","pid":1,"name":"thread_name","tid":0,"args":{"name":"main"}}"#;

fn lines(lines: &[String]) -> Vec<String> {
    written(&lines.iter().map(String::as_str).collect::<Vec<_>>(), 100)
}

#[test]
fn pairs_become_spans_on_named_lanes_with_typed_arguments() {
    let begin = r#"{"ph":"B","pid":1,"ts":1.001,"name":"epoch","cat":"c","tid":0,"args":{"b":"true","d":"Some(1)","m":"\"a\\\"b\"","n":"3","x":"1.5"}}"#;
    let event = r#"{"ph":"i","pid":1,"ts":2.5,"name":"event src/x.rs:1","cat":"c","tid":0,"s":"t","args":{"message":"saved"}}"#;
    insta::assert_snapshot!(written(&[MAIN, begin, event, &end("epoch", 3.25)], 100).join("\n"), @r#"
    M {"name":"main"} 9/1
    M {"sort_index":1} 9/1
    i "saved" 7.5 {"message":"saved"}
    X "epoch" 6.001+2.249 {"b":true,"d":"Some(1)","m":"a\"b","n":3,"x":1.5}
    "#);
}

#[test]
fn spans_left_out_of_order_are_cut_so_that_they_nest() {
    let text = lines(&[
        begin("a", 1.0),
        begin("b", 2.0),
        end("a", 3.0),
        end("b", 4.0),
    ]);
    insta::assert_snapshot!(text.join("\n"), @r#"
    M {"name":"thread 1"} 9/1
    M {"sort_index":1} 9/1
    X "b" 7.0+1.0 null
    X "a" 6.0+2.0 null
    X "b" 8.0+1.0 null
    "#);
}

#[test]
fn ends_without_begin_are_ignored_and_begins_without_end_closed() {
    let text = lines(&[
        end("before", 1.0),
        begin("a", 1.0),
        end("other", 1.5),
        begin("b", 2.0),
    ]);
    insta::assert_snapshot!(text.join("\n"), @r#"
    M {"name":"thread 1"} 9/1
    M {"sort_index":1} 9/1
    X "b" 7.0+93.0 {"unclosed":true}
    X "a" 6.0+94.0 {"unclosed":true}
    "#);
}

#[test]
fn past_the_cap_spans_are_only_counted() {
    let events: Vec<String> = (0..5u8)
        .flat_map(|n| [begin("a", f64::from(n)), end("a", f64::from(n) + 0.5)])
        .collect();
    let text = written(&events.iter().map(String::as_str).collect::<Vec<_>>(), 2);
    assert_eq!(text.iter().filter(|line| line.starts_with('X')).count(), 2);
}

#[test]
fn broken_text_is_passed_over() {
    let long = format!("{{\"ph\":\"B\",\"name\":\"{}\"}}", "x".repeat(2 << 20));
    let text = lines(&[
        "{\"ph\":".into(),
        long,
        "{}".into(),
        "7".into(),
        begin("a", 1.0),
        end("a", 2.0),
    ]);
    assert_eq!(text.len(), 3, "{text:?}");
}

proptest! {
    /// Times printed by tracing-chrome (nanoseconds / 1000.0 as the shortest double) come back to the nanosecond.
    #[test]
    fn times_stay_exact(nanos in 0u64..50 * 86_400_000_000_000, epoch_ns in 0i64..1_000_000_000_000) {
        let printed: f64 = serde_json::from_str(&serde_json::to_string(&(nanos as f64 / 1000.0)).unwrap()).unwrap();
        prop_assert_eq!(ClockShift { epoch_ns }.place(printed), Nanos(nanos + epoch_ns as u64));
    }

    #[test]
    fn any_order_of_begins_and_ends_nests(order in prop::collection::vec((0u8..4, any::<bool>()), 1..60)) {
        let events: Vec<String> = order.iter().enumerate().map(|(at, (name, is_begin))| {
            let print = if *is_begin { begin } else { end };
            print(&name.to_string(), at as f64)
        }).collect();
        let (_folder, path, trace) = trace();
        let mut lanes = HostLanes::new(trace.clone(), 9, EPOCH, 1000);
        events.iter().for_each(|event| lanes.event(event.as_bytes()));
        lanes.close(Nanos(100_000));
        trace.finish().unwrap();
        let events: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let spans: Vec<(f64, f64)> = events.iter().filter(|event| event["ph"] == "X")
            .map(|event| (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap()))
            .map(|(start, duration)| (start, start + duration)).collect();
        for (index, a) in spans.iter().enumerate() {
            for b in &spans[index + 1..] {
                let overlap = a.0 < b.0 && b.0 < a.1 && a.1 < b.1 || b.0 < a.0 && a.0 < b.1 && b.1 < a.1;
                prop_assert!(!overlap, "{a:?} {b:?}");
            }
        }
    }
}

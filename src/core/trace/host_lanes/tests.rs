//! Tests of the lanes and of the stream before them, fed with text as tracing-chrome prints it.

use super::*;
use crate::trace::host_stream::HostStream;
use crate::trace::test_files::{events, shared_trace, spans};
use proptest::prelude::*;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::channel;

const EPOCH: ClockShift = ClockShift { epoch_ns: 5_000 };

/// What the lines become, as `kind name start+duration` in microseconds.
fn written(lines: &[String]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = shared_trace(folder.path(), "t.json");
    let lanes = HostLanes::new(trace.clone(), 9, EPOCH);
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
    let shown: Vec<String> = events(&path)
        .iter()
        .map(|event| match event["ph"].as_str().unwrap() {
            "X" => format!(
                "X {} {}+{} {}",
                event["name"], event["ts"], event["dur"], event["args"]
            ),
            "i" => format!("i {} {} {}", event["name"], event["ts"], event["args"]),
            _ => format!("M {} {}/{}", event["args"], event["pid"], event["tid"]),
        })
        .collect();
    shown.join("\n")
}

/// Begins and ends of spans: `+a@1 -a@2.5` begins `a` at 1 us and ends it at 2.5.
fn marks(text: &str) -> Vec<String> {
    let mark = |mark: &str| {
        let (name, micros) = mark[1..].split_once('@').unwrap();
        let kind = if mark.starts_with('+') { "B" } else { "E" };
        format!(r#"{{"ph":"{kind}","pid":1,"ts":{micros},"name":"{name}","cat":"c","tid":0}}"#)
    };
    text.split(' ').map(mark).collect()
}

const MAIN: &str = r#"{"ph":"M","pid":1,"name":"thread_name","tid":0,"args":{"name":"main"}}"#;

#[test]
fn pairs_become_spans_on_named_lanes_with_typed_arguments() {
    let begin = r#"{"ph":"B","pid":1,"ts":1.001,"name":"epoch","cat":"c","tid":0,"args":{"b":"true","d":"Some(1)","m":"\"a\\\"b\"","n":"3","x":"1.5"}}"#;
    let event = r#"{"ph":"i","pid":1,"ts":2.5,"name":"event src/x.rs:1","cat":"c","tid":0,"s":"t","args":{"message":"saved"}}"#;
    let mut lines = [MAIN, begin, event].map(str::to_owned).to_vec();
    lines.extend(marks("-epoch@3.25"));
    insta::assert_snapshot!(written(&lines), @r#"
    M {"name":"main"} 9/1
    M {"sort_index":1} 9/1
    i "saved" 7.5 {"message":"saved"}
    X "epoch" 6.001+2.249 {"b":true,"d":"Some(1)","m":"a\"b","n":3,"x":1.5}
    "#);
}

#[test]
fn spans_left_out_of_order_are_cut_so_that_they_nest() {
    insta::assert_snapshot!(written(&marks("+a@1 +b@2 -a@3 -b@4")), @r#"
    M {"name":"thread 1"} 9/1
    M {"sort_index":1} 9/1
    X "b" 7.0+1.0 null
    X "a" 6.0+2.0 null
    X "b" 8.0+1.0 null
    "#);
}

#[test]
fn ends_without_begin_are_ignored_and_begins_without_end_closed() {
    insta::assert_snapshot!(written(&marks("-before@1 +a@1 -other@1.5 +b@2")), @r#"
    M {"name":"thread 1"} 9/1
    M {"sort_index":1} 9/1
    X "b" 7.0+93.0 {"unclosed":true}
    X "a" 6.0+94.0 {"unclosed":true}
    "#);
}

#[test]
fn broken_text_is_passed_over() {
    let long = format!("{{\"ph\":\"B\",\"name\":\"{}\"}}", "x".repeat(2 << 20));
    let mut lines = ["{\"ph\":", &long, "{}", "7"].map(str::to_owned).to_vec();
    lines.extend(marks("+a@1 -a@2"));
    let text = written(&lines);
    assert_eq!(text.lines().count(), 3, "{text}");
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
        let text: Vec<String> = order.iter().enumerate().map(|(at, (name, is_begin))| {
            format!("{}{name}@{at}", if *is_begin { '+' } else { '-' })
        }).collect();
        let folder = tempfile::tempdir().unwrap();
        let (path, trace) = shared_trace(folder.path(), "t.json");
        let mut lanes = HostLanes::new(trace.clone(), 9, EPOCH);
        marks(&text.join(" ")).iter().for_each(|event| lanes.event(event.as_bytes()));
        lanes.close(Nanos(100_000));
        trace.finish().unwrap();
        let spans: Vec<(f64, f64)> = spans(&path).iter()
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

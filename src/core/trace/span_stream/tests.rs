//! Tests of the lanes and of the stream before them, fed with text as tracing-chrome prints it.

use super::*;
use crate::timeline::{LaneKind, MonotonicClock, Stage};
use crate::trace::test_files::{events, shared_trace, spans};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Writes the lines into a trace of a run with a worker's and a trainer's lane.
fn write(folder: &Path, lines: &[String]) -> PathBuf {
    let (path, trace) = shared_trace(folder, "t.json");
    let recorder = Recorder::new();
    let _lanes = [
        recorder.lane("decode 0", LaneKind::Worker(Stage::DECODE)),
        recorder.lane("trainer", LaneKind::Trainer),
    ];
    let (done, finished) = channel();
    let clock = Arc::new(MonotonicClock::new());
    let mut stream = SpanStream::new(SpanLanes::new(trace.clone(), recorder), clock, done);
    let text = format!("[\n{}\n]", lines.join(",\n"));
    // In small pieces, as a buffer might cut them.
    for piece in text.as_bytes().chunks(7) {
        stream.write_all(piece).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1));
    drop(stream);
    finished.recv().unwrap();
    trace.finish().unwrap();
    path
}

/// What the lines become, as `kind pid/tid name start+duration` in microseconds.
fn written(lines: &[String]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let shown = events(&write(folder.path(), lines));
    let shown = shown.iter().map(|event| {
        let lane = format!("{}/{}", event["pid"], event["tid"]);
        match event["ph"].as_str().unwrap() {
            "X" if event["args"]["unclosed"] == true => {
                format!("X {lane} {} {} unclosed", event["name"], event["ts"])
            }
            "X" => format!(
                "X {lane} {} {}+{} {}",
                event["name"], event["ts"], event["dur"], event["args"]
            ),
            "i" => format!(
                "i {lane} {} {} {}",
                event["name"], event["ts"], event["args"]
            ),
            _ => format!("M {lane} {}", event["args"]),
        }
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// A line of the thread `tid`, `nanos` into the run; `here` is lane, batch and turn.
fn line(kind: &str, name: &str, nanos: u64, tid: u32, here: Option<(u16, u64, u64)>) -> String {
    let here = here.map(|(lane, batch, turn)| {
        serde_json::json!({"run": 0, "lane": lane, "batch": batch, "turn": turn, "is_whole": turn < 5})
    });
    let number: u64 = name.bytes().map(u64::from).sum();
    let cat = serde_json::json!([here, nanos, "code", number]).to_string();
    serde_json::json!({"ph": kind, "pid": 1, "ts": 1.5, "name": name, "cat": cat, "tid": tid})
        .to_string()
}

/// Begins and ends of spans of a thread without a lane: `+a@1 -a@2500` begins `a` at 1 ns and ends it at 2500.
fn marks(text: &str) -> Vec<String> {
    let mark = |mark: &str| {
        let (name, nanos) = mark[1..].split_once('@').unwrap();
        let kind = if mark.starts_with('+') { "B" } else { "E" };
        line(kind, name, nanos.parse().unwrap(), 0, None)
    };
    text.split(' ').map(mark).collect()
}

const MAIN: &str = r#"{"ph":"M","pid":1,"name":"thread_name","tid":0,"args":{"name":"main"}}"#;

#[test]
fn pairs_become_spans_on_named_lanes_with_typed_arguments() {
    let begin = r#"{"ph":"B","pid":1,"ts":1.001,"name":"epoch","cat":"[null,1001,\"c\",527]","tid":0,"args":{"b":"true","d":"Some(1)","m":"\"a\\\"b\"","n":"3","x":"1.5"}}"#;
    let event = r#"{"ph":"i","pid":1,"ts":2.5,"name":"event src/x.rs:1","cat":"[null,2500,\"c\",0]","tid":0,"s":"t","args":{"message":"saved"}}"#;
    let mut lines = [MAIN, begin, event].map(str::to_owned).to_vec();
    lines.extend(marks("-epoch@3250"));
    insta::assert_snapshot!(written(&lines), @r#"
    M 3/null {"name":"host spans"}
    M 3/null {"sort_index":3}
    M 3/1 {"name":"main"}
    M 3/1 {"sort_index":1001}
    i 3/1 "saved" 2.5 {"message":"saved"}
    X 3/1 "epoch" 1.001+2.249 {"b":true,"d":"Some(1)","m":"a\"b","n":3,"x":1.5}
    "#);
}

#[test]
fn what_lies_within_a_unit_of_work_is_on_its_lane_and_the_rest_beside() {
    let (first, second) = (Some((0, 7, 3)), Some((0, 7, 4)));
    let lines = [
        line("B", "batch", 10, 4, first),
        line("B", "parse", 20, 4, first),
        line("i", "found", 25, 4, first),
        line("E", "parse", 30, 4, first),
        line("E", "batch", 50, 4, second),
        line("B", "loss", 60, 5, Some((1, 7, 2))),
        line("E", "loss", 90, 5, Some((1, 7, 2))),
        // What it lies in is not recorded as it comes.
        line("B", "part", 95, 5, Some((1, 7, 9))),
        line("E", "part", 99, 5, Some((1, 7, 9))),
    ];
    insta::assert_snapshot!(written(&lines), @r#"
    i 1/11 "found" 0.025 null
    X 1/11 "parse" 0.02+0.01 null
    M 1/131083 {"name":"decode 0: spans"}
    M 1/131083 {"sort_index":1000}
    X 1/131083 "batch" 0.01+0.04 null
    X 2/12 "loss" 0.06+0.03 null
    M 2/131084 {"name":"trainer: spans"}
    M 2/131084 {"sort_index":1001}
    X 2/131084 "part" 0.095+0.004 null
    "#);
}

#[test]
fn spans_left_out_of_order_are_cut_so_that_they_nest() {
    insta::assert_snapshot!(written(&marks("+a@1000 +b@2000 -a@3000 -b@4000")), @r#"
    M 3/null {"name":"host spans"}
    M 3/null {"sort_index":3}
    M 3/1 {"name":"thread 1"}
    M 3/1 {"sort_index":1001}
    X 3/1 "a" 1.0+2.0 null
    X 3/1 "b" 3.0+1.0 null
    "#);
}

#[test]
fn ends_without_begin_are_ignored_and_begins_without_end_closed() {
    insta::assert_snapshot!(written(&marks("-before@1000 +a@1000 -other@1500 +b@2000")), @r#"
    M 3/null {"name":"host spans"}
    M 3/null {"sort_index":3}
    M 3/1 {"name":"thread 1"}
    M 3/1 {"sort_index":1001}
    X 3/1 "b" 2.0 unclosed
    X 3/1 "a" 1.0 unclosed
    "#);
}

#[test]
fn broken_text_is_passed_over() {
    let long = format!("{{\"ph\":\"B\",\"name\":\"{}\"}}", "x".repeat(2 << 20));
    let mut lines = ["{\"ph\":", &long, "{}", "7"].map(str::to_owned).to_vec();
    // Of another trace, or of no run.
    lines.push(r#"{"ph":"B","pid":1,"ts":1,"name":"late","cat":"","tid":0}"#.to_owned());
    lines.extend(marks("+a@1 -a@2"));
    let text = written(&lines);
    assert_eq!(text.lines().count(), 5, "{text}");
}

proptest! {
    #[test]
    fn any_order_of_begins_and_ends_nests(order in prop::collection::vec((0u8..4, any::<bool>(), 0u64..3), 1..60)) {
        let lines: Vec<String> = order.iter().enumerate().map(|(at, (name, begins, turn))| {
            let kind = if *begins { "B" } else { "E" };
            line(kind, &name.to_string(), at as u64, 0, Some((0, 0, *turn)))
        }).collect();
        let folder = tempfile::tempdir().unwrap();
        let spans: Vec<_> = spans(&write(folder.path(), &lines)).into_iter().map(|event| {
            let time = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
            (event["tid"].as_u64(), time("ts"), time("ts") + time("dur"))
        }).collect();
        for (index, a) in spans.iter().enumerate() {
            for b in spans[index + 1..].iter().filter(|b| a.0 == b.0) {
                let overlap = a.1 < b.1 && b.1 < a.2 && a.2 < b.2 || b.1 < a.1 && a.1 < b.2 && b.2 < a.2;
                prop_assert!(!overlap, "{a:?} {b:?}");
            }
        }
    }
}

//! Tests of the writer: its text, its cap, its groups, and disks that fail.

use super::*;
use crate::trace::SharedTrace;
use crate::trace::test_files::events;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

fn options(max_bytes: u64) -> TraceOptions {
    TraceOptions {
        base: Nanos(1_000),
        max_bytes,
        compress: false,
    }
}

fn in_folder(max_bytes: u64) -> (tempfile::TempDir, PathBuf, TraceWriter) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let writer = TraceWriter::create(&path, options(max_bytes)).unwrap();
    (folder, path, writer)
}

fn point(tid: u32, start: Nanos, end: Nanos) -> FlowPoint {
    FlowPoint {
        pid: 1,
        tid,
        start,
        end,
    }
}

fn kinds(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["ph"] == kind).count()
}

/// A batch of two slices and the arrow between them.
fn write_batch(trace: &mut TraceWriter, batch: u64) -> bool {
    let at = Nanos(1_000 + batch * 10_000);
    let (middle, end) = (Nanos(at.0 + 4_000), Nanos(at.0 + 9_000));
    trace.group(|trace| {
        let args = [("batch", Arg::UInt(batch))];
        trace.span(1, 1, "read", "read", at, middle, &args);
        trace.span(1, 2, "step", "step", middle, end, &args);
        let points = [point(1, at, middle), point(2, middle, end)];
        trace.flow_chain(batch + 1, "batch", "batch", &points);
    })
}

#[test]
fn the_text_of_a_small_trace() {
    let (_folder, path, mut trace) = in_folder(1 << 20);
    trace.process(1, "loader", 0);
    trace.lane(1, 1, "read \"0\"", -1);
    write_batch(&mut trace, 0);
    trace.counter(1, "queue", "decode", Nanos(2_001), Number::UInt(3));
    trace.counter(1, "device busy", "share", Nanos(2_001), Number::Float(0.5));
    let values = [json!(-1), json!(0.25), json!(true)];
    let args = [
        ("i", Arg::Json(&values[0])),
        ("f", Arg::Json(&values[1])),
        ("t", Arg::Text("a\nb")),
        ("b", Arg::Json(&values[2])),
    ];
    trace.instant(1, 2, "épochs\\", "host", Nanos(1_234_567), &args);
    let summary = trace.finish();
    assert_eq!(
        (summary.events, summary.malformed_events, summary.error),
        (11, 0, None)
    );
    assert_eq!(summary.bytes, fs::metadata(&path).unwrap().len());
    assert_eq!(events(&path).len(), 11);
    insta::assert_snapshot!(fs::read_to_string(&path).unwrap(), @r#"
    [
    {"ph":"M","pid":1,"name":"process_name","args":{"name":"loader"}},
    {"ph":"M","pid":1,"name":"process_sort_index","args":{"sort_index":0}},
    {"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"read \"0\""}},
    {"ph":"M","pid":1,"tid":1,"name":"thread_sort_index","args":{"sort_index":-1}},
    {"ph":"X","pid":1,"tid":1,"ts":0.000,"dur":4.000,"name":"read","cat":"read","args":{"batch":0}},
    {"ph":"X","pid":1,"tid":2,"ts":4.000,"dur":5.000,"name":"step","cat":"step","args":{"batch":0}},
    {"ph":"s","pid":1,"tid":1,"ts":0.000,"id":1,"name":"batch","cat":"batch"},
    {"ph":"f","bp":"e","pid":1,"tid":2,"ts":4.000,"id":1,"name":"batch","cat":"batch"},
    {"ph":"C","pid":1,"ts":1.001,"name":"queue","args":{"decode":3}},
    {"ph":"C","pid":1,"ts":1.001,"name":"device busy","args":{"share":0.5}},
    {"ph":"i","s":"t","pid":1,"tid":2,"ts":1233.567,"name":"épochs\\","cat":"host","args":{"i":-1,"f":0.25,"t":"a\nb","b":true}}
    ]
    "#);
}

#[test]
fn corrected_times_are_counted() {
    let (_folder, path, mut trace) = in_folder(1 << 20);
    trace.span(1, 1, "backwards", "x", Nanos(9_000), Nanos(8_000), &[]);
    trace.span(1, 2, "early", "x", Nanos(500), Nanos(2_000), &[]);
    trace.instant(1, 2, "early", "x", Nanos(500), &[]);
    trace.counter(1, "c", "s", Nanos(2_000), Number::Float(f64::NAN));
    assert!(!trace.flow_chain(1, "f", "f", &[]));
    let summary = trace.finish();
    assert_eq!((summary.malformed_events, summary.events), (5, 3));
    let events = events(&path);
    assert_eq!(
        (&events[0]["ts"], &events[0]["dur"]),
        (&8.0.into(), &0.0.into())
    );
    assert_eq!(
        (&events[1]["ts"], &events[1]["dur"]),
        (&0.0.into(), &1.0.into())
    );
}

#[test]
fn arrow_ends_lie_inside_their_slices_and_in_order() {
    let point = |start, end| point(1, Nanos(start), Nanos(end));
    let times = |points: &[FlowPoint]| {
        flow_times(points).map(|times| times.iter().map(|at| at.0).collect::<Vec<_>>())
    };
    assert_eq!(times(&[point(5, 9), point(9, 12)]), Some(vec![5, 9]));
    assert_eq!(
        times(&[point(5, 9), point(2, 12)]),
        Some(vec![5, 5]),
        "a slice that began earlier"
    );
    assert_eq!(
        times(&[point(5, 5), point(5, 5)]),
        Some(vec![5, 5]),
        "slices of no length"
    );
    assert_eq!(
        times(&[point(5, 9), point(2, 5)]),
        None,
        "time would run backwards"
    );
    assert_eq!(times(&[point(5, 9)]), None);
}

#[test]
fn groups_are_whole_under_the_cap() {
    let (_folder, path, mut trace) = in_folder(16 << 10);
    let kept = (0..1000)
        .filter(|&batch| write_batch(&mut trace, batch))
        .count();
    trace.lane(1, 2, "named late", 0);
    let summary = trace.finish();
    let events = events(&path);
    assert!(kept > 10 && kept < 100, "{kept}");
    assert_eq!(events.len(), kept * 4 + 2);
    assert_eq!(
        (
            kinds(&events, "s"),
            kinds(&events, "f"),
            kinds(&events, "M")
        ),
        (kept, kept, 2)
    );
    assert_eq!(summary.events, events.len() as u64);
    assert_eq!(summary.left_out_events, (1000 - kept as u64) * 4);
    assert_eq!(
        summary.left_out_since,
        Some(Nanos(1_000 + kept as u64 * 10_000))
    );
    assert!(summary.bytes <= 16 << 10);
}

#[test]
fn a_group_whose_writer_panics_is_taken_back() {
    let (_folder, path, trace) = in_folder(1 << 20);
    let shared = SharedTrace::new(trace);
    let writer = shared.clone();
    let panicked = std::thread::spawn(move || {
        writer.with(|trace| {
            trace.span(1, 1, "before", "x", Nanos(2_000), Nanos(3_000), &[]);
            trace.group(|trace| {
                trace.instant(1, 1, "inside", "x", Nanos(2_000), &[]);
                trace.lane(1, 1, "named inside", 0);
                panic!("planted");
            });
        });
    });
    assert!(panicked.join().is_err());
    let summary = shared.finish().unwrap();
    assert_eq!((summary.events, summary.left_out_events), (3, 1));
    assert_eq!(kinds(&events(&path), "i"), 0);
    assert!(shared.finish().is_none());
    assert!(shared.with(|_| ()).is_none());
}

#[test]
fn dropping_closes_the_array() {
    let (_folder, path, mut trace) = in_folder(1 << 20);
    trace.instant(1, 1, "i", "x", Nanos(2_000), &[]);
    drop(trace);
    assert_eq!(events(&path).len(), 1);
}

#[test]
fn an_empty_trace_is_not_an_empty_array() {
    let (_folder, path, trace) = in_folder(1 << 20);
    assert_eq!(
        fs::metadata(&path).unwrap().len(),
        0,
        "an empty file opens, a lone bracket does not"
    );
    trace.finish();
    assert_eq!(events(&path).len(), 1);
}

#[test]
fn a_flushed_trace_needs_only_its_bracket() {
    let (_folder, path, mut trace) = in_folder(1 << 20);
    write_batch(&mut trace, 0);
    trace.flush();
    let text = fs::read_to_string(&path).unwrap() + "]";
    assert_eq!(serde_json::from_str::<Vec<Value>>(&text).unwrap().len(), 4);
    std::mem::forget(trace);
}

#[test]
fn compression_replaces_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let wanted = TraceOptions {
        compress: true,
        ..options(1 << 20)
    };
    let mut trace = TraceWriter::create(&path, wanted).unwrap();
    write_batch(&mut trace, 0);
    let summary = trace.finish();
    assert_eq!(summary.path, folder.path().join("t.json.gz"));
    assert!(
        summary
            .compressed_bytes
            .is_some_and(|bytes| bytes < summary.bytes)
    );
    assert!(!path.exists());
}

#[test]
fn creation_errors_say_what_to_do() {
    let missing = TraceWriter::create("/nonexistent/t.json", options(1 << 20))
        .err()
        .unwrap();
    assert!(
        missing
            .to_string()
            .contains("/nonexistent/t.json: No such file"),
        "{missing}"
    );
    let folder = tempfile::tempdir().unwrap();
    let small = TraceWriter::create(folder.path().join("t.json"), options(100))
        .err()
        .unwrap();
    assert!(small.to_string().contains("at least 4096 bytes"), "{small}");
}

#[test]
fn a_full_disk_is_remembered_and_harms_nothing() {
    let mut trace = TraceWriter::create("/dev/full", options(u64::MAX)).unwrap();
    for batch in 0..2 {
        write_batch(&mut trace, batch);
    }
    trace.flush();
    assert!(trace.error().is_some());
    assert!(!write_batch(&mut trace, 2));
    let summary = trace.finish();
    assert_eq!(
        (summary.events, summary.bytes, summary.left_out_events),
        (0, 0, 12)
    );
    assert_eq!(summary.left_out_since, Some(Nanos(1_000)));
    let error = summary.error.unwrap();
    assert!(
        error.contains("/dev/full failed after 0 bytes: No space left"),
        "{error}"
    );
}

/// Runs this test again in a child whose files may not grow past 100 KiB.
#[test]
fn a_file_cut_by_a_size_limit_is_whole_up_to_there() {
    const CHILD: &str = "STALLSCOPE_SIZE_LIMITED_TRACE";
    if let Some(path) = std::env::var_os(CHILD) {
        let mut trace = TraceWriter::create(&path, options(u64::MAX)).unwrap();
        (0..2_000).for_each(|batch| {
            write_batch(&mut trace, batch);
        });
        let summary = trace.finish();
        assert!(
            summary
                .error
                .as_ref()
                .is_some_and(|e| e.contains("File too large")),
            "{summary:?}"
        );
        assert_eq!(summary.events + summary.left_out_events, 8_000);
        assert_eq!(summary.bytes, fs::metadata(&path).unwrap().len());
        assert_eq!(events(Path::new(&path)).len() as u64, summary.events);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let output = Command::new("bash")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 100; exec \"$0\" --exact \"$1\"",
        ])
        .arg(std::env::current_exe().unwrap())
        .arg("trace::writer::tests::a_file_cut_by_a_size_limit_is_whole_up_to_there")
        .env(CHILD, &path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let events = events(&path);
    assert!(events.len() > 500, "{}", events.len());
    assert!(kinds(&events, "f") <= kinds(&events, "s"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_written_the_cap_holds_and_arrows_are_whole(
        max_bytes in 4096u64..40_000,
        names in prop::collection::vec((".{0,40}", 0usize..5, any::<bool>()), 1..200),
    ) {
        let (_folder, path, mut trace) = in_folder(max_bytes);
        let mut offered = 0;
        for (index, (name, arrows, flush)) in names.iter().enumerate() {
            let at = Nanos(1_000 + index as u64);
            trace.span(1, 1, name, name, at, at, &[(name, Arg::Text(name))]);
            trace.group(|trace| for arrow in 0..*arrows {
                let id = (index * 10 + arrow) as u64;
                trace.flow_chain(id, name, "x", &[point(1, at, at); 2]);
            });
            offered += 1 + 2 * *arrows as u64;
            if *flush { trace.flush(); }
        }
        let summary = trace.finish();
        let events = events(&path);
        prop_assert!(summary.bytes <= max_bytes);
        prop_assert_eq!(fs::metadata(&path).unwrap().len(), summary.bytes);
        prop_assert_eq!(events.len() as u64, summary.events);
        prop_assert_eq!(summary.events + summary.left_out_events, offered);
        let ids = |kind: &str| events.iter().filter(|e| e["ph"] == kind).map(|e| e["id"].as_u64()).collect::<Vec<_>>();
        prop_assert_eq!(ids("s"), ids("f"));
    }
}

//! `stallscope analyze`: report, page and trace of a trace of PyTorch's profiler; what they are compared with, and what is
//! refused.

#[allow(dead_code, reason = "only good traces are checked here")]
#[path = "perfetto/engine.rs"]
mod engine;
mod program;

use program::stallscope;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Output;

/// Steps of 100 ms, of which the loop waits for data in `waits`, and the GPU computes in 40.
fn write_trace(path: &Path, waits: f64) {
    let slice = |cat: &str, name: &str, at: f64, length: f64, args: Value| json!({"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 7, "ts": at, "dur": length, "args": args});
    let mut events = Vec::new();
    for step in 0..40 {
        let at = 1e5 * f64::from(step);
        let computes = at + 1e3 * waits;
        let number = json!({"correlation": step + 1, "device": 0, "stream": 7});
        let next = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
        events.push(slice(
            "user_annotation",
            &format!("ProfilerStep#{step}"),
            at,
            99_000.0,
            json!({}),
        ));
        events.push(slice("user_annotation", next, at, 1e3 * waits, json!({})));
        events.push(slice("cpu_op", "aten::conv2d", computes, 5e3, json!({})));
        events.push(slice(
            "cuda_runtime",
            "cudaLaunchKernel",
            computes + 1e3,
            1e3,
            number.clone(),
        ));
        events.push(slice("kernel", "gemm", computes + 2e3, 4e4, number));
    }
    let gpus = json!([{"id": 0, "name": "H200"}]);
    fs::write(
        path,
        json!({"deviceProperties": gpus, "traceEvents": events}).to_string(),
    )
    .unwrap();
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

fn run(folder: &Path, words: &[&str]) -> Output {
    stallscope()
        .args(words)
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn a_profilers_trace_becomes_a_report_a_page_and_a_trace() {
    let place = tempfile::tempdir().unwrap();
    write_trace(&place.path().join("run.pt.trace.json"), 50.0);
    let out = run(place.path(), &["analyze", "run.pt.trace.json"]);
    let text = said(&out);
    assert!(out.status.success(), "{text}");
    for part in [
        "verdict  loader-bound",
        "10.02 steps/s",
        "GPU 0, H200",
        "DataLoader",
        "trace",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let latest = place.path().join("traces/latest");
    let report: Value =
        serde_json::from_slice(&fs::read(latest.join("report.json")).unwrap()).unwrap();
    assert_eq!(
        report["profiler_trace"]["steps"].as_array().unwrap().len(),
        40
    );
    let page = fs::read_to_string(latest.join("report.html")).unwrap();
    assert!(page.contains("steps&#x2f;s") && page.contains("run.pt.trace.json"));
    if let Some(engine) = engine::engine() {
        engine::takes_all(&engine, &latest.join("trace.json"));
    }
    // The loop's own 50 ms are left, whatever the GPU takes.
    for speedup in ["1", "4"] {
        let words = ["predict", "traces/latest", "--json", "--device-speedup"];
        let predicted = run(place.path(), &[&words[..], &[speedup]].concat());
        let predicted: Value = serde_json::from_slice(&predicted.stdout).unwrap();
        let rate = |name: &str| {
            let own = &predicted["predictions"][name]["steps_per_second"];
            own.as_f64().unwrap()
        };
        let found = [rate("measured"), rate("without_data_wait")];
        assert!(
            (found[0] - 10.0).abs() < 0.1 && (found[1] - 20.0).abs() < 0.4,
            "{found:?}"
        );
    }
    let larger = run(
        place.path(),
        &["predict", "traces/latest", "--set", "batch_size=64"],
    );
    assert!(said(&larger).contains("with that batch size"));
    let predicted = run(
        place.path(),
        &["predict", "traces/latest", "--set", "num_workers=4"],
    );
    assert!(
        !predicted.status.success() && said(&predicted).contains("stallscope torch"),
        "{}",
        said(&predicted)
    );
}

#[test]
fn two_traces_can_be_compared() {
    let place = tempfile::tempdir().unwrap();
    for (name, waits) in [("before", 50.0), ("after", 5.0)] {
        let trace = format!("{name}.json");
        write_trace(&place.path().join(&trace), waits);
        let out = run(place.path(), &["analyze", &trace, "--run-dir", name, "-q"]);
        assert!(out.status.success(), "{}", said(&out));
    }
    let out = run(place.path(), &["compare", "before", "after"]);
    let text = said(&out);
    assert!(out.status.success(), "{text}");
    assert!(
        text.contains("steps/s") && text.contains("idle: dataloader capacity"),
        "{text}"
    );
}

/// A rank of two on the CPU: in every other ten steps it waits for data for 60 ms, else for 10; then it computes for 30, and both
/// meet 95 ms after the step began. Its clock is `later` by some milliseconds.
fn write_rank(path: &Path, rank: u64, later: f64) {
    let mut events = Vec::new();
    for step in 0..60_u64 {
        let at = |millis: f64| 1e5 * step as f64 + 1e3 * (millis + later);
        let waits = if step / 10 % 2 == rank { 60.0 } else { 10.0 };
        let next = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
        for (cat, name, from, until) in [
            ("user_annotation", "ProfilerStep#7", 0.0, 99.0),
            ("user_annotation", next, 0.0, waits),
            ("cpu_op", "aten::conv2d", waits, waits + 30.0),
            ("cpu_op", "gloo:all_reduce", waits + 30.0, 95.0),
        ] {
            let length = 1e3 * (until - from);
            events.push(json!({"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": 9, "ts": at(from), "dur": length}));
        }
    }
    let world = json!({"backend": "gloo", "rank": rank, "world_size": 2});
    let trace = json!({"distributedInfo": world, "baseTimeNanoseconds": 1_700_000_000_000_000_000_u64, "traceEvents": events});
    fs::write(path, trace.to_string()).unwrap();
}

/// A straggler that changes: the wait of each rank is charged to the other's loader.
#[test]
fn ranks_are_charged_with_the_waits_of_others() {
    let place = tempfile::tempdir().unwrap();
    for (rank, later) in [(0, 0.0), (1, 2.5)] {
        write_rank(&place.path().join(format!("{rank}.json")), rank, later);
    }
    let words = ["analyze", "1.json", "0.json", "--run-dir", "both", "--json"];
    let out = run(place.path(), &words);
    assert!(out.status.success(), "{}", said(&out));
    let merged: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(merged["mended"]["straggler"], "changing", "{merged}");
    // Of 60 steps each rank waits in half for the other, for 50 ms.
    for (rank, charge) in [0, 1]
        .into_iter()
        .zip(merged["charges"].as_array().unwrap())
    {
        let time = charge["ns"].as_f64().unwrap() / 1e6;
        assert_eq!(charge["stage"], "dataloader", "{rank}: {merged}");
        assert!(
            (time - 30.0 * 50.0).abs() < 0.02 * 6000.0,
            "{rank}: {time} ms, {merged}"
        );
    }
    let clock = &merged["clocks"][0];
    assert!(
        (clock["later_ns"].as_f64().unwrap() - 2.5e6).abs() < 1e5,
        "{clock}"
    );
    let trace: Vec<Value> =
        serde_json::from_slice(&fs::read(place.path().join("both/trace.json")).unwrap()).unwrap();
    assert!(
        trace
            .iter()
            .any(|event| event["args"]["name"] == "rank 1: main process")
    );
    let twice = run(
        place.path(),
        &["analyze", "0.json", "0.json", "--run-dir", "twice"],
    );
    assert!(
        said(&twice).contains("one trace of each rank"),
        "{}",
        said(&twice)
    );
}

#[test]
fn what_is_no_trace_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("notes.txt"), "hello").unwrap();
    fs::write(place.path().join("empty.json"), "{\"traceEvents\": []}").unwrap();
    for (trace, says) in [
        ("notes.txt", "is not a trace of PyTorch's profiler"),
        ("empty.json", "has no steps"),
        ("none.json", "cannot read none.json"),
    ] {
        let out = run(place.path(), &["analyze", trace]);
        let text = said(&out);
        assert_eq!(out.status.code(), Some(1), "{text}");
        assert!(text.contains(says), "{trace}: {text}");
    }
    assert!(!place.path().join("traces").exists());
}

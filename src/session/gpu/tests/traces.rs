//! The traces of scripted runs, as they stand in the file and by Perfetto's own engine.

use super::scripted::{BATCH_BYTES, Script};
use super::{any_passes, collect, launch_bound, saturated, starved};
use crate::session::test_files::events;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The events of the trace of `script`, and its file.
fn traced(script: &Script, folder: &Path) -> (Vec<Value>, PathBuf) {
    let played = script.play();
    let passes = any_passes(&played, 3, 20, 0);
    collect(&played, passes, Some(folder));
    let path = folder.join("trace.json");
    (events(&path), path)
}

fn check_trace(script: &Script, kernels: usize) {
    let folder = tempfile::tempdir().unwrap();
    let (events, path) = traced(script, folder.path());
    let of = |category: &str, ph: &str| -> Vec<&Value> {
        let mine = events.iter().filter(|event| event["cat"] == category);
        mine.filter(|event| event["ph"] == ph).collect()
    };
    assert_eq!(of("kernel", "X").len(), 6 * kernels);
    assert_eq!(of("step", "X").len(), 6);
    let copies = of("gpu_memcpy", "X");
    assert_eq!(copies.len(), 6 * 2);
    for copy in copies {
        let to_device = copy["name"] == "Memcpy HtoD (Pinned)";
        let bytes = if to_device { BATCH_BYTES } else { 8 };
        assert_eq!(copy["args"]["bytes"], bytes, "{copy}");
    }
    let names = |kind: &str| -> Vec<&str> {
        let named = events.iter().filter(|event| event["name"] == kind);
        named
            .filter_map(|event| event["args"]["name"].as_str())
            .collect()
    };
    for lane in [
        "stream 7",
        "stream 13",
        "CUDA calls of thread 100",
        "CUDA calls of thread 200",
    ] {
        let named = names("thread_name")
            .into_iter()
            .filter(|name| *name == lane);
        assert_eq!(named.count(), 1, "{lane}");
    }
    check_arrows(&events);
    check_nesting(&events);
    check_with_perfetto(&path);
}

/// An arrow leads from each launch to its work, with the correlation of both.
fn check_arrows(events: &[Value]) {
    let works: Vec<&Value> = events
        .iter()
        .filter(|event| event["ph"] == "X" && !event["args"]["stream"].is_null())
        .collect();
    assert!(!works.is_empty());
    for work in works {
        let id = &work["args"]["correlation"];
        let end = |ph: &str| {
            let mut ends = events
                .iter()
                .filter(|event| event["cat"] == "ac2g" && event["ph"] == ph && event["id"] == *id);
            let (first, more) = (ends.next(), ends.next());
            assert!(more.is_none(), "{more:?}");
            first.unwrap_or_else(|| panic!("no {ph} of {id}"))
        };
        let arrives = end("f");
        for key in ["pid", "tid", "ts"] {
            assert_eq!(arrives[key], work[key], "{key}");
        }
        let leaves = end("s");
        let mut calls = events
            .iter()
            .filter(|event| event["cat"] == "cuda_driver" && event["args"]["correlation"] == *id);
        let call = calls.next().unwrap();
        assert_eq!(call["name"], "function 307");
        for key in ["pid", "tid", "ts"] {
            assert_eq!(leaves[key], call[key], "{key}");
        }
    }
}

/// Slices of a lane lie in each other or apart.
fn check_nesting(events: &[Value]) {
    let nanos = |value: &Value| (value.as_f64().unwrap() * 1_000.0).round() as u64;
    let mut slices: Vec<(u64, u64, u64, u64)> = events
        .iter()
        .filter(|event| event["ph"] == "X")
        .map(|event| {
            let start = nanos(&event["ts"]);
            let lane = [&event["pid"], &event["tid"]].map(|id| id.as_u64().unwrap());
            (lane[0], lane[1], start, start + nanos(&event["dur"]))
        })
        .collect();
    slices.sort_by_key(|&(pid, tid, start, end)| (pid, tid, start, std::cmp::Reverse(end)));
    let mut open: Vec<(u64, u64, u64, u64)> = Vec::new();
    for slice in slices {
        while open
            .last()
            .is_some_and(|last| (last.0, last.1) != (slice.0, slice.1) || last.3 <= slice.2)
        {
            open.pop();
        }
        if let Some(around) = open.last() {
            assert!(slice.3 <= around.3, "{slice:?} reaches out of {around:?}");
        }
        open.push(slice);
    }
}

/// By Perfetto's own engine, where it is there.
fn check_with_perfetto(path: &Path) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let find = Command::new(scripts.join("perfetto-setup.sh"))
        .arg("--find")
        .output();
    let required = std::env::var("STALLSCOPE_REQUIRE_PERFETTO").is_ok_and(|value| value == "1");
    if !required && !find.is_ok_and(|found| found.status.success()) {
        return println!("skipped: run scripts/perfetto-setup.sh to fetch Perfetto's engine");
    }
    let checked = Command::new(scripts.join("check-trace.sh"))
        .arg(path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{said}");
    println!("{said}");
}

#[test]
fn the_trace_of_a_starved_device_holds_every_rule() {
    check_trace(&starved(), 2);
}

#[test]
fn the_trace_of_late_launches_holds_every_rule() {
    check_trace(&launch_bound(), 20);
}

#[test]
fn the_trace_of_two_streams_holds_every_rule() {
    check_trace(&saturated(), 3);
}

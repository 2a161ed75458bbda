//! Trace files for the tests: made in a folder of the test's, and read back.
//!
// No test needs all of it.
#![allow(dead_code)]

use serde_json::Value;
use stallscope::timeline::Nanos;
use stallscope::trace::{SharedTrace, TraceOptions, TraceWriter};
use std::fs;
use std::path::{Path, PathBuf};

/// A trace whose times are those of the run's clock.
pub fn shared_trace(folder: &Path, name: &str) -> (PathBuf, SharedTrace) {
    let path = folder.join(name);
    let options = TraceOptions {
        base: Nanos(0),
        max_bytes: 1 << 20,
        compress: false,
    };
    let trace = SharedTrace::new(TraceWriter::create(&path, options).unwrap());
    (path, trace)
}

/// Reads the file strictly: a whole JSON array, one event a line.
pub fn events(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let Value::Array(events) = serde_json::from_str(&text).unwrap() else {
        panic!("no array: {text}");
    };
    assert_eq!(text.lines().count(), events.len() + 2, "one event a line");
    events
}

/// The spans among the file's events.
pub fn spans(path: &Path) -> Vec<Value> {
    let events = events(path).into_iter();
    events.filter(|event| event["ph"] == "X").collect()
}

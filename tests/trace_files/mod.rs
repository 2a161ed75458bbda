//! Trace files for the tests: made in a folder of the test's, and read back.
//!
// No test needs all of it.
#![allow(dead_code)]

use serde_json::Value;
use stallscope::analysis::WindowRule;
use stallscope::timeline::{
    ItemId, LaneInfo, LaneKind, Nanos, Pipeline, Record, Stage, UnitRecord, UnitRef,
};
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

const LANES: [(&str, LaneKind); 6] = [
    ("read 0", LaneKind::Worker(Stage::READ)),
    ("decode 0", LaneKind::Worker(Stage::DECODE)),
    ("preprocess 0", LaneKind::Worker(Stage::PREPROCESS)),
    ("batch 0", LaneKind::Worker(Stage::BATCH)),
    ("copy 0", LaneKind::Worker(Stage::COPY)),
    ("trainer", LaneKind::Trainer),
];

pub fn lanes() -> Vec<LaneInfo> {
    let info = |(name, kind): (&str, LaneKind)| LaneInfo {
        name: name.to_owned(),
        kind,
        thread: None,
    };
    LANES.map(info).to_vec()
}

/// The unit of `stage` in a batch of one sample: each stage has a lane of its own and takes 10 us.
pub fn unit(stage: Stage, batch: u64) -> (u16, Record) {
    let lane = stage.number() as u16;
    let start = Nanos(100_000 * batch + 10_000 * u64::from(lane) + 10_000);
    let before = lane.checked_sub(1);
    let lineage = before.map_or(UnitRef::NONE, |lane| UnitRef::new(lane, batch));
    let record = UnitRecord {
        stage,
        split: None,
        ordinal: batch,
        item: ItemId { batch, slot: 0 },
        sample: 7,
        samples: 1,
        waited: true,
        admitted: false,
        skipped: false,
        ready_at: start,
        cause: lineage,
        start,
        end: start + Nanos(10_000),
        pushed: start + Nanos(10_000),
        room_from: UnitRef::NONE,
        lineage,
        wake_run_delay: 0,
        run_delay: 0,
        bytes_in: 1,
        bytes_out: 1,
        input_depth: 0,
        output_depth: 0,
    };
    (lane, Record::Unit(record))
}

pub fn all(batch: u64) -> Vec<(u16, Record)> {
    let stages = Pipeline::IMAGES.loader().chain([Stage::STEP]);
    stages.map(|stage| unit(stage, batch)).collect()
}

/// Measures a run from its beginning.
pub fn whole_run(device_beside: bool) -> WindowRule {
    WindowRule {
        warmup_steps: 0,
        steps: None,
        run_start: Nanos::ZERO,
        device_beside,
    }
}

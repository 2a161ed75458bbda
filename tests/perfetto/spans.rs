//! Spans of a user's own code, in the trace of a pipeline of their own.

use crate::engine::{check, engine, said};
use crate::synthetic::SPANS;
use serde_json::Value;
use stallscope::loader::{LoaderBuilder, source};
use stallscope::trace::install_layer;
use std::fs;
use std::path::Path;
use std::sync::PoisonError;
use std::thread::sleep;
use std::time::Duration;
use tracing::info_span;

const STEPS: u64 = 30;
/// Those that are traced.
const TRACED: std::ops::Range<u64> = 4..20;

/// Two stages, each of which opens spans of its own; parsing is slow.
fn pipeline() -> LoaderBuilder<Vec<u32>> {
    source("fetch", 600, |key| {
        info_span!("look up", index = key.index).in_scope(|| Ok(key.index))
    })
    .then("parse", |_, index| {
        let _whole = info_span!("document").entered();
        info_span!("header").in_scope(|| sleep(Duration::from_micros(200)));
        info_span!("body").in_scope(|| sleep(Duration::from_micros(300)));
        Ok(index)
    })
    .collate(|indices| info_span!("pad").in_scope(|| Ok(indices)))
    .copy_with(|batch| info_span!("pin").in_scope(|| Ok(batch)))
    .batch_size(4)
    .steps(STEPS)
    .trace_steps(TRACED)
}

/// The slices of the trace of a run.
fn run(builder: LoaderBuilder<Vec<u32>>, path: &Path) -> Vec<Value> {
    let mut loader = builder.trace(path).start().unwrap();
    let mut across = Some(info_span!("outside").entered());
    while let Some(batch) = loader.next() {
        let batch = batch.unwrap();
        if batch.len() == 4 {
            // Over the end of a step.
            across = Some(info_span!("two steps").entered());
        }
        let _loss = info_span!("loss").entered();
        loader.step(|| info_span!("forward").in_scope(|| sleep(Duration::from_micros(100))));
    }
    drop(across);
    let report = loader.finish();
    assert_eq!(report.trace.unwrap().left_out_events, 0);
    let events: Vec<Value> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    events
        .into_iter()
        .filter(|event| event["ph"] == "X")
        .collect()
}

/// Where a slice is, when it begins and ends, in nanoseconds.
fn times(slice: &Value) -> (String, u64, u64) {
    let nanos = |key: &str| (slice[key].as_f64().unwrap() * 1e3).round() as u64;
    let lane = format!("{}/{}", slice["pid"], slice["tid"]);
    (lane, nanos("ts"), nanos("ts") + nanos("dur"))
}

#[test]
fn spans_of_a_users_code_lie_in_the_stage_or_step_that_opened_them() {
    let _one = SPANS.lock().unwrap_or_else(PoisonError::into_inner);
    install_layer().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let layouts = [
        pipeline().workers("parse", 2),
        pipeline().num_workers(2),
        pipeline().num_workers(0).workers("copy", 0),
    ];
    for (number, builder) in layouts.into_iter().enumerate() {
        let path = folder.path().join(format!("{number}.json"));
        let slices = run(builder, &path);
        let named = |name: &str| {
            let name = Value::from(name);
            slices
                .iter()
                .filter(move |slice| slice["name"] == name)
                .map(times)
        };
        let within = |inner: &str, outer: &str| {
            for (lane, start, end) in named(inner) {
                let enclosed =
                    named(outer).any(|(of, from, to)| of == lane && from <= start && end <= to);
                assert!(
                    enclosed,
                    "{inner} at {start} ns of {lane} is in no {outer}, layout {number}"
                );
            }
        };
        let steps = (TRACED.end - TRACED.start) as usize;
        let counts = [
            "look up", "document", "header", "body", "pad", "pin", "loss", "forward",
        ]
        .map(|name| named(name).count());
        let samples = 4 * steps;
        assert_eq!(
            counts,
            [
                samples, samples, samples, samples, steps, steps, steps, steps
            ]
        );
        within("look up", "fetch");
        within("document", "parse");
        within("header", "document");
        within("body", "document");
        within("pad", "batch");
        within("pin", "copy");
        within("loss", "step");
        within("forward", "loss");
        // It is on a lane beside the trainer's.
        let trainer = named("step").next().unwrap().0;
        let beside: Vec<_> = named("two steps").collect();
        assert!(!beside.is_empty() && beside.iter().all(|(lane, _, _)| *lane != trainer));
        assert_eq!(named("outside").count(), 0, "before the traced steps");
        if engine().is_some() {
            let output = check(&path, None);
            assert!(output.status.success(), "{}", said(&output));
        }
    }
}

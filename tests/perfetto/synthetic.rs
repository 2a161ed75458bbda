//! A synthetic run written with the trace writer, in the form `scripts/check-trace.sh` holds a trace to.

use stallscope::timeline::{Clock, MonotonicClock, Nanos, Recorder};
use stallscope::trace::{
    Arg, FlowPoint, HostSpans, Number, SharedTrace, TraceOptions, TraceWriter, install_layer,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub const LOADER: u32 = 1;
pub const TRAINER: u32 = 2;
/// Stage, its lane, its start in the batch and its length in nanoseconds; samples go one after another.
pub const SAMPLE_STAGES: [(&str, u32, u64, u64); 3] = [
    ("read", 1, 0, 1_001),
    ("decode", 2, 1_100, 1_503),
    ("preprocess", 3, 2_700, 900),
];
pub const SAMPLES: u64 = 4;
pub const SAMPLE_NS: u64 = 2_000;
pub const BATCH_NS: u64 = 20_000;
pub const BATCHES: u64 = 50;

pub fn report_in(folder: &Path, decode_slices: u64) -> PathBuf {
    let path = folder.join(format!("report-{decode_slices}.json"));
    let steps = BATCHES;
    let text = format!(
        "{{\"trace\":{{\"decode_slices_expected\":{decode_slices},\"step_slices_expected\":{steps}}}}}"
    );
    fs::write(&path, text).unwrap();
    path
}

pub fn create(path: &Path, base: Nanos, compress: bool) -> TraceWriter {
    let options = TraceOptions {
        base,
        max_bytes: 16 << 20,
        compress,
    };
    let mut trace = TraceWriter::create(path, options).unwrap();
    trace.process(LOADER, "loader", 0);
    trace.process(TRAINER, "trainer", 1);
    for (tid, name) in (1..).zip(["read 0", "decode 0", "preprocess 0", "batch 0", "copy 0"]) {
        trace.lane(LOADER, tid, name, tid as i32);
    }
    for (tid, name) in (1..).zip(["trainer", "device", "device idle"]) {
        trace.lane(TRAINER, tid, name, tid as i32);
    }
    trace
}

/// One batch through every stage, as the session writes it: slices first, then the chain.
pub fn write_batch(trace: &mut TraceWriter, base: Nanos, batch: u64) -> bool {
    let at = |ns: u64| Nanos(base.0 + batch * BATCH_NS + ns);
    let batch_arg = ("batch", Arg::UInt(batch));
    let last_sample = (batch + 1) * SAMPLES - 1;
    let mut chain = Vec::new();
    let slice =
        |trace: &mut TraceWriter, pid, tid, stage: &str, start, end, args: &[(&str, Arg)]| {
            trace.span(pid, tid, stage, stage, start, end, args);
            FlowPoint {
                pid,
                tid,
                start,
                end,
            }
        };
    trace.group(|trace| {
        for (stage, tid, start, length) in SAMPLE_STAGES {
            for sample in 0..SAMPLES {
                let start = at(start + sample * SAMPLE_NS);
                let id = batch * SAMPLES + sample;
                let args = [batch_arg, ("sample", Arg::UInt(id))];
                let point = slice(
                    trace,
                    LOADER,
                    tid,
                    stage,
                    start,
                    Nanos(start.0 + length),
                    &args,
                );
                if id == last_sample {
                    chain.push(point);
                }
            }
        }
        let last = ("last_sample", Arg::UInt(last_sample));
        chain.push(slice(
            trace,
            LOADER,
            4,
            "batch",
            at(9_600),
            at(10_100),
            &[batch_arg, last],
        ));
        chain.push(slice(
            trace,
            LOADER,
            5,
            "copy",
            at(10_100),
            at(10_900),
            &[batch_arg],
        ));
        chain.push(slice(
            trace,
            TRAINER,
            1,
            "step",
            at(10_900),
            at(18_000),
            &[batch_arg],
        ));
        trace.span(TRAINER, 1, "forward", "host", at(10_901), at(14_000), &[]);
        trace.span(
            TRAINER,
            2,
            "step on device",
            "device",
            at(11_000),
            at(17_500),
            &[batch_arg],
        );
        trace.span(
            TRAINER,
            3,
            "decode capacity",
            "idle",
            at(17_500),
            at(31_000),
            &[],
        );
        trace.counter(
            LOADER,
            "queue",
            "decode",
            at(5_000),
            Number::UInt(batch % 5),
        );
        trace.flow_chain(batch + 1, "batch", "batch", &chain);
    })
}

/// One trace of this process at a time records host spans.
pub static SPANS: Mutex<()> = Mutex::new(());

/// A good trace with host spans from tracing-chrome.
pub fn write_good(path: &Path, compress: bool) -> PathBuf {
    let _one = SPANS.lock().unwrap_or_else(PoisonError::into_inner);
    let clock = Arc::new(MonotonicClock::new());
    let base = clock.now();
    let trace = SharedTrace::new(create(path, base, compress));
    install_layer().unwrap();
    let host = HostSpans::record(trace.clone(), Recorder::new(), clock, 0..1).unwrap();
    tracing::info_span!("epoch", number = 1).in_scope(|| {
        for batch in 0..BATCHES {
            let _step = tracing::info_span!("train step", batch).entered();
            assert_eq!(
                trace.with(|trace| write_batch(trace, base, batch)),
                Some(true)
            );
            tracing::info!("a \"quoted\" event");
        }
    });
    let _open = tracing::info_span!("left open").entered();
    drop(host);
    let summary = trace.finish().unwrap();
    assert_eq!(
        (
            summary.error,
            summary.malformed_events,
            summary.left_out_events
        ),
        (None, 0, 0)
    );
    summary.path
}

/// The text of a trace without host spans, to spoil.
pub fn good_text(folder: &Path) -> String {
    let path = folder.join("text.json");
    let mut trace = create(&path, Nanos(0), false);
    (0..BATCHES).for_each(|batch| assert!(write_batch(&mut trace, Nanos(0), batch)));
    trace.finish();
    fs::read_to_string(path).unwrap()
}

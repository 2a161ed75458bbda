//! Activity buffers through everything that follows the reading of them, up to the verdict and the trace.

mod scripted;

use super::*;
use crate::analysis::{Cause, IdleSpan, LoaderShape, Summary, Verdict, Workers};
use crate::device::cupti::Activity;
use crate::session::tracing_feed::TracedSteps;
use crate::timeline::{HostWork, Stage};
use crate::trace::test_files::{events, shared_trace};
use proptest::prelude::*;
use scripted::{BATCH_BYTES, Fate, GPU_LANES, Kernel, MS, Played, Script, US, lanes};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const WARMUP: u64 = 5;

/// Every stage of the loader takes next to nothing.
const QUICK: [u64; 5] = [50 * US; 5];

fn kernel(at: u64, length: u64) -> Kernel {
    Kernel {
        at,
        call: 10 * US,
        latency: 0,
        length,
        stream: 7,
    }
}

/// Two kernels of 5 ms, launched at once, and the outcome's way back beside the second.
fn two_kernels(costs: [u64; 5]) -> Script {
    Script {
        costs,
        kernels: vec![kernel(0, 5 * MS), kernel(10 * US, 5 * MS)],
        read_back: 2 * US,
        read_back_stream: 7,
        host: 30 * US,
        run_ahead: 2,
        steps: 30,
        behind: 0,
    }
}

/// Decoding takes 20 ms a batch, what the device does 10 ms.
fn starved() -> Script {
    two_kernels([MS, 20 * MS, 2 * MS, MS, 500 * US])
}

/// 20 kernels of 50 us, one launched every 200 us: each runs 3 us after its launch, unless it was queued.
fn launch_bound() -> Script {
    let launched = |number| Kernel {
        latency: 3 * US,
        ..kernel(200 * US * number, 50 * US)
    };
    Script {
        kernels: (0..20).map(launched).collect(),
        host: 3_820 * US,
        ..two_kernels(QUICK)
    }
}

/// Steps are launched long before the device comes to them; a third kernel and the outcome have a stream of their
/// own.
fn saturated() -> Script {
    let mut script = two_kernels(QUICK);
    let beside = Kernel {
        stream: 9,
        ..kernel(20 * US, MS)
    };
    script.kernels.push(beside);
    script.read_back_stream = 9;
    script.host = 40 * US;
    script
}

fn shape() -> LoaderShape {
    LoaderShape {
        workers: Workers::PerStage,
        batch_prefetch: 2,
        copy_prefetch: 2,
        copy_in_trainer: false,
        has_device: true,
        resident: false,
        device_beside: true,
        disk: None,
        copy_latency: Nanos::ZERO,
        cores: 16.0,
    }
}

/// One pass of the collector.
#[derive(Default)]
struct Pass {
    host: Vec<(u16, Record)>,
    activities: Vec<Activity>,
}

/// What came out.
struct Outcome {
    summary: Summary,
    report: TimelineReport,
    verdict: String,
    idle_spans: Nanos,
}

/// Everything in one pass.
fn at_once(played: &Played) -> Vec<Pass> {
    let host = played.host.iter();
    let activities = played.activities.iter();
    vec![Pass {
        host: host.map(|(_, lane, record)| (*lane, *record)).collect(),
        activities: activities.map(|(_, activity)| activity.clone()).collect(),
    }]
}

/// Hands `passes` on as the collector does, with a trace at `trace`.
fn collect(played: &Played, passes: Vec<Pass>, trace: Option<&Path>) -> Outcome {
    let steps = played.ends.len() as u64;
    let rule = WindowRule {
        warmup_steps: WARMUP,
        steps: Some(steps - WARMUP),
        run_start: Nanos(MS),
        device_beside: true,
    };
    let mut analysis = Analysis::new(rule, 1);
    let mut collected = CollectedSteps::new(GPU_LANES, rule, TimelineReport::default());
    let shared = trace.map(|folder| shared_trace(folder, "trace.json").1);
    let traced = TracedSteps { first: 8, count: 6 };
    let mut feed = shared
        .clone()
        .map(|trace| TracingFeed::new(trace, traced, &rule, None));
    let lengths = |spans: &[IdleSpan]| spans.iter().map(|span| span.interval.length()).sum();
    let mut idle_spans: Nanos = Nanos::ZERO;
    let last = passes.len() - 1;
    for (number, mut pass) in passes.into_iter().enumerate() {
        collected.steps.host(&pass.host);
        let activities = pass.activities.into_iter();
        activities.for_each(|activity| collected.steps.take(activity));
        let records = &mut pass.host;
        let named = |call: &ApiCall| Arc::from(format!("function {}", call.function));
        let over = number == last;
        collected.settle(
            over,
            played.count,
            named,
            records,
            &mut analysis,
            feed.as_mut(),
        );
        analysis.absorb(records, 0, None);
        if let Some(feed) = &mut feed {
            feed.absorb(records, &lanes(), Nanos::from_millis(50 * number as u64));
        }
        let spans = analysis.settle();
        idle_spans += lengths(&spans);
        if let Some(feed) = &mut feed {
            feed.idle(&spans);
        }
    }
    if let Some(feed) = &mut feed {
        feed.finish();
    }
    let spans = analysis.finish();
    idle_spans += lengths(&spans);
    if let Some(feed) = &mut feed {
        feed.idle(&spans);
    }
    if let Some(trace) = shared {
        let written = trace.finish().unwrap();
        assert_eq!((written.error, written.malformed_events), (None, 0));
    }
    let summary = analysis.summary(&lanes()).unwrap();
    let outcome = Outcome {
        verdict: Verdict::of(&summary, &shape()).line(),
        summary,
        report: collected.report,
        idle_spans,
    };
    let causes = &outcome.summary.causes;
    let total: Nanos = causes.iter().map(|(_, length)| *length).sum();
    assert_eq!(total, outcome.summary.device_idle(), "{causes:?}");
    assert_eq!(outcome.idle_spans, total, "the spans are the same time");
    assert_eq!(outcome.summary.steps, steps - WARMUP);
    outcome
}

fn outcome(script: &Script) -> (Outcome, Played) {
    let played = script.play();
    let outcome = collect(&played, at_once(&played), None);
    let window = outcome.summary.window;
    let ends = [
        played.ends[WARMUP as usize - 1],
        played.ends[played.ends.len() - 1],
    ];
    assert_eq!([window.start, window.end], ends);
    assert_eq!(
        outcome.summary.device_busy,
        played.busy.covered_in(window),
        "the union of the kernels"
    );
    assert_eq!((outcome.report.lost, outcome.report.late), (0, 0));
    (outcome, played)
}

#[test]
fn a_device_starved_by_decode_says_so_to_the_nanosecond() {
    let (outcome, _) = outcome(&starved());
    let (summary, measured) = (&outcome.summary, 25);
    assert_eq!(summary.window.length(), Nanos(measured * 20 * MS));
    assert_eq!(summary.device_busy, Nanos(measured * 10 * MS));
    // Behind the last decode lie, once, the rest of the loader, a launch and the way back of the outcome.
    let once = [
        (Cause::Capacity(Stage::Preprocess), 2 * MS),
        (Cause::Capacity(Stage::Batch), MS),
        (Cause::Capacity(Stage::Copy), 500 * US),
        (Cause::Host(HostWork::Launch), 10 * US),
        (Cause::DeviceSide, 2 * US),
    ];
    for (cause, length) in once {
        assert_eq!(summary.cause(cause), Nanos(length), "{cause}");
    }
    let rest: u64 = once.iter().map(|(_, length)| length).sum();
    let decode = (
        Cause::Capacity(Stage::Decode),
        Nanos(measured * 10 * MS - rest),
    );
    assert_eq!(summary.causes[0], decode);
    let verdict = &outcome.verdict;
    assert!(verdict.starts_with("loader-bound: decode"), "{verdict}");
    let report = &outcome.report;
    assert_eq!(
        (report.kernels, report.kernel_ns),
        (50, Nanos(measured * 10 * MS))
    );
    let copies = report.copies.as_ref().unwrap();
    assert_eq!((copies.count, copies.bytes), (25, 25 * BATCH_BYTES));
    assert_eq!(copies.pinned_bytes, copies.bytes);
    assert_eq!(copies.overlapped_share, 0.0);
}

#[test]
fn late_launches_are_the_hosts_and_the_rest_of_the_gaps_the_devices() {
    let (outcome, _) = outcome(&launch_bound());
    let (summary, measured) = (&outcome.summary, 25);
    assert_eq!(summary.window.length(), Nanos(measured * 3_820 * US));
    assert_eq!(summary.device_busy, Nanos(measured * 20 * 50 * US));
    // The first kernel is queued: it ends 95 us into its step, and the second is launched at 210. Between two
    // others lie 147 us to the launch.
    let late = 115 * US + 18 * 147 * US;
    let device = 19 * 3 * US + 2 * US;
    let causes = [
        (Cause::Host(HostWork::Launch), Nanos(measured * late)),
        (Cause::DeviceSide, Nanos(measured * device)),
    ];
    assert_eq!(summary.causes, causes);
    let verdict = &outcome.verdict;
    assert!(verdict.starts_with("host-bound: "), "{verdict}");
    assert!(verdict.contains("host: launch"), "{verdict}");
    assert_eq!(outcome.report.kernels, 25 * 20);
}

#[test]
fn steps_that_are_queued_keep_the_device_busy() {
    let (outcome, _) = outcome(&saturated());
    let summary = &outcome.summary;
    assert_eq!(summary.busy_share(), 1.0);
    assert_eq!(summary.window.length(), Nanos(25 * 10 * MS));
    assert_eq!(summary.causes, []);
    let verdict = &outcome.verdict;
    assert!(verdict.starts_with("device-bound: "), "{verdict}");
    // Kernels beside each other count each, and once as busy.
    assert_eq!(outcome.report.kernel_ns, Nanos(25 * 11 * MS));
}

/// What must not depend on how the records came.
fn facts(outcome: &Outcome) -> impl PartialEq + std::fmt::Debug + use<> {
    let summary = &outcome.summary;
    // A stage that has done nothing in the window may have a row or none.
    let rows = summary.stages.iter().filter(|row| row.items > 0);
    (
        (summary.window, summary.device_busy, summary.busy_intervals),
        (summary.samples, summary.compute, summary.causes.clone()),
        (summary.data_wait_total, summary.data_wait, summary.step),
        rows.map(|row| (row.stage, row.items, row.busy))
            .collect::<Vec<_>>(),
        outcome.report.clone(),
        outcome.verdict.clone(),
    )
}

fn any_script() -> impl Strategy<Value = Script> {
    prop_oneof![Just(starved()), Just(launch_bound()), Just(saturated())]
}

/// The records in passes as a collector may meet them: those of CUPTI in any order up to the end of the next but one
/// step, the host's in the order of their lanes and up to two steps early or late.
fn any_passes(played: &Played, seed: u64, passes: u64, host_lag: i64) -> Vec<Pass> {
    let mut random = seed;
    let mut draw = move |below: u64| {
        random = random
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        (random >> 33) % below
    };
    let steps = played.ends.len() as u64;
    let mut delivered: Vec<Pass> = (0..=passes).map(|_| Pass::default()).collect();
    // In thousandths of a step.
    let pass_of = |at: u64| (at * passes / (1_000 * (steps + 4))).min(passes) as usize;
    let mut shuffled: Vec<(u64, Activity)> = played
        .activities
        .iter()
        .map(|(step, activity)| (1_000 * step + draw(2_000), activity.clone()))
        .collect();
    shuffled.sort_by_key(|(at, _)| *at);
    for (at, activity) in shuffled {
        delivered[pass_of(at + 2_000)].activities.push(activity);
    }
    let mut latest = [0; 6];
    for (written, lane, record) in &played.host {
        let step = played.ends.partition_point(|end| end < written) as u64;
        let at = (1_000 * step + draw(900)).saturating_add_signed(2_000 + host_lag);
        let lane_at = &mut latest[usize::from(*lane)];
        *lane_at = at.max(*lane_at);
        delivered[pass_of(*lane_at)].host.push((*lane, *record));
    }
    for pass in &mut delivered {
        pass.host.sort_by_key(|(lane, _)| *lane);
    }
    delivered
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_order_in_which_records_come_changes_nothing(
        script in any_script(), seed in any::<u64>(), passes in 1u64..80, host_lag in -2_000i64..2_000,
    ) {
        let played = script.play();
        let expected = facts(&collect(&played, at_once(&played), None));
        let shuffled = collect(&played, any_passes(&played, seed, passes, host_lag), None);
        prop_assert_eq!(facts(&shuffled), expected);
    }

    /// Whatever is lost, the run has its report, and idle its causes.
    #[test]
    fn lost_records_are_counted_and_cost_no_report(
        script in any_script(), seed in any::<u64>(), passes in 1u64..80,
        fates in prop::collection::vec(0u8..60, 1..200),
    ) {
        let mut next = (0..).map(|at: usize| fates[at % fates.len()]);
        let mut faulty = 0;
        let played = script.play_with(&mut || {
            let fate = match next.next() {
                Some(0) => Fate::NoTime,
                Some(1) => Fate::Backwards,
                Some(2) => Fate::Dropped,
                _ => Fate::Whole,
            };
            faulty += u64::from(fate != Fate::Whole);
            fate
        });
        for passes in [at_once(&played), any_passes(&played, seed, passes, 0)] {
            let outcome = collect(&played, passes, None);
            prop_assert_eq!(outcome.report.lost, faulty);
            prop_assert!(outcome.summary.device_busy <= outcome.summary.window.length());
        }
    }

    /// A device whose clock is a little behind seems to run what has not been launched.
    #[test]
    fn clocks_that_disagree_break_nothing(script in any_script(), behind in 0u64..200_000, passes in 1u64..40) {
        let script = Script { behind, ..script };
        let played = script.play();
        for passes in [at_once(&played), any_passes(&played, 1, passes, 0)] {
            let outcome = collect(&played, passes, None);
            let window = outcome.summary.window;
            prop_assert_eq!(outcome.summary.device_busy, played.busy.covered_in(window));
        }
    }
}

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

//! Activity buffers through everything that follows the reading of them, up to the verdict and the trace.

mod scripted;
mod traces;

use super::*;
use crate::analysis::{Cause, IdleSpan, LoaderShape, Summary, Verdict};
use crate::config::Settings;
use crate::device::cupti::Activity;
use crate::session::test_files::shared_trace;
use crate::timeline::{HostWork, Nanos, Stage};
use crate::tracing_feed::TracedSteps;
use proptest::prelude::*;
use scripted::{BATCH_BYTES, Fate, GPU_LANES, Kernel, MS, Played, Script, US, lanes};
use std::path::Path;

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

/// A GPU whose steps run beside the trainer's thread.
fn shape() -> LoaderShape {
    let sets = ["source.path=pictures", "device=cuda:0"].map(str::to_owned);
    let config = Settings::recorded("scripted", &[], &sets).resolve();
    crate::session::loader_shape(&config.unwrap(), 16.0)
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
    let mut collected =
        CollectedSteps::new(GpuSteps::new(GPU_LANES), rule, TimelineReport::default());
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
            feed.as_ref(),
        );
        analysis.absorb(records, 0, None, || ());
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
        (Cause::Capacity(Stage::PREPROCESS), 2 * MS),
        (Cause::Capacity(Stage::BATCH), MS),
        (Cause::Capacity(Stage::COPY), 500 * US),
        (Cause::Host(HostWork::Other), US),
        (Cause::Host(HostWork::Launch), 9 * US),
        (Cause::DeviceSide, 2 * US),
    ];
    for (cause, length) in once {
        assert_eq!(summary.cause(cause), Nanos(length), "{cause}");
    }
    let rest: u64 = once.iter().map(|(_, length)| length).sum();
    let decode = (
        Cause::Capacity(Stage::DECODE),
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

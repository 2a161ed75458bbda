//! Workers that assemble whole batches are late by all of a service, whatever comes last in it: idle time is shared
//! out among its stages, and a stage's share is what comes back where that stage alone is as fast as the device
//! needs it.

use crate::planted::{Planted, Rig};
use crate::work::Costs;
use crate::{MS, STEP, check_sums, knobs, steady};
use proptest::prelude::*;
use stallscope::analysis::{Cause, Summary, Verdict};
use stallscope::pipeline::{Layout, StageKnobs};
use stallscope::timeline::{Nanos, Stage};

/// Stages that are slowed, and how the pipeline is otherwise.
#[derive(Clone, Debug)]
struct Slowed {
    run: Planted,
    rig: Rig,
    stages: Vec<Stage>,
}

const STAGES: [Stage; 4] = [Stage::READ, Stage::DECODE, Stage::PREPROCESS, Stage::BATCH];

/// Whole batches by 1 to 8 workers. Each stage of a service needs 0.1 to 0.6, and the `slowed` ones 1.3 to 4 together;
/// the device is busy for the share `busy` of the time.
fn any_slowed(slowed: impl Strategy<Value = Vec<Stage>>) -> impl Strategy<Value = Slowed> {
    // A device so fast that the loader stays the slower one without any stage, or another.
    let busy = prop_oneof![0.002..0.008f64, 0.02..0.6f64];
    let shape = (1usize..=8, 2usize..5, 1usize..6, any::<bool>());
    let needs = (
        prop::array::uniform4(0.1..0.6f64),
        slowed,
        1.3..4.0f64,
        busy,
    );
    let rest = (
        knobs_of_copy(),
        0.0..1.0f64,
        0.0..0.1f64,
        any::<u64>(),
        any::<bool>(),
    );
    (shape, needs, rest).prop_map(|(shape, needs, rest)| {
        let (num_workers, prefetch_factor, mut batch_size, ordered) = shape;
        let (mut needs, stages, slow, busy) = needs;
        let (copy, copying, spread, seed, rare) = rest;
        let rare = rare && !stages[0].per_batch();
        batch_size += if rare { 3 } else { 0 };
        for stage in &stages {
            needs[stage.number()] = slow / stages.len() as f64;
        }
        let whole: f64 = needs.iter().sum();
        let period = STEP as f64 / busy;
        let mut mean = [0; 6];
        for (stage, need) in STAGES.into_iter().zip(needs) {
            let units = if stage.per_batch() { 1 } else { batch_size };
            mean[stage.number()] =
                (need / whole * period) as u64 * num_workers as u64 / units as u64;
        }
        // In the trainer's thread it comes on top of the step, and must not come to bind.
        let left = (1.0 - busy) * (1.0 - needs[stages[0].number()] / whole);
        mean[Stage::COPY.number()] = (0.3 * copying * left * period) as u64;
        mean[Stage::STEP.number()] = STEP;
        let mut run = Planted {
            layout: Layout::WholeBatch {
                num_workers,
                prefetch_factor,
            },
            copy,
            batch_size,
            claim_size: 1,
            ordered,
            costs: Costs { mean, spread, seed },
            launch: Nanos::ZERO,
            warmup: 40,
            steps: 600,
            settle_every: 10,
        };
        let rare = rare.then_some((stages[0], 100, 3));
        if rare.is_some() {
            // The path comes through one worker's services, so there must be many; and others work ahead of a long one.
            run.steps = 300 * num_workers as u64;
            if let Layout::WholeBatch {
                prefetch_factor, ..
            } = &mut run.layout
            {
                *prefetch_factor = 4;
            }
        }
        let rig = Rig {
            rare,
            ..Rig::default()
        };
        Slowed { run, rig, stages }
    })
}

fn knobs_of_copy() -> impl Strategy<Value = StageKnobs> {
    (0usize..2, 1usize..4).prop_map(|(workers, prefetch)| knobs(workers, prefetch))
}

/// The cause named first is a slowed stage, and its share is the idle time recovered where it takes no longer than
/// the device leaves it, within 1 % of the window.
fn check(slowed: &Slowed) -> Result<(), TestCaseError> {
    let Slowed { run, rig, stages } = slowed;
    let outcome = run.run_on(rig);
    check_sums(&outcome)?;
    let summary = &outcome.summary;
    let first = outcome.first_cause();
    let named = stages
        .iter()
        .find(|stage| first == Cause::Capacity(**stage));
    let Some(named) = named else {
        return Err(TestCaseError::fail(format!("{:?}", summary.causes)));
    };
    // Were the whole service so many times faster, it would keep up; a device so fast leaves nothing.
    let left = match summary.busy_share() {
        busy if busy < 0.01 => 0.0,
        busy => busy,
    };
    let mut faster = run.clone();
    let cost = &mut faster.costs.mean[named.number()];
    *cost = (*cost as f64 * left) as u64;
    let recovered = summary.device_idle() - faster.run_on(rig).summary.device_idle();
    let share = summary.cause(first);
    let off = share.0.abs_diff(recovered.0) as f64 / summary.window.length().0 as f64;
    prop_assert!(
        off <= 0.01,
        "share {share}, recovered {recovered}, off by {off}: {:?}",
        summary.causes
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_share_of_a_slowed_stage_is_what_removing_it_recovers(
        slowed in any_slowed(prop::sample::select(STAGES.to_vec()).prop_map(|stage| vec![stage])),
    ) {
        check(&slowed)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn of_two_equally_slow_stages_each_has_what_removing_it_recovers(
        slowed in any_slowed(prop::sample::subsequence(STAGES.to_vec(), 2)),
    ) {
        check(&slowed)?;
    }
}

/// Decode takes 20 ms a batch, the rest of a service 10, the step 12: the device waits 18 ms for each batch, of which
/// collating, the last 3 ms of the service, is to blame for a tenth.
#[test]
fn idle_time_is_shared_out_by_how_long_the_parts_took() {
    let mut mean = [0; 6];
    mean[Stage::READ.number()] = 2 * MS;
    mean[Stage::DECODE.number()] = 20 * MS;
    mean[Stage::PREPROCESS.number()] = 5 * MS;
    mean[Stage::BATCH.number()] = 3 * MS;
    mean[Stage::STEP.number()] = 12 * MS;
    for num_workers in [1, 2, 4] {
        let workers = num_workers as u64;
        let mut run = Planted {
            layout: Layout::WholeBatch {
                num_workers,
                prefetch_factor: 2,
            },
            ..steady(mean.map(|cost| cost * workers), knobs(1, 2), knobs(1, 2))
        };
        run.costs.mean[Stage::STEP.number()] = 12 * MS;
        let summary = run.run().summary;
        let share = |stage| summary.cause(Cause::Capacity(stage)).0 / 500;
        let shares = STAGES.map(share);
        let expected = [2, 20, 5, 3].map(|part| part * MS * 18 / 30);
        let close = |(share, right): (u64, u64)| share.abs_diff(right) < MS / 50;
        let mut pairs = shares.into_iter().zip(expected);
        assert!(pairs.all(close), "{num_workers} workers: {shares:?}");
    }
}

/// Four workers decode batches of one sample for `decode`; every so often one takes `times` as long. The step takes
/// 10 ms.
fn stragglers(decode: u64, times: u64, ordered: bool) -> (Planted, Rig) {
    let mut mean = [MS / 100; 6];
    mean[Stage::DECODE.number()] = decode;
    mean[Stage::STEP.number()] = 10 * MS;
    let run = Planted {
        layout: Layout::WholeBatch {
            num_workers: 4,
            prefetch_factor: 2,
        },
        ordered,
        steps: 2_000,
        ..steady(mean, knobs(1, 2), knobs(1, 2))
    };
    let rig = Rig {
        rare: Some((Stage::DECODE, 40, times)),
        ..Rig::default()
    };
    (run, rig)
}

/// The shares of the window in which the device was idle, and in which it was for head-of-line blocking.
fn blocked(summary: &Summary) -> (f64, f64) {
    let window = summary.window.length().0 as f64;
    let causes = summary.causes.iter();
    let blocked = causes.filter(|(cause, _)| matches!(cause, Cause::HeadOfLine(_)));
    let blocked: Nanos = blocked.map(|(_, length)| *length).sum();
    (
        summary.device_idle().0 as f64 / window,
        blocked.0 as f64 / window,
    )
}

/// Batches that are ready wait for a long one: about as much idle time as comes back where they need not. Delivered in
/// any order, long samples that come together bind as well.
#[test]
fn head_of_line_blocking_is_what_delivery_in_any_order_recovers() {
    for (decode, times) in [(24, 12), (24, 5), (60, 8), (36, 6)] {
        let (run, rig) = stragglers(decode * MS, times, true);
        let ordered = run.run_on(&rig).summary;
        let free = stragglers(decode * MS, times, false).0.run_on(&rig).summary;
        let window = ordered.window.length().0 as f64;
        let recovered = (ordered.device_idle() - free.device_idle()).0 as f64 / window;
        let (_, share) = blocked(&ordered);
        let causes = &ordered.causes;
        assert_eq!(blocked(&free).1, 0.0);
        assert!(
            (share - recovered).abs() <= 0.04,
            "{decode} ms, {times} times: {share} and {recovered}: {causes:?}"
        );
    }
}

#[test]
fn a_run_whose_batches_wait_for_a_long_one_is_told_to_deliver_in_any_order() {
    let (run, rig) = stragglers(24 * MS, 12, true);
    let outcome = run.run_on(&rig);
    assert_eq!(outcome.first_cause(), Cause::HeadOfLine(Stage::DECODE));
    let line = Verdict::of(&outcome.summary, &run.shape(&rig)).line();
    assert!(line.contains("--set ordered=false"), "{line}");
}

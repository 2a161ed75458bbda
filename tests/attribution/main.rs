//! Idle attribution, held against planted pipelines on the virtual clock: it sums exactly, and it is
//! causal.

mod dropped;
mod emulated;
mod events;
mod guard;
mod memory;
mod named;
mod over_time;
mod planted;
mod prediction;
#[path = "../virtual_clock/mod.rs"]
mod virtual_clock;
mod whole_batches;
mod work;

use planted::{Outcome, Planted, Rig};
use proptest::prelude::*;
use stallscope::analysis::Cause;
use stallscope::device::emulated::{EmulatedMemory, EmulatedSpec};
use stallscope::pipeline::{Keep, Layout, Place, StageKnobs};
use stallscope::timeline::{Nanos, Pipeline, Stage};
use work::Costs;

const MS: u64 = 1_000_000;

fn knobs(workers: usize, prefetch: usize) -> StageKnobs {
    StageKnobs { workers, prefetch }
}

fn any_knobs(most: usize) -> impl Strategy<Value = StageKnobs> {
    (1..=most, 1usize..8).prop_map(|(workers, prefetch)| knobs(workers, prefetch))
}

fn any_layout() -> impl Strategy<Value = Layout> {
    prop_oneof![
        (any_knobs(3), any_knobs(4), any_knobs(3), any_knobs(2)).prop_map(
            |(read, decode, preprocess, batch)| Layout::PerStage {
                samples: vec![read, decode, preprocess],
                batch
            }
        ),
        (0usize..4, 1usize..4).prop_map(|(num_workers, prefetch_factor)| Layout::WholeBatch {
            num_workers,
            prefetch_factor
        }),
    ]
}

fn any_run() -> impl Strategy<Value = Planted> {
    let costs = (prop::array::uniform6(0u64..4 * MS), 0.0..1.0, any::<u64>())
        .prop_map(|(mean, spread, seed)| Costs { mean, spread, seed });
    let shape = (
        any_layout(),
        0usize..2,
        1usize..4,
        1usize..6,
        any::<bool>(),
        1usize..4,
    );
    let rest = (0u64..2 * MS, 0u64..5, 1u64..60, 0u64..9);
    (costs, shape, rest).prop_map(|(costs, shape, rest)| Planted {
        layout: shape.0,
        copy: knobs(shape.1, shape.2),
        batch_size: shape.3,
        claim_size: shape.5,
        ordered: shape.4,
        costs,
        launch: Nanos(rest.0),
        warmup: rest.1,
        steps: rest.2,
        settle_every: rest.3,
    })
}

fn check_sums(outcome: &Outcome) -> Result<(), TestCaseError> {
    let summary = &outcome.summary;
    prop_assert_eq!(summary.device_busy, outcome.true_busy);
    prop_assert_eq!(outcome.causes_total(), summary.device_idle());
    prop_assert_eq!(
        outcome.idle_spans,
        summary.device_idle(),
        "the spans of the trace are the same time"
    );
    prop_assert_eq!(summary.cause(Cause::Unattributed), Nanos::ZERO);
    over_time::check_sums(outcome)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn causes_add_up_to_idle_to_the_nanosecond(run in any_run()) {
        let outcome = run.run();
        prop_assert_eq!(outcome.summary.steps, run.steps);
        check_sums(&outcome)?;
    }

    #[test]
    fn causes_add_up_on_batches_that_stay_on_the_device(
        mut run in any_run(), device in prop::option::of(any_device()), host in 0u64..4 * MS, loaded in 1u64..5,
    ) {
        run.warmup += loaded + 1;
        let keep = Some(Keep { batches: loaded, place: Place::Device });
        let rig = Rig { device, host_code: Nanos(host), keep, ..Rig::default() };
        let outcome = run.run_on(&rig);
        let summary = &outcome.summary;
        prop_assert_eq!(summary.steps, run.steps);
        check_sums(&outcome)?;
        // Nothing is waited for, and nothing idle is the loader's.
        prop_assert_eq!(summary.data_wait_total, Nanos::ZERO);
        let of_loader = summary.causes.iter().find(|(cause, _)| cause.stage().is_some());
        prop_assert!(of_loader.is_none(), "{:?}", of_loader);
    }

    #[test]
    fn causes_add_up_on_batches_that_stay_in_host_memory(
        mut run in any_run(), device in prop::option::of(any_device()), host in 0u64..4 * MS, loaded in 1u64..5,
    ) {
        run.warmup += loaded + 1;
        let keep = Some(Keep { batches: loaded, place: Place::Host });
        let rig = Rig { device, host_code: Nanos(host), keep, ..Rig::default() };
        let outcome = run.run_on(&rig);
        let summary = &outcome.summary;
        prop_assert_eq!(summary.steps, run.steps);
        check_sums(&outcome)?;
        // Each step's batch is copied, and no other stage of the loader is to blame.
        let copied = summary.stage(Stage::COPY).map_or(0, |copy| copy.items);
        prop_assert!(copied + 12 >= run.steps, "{} copies", copied);
        let mut stages = summary.causes.iter().filter_map(|(cause, _)| cause.stage());
        let before = stages.find(|stage| *stage < Stage::COPY);
        prop_assert!(before.is_none(), "{:?}", before);
    }
}

fn any_device() -> impl Strategy<Value = EmulatedSpec> {
    let times = prop::array::uniform5(0u64..4 * MS);
    (times, prop::option::of(100u64..100_000), 0usize..5).prop_map(
        |([base, per_sample, preprocess, latency, launch], rate, run_ahead)| EmulatedSpec {
            step_base: Nanos(base + 1),
            step_per_sample: Nanos(per_sample / 4),
            preprocess_per_sample: Nanos(preprocess / 16),
            copy_latency: Nanos(latency),
            copy_bytes_per_second: rate,
            launch: Nanos(launch / 2),
            run_ahead,
            memory: EmulatedMemory::default(),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn causes_add_up_beside_an_emulated_device(run in any_run(), device in any_device(), host in 0u64..4 * MS) {
        let rig = Rig { device: Some(device.clone()), host_code: Nanos(host), ..Rig::default() };
        let outcome = run.run_on(&rig);
        let summary = &outcome.summary;
        prop_assert_eq!(summary.steps, run.steps);
        check_sums(&outcome)?;
        // The window ends with a step; between two of them lies one.
        let steps = run.steps * (device.step_base.0 + device.step_per_sample.0 * run.batch_size as u64);
        prop_assert_eq!(summary.compute, Nanos(steps));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Paths of workers that never wait need not meet; where one stands for all, it says nearly the same.
    #[test]
    fn folding_early_changes_little(run in any_run(), steps in 200u64..400) {
        let long = Planted { steps, settle_every: 7, ..run };
        let never = Planted { settle_every: 0, ..long.clone() };
        let (long, never) = (long.run(), never.run());
        check_sums(&long)?;
        let window = long.summary.window.length().0 as f64;
        for (cause, length) in &never.summary.causes {
            let off = length.0.abs_diff(long.summary.cause(*cause).0) as f64 / window;
            prop_assert!(off <= 0.01, "{cause} is off by {off}");
        }
    }
}

/// A stage that is slowed: its cost, and that of the others, none of which binds by itself.
#[derive(Clone, Debug)]
struct Slowed {
    run: Planted,
    stage: Stage,
    /// Cost of the slowed stage when it is not slowed.
    healthy: u64,
}

const STEP: u64 = 10 * MS;

fn workers_of(layout: &Layout, stage: Stage) -> u64 {
    let Layout::PerStage { samples, batch } = layout else {
        return 1;
    };
    let own = samples.iter().chain([batch]).nth(stage.number());
    own.map_or(1, |knobs| knobs.workers as u64)
}

/// Per-stage pipelines in which every stage needs 10 to 60 % of a step for a batch, and one is then
/// slowed to 1.3 to 4 steps.
fn any_slowed() -> impl Strategy<Value = Slowed> {
    let layout = (any_knobs(3), any_knobs(4), any_knobs(3), any_knobs(2)).prop_map(
        |(read, decode, preprocess, batch)| Layout::PerStage {
            samples: vec![read, decode, preprocess],
            batch,
        },
    );
    let needs = prop::array::uniform5(0.1..0.6f64);
    let slow = (0usize..5, 1.3..4.0f64);
    let copy = (1usize..4).prop_map(|prefetch| knobs(1, prefetch));
    let sizes = (copy, 1usize..6);
    (layout, needs, slow, sizes, 0.0..0.1f64, any::<u64>()).prop_map(
        |(layout, needs, (slow, factor), (copy, batch_size), spread, seed)| {
            let stage = Pipeline::IMAGES.loader().nth(slow).unwrap();
            // Nanoseconds for one unit of `stage` such that a batch takes `steps` steps.
            let cost = |stage: Stage, steps: f64| {
                let units = if stage.per_batch() {
                    1
                } else {
                    batch_size as u64
                };
                (steps * (STEP * workers_of(&layout, stage)) as f64) as u64 / units
            };
            let mut mean = [0; 6];
            for (place, stage) in Pipeline::IMAGES.loader().enumerate() {
                mean[place] = cost(stage, needs[place]);
            }
            let healthy = mean[slow];
            mean[slow] = cost(stage, factor);
            mean[Stage::STEP.number()] = STEP;
            let run = Planted {
                layout,
                copy,
                batch_size,
                claim_size: 1,
                ordered: true,
                costs: Costs { mean, spread, seed },
                launch: Nanos::ZERO,
                warmup: 40,
                // Once, at the end of the window, the path runs through the latency of one batch.
                steps: 400,
                settle_every: 10,
            };
            Slowed {
                run,
                stage,
                healthy,
            }
        },
    )
}

/// The cause named first is the slowed stage, and its share is the idle time recovered when it is
/// healthy, within 1 % of the window.
fn check_counterfactual(slowed: &Slowed) -> Result<(), TestCaseError> {
    let outcome = slowed.run.run();
    check_sums(&outcome)?;
    let mut healthy = slowed.run.clone();
    healthy.costs.mean[slowed.stage.number()] = slowed.healthy;
    let recovered = outcome.summary.device_idle() - healthy.run().summary.device_idle();
    let cause = Cause::Capacity(slowed.stage);
    let share = outcome.summary.cause(cause);
    let off = share.0.abs_diff(recovered.0) as f64 / outcome.summary.window.length().0 as f64;
    prop_assert_eq!(outcome.first_cause(), cause, "{:?}", outcome.summary.causes);
    prop_assert!(
        off <= 0.01,
        "share {share}, recovered {recovered}, off by {off}: {:?}",
        outcome.summary.causes
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn the_slowed_stage_is_named_and_its_share_is_what_removing_it_recovers(slowed in any_slowed()) {
        check_counterfactual(&slowed)?;
    }
}

/// One worker a stage, costs that do not vary.
fn steady(mean: [u64; 6], each: StageKnobs, batch: StageKnobs) -> Planted {
    Planted {
        layout: Layout::PerStage {
            samples: vec![each; 3],
            batch,
        },
        copy: knobs(1, 2),
        batch_size: 1,
        claim_size: 1,
        ordered: true,
        costs: Costs {
            mean,
            spread: 0.0,
            seed: 7,
        },
        launch: Nanos::ZERO,
        warmup: 20,
        steps: 500,
        settle_every: 10,
    }
}

/// Preprocess is slow, the queue behind it is the shortest there is, and putting a batch together takes
/// longer than two of its samples: preprocess goes on in the meantime, so it alone is to blame.
#[test]
fn putting_a_batch_together_does_not_hold_up_preprocess() {
    let mut mean = [MS / 5; 6];
    mean[Stage::PREPROCESS.number()] = 26 * MS / 10;
    mean[Stage::BATCH.number()] = 59 * MS / 10;
    mean[Stage::COPY.number()] = MS;
    mean[Stage::STEP.number()] = STEP;
    let run = Planted {
        batch_size: 5,
        warmup: 40,
        steps: 400,
        ..steady(mean, knobs(1, 1), knobs(1, 2))
    };
    assert_eq!(run.run().summary.device_idle(), Nanos(400 * 3 * MS));
    check_counterfactual(&Slowed {
        run,
        stage: Stage::PREPROCESS,
        healthy: MS / 5,
    })
    .unwrap();
}

/// Decode takes 20 ms a batch, everything after it 8 ms, the step 14 ms. Each step waits 6 ms, in which
/// the batch is partly in later stages; but only decode is to blame, since a faster later stage would
/// change nothing.
#[test]
fn latency_behind_a_slow_stage_costs_nothing() {
    let mut mean = [0; 6];
    mean[Stage::READ.number()] = MS / 10;
    mean[Stage::DECODE.number()] = 20 * MS;
    mean[Stage::PREPROCESS.number()] = 4 * MS;
    mean[Stage::BATCH.number()] = 2 * MS;
    mean[Stage::COPY.number()] = 2 * MS;
    mean[Stage::STEP.number()] = 14 * MS;
    let run = steady(mean, knobs(1, 2), knobs(1, 2));
    let outcome = run.run();
    let idle = outcome.summary.device_idle();
    assert_eq!(idle, Nanos(500 * 6 * MS));
    let decode = outcome.summary.cause(Cause::Capacity(Stage::DECODE));
    let window = outcome.summary.window.length();
    assert!(
        (idle - decode).0 * 1000 <= window.0,
        "{:?}",
        outcome.summary.causes
    );
    check_counterfactual(&Slowed {
        run,
        stage: Stage::DECODE,
        healthy: 5 * MS,
    })
    .unwrap();
}

/// Assembly takes 8 ms or, every so often, 60 ms; the step takes 20 ms. With one batch in flight every
/// long one shows; a deeper queue would have hidden it.
#[test]
fn latency_that_a_deeper_queue_hides_is_prefetch_depth() {
    let mut mean = [MS / 100; 6];
    mean[Stage::DECODE.number()] = 15 * MS;
    mean[Stage::STEP.number()] = 20 * MS;
    let run = |prefetch_factor| Planted {
        layout: Layout::WholeBatch {
            num_workers: 1,
            prefetch_factor,
        },
        copy: knobs(0, 1),
        batch_size: 1,
        claim_size: 1,
        ordered: true,
        costs: Costs {
            mean,
            spread: 1.0,
            seed: 11,
        },
        launch: Nanos::ZERO,
        warmup: 20,
        steps: 400,
        settle_every: 10,
    };
    let (shallow, deep) = (run(1).run(), run(16).run());
    let hidden: Nanos = shallow
        .summary
        .causes
        .iter()
        .filter(|(cause, _)| matches!(cause, Cause::PrefetchDepth(_)))
        .map(|(_, length)| *length)
        .sum();
    let recovered = shallow.summary.device_idle() - deep.summary.device_idle();
    let off = hidden.0.abs_diff(recovered.0) as f64 / shallow.summary.window.length().0 as f64;
    assert!(
        off <= 0.02,
        "hidden {hidden}, recovered {recovered}: {:?}",
        shallow.summary.causes
    );
    assert!(hidden > shallow.summary.cause(Cause::Capacity(Stage::DECODE)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Without workers the device waits for all that the trainer's thread does, so each stage is the cause of
    /// exactly the time it took, however it is recorded and folded.
    #[test]
    fn without_workers_every_stage_is_the_cause_of_its_own_time(
        mut run in any_run(), batch_size in 1usize..40, steps in 30u64..120,
    ) {
        run.layout = Layout::WholeBatch { num_workers: 0, prefetch_factor: 1 };
        (run.batch_size, run.steps) = (batch_size, steps);
        let outcome = run.run();
        check_sums(&outcome)?;
        for row in &outcome.summary.stages {
            let cause = outcome.summary.cause(Cause::Capacity(row.stage));
            prop_assert_eq!(cause, row.busy, "{}: {:?}", row.stage, outcome.summary.causes);
        }
    }
}

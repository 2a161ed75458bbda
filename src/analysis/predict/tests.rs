use super::*;
use crate::timeline::{Layout, StageKnobs};

fn pool(num_workers: usize) -> Layout {
    let prefetch_factor = 2;
    Layout::WholeBatch {
        num_workers,
        prefetch_factor,
    }
}

/// Whole-batch workers whose samples compute for 1 ms, of a run that is longer than what is simulated of it.
fn workers(num_workers: usize, cores: f64, latency: f64) -> Scenario {
    Scenario {
        layout: pool(num_workers),
        copy_ahead: Some(2),
        batches: BatchSizes::all(8),
        claim: 1,
        ordered: true,
        outstanding: 2 * num_workers,
        warmup: 4 * num_workers as u64,
        steps: 1_000,
        later: u64::MAX,
        cores,
        others: 0.0,
        storage: (latency > 0.0).then_some(Storage {
            latency,
            requests_per_sample: 1.0,
            taken_per_sample: 0.0,
        }),
        costs: ServiceCosts {
            decode: Costs::any_of((0..100).map(|n| 0.5e6 + 1e4 * f64::from(n))),
            ..ServiceCosts::default()
        },
        drift: Vec::new(),
        device: Device::Beside {
            step: BatchCosts::fixed(1.0, 0.0),
            launch_wait: 0.0,
            run_ahead: 2,
            transfer: BatchCosts::default(),
            copies_ahead: 2,
        },
        waking: Waking::default(),
    }
}

#[test]
fn no_simulation_is_faster_than_its_bound() {
    for num_workers in [1, 4, 16, 64] {
        for (cores, latency) in [(1.0, 0.0), (8.0, 0.0), (2.0, 4e6)] {
            let scenario = workers(num_workers, cores, latency);
            let bound = Bound::of(&scenario).samples_per_second();
            let share = simulate(&scenario, 1).samples_per_second() / bound;
            let what = format!("{num_workers} workers, {cores} cores, {latency} ns");
            assert!((0.8..1.02).contains(&share), "{what}: {share}");
        }
    }
}

/// The background needs cores; what it is behind with is nobody's loss.
#[test]
fn the_background_takes_cores_and_no_bound_counts_on_it() {
    let run = |cores, per_step| {
        let mut scenario = workers(1, cores, 0.0);
        scenario.costs.background = Background {
            per_step,
            steps: 4.0,
            shortest_rest: 2e6,
            longest_rest: 50e6,
        };
        let bound = Bound::of(&scenario).samples_per_second();
        (simulate(&scenario, 1).samples_per_second(), bound)
    };
    let (alone, bound) = run(1.0, 0.0);
    for (cores, per_step, share) in [(1.0, 2e6, 0.8), (1.0, 40e6, 0.5), (2.0, 2e6, 1.0)] {
        let (rate, other) = run(cores, per_step);
        let what = format!("{cores} cores, {per_step} ns: {rate} of {alone} samples/s");
        assert!((rate / alone - share).abs() < 0.02, "{what}");
        assert_eq!(other, bound);
    }
}

/// Only where stages have threads of their own, and those different cores.
#[test]
fn what_another_core_decoded_takes_longer_to_preprocess() {
    let knobs = StageKnobs {
        workers: 1,
        prefetch: 4,
    };
    let per_stage = Layout::PerStage {
        read: knobs,
        decode: knobs,
        preprocess: knobs,
        batch: knobs,
    };
    let pool = pool(1);
    let run = |layout, cores, stage: usize, more| {
        let mut scenario = workers(4, cores, 0.0);
        let [decode, preprocess] = [[1e6, 0.5e6], [0.5e6, 1e6]][stage];
        scenario.layout = layout;
        scenario.costs.decode = Costs::fixed(decode);
        scenario.costs.preprocess = Costs::fixed(preprocess);
        scenario.costs.core_transfer[stage] = more;
        simulate(&scenario, 1)
    };
    for (layout, cores, share, from_another) in [
        (per_stage, 8.0, 0.8, 1.0),
        (per_stage, 1.0, 1.0, 0.0),
        (pool, 8.0, 1.0, 0.0),
    ] {
        for stage in 0..2 {
            let (with, without) = (
                run(layout, cores, stage, 0.25e6),
                run(layout, cores, stage, 0.0),
            );
            let share_of = with.samples_per_second() / without.samples_per_second();
            let what = format!("{layout:?} on {cores} cores, {stage}: {share_of}");
            assert!((share_of - share).abs() < 0.01, "{what}");
            let transferred = with.transferred()[stage];
            assert!(
                (transferred - from_another).abs() < 0.01,
                "{what}, {transferred}"
            );
        }
    }
}

#[test]
fn what_workers_have_begun_before_a_short_window_is_a_gain_in_it() {
    let endless = workers(64, 1.0, 0.0);
    let scenario = Scenario {
        steps: 256,
        later: 0,
        ..endless.clone()
    };
    let bound = Bound::of(&scenario).samples_per_second();
    let share = simulate(&scenario, 1).samples_per_second() / bound;
    assert!((1.05..1.3).contains(&share), "{share}");
    assert_eq!(Bound::of(&endless).limit(), Limit::Cores);
}

/// Where loader and device take the same on average, the slow half of the time costs and the quick one gains
/// nothing; where the loader takes longer all the time, both are the same.
#[test]
fn drift_costs_near_the_knee_only() {
    let run = |step: f64, drift: &[f64]| {
        let mut scenario = workers(1, 4.0, 0.0);
        scenario.costs.decode = Costs::fixed(1e6);
        scenario.device = Device::Beside {
            step: BatchCosts::fixed(step, 0.0),
            launch_wait: 0.0,
            run_ahead: 2,
            transfer: BatchCosts::default(),
            copies_ahead: 2,
        };
        scenario.drift = drift.to_vec();
        expected(&scenario).0
    };
    let drift = [[0.9; 8], [1.1; 8]].concat();
    let knee = run(8e6, &drift) / run(8e6, &[]);
    assert!((knee - 8.0 / 8.4).abs() < 0.005, "{knee}");
    let loader = run(1e6, &drift) / run(1e6, &[]);
    assert!((loader - 1.0).abs() < 0.005, "{loader}");
}

#[test]
fn parts_of_the_drift_ascend_and_are_1_on_average() {
    for count in [0, 3, 4, 5, 17, 19, 31] {
        let mut scenario = workers(1, 1.0, 0.0);
        scenario.drift = (0..count).map(|n| 0.9 + 0.01 * f64::from(n)).collect();
        let costs: Vec<f64> = (0..4)
            .map(|part| {
                scenario.in_part(part, 4).costs.decode.mean() / scenario.costs.decode.mean()
            })
            .collect();
        let mean = costs.iter().sum::<f64>() / 4.0;
        assert!((mean - 1.0).abs() < 1e-4, "{count}: {costs:?}");
        assert!(costs.is_sorted(), "{count}: {costs:?}");
    }
}

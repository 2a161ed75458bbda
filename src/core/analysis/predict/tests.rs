use super::*;
use crate::timeline::{Layout, Pipeline};

fn pool(num_workers: usize) -> Layout {
    let prefetch_factor = 2;
    Layout::WholeBatch {
        num_workers,
        prefetch_factor,
    }
}

/// Whole-batch workers whose samples compute for 1 ms, of a run that is longer than what is simulated of it.
pub(super) fn workers(num_workers: usize, cores: f64, latency: f64) -> Scenario {
    Scenario {
        pipeline: Pipeline::IMAGES,
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
            in_flight: 1,
            is_beside: false,
            latency,
            requests_per_sample: 1.0,
            taken_per_sample: 0.0,
        }),
        costs: ServiceCosts {
            samples: vec![SampleCosts::computing(Costs::any_of(
                (0..100).map(|n| 0.5e6 + 1e4 * f64::from(n)),
            ))],
            ..ServiceCosts::default()
        },
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

//! Long runs take no more memory than short ones.

use crate::planted::Planted;
use crate::work::Costs;
use crate::{MS, check_sums, knobs, steady};
use stallscope::pipeline::Layout;
use stallscope::timeline::{Nanos, Stage};

/// Long runs are folded in bounded memory, whether their paths meet or not.
#[test]
fn memory_does_not_grow_with_the_run_of_whole_batches() {
    for num_workers in [0, 1, 3] {
        let mut mean = [MS / 10; 6];
        mean[Stage::DECODE.number()] = 3 * MS;
        let run = |steps| Planted {
            layout: Layout::WholeBatch {
                num_workers,
                prefetch_factor: 2,
            },
            copy: knobs(0, 1),
            batch_size: 8,
            steps,
            ..steady(mean, knobs(1, 1), knobs(1, 1))
        };
        let (short, long) = (run(1000).run(), run(6000).run());
        check_sums(&long).unwrap();
        let (most, kept) = (short.units_kept * 11 / 10, long.units_kept);
        assert!(kept <= most, "{num_workers} workers: {kept}, not {most}");
    }
}

/// Long runs are folded in bounded memory.
#[test]
fn memory_does_not_grow_with_the_run() {
    let mut mean = [MS / 10; 6];
    mean[Stage::DECODE.number()] = 3 * MS;
    mean[Stage::STEP.number()] = 8 * MS;
    let one = knobs(1, 4);
    let run = |steps| Planted {
        layout: Layout::PerStage {
            samples: vec![one, knobs(2, 4), one],
            batch: one,
        },
        copy: one,
        batch_size: 4,
        claim_size: 1,
        ordered: true,
        costs: Costs {
            mean,
            spread: 0.5,
            seed: 3,
        },
        launch: Nanos(MS),
        warmup: 5,
        steps,
        settle_every: 20,
    };
    let (short, long) = (run(400).run(), run(4000).run());
    check_sums(&long).unwrap();
    assert!(
        long.units_kept <= short.units_kept * 11 / 10,
        "{} units kept in 4000 steps, {} in 400",
        long.units_kept,
        short.units_kept
    );
}

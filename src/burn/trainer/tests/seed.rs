//! What a seed decides. In a process of its own: burn's random numbers are the process's, and other tests draw some.

#![cfg(feature = "cpu")]

use stallscope_trainer::{Architecture, ModelSpec, OptimizerSpec, Precision, cpu};

#[test]
fn a_seed_gives_the_same_weights_whatever_was_drawn_before() {
    let loss = |seed| {
        let spec = ModelSpec {
            architecture: Architecture::SmallCnn,
            input: [3, 32, 32],
            classes: 10,
            optimizer: OptimizerSpec::Adam,
            learning_rate: 0.1,
            precision: Precision::F32,
            seed,
        };
        let mut trainer = cpu(&spec).unwrap();
        let images: Vec<f32> = (0..2 * 3 * 32 * 32)
            .map(|n| (n % 97) as f32 / 97.0)
            .collect();
        let batch = trainer.copier(0).copy(&images, &[3, 7]).unwrap();
        trainer.evaluate(batch).unwrap().loss
    };
    let drawn = loss(7);
    assert_ne!(loss(8), drawn);
    assert_eq!(loss(7), drawn);
}

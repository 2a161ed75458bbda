//! Ranks that average their gradients, and the loss of mixed images. In a process of its own: burn's random numbers are the process's.

#![cfg(feature = "cpu")]

use stallscope_trainer::{AllReduce, Architecture, ModelSpec, OptimizerSpec, Precision, cpu};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Two ranks in one process: each gives the other what it has.
struct Pair {
    to: Sender<Vec<f32>>,
    from: Receiver<Vec<f32>>,
}

impl AllReduce for Pair {
    fn mean(&mut self, values: &mut [f32]) -> Result<(), String> {
        self.to.send(values.to_vec()).map_err(|_| "gone")?;
        let others = self.from.recv().map_err(|_| "gone")?;
        for (own, other) in values.iter_mut().zip(others) {
            *own = (*own + other) / 2.0;
        }
        Ok(())
    }
}

const SIDE: usize = 8;
static DRAWING: Mutex<()> = Mutex::new(());

fn spec() -> ModelSpec {
    ModelSpec {
        architecture: Architecture::Dense(vec![16]),
        input: [3, SIDE, SIDE],
        classes: 4,
        optimizer: OptimizerSpec::Sgd { momentum: 0.9 },
        learning_rate: 0.1,
        precision: Precision::F32,
        seed: 7,
    }
}

/// The samples of some batches, and their classes.
fn batch(samples: Range<usize>) -> (Vec<f32>, Vec<u32>) {
    let pixels = samples.clone().flat_map(|sample| {
        (0..3 * SIDE * SIDE).map(move |at| ((at * (sample + 1)) as f32 / 9.0).sin())
    });
    (
        pixels.collect(),
        samples.map(|sample| sample as u32 % 4).collect(),
    )
}

/// The losses of some steps with `samples`, and then of all 8.
fn losses(samples: Range<usize>, ranks: Option<Pair>) -> (Vec<f64>, f64) {
    // The generator is the process's: nobody else may draw weights meanwhile.
    let mut model = {
        let _alone = DRAWING.lock().unwrap();
        cpu(&spec()).unwrap()
    };
    if let Some(ranks) = ranks {
        model.average_by(Box::new(ranks)).unwrap();
    }
    let mut copier = model.copier(0);
    let mut copy = |samples| {
        let (pixels, labels) = batch(samples);
        copier.copy(&pixels, &labels).unwrap()
    };
    let own = copy(samples);
    let steps = (0..6).map(|_| model.step(own.clone(), &mut |_| {}).unwrap().loss);
    let steps = steps.collect();
    (steps, model.evaluate(copy(0..8)).unwrap().loss)
}

#[test]
fn two_ranks_learn_what_one_learns_from_twice_the_batch() {
    let ((to, their), (to_them, from)) = (channel(), channel());
    let (expected, expected_after) = losses(0..8, None);
    let other = thread::spawn(move || losses(4..8, Some(Pair { to, from })));
    let (own, after) = losses(
        0..4,
        Some(Pair {
            to: to_them,
            from: their,
        }),
    );
    let (others, others_after) = other.join().unwrap();
    for (step, expected) in expected.iter().enumerate() {
        let mean = (own[step] + others[step]) / 2.0;
        assert!(
            (mean - expected).abs() < 1e-4,
            "step {step}: {mean} for {expected}"
        );
    }
    assert_eq!(after, others_after);
    assert!((after - expected_after).abs() < 1e-4);
    assert!(
        (own[0] - others[0]).abs() > 1e-3,
        "they had the same samples"
    );
}

/// With the label of the image before, the loss of each is another; of mixed ones it is so much of both.
#[test]
fn the_loss_of_mixed_images_is_that_of_both_labels() {
    let loss = |labels: &[u32], mixed_in: f32| {
        let mut model = {
            let _alone = DRAWING.lock().unwrap();
            cpu(&spec()).unwrap()
        };
        let batch = model.copier(0).copy(&batch(0..5).0, labels).unwrap();
        let learned = model.step(batch.mixed(mixed_in), &mut |_| {}).unwrap();
        learned.loss
    };
    let (own, before) = ([0, 1, 2, 3, 0], [0, 0, 1, 2, 3]);
    let (alone, other) = (loss(&own, 0.0), loss(&before, 0.0));
    assert!((alone - other).abs() > 1e-3, "{alone} {other}");
    for mixed_in in [0.25, 1.0] {
        let mixed = loss(&own, mixed_in);
        let share = f64::from(mixed_in);
        let wanted = alone * (1.0 - share) + other * share;
        assert!((mixed - wanted).abs() < 1e-5, "{mixed}, not {wanted}");
    }
}

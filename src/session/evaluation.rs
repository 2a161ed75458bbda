//! The trained model on samples that were held out: a pass of its own, after the measured run and apart
//! from it.

use super::error::SessionError;
use crate::data::sampler::Batches;
use crate::pipeline::{Plan, SampleWork, StopSignal, start};
use crate::report::Evaluation;
use crate::timeline::{Clock, Recorder};
use crate::train::{BurnTrainer, TrainError};
use std::sync::Arc;

/// Evaluates `trainer` on the samples `part` of `work`, called `name`. They are loaded with the workers of
/// `plan`, in order, and every one of them counts. `None` where `stop` was given.
///
/// # Errors
/// A sample that cannot be loaded, or a device that refuses a batch.
pub(super) fn evaluate<W: SampleWork>(
    name: &'static str,
    work: &Arc<W>,
    part: Arc<[u32]>,
    plan: &Plan,
    trainer: &mut BurnTrainer,
    clock: &Arc<dyn Clock>,
    stop: &StopSignal,
) -> Result<Option<Evaluation>, SessionError> {
    let batches = Batches::new(part.len(), plan.batch_size, false);
    let plan = Plan {
        batches: batches.map_or(0, |batches| batches.per_epoch()),
        drop_last: false,
        shuffle: false,
        part: Some(part),
        ..plan.clone()
    };
    let began = clock.now();
    let recorder = Recorder::off();
    let mut feed = start(&plan, work.clone(), trainer.copy(), clock, &recorder, stop)
        .map_err(TrainError::from)?;
    let (mut samples, mut correct, mut loss) = (0, 0, 0.0);
    while let Some(delivered) = feed.next().map_err(TrainError::from)? {
        let in_batch = delivered.samples as u64;
        let learned = trainer.evaluate(delivered.batch)?;
        samples += in_batch;
        correct += learned.correct;
        loss += learned.loss * in_batch as f64;
    }
    feed.shut_down();
    if stop.is_stopped() {
        return Ok(None);
    }
    let of_all = |sum: f64| sum / samples.max(1) as f64;
    Ok(Some(Evaluation {
        part: name,
        samples,
        loss: of_all(loss),
        accuracy: of_all(correct as f64),
        elapsed_ns: clock.now() - began,
    }))
}

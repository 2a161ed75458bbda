//! The trained model on samples that were held out: a pass of its own, after the measured run and apart
//! from it.

use super::error::SessionError;
use crate::data::sampler::{Batches, Order};
use crate::pipeline::{Plan, SampleWork, StopSignal, start};
use crate::report::{Evaluation, Score};
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
        order: Order::Sequential,
        part: Some(part),
        keep: None,
        ..plan.clone()
    };
    let began = clock.now();
    let recorder = Recorder::off();
    let mut feed = start(&plan, work.clone(), trainer.copy(), clock, &recorder, stop)
        .map_err(TrainError::from)?;
    let mut score = Score::default();
    while let Some(delivered) = feed.next().map_err(TrainError::from)? {
        let samples = delivered.samples as u64;
        let learned = trainer.evaluate(delivered.batch)?;
        score.add(samples, learned.loss, learned.correct);
    }
    feed.shut_down();
    if stop.is_stopped() {
        return Ok(None);
    }
    Ok(Some(Evaluation {
        part: name,
        score,
        elapsed_ns: clock.now() - began,
    }))
}

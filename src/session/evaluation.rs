//! The trained model on samples that were held out: a pass of its own, after the measured run and apart
//! from it.

use super::error::SessionError;
use crate::pipeline::sampler::{Batches, Order, Share};
use crate::pipeline::{Plan, SampleWork, StopSignal, start};
use crate::report::{Evaluation, Score};
use crate::timeline::{Clock, Recorder};
use crate::train::{BurnTrainer, DevicePreprocess, DeviceWait, TrainError};
use std::sync::Arc;

/// Samples that the model has not learned from, and how an evaluation loads them.
pub(super) struct HeldOut<W> {
    /// "validation" or "test".
    pub(super) part: &'static str,
    /// Draws nothing at random.
    pub(super) work: Arc<W>,
    pub(super) samples: Arc<[u32]>,
    /// What is left for the device to do with them, where anything is.
    pub(super) pixels: Option<DevicePreprocess>,
}

impl<W: SampleWork> HeldOut<W> {
    /// Evaluates `trainer` on all of them, loaded in order with the workers of `plan`. `None` where `stop` was
    /// given. Whoever sees `wait` is told how long a batch takes.
    ///
    /// # Errors
    /// A sample that cannot be loaded, or a device that refuses a batch.
    pub(super) fn evaluate(
        &self,
        plan: &Plan,
        trainer: &mut BurnTrainer,
        clock: &Arc<dyn Clock>,
        stop: &StopSignal,
        wait: &DeviceWait,
    ) -> Result<Option<Evaluation>, SessionError> {
        let batches = Batches::new(self.samples.len(), plan.batch_size, false);
        let plan = Plan {
            batches: batches.map_or(0, |batches| batches.per_epoch()),
            drop_last: false,
            order: Order::Sequential,
            part: Some(self.samples.clone()),
            keep: None,
            first_epoch: 0,
            share: Share::WHOLE,
            ..plan.clone()
        };
        let began = clock.now();
        let (copy, recorder) = (trainer.copy_of(self.pixels.clone(), 0), Recorder::off());
        let mut feed = start(&plan, self.work.clone(), copy, clock, &recorder, stop)
            .map_err(TrainError::from)?;
        let mut score = Score::default();
        while let Some(delivered) = feed.next().map_err(TrainError::from)? {
            let samples = delivered.samples as u64;
            let learned = wait.evaluating(&**clock, || trainer.evaluate(delivered.batch))?;
            score.add(samples, learned.loss, learned.correct);
        }
        feed.shut_down();
        let evaluation = Evaluation {
            part: self.part.into(),
            score,
            skipped: feed.skipped(),
            elapsed_ns: clock.now() - began,
        };
        Ok((!stop.is_stopped()).then_some(evaluation))
    }
}

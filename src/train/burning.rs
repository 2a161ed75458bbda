//! Training with burn: the copy to the device and the optimizer step, with their spans.

use super::step::{TrainError, TrainStep};
use crate::device::probe::CudaProbe;
use crate::pipeline::{Delivered, HostBatch, HostToDevice, Logbook, SampleError, panic_message};
use crate::timeline::{DevicePhase, HostWork};
use stallscope_burn::{Copier, Ends, Phase, Trainer};
pub use stallscope_burn::{DeviceBatch, ModelSpec};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Copies host batches to a device of burn's.
pub struct BurnCopy {
    copier: Box<dyn Copier>,
    spec: ModelSpec,
}

/// A label that the model has no output for.
#[derive(Debug, thiserror::Error)]
#[error(
    "sample {sample} has class {label}, but the model has {classes} outputs; leave model.classes unset or raise it"
)]
struct LabelOutOfRange {
    sample: u32,
    label: u32,
    classes: usize,
}

impl HostToDevice for BurnCopy {
    type Batch = DeviceBatch;

    fn copy(&mut self, batch: &HostBatch) -> Result<DeviceBatch, SampleError> {
        let classes = self.spec.classes;
        let labelled = batch.labels.iter().zip(&batch.samples);
        for (&label, &sample) in labelled {
            if label as usize >= classes {
                return Err(Box::new(LabelOutOfRange {
                    sample,
                    label,
                    classes,
                }));
            }
        }
        let floats = batch.floats().map_err(|error| error.to_string())?;
        Ok(self.copier.copy(floats, &batch.labels))
    }
}

/// Trains one of burn's models.
pub struct BurnTrainer {
    trainer: Box<dyn Trainer>,
    steps: u64,
}

impl TrainStep for BurnTrainer {
    type Batch = DeviceBatch;

    fn step(
        &mut self,
        batch: Delivered<DeviceBatch>,
        logbook: &mut Logbook,
    ) -> Result<Option<f64>, TrainError> {
        let number = batch.number;
        let mut since = logbook.now();
        let mut note = |phase| {
            let now = logbook.now();
            match phase {
                Phase::Forward => logbook.busy(DevicePhase::Forward, number, since, now),
                Phase::Backward => logbook.busy(DevicePhase::Backward, number, since, now),
                Phase::Optimizer => logbook.busy(DevicePhase::Optimizer, number, since, now),
                Phase::LossReadback => logbook.host(HostWork::LossReadback, number, since, now),
            }
            since = now;
        };
        let step = self.steps;
        let failed = |reason| TrainError::Step { step, reason };
        // burn panics where the device fails, for want of memory above all.
        let loss = catch_unwind(AssertUnwindSafe(|| {
            self.trainer.step(batch.batch, &mut note)
        }))
        .unwrap_or_else(|payload| Err(panic_message(payload.as_ref())))
        .map_err(failed)?;
        if !loss.is_finite() {
            let advice = "lower model.learning_rate or look at the data of batch";
            return Err(failed(format!("the loss is {loss}; {advice} {number}")));
        }
        self.steps += 1;
        Ok(Some(loss))
    }
}

fn wrap(spec: ModelSpec, (copier, trainer): Ends) -> (BurnCopy, BurnTrainer) {
    (BurnCopy { copier, spec }, BurnTrainer { trainer, steps: 0 })
}

/// The copy stage and the trainer of the CPU.
pub fn on_cpu(spec: ModelSpec) -> (BurnCopy, BurnTrainer) {
    wrap(spec, stallscope_burn::cpu(spec))
}

/// The copy stage and the trainer of the CUDA device `ordinal` that `probe` found.
///
/// # Errors
/// What is missing on this machine, or why the device does not come up.
pub fn on_cuda(
    ordinal: usize,
    probe: &CudaProbe,
    spec: ModelSpec,
) -> Result<(BurnCopy, BurnTrainer), TrainError> {
    let refuse = |reason: String| TrainError::Device {
        device: format!("cuda:{ordinal}"),
        reason,
    };
    // burn panics deep inside where a part of CUDA is missing, so each is looked for first.
    probe.require(ordinal).map_err(|missing| {
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        refuse(missing.join("; "))
    })?;
    let ends = catch_unwind(AssertUnwindSafe(|| stallscope_burn::cuda(ordinal, spec)));
    let ends = ends.map_err(|payload| {
        let reason = panic_message(payload.as_ref());
        refuse(format!(
            "the CUDA runtime did not come up: {reason}; run `stallscope doctor`"
        ))
    })?;
    Ok(wrap(spec, ends))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{LaneKind, MonotonicClock, Recorder};
    use std::sync::Arc;

    struct OutOfMemory;

    impl Trainer for OutOfMemory {
        fn step(&mut self, _: DeviceBatch, _: &mut dyn FnMut(Phase)) -> Result<f64, String> {
            panic!("can't allocate buffer of 17 GiB")
        }
    }

    #[test]
    fn a_device_that_panics_is_an_error_of_its_step() {
        let spec = ModelSpec {
            image_size: 8,
            classes: 2,
            learning_rate: 0.1,
            seed: 0,
        };
        let (mut copier, _) = stallscope_burn::cpu(spec);
        let batch = Delivered {
            number: 3,
            epoch: 0,
            samples: 1,
            batch: copier.copy(&[0.0; 3 * 8 * 8], &[1]),
        };
        let lane = Recorder::off().lane("trainer", LaneKind::Trainer);
        let mut logbook = Logbook::new(Arc::new(MonotonicClock::new()), lane);
        let mut trainer = BurnTrainer {
            trainer: Box::new(OutOfMemory),
            steps: 3,
        };
        let error = trainer.step(batch, &mut logbook).unwrap_err().to_string();
        assert_eq!(
            error,
            "training step 3 failed: can't allocate buffer of 17 GiB"
        );
    }
}

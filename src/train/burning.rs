//! Training with burn: the copy to the device and the optimizer step, with their spans.

use super::gpu::Launch;
use super::memory::DeviceMemory;
use super::panics::FIRST_PANIC;
use super::step::{TrainError, TrainStep};
use super::together::Together;
use crate::device::probe::CudaProbe;
use crate::pipeline::{
    Delivered, HostBatch, HostToDevice, Logbook, SampleError, SampleKey, panic_message,
};
use crate::timeline::{Bytes, DevicePhase, HostWork, UnitRef};
pub use stallscope_trainer::{
    AllReduce, Architecture, CopyOptions, Crop, DeviceBatch, Learned, ModelSpec, OptimizerSpec,
    PixelLayout, PixelPlan, Precision,
};
use stallscope_trainer::{Copier, Pending, Phase, Trainer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Copies host batches to a device of burn's.
pub struct BurnCopy {
    copier: Box<dyn Copier>,
    classes: usize,
    pixels: Option<DevicePreprocess>,
}

/// What the device does with batches of 8-bit pixels.
#[derive(Clone)]
pub struct DevicePreprocess {
    pub plan: PixelPlan,
    /// What was drawn for a sample: the same whoever asks.
    pub crops: Arc<dyn Fn(SampleKey) -> Crop + Send + Sync>,
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

    fn copy(&mut self, batch: &mut HostBatch, _: UnitRef) -> Result<DeviceBatch, SampleError> {
        let classes = self.classes;
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
        let copier = &mut self.copier;
        if copier.wants_locked(&batch.data) {
            let keeper = Box::new(batch.hold());
            copier.lock(&batch.data, keeper);
        }
        let (batch, labels, mixed_in) = (&*batch, &batch.labels, batch.mixed_in);
        let copied = guarded(|| match &self.pixels {
            None => {
                let floats = batch.floats().map_err(|error| error.to_string())?;
                copier.copy(floats, labels)
            }
            Some(pixels) => {
                let crops: Vec<Crop> = batch.keys().map(|key| (pixels.crops)(key)).collect();
                copier.copy_pixels(&pixels.plan, batch.bytes(), &crops, labels)
            }
        });
        Ok(copied?.mixed(mixed_in))
    }
}

/// Trains one of burn's models.
pub struct BurnTrainer {
    trainer: Box<dyn Trainer>,
    classes: usize,
    steps: u64,
    pixels: Option<DevicePreprocess>,
}

impl BurnTrainer {
    /// Copies batches to this trainer's device. On a GPU, the first copy takes memory for `at_once` batches: as many as may be
    /// there at the same time.
    pub fn copy(&self, at_once: usize) -> BurnCopy {
        self.copy_of(self.pixels.clone(), at_once)
    }

    /// The same for batches whose 8-bit `pixels`, if any, the device preprocesses.
    pub fn copy_of(&self, pixels: Option<DevicePreprocess>, at_once: usize) -> BurnCopy {
        BurnCopy {
            copier: self.trainer.copier(at_once),
            classes: self.classes,
            pixels,
        }
    }

    /// From now on each update's gradients are averaged by `ranks`.
    ///
    /// # Errors
    /// A device that cannot.
    pub fn average_by(&mut self, ranks: Together) -> Result<(), TrainError> {
        let averaged = self.trainer.average_by(Box::new(ranks));
        averaged.map_err(|reason| TrainError::AllReduce { reason })
    }

    /// One optimizer update with the batch `number`; calls `ended` as each phase ends.
    ///
    /// # Errors
    /// Why the device refused it, or a loss that is no number.
    pub(super) fn learn(
        &mut self,
        number: u64,
        batch: DeviceBatch,
        mut ended: impl FnMut(Phase),
    ) -> Result<Learned, TrainError> {
        let step = self.steps;
        let learned = guarded(|| self.trainer.step(batch, &mut ended));
        self.steps += 1;
        checked(step, number, learned)
    }

    /// Takes some steps with `samples` black images, so that kernels are compiled and tuned and memory is reserved,
    /// and forgets what they taught.
    ///
    /// # Errors
    /// Why the device refused it.
    pub fn prepare(&mut self, samples: usize, input: [usize; 3]) -> Result<(), TrainError> {
        let prepared = guarded(|| {
            let labels = vec![0; samples];
            let mut copier = self.trainer.copier(0);
            let batch = match &self.pixels {
                Some(pixels) => {
                    let plan = &pixels.plan;
                    let (height, width) = (plan.height as f32, plan.width as f32);
                    let whole = Crop {
                        width,
                        height,
                        seen: [0.0, 0.0, width, height],
                        ..Crop::default()
                    };
                    let bytes = zeros(samples * plan.height * plan.width * plan.mean.len())?;
                    copier.copy_pixels(plan, &bytes, &vec![whole; samples], &labels)?
                }
                None => {
                    let floats = zeros(samples * input.iter().product::<usize>())?;
                    copier.copy(&floats, &labels)?
                }
            };
            for _ in 0..PREPARATION_STEPS {
                self.trainer.launch(batch.clone())?.wait()?;
            }
            self.trainer.reset();
            Ok(())
        });
        // What CubeCL tries while it tunes may fail.
        FIRST_PANIC.take();
        prepared.map_err(|reason| TrainError::Preparation { reason })
    }

    /// How well the model does on `batch`, which it does not learn from.
    ///
    /// # Errors
    /// Why the device refused it.
    pub fn evaluate(&mut self, batch: DeviceBatch) -> Result<Learned, TrainError> {
        guarded(|| self.trainer.evaluate(batch)).map_err(|reason| TrainError::Evaluation { reason })
    }

    /// The images of `batch` as the model sees them, one after another: channels, height, width.
    ///
    /// # Errors
    /// Why the device refused it.
    pub fn images(&self, batch: DeviceBatch) -> Result<Vec<f32>, TrainError> {
        guarded(|| self.trainer.images(batch)).map_err(|reason| TrainError::Evaluation { reason })
    }

    /// Trainable numbers of the model.
    pub fn parameters(&self) -> usize {
        self.trainer.parameters()
    }
}

impl TrainStep for BurnTrainer {
    type Batch = DeviceBatch;

    fn step(
        &mut self,
        batch: Delivered<DeviceBatch>,
        logbook: &mut Logbook,
    ) -> Result<Option<Learned>, TrainError> {
        let number = batch.number;
        let mut since = logbook.now();
        let note = |phase| {
            let now = logbook.now();
            match phase {
                Phase::Preprocess => logbook.busy(DevicePhase::Preprocess, number, since, now),
                Phase::Forward => logbook.busy(DevicePhase::Forward, number, since, now),
                Phase::Backward => logbook.busy(DevicePhase::Backward, number, since, now),
                Phase::AllReduce => logbook.host(HostWork::AllReduce, number, since, now),
                Phase::Optimizer => logbook.busy(DevicePhase::Optimizer, number, since, now),
                Phase::LossReadback => logbook.host(HostWork::LossReadback, number, since, now),
            }
            since = now;
        };
        self.learn(number, batch.batch, note).map(Some)
    }

    fn memory(&self) -> Option<DeviceMemory> {
        guarded(|| Ok(self.trainer.memory())).ok().flatten()
    }
}

impl Launch for BurnTrainer {
    type Batch = DeviceBatch;

    fn launch(&mut self, batch: DeviceBatch) -> Result<(u64, Box<dyn Pending>), TrainError> {
        let step = self.steps;
        let pending = guarded(|| self.trainer.launch(batch));
        self.steps += 1;
        let pending = pending.map_err(|reason| TrainError::Step { step, reason })?;
        Ok((step, pending))
    }

    fn memory(&self) -> Option<DeviceMemory> {
        TrainStep::memory(self)
    }
}

/// As many zeros, where the host has room for them.
fn zeros<T: Default + Clone>(count: usize) -> Result<Vec<T>, String> {
    let mut zeros = Vec::new();
    let reserved = zeros.try_reserve_exact(count);
    reserved.map_err(|_| {
        let bytes = Bytes((count * size_of::<T>()) as u64);
        format!("out of memory: the host has no room for a batch of {bytes}")
    })?;
    zeros.resize(count, T::default());
    Ok(zeros)
}

/// The first step compiles, the second sees the optimizer's state for the first time; fusion may still try
/// something else in the third.
const PREPARATION_STEPS: usize = 4;

/// What the step `step` learned from the batch `number`, unless that is no number.
pub(super) fn checked(
    step: u64,
    number: u64,
    learned: Result<Learned, String>,
) -> Result<Learned, TrainError> {
    let failed = |reason| TrainError::Step { step, reason };
    let learned = learned.map_err(failed)?;
    let loss = learned.loss;
    if !loss.is_finite() {
        let advice = "lower model.learning_rate, with model.precision = \"f16\" try \"bf16\", or look at the data of batch";
        return Err(failed(format!("the loss is {loss}; {advice} {number}")));
    }
    Ok(learned)
}

/// burn panics where the device fails, for want of memory above all.
pub(super) fn guarded<T>(body: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|payload| Err(panic_message(payload.as_ref())))
        .map_err(|reason| plain(FIRST_PANIC.explained(reason)))
}

/// The driver's own error, which `reason` quotes, or which the driver tells when asked now; else `reason`, shortened.
fn plain(reason: String) -> String {
    let quoted = |text: &str| {
        let (_, rest) = text.split_once("DriverError(")?;
        let (code, rest) = rest.split_once(", \"")?;
        let (said, _) = rest.split_once("\")")?;
        Some(format!("the driver says {code}: {said}"))
    };
    let asked = || quoted(&stallscope_trainer::lost_cuda()?);
    quoted(&reason).or_else(asked).unwrap_or_else(|| {
        let told = reason.replace(UNWRAPPED, "");
        // burn's layers repeat what failed for everything that waited for it.
        let mut lines: Vec<&str> = Vec::new();
        for line in told
            .lines()
            .filter(|line| !line.contains("No backtrace available"))
        {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines.join("\n")
    })
}

/// How a panic begins that says no more than that something failed.
const UNWRAPPED: &str = "called `Result::unwrap()` on an `Err` value: ";

fn wrap(
    spec: &ModelSpec,
    trainer: Box<dyn Trainer>,
    pixels: Option<DevicePreprocess>,
) -> BurnTrainer {
    BurnTrainer {
        trainer,
        classes: spec.classes,
        steps: 0,
        pixels,
    }
}

/// An image that is too small for the model's layers makes burn panic.
pub(super) fn require_size(spec: &ModelSpec) -> Result<(), TrainError> {
    let [_, height, width] = spec.input;
    let least = spec.architecture.least_side();
    if height.min(width) >= least {
        return Ok(());
    }
    Err(TrainError::Model {
        reason: format!(
            "images of {height}x{width} pixels are too small for {:?}, which needs {least}x{least}; \
             raise preprocess.size or choose another model.kind",
            spec.architecture
        ),
    })
}

/// A trainer on the CPU. Its batches are finished, or 8-bit `pixels` that the device preprocesses.
///
/// # Errors
/// Images that the model cannot take, or a precision that the CPU cannot compute in.
pub fn on_cpu(
    spec: &ModelSpec,
    pixels: Option<DevicePreprocess>,
) -> Result<BurnTrainer, TrainError> {
    require_size(spec)?;
    let trainer = stallscope_trainer::cpu(spec).map_err(|reason| TrainError::Device {
        device: "cpu".to_owned(),
        reason,
    })?;
    Ok(wrap(spec, trainer, pixels))
}

/// A trainer on the CUDA device `ordinal` that `probe` found, for batches as [`on_cpu`]'s, which are copied as
/// `copies` says.
///
/// # Errors
/// What is missing on this machine, or why the device does not come up.
pub fn on_cuda(
    ordinal: usize,
    probe: &CudaProbe,
    spec: &ModelSpec,
    pixels: Option<DevicePreprocess>,
    copies: CopyOptions,
) -> Result<BurnTrainer, TrainError> {
    require_size(spec)?;
    let device = format!("cuda:{ordinal}");
    TrainError::require_built(&device)?;
    // burn panics deep inside where a part of CUDA is missing, so each is looked for first.
    probe
        .require(ordinal)
        .map_err(|missing| TrainError::device_missing(device.clone(), &missing))?;
    let trainer = guarded(|| Ok(stallscope_trainer::cuda(ordinal, spec, copies)));
    let refuse = |reason| TrainError::Device { device, reason };
    let trainer = match trainer {
        Ok(trainer) => trainer.map_err(refuse)?,
        Err(reason) => {
            let reason =
                format!("the CUDA runtime did not come up: {reason}; run `stallscope doctor`");
            return Err(refuse(reason));
        }
    };
    Ok(wrap(spec, trainer, pixels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{LaneKind, MonotonicClock, Recorder};
    use std::sync::Arc;

    struct OutOfMemory;

    impl Trainer for OutOfMemory {
        fn step(&mut self, _: DeviceBatch, _: &mut dyn FnMut(Phase)) -> Result<Learned, String> {
            panic!("can't allocate buffer of 17 GiB")
        }
        fn evaluate(&mut self, _: DeviceBatch) -> Result<Learned, String> {
            unreachable!()
        }
        fn launch(&mut self, _: DeviceBatch) -> Result<Box<dyn Pending>, String> {
            unreachable!()
        }
        fn reset(&mut self) {
            unreachable!()
        }
        fn images(&self, _: DeviceBatch) -> Result<Vec<f32>, String> {
            unreachable!()
        }
        fn copier(&self, _: usize) -> Box<dyn Copier> {
            unreachable!()
        }
        fn parameters(&self) -> usize {
            0
        }
        fn memory(&self) -> Option<stallscope_trainer::DeviceMemory> {
            None
        }
    }

    fn spec(architecture: Architecture) -> ModelSpec {
        ModelSpec {
            architecture,
            input: [3, 8, 8],
            classes: 2,
            optimizer: OptimizerSpec::Sgd { momentum: 0.0 },
            learning_rate: 0.1,
            precision: Precision::F32,
            seed: 0,
        }
    }

    #[test]
    fn an_image_too_small_for_the_model_is_refused() {
        let refused = on_cpu(&spec(Architecture::LeNet), None).err().unwrap();
        assert!(refused.to_string().contains("8x8"), "{refused}");
    }

    #[test]
    fn a_device_that_panics_is_an_error_of_its_step() {
        let mut copier = stallscope_trainer::cpu(&spec(Architecture::SmallCnn))
            .unwrap()
            .copier(0);
        let batch = Delivered {
            number: 3,
            epoch: 0,
            samples: 1,
            batch: copier.copy(&[0.0; 3 * 8 * 8], &[1]).unwrap(),
        };
        let lane = Recorder::off().lane("trainer", LaneKind::Trainer);
        let mut logbook = Logbook::new(Arc::new(MonotonicClock::new()), lane);
        let mut trainer = BurnTrainer {
            trainer: Box::new(OutOfMemory),
            classes: 2,
            steps: 3,
            pixels: None,
        };
        let error = trainer.step(batch, &mut logbook).unwrap_err().to_string();
        assert_eq!(
            error,
            "training step 3 failed: can't allocate buffer of 17 GiB"
        );
    }

    #[test]
    fn what_the_driver_said_is_told_and_not_who_unwrapped_it() {
        let quoted = "An error happened\nCaused by:\n  DriverError(CUDA_ERROR_LAUNCH_FAILED, \"unspecified launch \
                      failure\")\nBacktrace";
        let said = "the driver says CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure";
        assert_eq!(plain(quoted.to_owned()), said);
        let unwrapped =
            format!("{UNWRAPPED}can't allocate buffer of size: 16 ({UNWRAPPED}CallError)");
        let told = "can't allocate buffer of size: 16 (CallError)";
        assert_eq!(plain(unwrapped), told);
    }
}

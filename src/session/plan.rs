//! From the configuration to what the pipeline, the model and the verdict need.

use super::error::SessionError;
use super::images::stages;
use super::source::Source;
use crate::analysis::{Disk, LoaderShape};
use crate::config::{
    self, EmulatedConfig, GpuTimeline, HeldOut, Mode, ModelKind, Optimizer, OrderConfig, PartSize,
    PipelineConfig, Resolved, StageConfig,
};
use crate::data::{Amount, Parts, Split};
use crate::device::emulated::{EmulatedMemory, EmulatedSpec};
use crate::pipeline::sampler::{Batches, Order};
use crate::pipeline::{Keep, Plan};
use crate::timeline::{Layout, Nanos, Place, StageKnobs};
use crate::train::{Architecture, ModelSpec, OptimizerSpec, Precision};
use std::sync::Arc;

fn knobs(stage: StageConfig) -> StageKnobs {
    StageKnobs {
        workers: stage.workers,
        prefetch: stage.prefetch,
    }
}

fn layout(pipeline: &PipelineConfig) -> Layout {
    match pipeline.num_workers {
        None => Layout::PerStage {
            samples: vec![
                knobs(pipeline.read.stage),
                knobs(pipeline.decode.stage),
                knobs(pipeline.preprocess.stage),
            ],
            batch: knobs(pipeline.batch.stage),
        },
        Some(num_workers) => Layout::WholeBatch {
            num_workers,
            prefetch_factor: pipeline.prefetch_factor,
        },
    }
}

pub(super) fn order(order: OrderConfig) -> Order {
    match order {
        OrderConfig::Sequential => Order::Sequential,
        OrderConfig::Random => Order::Random,
        OrderConfig::Block { block, window } => Order::Block { block, window },
    }
}

/// How a source of `samples` samples is split.
///
/// # Errors
/// Where nothing is left to train on.
pub(super) fn parts(config: &Resolved, samples: usize) -> Result<Parts, SessionError> {
    let split = &config.pipeline.split;
    let amount = |size| match size {
        PartSize::Share(share) => Amount::Share(share),
        PartSize::Samples(count) => Amount::Samples(count),
    };
    let wanted = Split {
        validation: amount(split.validation),
        test: amount(split.test),
        at_random: split.choose == HeldOut::Random,
    };
    wanted
        .of(samples, config.seed)
        .ok_or(SessionError::AllHeldOut { samples })
}

/// The pipeline of a run over the samples `training` of a source that is taken `claim_size` at a time.
pub fn plan(config: &Resolved, training: Arc<[u32]>, claim_size: usize) -> Plan {
    let pipeline = &config.pipeline;
    let samples = config.share_of(training.len());
    let size = pipeline.batch.size;
    let batches = Batches::new(samples, size, pipeline.drop_last);
    let per_epoch = batches.map_or(0, |batches| batches.per_epoch());
    let asked = config
        .steps
        .map_or(u64::MAX, |steps| steps.saturating_add(config.warmup_steps));
    let epochs = config
        .epochs
        .map_or(u64::MAX, |epochs| epochs.saturating_mul(per_epoch));
    // Without the loader nothing passes over the data: epochs only say how many steps, and use nothing up.
    let most = match (config.mode, config.steps) {
        (mode, Some(_)) if mode.is_resident() => u64::MAX,
        (mode, None) if mode.is_resident() => epochs.saturating_add(config.warmup_steps),
        _ => epochs,
    };
    Plan {
        layout: layout(pipeline),
        copy: knobs(pipeline.copy),
        batch_size: size,
        claim_size: claim_size.clamp(1, size),
        batches: asked.min(most),
        drop_last: pipeline.drop_last,
        order: order(pipeline.order),
        first_epoch: 0,
        first_batch: 0,
        share: config.rank.share(),
        ordered: pipeline.ordered,
        seed: config.seed,
        part: Some(training),
        on_error: pipeline.on_error,
        keep: place(config.mode).map(|place| Keep {
            batches: per_epoch.min(Mode::RESIDENT_BATCHES),
            place,
        }),
    }
}

/// Where batches stay, where they do.
fn place(mode: Mode) -> Option<Place> {
    match mode {
        Mode::HostResident => Some(Place::Host),
        Mode::DeviceOnly => Some(Place::Device),
        Mode::Normal | Mode::Cached | Mode::LoaderOnly => None,
    }
}

/// Whether steps are executed beside the trainer's thread.
pub(super) fn runs_beside(config: &Resolved) -> bool {
    let on_gpu = config
        .gpu
        .is_some_and(|gpu| gpu.timeline != GpuTimeline::Host);
    (config.emulated.is_some() || on_gpu) && config.mode != Mode::LoaderOnly
}

/// What the verdict must know of the pipeline.
pub fn shape(config: &Resolved, cores: f64) -> LoaderShape {
    let pipeline = &config.pipeline;
    LoaderShape {
        pipeline: stages(&pipeline.preprocess.transform),
        layout: layout(pipeline),
        copy: knobs(pipeline.copy),
        has_device: config.mode != Mode::LoaderOnly,
        resident: place(config.mode),
        device_beside: runs_beside(config),
        disk: pipeline.storage.map(|storage| Disk {
            // At random hardly any two samples follow each other.
            seek_per_sample: match pipeline.order {
                _ if config.rank.world_size > 1 => Nanos(storage.seek_ns),
                OrderConfig::Sequential => Nanos::ZERO,
                OrderConfig::Block { block, window: 1 } => Nanos(storage.seek_ns / block as u64),
                _ => Nanos(storage.seek_ns),
            },
            bytes_per_second: storage.bytes_per_second,
        }),
        copy_latency: Nanos(config.emulated.map_or(0, |device| device.copy_latency_ns)),
        value_bytes: match pipeline.preprocess.on_device {
            true => size_of::<u8>(),
            false => size_of::<f32>(),
        },
        cores,
    }
}

/// How fast the emulated device is.
pub(super) fn emulated_spec(config: &EmulatedConfig) -> EmulatedSpec {
    EmulatedSpec {
        step_base: Nanos(config.step_base_ns),
        step_per_sample: Nanos(config.step_per_sample_ns),
        preprocess_per_sample: Nanos(config.preprocess_per_sample_ns),
        copy_latency: Nanos(config.copy_latency_ns),
        copy_bytes_per_second: config.copy_bytes_per_second,
        launch: Nanos(config.launch_ns),
        run_ahead: config.run_ahead,
        memory: EmulatedMemory {
            total: config.memory_bytes,
            base: config.memory_base_bytes,
            per_sample: config.memory_per_sample_bytes,
        },
    }
}

/// The model to train on `source`.
pub(super) fn model_spec(config: &Resolved, source: &Source) -> ModelSpec {
    let model = &config.model;
    ModelSpec {
        architecture: match &model.kind {
            ModelKind::Linear => Architecture::Linear,
            ModelKind::Dense { hidden } => Architecture::Dense(hidden.clone()),
            ModelKind::SmallCnn => Architecture::SmallCnn,
            ModelKind::LeNet => Architecture::LeNet,
            ModelKind::ResNet18 => Architecture::ResNet18,
            ModelKind::ResNet50 => Architecture::ResNet50,
            ModelKind::ResNet200 => Architecture::ResNet200,
            ModelKind::Vgg16 => Architecture::Vgg16,
            ModelKind::Vgg19 => Architecture::Vgg19,
        },
        precision: match model.precision {
            config::Precision::F32 => Precision::F32,
            config::Precision::Bf16 => Precision::Bf16,
            config::Precision::F16 => Precision::F16,
        },
        input: source.shape(),
        classes: model.classes.unwrap_or(source.classes()),
        optimizer: match model.optimizer {
            Optimizer::Sgd { momentum } => OptimizerSpec::Sgd { momentum },
            Optimizer::Adam => OptimizerSpec::Adam,
        },
        learning_rate: model.learning_rate,
        seed: config.seed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::pipeline::sampler::Share;

    #[test]
    fn a_rank_loads_its_own_share() {
        let sets = ["source.kind=mnist", "source.path=x", "batch.size=50"];
        let ranks = ["rank.index=1", "rank.world_size=3", "drop_last=false"];
        let plan_with = |sets: &[&str]| {
            let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
            let config = Settings::recorded("run", &[], &sets).resolve().unwrap();
            plan(&config, (0..1000).collect(), 1)
        };
        assert_eq!(plan_with(&sets).share, Share::WHOLE);
        let own = plan_with(&[&sets[..], &ranks, &["epochs=1", "steps=100"]].concat());
        assert_eq!(own.share, Share { rank: 1, of: 3 });
        assert_eq!(own.batches, 7, "334 samples, 50 in a batch");
    }
}

//! From the configuration to what the pipeline and the verdict need.

use crate::analysis::{LoaderShape, Workers};
use crate::config::{Mode, OnError, PipelineConfig, Resolved, StageConfig, WorkerMode};
use crate::data::sampler::Batches;
use crate::pipeline::{ErrorPolicy, Layout, Plan, StageKnobs};

fn knobs(stage: StageConfig) -> StageKnobs {
    StageKnobs {
        workers: stage.workers,
        prefetch: stage.prefetch,
    }
}

fn layout(pipeline: &PipelineConfig) -> Layout {
    match pipeline.workers {
        WorkerMode::PerStage => Layout::PerStage {
            read: knobs(pipeline.read),
            decode: knobs(pipeline.decode.stage),
            preprocess: knobs(pipeline.preprocess.stage),
            batch: knobs(pipeline.batch.stage),
        },
        WorkerMode::WholeBatch {
            num_workers,
            prefetch_factor,
        } => Layout::WholeBatch {
            num_workers,
            prefetch_factor,
        },
    }
}

/// The pipeline of a run over `samples` samples.
pub(super) fn plan(config: &Resolved, samples: usize) -> Plan {
    let pipeline = &config.pipeline;
    let size = pipeline.batch.size;
    let batches = Batches::new(samples, size, pipeline.drop_last);
    let per_epoch = batches.map_or(0, |batches| batches.per_epoch());
    let asked = config.warmup_steps.saturating_add(config.steps);
    let most = config
        .epochs
        .map_or(u64::MAX, |epochs| epochs.saturating_mul(per_epoch));
    Plan {
        layout: layout(pipeline),
        copy: knobs(pipeline.copy),
        batch_size: size,
        batches: asked.min(most),
        drop_last: pipeline.drop_last,
        shuffle: pipeline.shuffle,
        ordered: pipeline.ordered,
        seed: config.seed,
        on_error: match pipeline.on_error {
            OnError::Fail => ErrorPolicy::Fail,
            OnError::Skip => ErrorPolicy::Skip,
        },
    }
}

/// What the verdict must know of the pipeline.
pub(super) fn shape(config: &Resolved, cores: f64) -> LoaderShape {
    let pipeline = &config.pipeline;
    LoaderShape {
        workers: match pipeline.workers {
            WorkerMode::PerStage => Workers::PerStage,
            WorkerMode::WholeBatch {
                num_workers,
                prefetch_factor,
            } => Workers::WholeBatch {
                num_workers,
                prefetch_factor,
            },
        },
        batch_prefetch: pipeline.batch.stage.prefetch,
        copy_prefetch: pipeline.copy.prefetch,
        copy_in_trainer: pipeline.copy.workers == 0,
        has_device: config.mode == Mode::Normal,
        cores,
    }
}

//! From the configuration to what the pipeline and the verdict need.

use crate::analysis::{LoaderShape, Workers};
use crate::config::{OnError, PipelineConfig, Resolved, StageConfig, WorkerMode};
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
    let per_epoch = if pipeline.drop_last {
        samples / size
    } else {
        samples.div_ceil(size)
    };
    let asked = config.warmup_steps + config.steps;
    let most = config
        .epochs
        .map_or(u64::MAX, |epochs| epochs.saturating_mul(per_epoch as u64));
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
pub(super) fn shape(pipeline: &PipelineConfig, cores: usize) -> LoaderShape {
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
        prefetch: [
            pipeline.read.prefetch,
            pipeline.decode.stage.prefetch,
            pipeline.preprocess.stage.prefetch,
            pipeline.batch.stage.prefetch,
            pipeline.copy.prefetch,
        ],
        copy_in_trainer: pipeline.copy.workers == 0,
        cores,
    }
}

/// Samples that the pipeline can hold at once, at most.
pub(super) fn in_flight(plan: &Plan) -> usize {
    let batches = match plan.layout {
        Layout::WholeBatch {
            num_workers,
            prefetch_factor,
        } => num_workers * prefetch_factor + 1,
        Layout::PerStage {
            read,
            decode,
            preprocess,
            batch,
        } => {
            let samples: usize = [read, decode, preprocess]
                .iter()
                .map(|s| s.workers + s.prefetch)
                .sum();
            samples.div_ceil(plan.batch_size) + batch.workers + batch.prefetch + 2
        }
    };
    (batches + plan.copy.prefetch) * plan.batch_size
}

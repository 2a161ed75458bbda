//! What a configuration means for pictures: the plan of the preprocess stage, the parts it has, and how a store is asked.

use super::super::error::SessionError;
use crate::config::{PipelineConfig, PreprocessConfig, Spatial as SpatialConfig};
use crate::data::objects::{SampleCache, is_url};
use crate::data::stages::augment::{BatchMix, RANDOM_CROP};
use crate::data::stages::preprocess::{PreprocessError, PreprocessPlan, Spatial};
use crate::data::stages::reading::StoreOptions;
use crate::pipeline::sampler::batch_rng;
use crate::pipeline::{HostBatch, SampleError};
use crate::timeline::Pipeline;
use std::sync::Arc;

pub(super) fn plan(pipeline: &PipelineConfig) -> Result<PreprocessPlan, PreprocessError> {
    let transform = &pipeline.preprocess.transform;
    let spatial = match transform.spatial {
        SpatialConfig::RandomResizedCrop { size, scale, ratio } => Spatial::RandomResizedCrop {
            size: size as u32,
            scale: (scale[0], scale[1]),
            ratio: (ratio[0], ratio[1]),
        },
        SpatialConfig::ResizeCenterCrop { resize, size } => Spatial::ResizeCenterCrop {
            resize: resize as u32,
            size: size as u32,
        },
        SpatialConfig::AsIs => {
            return Err(PreprocessError::BadPlan {
                option: "crop",
                value: "none".to_owned(),
                want: "the images of a folder differ in size",
            });
        }
    };
    Ok(PreprocessPlan {
        spatial,
        flip_probability: transform.flip,
        augmentation: transform.augmentation,
        mean: channels("mean", &transform.mean)?,
        std: channels("std", &transform.std)?,
    })
}

/// The stages of a run on such data, with what is changed at random as parts.
pub fn stages(transform: &PreprocessConfig) -> &'static Pipeline {
    let mut parts = transform.augmentation.parts();
    if transform.pad > 0 {
        parts.push(RANDOM_CROP);
    }
    Pipeline::images_with(&parts)
}

/// Mixes the images of a finished batch, of `shape` each.
pub fn mix(mix: BatchMix, shape: [usize; 3], batch: &mut HostBatch) -> Result<(), SampleError> {
    if mix.is_on()
        && let Some(first) = batch.samples.first()
    {
        let mut rng = batch_rng(batch.seed, batch.epoch, (*first).into());
        let images = batch.floats_mut().map_err(|error| error.to_string())?;
        batch.mixed_in = mix.mix(images, shape, &mut rng);
    }
    Ok(())
}

/// Red, green and blue.
fn channels(option: &'static str, list: &[f32]) -> Result<[f32; 3], PreprocessError> {
    list.try_into().map_err(|_| PreprocessError::BadPlan {
        option,
        value: format!("{list:?}"),
        want: "a number each for red, green and blue",
    })
}

/// How a store is asked. Whole-batch workers each look ahead for themselves, threads of the read stage together.
pub(super) fn store_options(pipeline: &PipelineConfig) -> Result<StoreOptions, SessionError> {
    let (url, read) = (&pipeline.source.path, &pipeline.read);
    let threads = pipeline.num_workers.unwrap_or(read.stage.workers).max(1);
    let requests = read.requests * threads;
    let folder = read.cache.as_ref().filter(|_| is_url(url));
    let cache = folder.map(|folder| {
        let opened = SampleCache::open(folder, url, read.cache_bytes);
        opened.map_err(|source| SessionError::Io {
            action: "open the cache",
            path: folder.clone(),
            source,
        })
    });
    Ok(StoreOptions {
        requests,
        ahead: match pipeline.num_workers {
            Some(_) => read.requests,
            None => requests,
        },
        cache: cache.transpose()?.map(Arc::new),
    })
}

/// Decoded images in use at a time, as a rule: one for each worker of decode and preprocess, and two on
/// their way.
pub(super) fn buffers_in_use(pipeline: &PipelineConfig) -> usize {
    let (decode, preprocess) = (pipeline.decode.stage, pipeline.preprocess.stage);
    let per_stage = decode.workers + preprocess.workers + 2;
    pipeline.num_workers.unwrap_or(per_stage)
}

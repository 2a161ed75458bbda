//! The work of the sample stages on MNIST's and CIFAR's images, which are in memory from the start: they are cut and mirrored
//! at random where that is asked for, and normalised, many at a time.

use super::images::{mix, stages};
use crate::config::PreprocessStageConfig;
use crate::data::SmallImages;
use crate::data::stages::ahead::fetch_ahead;
use crate::data::stages::augment::{BatchMix, RANDOM_CROP, SmallCrop};
use crate::pipeline::sampler::sample_rng;
use crate::pipeline::{Claim, HostBatch, SampleError, SampleWork, part};
use crate::timeline::Pipeline;
use crate::train::{Crop, DevicePreprocess, PixelLayout, PixelPlan};
use multiversion::multiversion;
use std::sync::Arc;

/// The pixels of the images `indices`. In a random order each lies where nothing was read lately, so the memory is
/// asked for it while those before are worked on.
fn fetched_ahead<'a>(
    images: &'a SmallImages,
    indices: &'a [u32],
) -> impl Iterator<Item = &'a [u8]> {
    indices.iter().enumerate().map(|(place, &index)| {
        if let Some(&later) = indices.get(place + FETCH_AHEAD) {
            fetch_ahead(images.pixels(later as usize));
        }
        images.pixels(index as usize)
    })
}

/// Samples of such a data set.
pub struct SmallWork {
    images: Arc<SmallImages>,
    stages: &'static Pipeline,
    mix: BatchMix,
    /// Where images are changed at random.
    crop: Option<SmallCrop>,
    /// For each channel, `value * scale + offset` normalises a pixel of 0 to 255.
    scale_and_offset: Vec<(f32, f32)>,
    transform: PreprocessStageConfig,
}

/// How many images ahead memory is asked for them: one takes about as long as memory does.
const FETCH_AHEAD: usize = 2;

/// Images that are cut before they are normalised: as many as stay in the first cache.
const CUT_AT_ONCE: usize = 8;

/// Normalising one takes less than a microsecond, as much as handing it on.
const CLAIM_SIZE: usize = 256;

impl SmallWork {
    /// The work on `images` that `transform` and `mix` describe.
    pub fn new(images: SmallImages, transform: &PreprocessStageConfig, mix: BatchMix) -> SmallWork {
        let lists = &transform.transform;
        let crop = SmallCrop {
            pad: lists.pad,
            flip_probability: lists.flip,
        };
        let both = lists.mean.iter().zip(&lists.std);
        SmallWork {
            images: Arc::new(images),
            stages: stages(lists),
            mix,
            crop: (crop.pad > 0 || crop.flip_probability > 0.0).then_some(crop),
            scale_and_offset: both
                .map(|(mean, std)| (1.0 / (255.0 * std), -mean / std))
                .collect(),
            transform: transform.clone(),
        }
    }

    /// The same images as an evaluation takes them: as they are.
    pub(super) fn for_evaluation(&self) -> SmallWork {
        SmallWork {
            images: self.images.clone(),
            stages: Pipeline::IMAGES,
            mix: BatchMix::default(),
            crop: None,
            scale_and_offset: self.scale_and_offset.clone(),
            transform: self.transform.clone(),
        }
    }

    /// The images.
    pub fn images(&self) -> &SmallImages {
        &self.images
    }

    /// What is left for the device to do with the samples, where anything is.
    pub(super) fn on_device(&self) -> Option<DevicePreprocess> {
        let [_, height, width] = self.images.shape();
        let lists = &self.transform.transform;
        self.transform.on_device.then(|| DevicePreprocess {
            plan: PixelPlan {
                height,
                width,
                layout: PixelLayout::Planar,
                side: None,
                mean: lists.mean.clone(),
                std: lists.std.clone(),
            },
            crops: Arc::new(|_| Crop::default()),
        })
    }

    fn values(&self) -> usize {
        self.images.shape().iter().product()
    }

    /// Cuts parts of a claim's images, a few at a time, and hands them to `take`: their place in the claim, and their pixels.
    fn cut(
        &self,
        crop: &SmallCrop,
        claim: &Claim,
        scratch: &mut Vec<u8>,
        mut take: impl FnMut(usize, &[u8]),
    ) {
        let shape = self.images.shape();
        scratch.resize(CUT_AT_ONCE * self.values(), 0);
        let mut keys = claim.keys();
        for (group, indices) in claim.indices().chunks(CUT_AT_ONCE).enumerate() {
            let cut = &mut scratch[..indices.len() * self.values()];
            {
                let _part = part(RANDOM_CROP);
                let images = fetched_ahead(&self.images, indices).zip(&mut keys);
                for (out, (pixels, key)) in cut.chunks_exact_mut(self.values()).zip(images) {
                    let mut rng = sample_rng(key.seed, key.epoch, key.index.into());
                    crop.cut(pixels, shape, &mut rng, out);
                }
            }
            take(group * CUT_AT_ONCE, cut);
        }
    }

    /// Copies a claim's pixels.
    fn copy(&self, claim: &Claim, out: &mut [u8]) {
        let slots = out.chunks_exact_mut(self.values());
        for (slot, pixels) in slots.zip(fetched_ahead(&self.images, claim.indices())) {
            slot.copy_from_slice(pixels);
        }
    }
}

/// Normalises the samples `indices` of `images`, for each channel with `value * scale + offset`.
#[multiversion(targets = "simd")]
fn normalise(
    images: &SmallImages,
    indices: &[u32],
    scale_and_offset: &[(f32, f32)],
    out: &mut [f32],
) {
    let [channels, height, width] = images.shape();
    let plane = height * width;
    let slots = out.chunks_exact_mut(channels * plane);
    for (slot, pixels) in slots.zip(fetched_ahead(images, indices)) {
        normalise_one(pixels, plane, scale_and_offset, slot);
    }
}

/// The same for images whose `pixels` lie behind one another.
#[multiversion(targets = "simd")]
fn normalise_all(
    pixels: &[u8],
    [channels, height, width]: [usize; 3],
    scale_and_offset: &[(f32, f32)],
    out: &mut [f32],
) {
    let plane = height * width;
    let images = pixels.chunks_exact(channels * plane);
    for (slot, pixels) in out.chunks_exact_mut(channels * plane).zip(images) {
        normalise_one(pixels, plane, scale_and_offset, slot);
    }
}

#[inline(always)]
fn normalise_one(pixels: &[u8], plane: usize, scale_and_offset: &[(f32, f32)], slot: &mut [f32]) {
    let planes = slot.chunks_exact_mut(plane).zip(pixels.chunks_exact(plane));
    for ((to, from), (scale, offset)) in planes.zip(scale_and_offset) {
        for (value, pixel) in to.iter_mut().zip(from) {
            *value = f32::from(*pixel) * scale + offset;
        }
    }
}

impl SampleWork for SmallWork {
    /// How many samples were taken; they are where they always were.
    type Encoded = usize;
    type Decoded = usize;
    /// Images that were cut.
    type Scratch = Vec<u8>;

    fn samples(&self) -> usize {
        self.images.len()
    }

    fn sample_bytes(&self) -> usize {
        let value = if self.transform.on_device {
            size_of::<u8>()
        } else {
            size_of::<f32>()
        };
        self.values() * value
    }

    fn claim_size(&self) -> usize {
        CLAIM_SIZE
    }

    fn label(&self, index: u32) -> u32 {
        self.images.label(index as usize)
    }

    fn name(&self, index: u32) -> String {
        self.images.name(index as usize)
    }

    fn pipeline(&self) -> &'static Pipeline {
        self.stages
    }

    fn scratch(&self) -> Vec<u8> {
        Vec::new()
    }

    fn read(&self, claim: &Claim) -> Result<usize, SampleError> {
        Ok(claim.indices().len())
    }

    fn decode(&self, _: &Claim, encoded: usize, _: &mut Vec<u8>) -> Result<usize, SampleError> {
        Ok(encoded)
    }

    fn preprocess(
        &self,
        claim: &Claim,
        _: usize,
        scratch: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<(), SampleError> {
        let values = self.values();
        if self.transform.on_device {
            match &self.crop {
                Some(crop) => self.cut(crop, claim, scratch, |place, cut| {
                    out[place * values..][..cut.len()].copy_from_slice(cut);
                }),
                None => self.copy(claim, out),
            }
            return Ok(());
        }
        let floats: &mut [f32] =
            bytemuck::try_cast_slice_mut(out).map_err(|error| error.to_string())?;
        if let Some(crop) = &self.crop {
            let (shape, scales) = (self.images.shape(), &self.scale_and_offset);
            self.cut(crop, claim, scratch, |place, cut| {
                normalise_all(cut, shape, scales, &mut floats[place * values..]);
            });
            return Ok(());
        }
        normalise(
            &self.images,
            claim.indices(),
            &self.scale_and_offset,
            floats,
        );
        Ok(())
    }

    fn collate(&self, batch: &mut HostBatch) -> Result<(), SampleError> {
        mix(self.mix, self.images.shape(), batch)
    }

    fn encoded_bytes(&self, samples: &usize) -> u64 {
        (samples * self.values()) as u64
    }

    fn decoded_bytes(&self, samples: &usize) -> u64 {
        (samples * self.values()) as u64
    }
}

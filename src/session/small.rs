//! The work of the sample stages on MNIST's and CIFAR's images, which are in memory from the start: they are only
//! normalised, many at a time.

use crate::config::PreprocessStageConfig;
use crate::data::SmallImages;
use crate::data::stages::ahead::fetch_ahead;
use crate::pipeline::{Claim, SampleError, SampleWork};
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
    images: SmallImages,
    /// For each channel, `value * scale + offset` normalises a pixel of 0 to 255.
    scale_and_offset: Vec<(f32, f32)>,
    transform: PreprocessStageConfig,
}

/// How many images ahead memory is asked for them: one takes about as long as memory does.
const FETCH_AHEAD: usize = 2;

/// Normalising one takes less than a microsecond, as much as handing it on.
const CLAIM_SIZE: usize = 256;

impl SmallWork {
    /// The work on `images` that `transform` describes.
    pub fn new(images: SmallImages, transform: &PreprocessStageConfig) -> SmallWork {
        let lists = &transform.transform;
        let both = lists.mean.iter().zip(&lists.std);
        SmallWork {
            images,
            scale_and_offset: both
                .map(|(mean, std)| (1.0 / (255.0 * std), -mean / std))
                .collect(),
            transform: transform.clone(),
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
        let planes = slot.chunks_exact_mut(plane).zip(pixels.chunks_exact(plane));
        for ((to, from), (scale, offset)) in planes.zip(scale_and_offset) {
            for (value, pixel) in to.iter_mut().zip(from) {
                *value = f32::from(*pixel) * scale + offset;
            }
        }
    }
}

impl SampleWork for SmallWork {
    /// How many samples were taken; they are where they always were.
    type Encoded = usize;
    type Decoded = usize;
    type Scratch = ();

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

    fn scratch(&self) {}

    fn read(&self, claim: &Claim) -> Result<usize, SampleError> {
        Ok(claim.indices().len())
    }

    fn decode(&self, _: &Claim, encoded: usize, (): &mut ()) -> Result<usize, SampleError> {
        Ok(encoded)
    }

    fn preprocess(
        &self,
        claim: &Claim,
        _: usize,
        (): &mut (),
        out: &mut [u8],
    ) -> Result<(), SampleError> {
        if self.transform.on_device {
            self.copy(claim, out);
            return Ok(());
        }
        let floats: &mut [f32] =
            bytemuck::try_cast_slice_mut(out).map_err(|error| error.to_string())?;
        normalise(
            &self.images,
            claim.indices(),
            &self.scale_and_offset,
            floats,
        );
        Ok(())
    }

    fn encoded_bytes(&self, samples: &usize) -> u64 {
        (samples * self.values()) as u64
    }

    fn decoded_bytes(&self, samples: &usize) -> u64 {
        (samples * self.values()) as u64
    }
}

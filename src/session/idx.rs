//! The work of the sample stages on MNIST's images, which are in memory from the start: they are only
//! normalised, many at a time.

use crate::config::PreprocessConfig;
use crate::data::IdxImages;
use crate::pipeline::{Claim, SampleError, SampleWork};

/// Samples of an IDX file.
pub struct IdxWork {
    images: IdxImages,
    /// `value * scale + offset` normalises a pixel of 0 to 255.
    scale: f32,
    offset: f32,
}

/// Normalising one takes less than a microsecond, as much as handing it on.
const CLAIM_SIZE: usize = 256;

impl IdxWork {
    /// The work on `images` that `transform` describes.
    pub fn new(images: IdxImages, transform: &PreprocessConfig) -> IdxWork {
        let first = |list: &[f32], otherwise| list.first().copied().unwrap_or(otherwise);
        let (mean, std) = (first(&transform.mean, 0.0), first(&transform.std, 1.0));
        IdxWork {
            images,
            scale: 1.0 / (255.0 * std),
            offset: -mean / std,
        }
    }

    /// The images.
    pub fn images(&self) -> &IdxImages {
        &self.images
    }

    fn pixels(&self) -> usize {
        let (height, width) = self.images.size();
        height * width
    }
}

impl SampleWork for IdxWork {
    /// How many samples were taken; they are where they always were.
    type Encoded = usize;
    type Decoded = usize;
    type Scratch = ();

    fn samples(&self) -> usize {
        self.images.len()
    }

    fn sample_bytes(&self) -> usize {
        self.pixels() * size_of::<f32>()
    }

    fn claim_size(&self) -> usize {
        CLAIM_SIZE
    }

    fn label(&self, index: u32) -> u32 {
        self.images.label(index as usize)
    }

    fn name(&self, index: u32) -> String {
        format!("image {index} of {}", self.images.path().display())
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
        let floats: &mut [f32] =
            bytemuck::try_cast_slice_mut(out).map_err(|error| error.to_string())?;
        for (slot, &index) in floats.chunks_exact_mut(self.pixels()).zip(claim.indices()) {
            for (value, pixel) in slot.iter_mut().zip(self.images.pixels(index as usize)) {
                *value = f32::from(*pixel) * self.scale + self.offset;
            }
        }
        Ok(())
    }

    fn encoded_bytes(&self, samples: &usize) -> u64 {
        (samples * self.pixels()) as u64
    }

    fn decoded_bytes(&self, samples: &usize) -> u64 {
        (samples * self.pixels()) as u64
    }
}

//! The work of the sample stages on an image folder: map, decode, preprocess.

use crate::config::{PipelineConfig, Spatial as SpatialConfig, WorkerMode};
use crate::data::{ImageFolder, sample_rng};
use crate::pipeline::stages::decode::{DecodeLimits, RgbBuffer, decode_rgb};
use crate::pipeline::stages::mapping::MappedFile;
use crate::pipeline::stages::preprocess::{PreprocessError, PreprocessPlan, Preprocessor, Spatial};
use crate::pipeline::{Claim, SampleError, SampleWork};
use std::sync::{Mutex, PoisonError};

/// Samples of an image folder.
pub struct ImageWork {
    folder: ImageFolder,
    plan: PreprocessPlan,
    sample_bytes: usize,
    limits: DecodeLimits,
    spare: Mutex<Spare>,
}

/// Pixel buffers that the preprocess stage has given back to the decode stage.
struct Spare {
    buffers: Vec<RgbBuffer>,
    /// Buffers to make once the size of an image is known. More are made when the queue between the two
    /// stages gets deeper than usual; these keep a short wait of one of them from costing page faults.
    to_make: usize,
}

/// The file shrank while it was mapped.
#[derive(Debug, thiserror::Error)]
#[error("the file shrank while it was being read; leave the data set alone during a run")]
struct Shrank;

impl ImageWork {
    /// The work on `folder` that `pipeline` describes.
    ///
    /// # Errors
    /// A preprocessing plan that cannot be carried out.
    pub fn new(
        folder: ImageFolder,
        pipeline: &PipelineConfig,
    ) -> Result<ImageWork, PreprocessError> {
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
        let plan = PreprocessPlan {
            spatial,
            flip_probability: transform.flip,
            mean: channels("mean", &transform.mean)?,
            std: channels("std", &transform.std)?,
        };
        let sample_bytes = Preprocessor::new(&plan)?.output_len() * size_of::<f32>();
        Ok(ImageWork {
            folder,
            plan,
            sample_bytes,
            limits: DecodeLimits::default(),
            spare: Mutex::new(Spare {
                buffers: Vec::new(),
                to_make: buffers_in_use(pipeline),
            }),
        })
    }

    /// Channels, height and width of a preprocessed sample.
    pub fn shape(&self) -> [usize; 3] {
        let side = self.plan.spatial.output_side() as usize;
        [3, side, side]
    }

    /// The folder.
    pub fn folder(&self) -> &ImageFolder {
        &self.folder
    }

    fn take_buffer(&self) -> RgbBuffer {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.buffers.pop().unwrap_or_default()
    }

    fn give_back(&self, buffer: RgbBuffer) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let more = std::mem::take(&mut spare.to_make).saturating_sub(1);
        spare
            .buffers
            .extend(std::iter::repeat_n(&buffer, more).cloned());
        spare.buffers.push(buffer);
    }
}

/// Red, green and blue.
fn channels(option: &'static str, list: &[f32]) -> Result<[f32; 3], PreprocessError> {
    list.try_into().map_err(|_| PreprocessError::BadPlan {
        option,
        value: format!("{list:?}"),
        want: "a number each for red, green and blue",
    })
}

/// Decoded images in use at a time, as a rule: one for each worker of decode and preprocess, and two on
/// their way.
fn buffers_in_use(pipeline: &PipelineConfig) -> usize {
    match pipeline.workers {
        WorkerMode::WholeBatch { num_workers, .. } => num_workers,
        WorkerMode::PerStage => {
            pipeline.decode.stage.workers + pipeline.preprocess.stage.workers + 2
        }
    }
}

impl SampleWork for ImageWork {
    type Encoded = MappedFile;
    type Decoded = RgbBuffer;
    /// `None` only where the plan is invalid, which `new` has ruled out.
    type Scratch = Option<Preprocessor>;

    fn samples(&self) -> usize {
        self.folder.len()
    }

    fn sample_bytes(&self) -> usize {
        self.sample_bytes
    }

    fn label(&self, index: u32) -> u32 {
        self.folder.label(index as usize)
    }

    fn name(&self, index: u32) -> String {
        self.folder.path(index as usize).display().to_string()
    }

    fn scratch(&self) -> Option<Preprocessor> {
        Preprocessor::new(&self.plan).ok()
    }

    fn read(&self, claim: &Claim) -> Result<MappedFile, SampleError> {
        let file = MappedFile::open(self.folder.path(claim.first().index as usize))?;
        file.touch();
        Ok(file)
    }

    fn decode(
        &self,
        _claim: &Claim,
        encoded: MappedFile,
        _scratch: &mut Option<Preprocessor>,
    ) -> Result<RgbBuffer, SampleError> {
        let mut image = self.take_buffer();
        let decoded = decode_rgb(encoded.bytes(), &self.limits, &mut image);
        // Zeros stood where the file had been: that is the reason, whatever the decoder says.
        let decoded = if encoded.faulted() {
            Err(SampleError::from(Shrank))
        } else {
            decoded.map_err(SampleError::from)
        };
        match decoded {
            Ok(()) => Ok(image),
            Err(error) => {
                self.give_back(image);
                Err(error)
            }
        }
    }

    fn preprocess(
        &self,
        claim: &Claim,
        decoded: RgbBuffer,
        scratch: &mut Option<Preprocessor>,
        out: &mut [u8],
    ) -> Result<(), SampleError> {
        let preprocessor = scratch
            .as_mut()
            .ok_or("the preprocessing plan is invalid")?;
        let key = claim.first();
        let floats = bytemuck::try_cast_slice_mut(out).map_err(|error| error.to_string())?;
        let mut rng = sample_rng(key.seed, key.epoch, u64::from(key.index));
        let done = preprocessor.apply(&decoded, &mut rng, floats);
        self.give_back(decoded);
        Ok(done?)
    }

    fn encoded_bytes(&self, encoded: &MappedFile) -> u64 {
        encoded.bytes().len() as u64
    }

    fn decoded_bytes(&self, decoded: &RgbBuffer) -> u64 {
        decoded.pixels.len() as u64
    }
}

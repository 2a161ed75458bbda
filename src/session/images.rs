//! The work of the sample stages on photographs: read, decode, crop, resize, flip, normalise.

use super::catalog::Catalog;
use super::error::SessionError;
use crate::config::PipelineConfig;
use crate::data::shard::Record;
use crate::data::stages::augment::{Augmentation, BatchMix};
use crate::data::stages::decode::{
    DecodeError, DecodeOptions, Decoder, DeviceDecoder, Input, Rgb, RgbBuffer, View,
};
use crate::data::stages::preprocess::{PreprocessPlan, Preprocessor};
use crate::data::stages::reading::{Access, Encoded, Reader};
use crate::data::stages::spare::Spare;
use crate::pipeline::sampler::{Order, sample_rng};
use crate::pipeline::{Claim, HostBatch, SampleError, SampleKey, SampleWork, StageFailed};
use crate::report::StoreReport;
use crate::timeline::Pipeline;
use crate::train::{Crop, DevicePreprocess, PixelLayout, PixelPlan};
use planning::{buffers_in_use, plan, store_options};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod planning;

pub(super) use planning::{mix, stages};

/// Photographs and what is done to them. A clone shares the open files.
#[derive(Clone)]
pub struct ImageWork {
    catalog: Arc<Catalog>,
    reader: Arc<Reader>,
    /// Samples.
    read_ahead: usize,
    plan: PreprocessPlan,
    stages: &'static Pipeline,
    mix: BatchMix,
    decode: DecodeOptions,
    /// Makes decoders on the device, where that decodes.
    on_device: Option<Arc<NewDecoder>>,
    /// Decode everything, whatever the crop needs.
    whole: bool,
    finish: Finish,
    order: Order,
    /// A bit for each sample whose checksum has been compared.
    checked: Arc<[AtomicU64]>,
    /// Pixels that the preprocess stage has given back to the decode stage. When the queue between the two gets deeper
    /// than usual, more are made.
    spare: Arc<Spare>,
}

/// Makes a decoder on a device for one worker.
pub(super) type NewDecoder = dyn Fn() -> Result<Box<dyn DeviceDecoder>, DecodeError> + Send + Sync;

/// What leaves the preprocess stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    /// Normalised floats, channel by channel.
    Floats,
    /// The cropped and resized picture, 8-bit.
    Cropped,
    /// The picture as it lies in a shard, in the corner of a frame of this width and height.
    Whole { width: u32, height: u32 },
}

/// A sample between decode and preprocess.
pub enum Pixels {
    Decoded(RgbBuffer),
    /// Pixels as they lie in a shard.
    Raw(Encoded, Record),
}

/// A worker's own tools.
pub struct Tools {
    /// `None` until something is decoded.
    decoder: Option<Decoder>,
    preprocessor: Preprocessor,
}

/// Samples that are asked for at once.
const NAMED_AT_ONCE: usize = 64;
/// Samples in a block from which on it is read with the kernel's reading ahead.
const LONG_BLOCK: usize = 16;

impl ImageWork {
    /// The work on `catalog` that `pipeline` describes.
    ///
    /// # Errors
    /// Files that cannot be opened, a decoder this was built without, or a preprocessing plan that cannot be
    /// carried out.
    pub fn new(
        catalog: Catalog,
        pipeline: &PipelineConfig,
        order: Order,
        on_device: Option<Arc<NewDecoder>>,
    ) -> Result<ImageWork, SessionError> {
        let plan = plan(pipeline)?;
        Preprocessor::new(&plan)?;
        let decode = DecodeOptions {
            decoder: pipeline.decode.decoder,
            exif_orientation: pipeline.decode.exif_orientation,
            ..DecodeOptions::default()
        };
        if !catalog.is_raw() && on_device.is_none() {
            Decoder::new(decode)?;
        }
        let access = match order {
            Order::Sequential => Access::Sequential,
            // Neighbours follow each other; what is read ahead at a block's end is wasted.
            Order::Block { block, window: 1 } if block >= LONG_BLOCK => Access::Sequential,
            Order::Random | Order::Block { .. } => Access::Random,
        };
        let finish = match (pipeline.preprocess.on_device, catalog.raw_bound()) {
            (false, _) => Finish::Floats,
            (true, None) => Finish::Cropped,
            // The device does not augment.
            (true, Some(_)) if plan.augmentation != Augmentation::default() => Finish::Cropped,
            // Frames larger than the floats would be are not worth it.
            (true, Some((width, height))) => {
                let side = u64::from(plan.spatial.output_side());
                match u64::from(width) * u64::from(height) <= 4 * side * side {
                    true => Finish::Whole { width, height },
                    false => Finish::Cropped,
                }
            }
        };
        let words = catalog.len().div_ceil(64);
        Ok(ImageWork {
            reader: Arc::new(
                catalog
                    .reader(pipeline.read.mode, access)?
                    .with_store(store_options(pipeline)?),
            ),
            read_ahead: pipeline.read.ahead,
            plan,
            stages: stages(&pipeline.preprocess.transform),
            mix: pipeline.batch.mix,
            decode,
            on_device,
            order,
            whole: pipeline.decode.whole,
            finish,
            checked: std::iter::repeat_with(AtomicU64::default)
                .take(words)
                .collect(),
            spare: Arc::new(Spare::with(buffers_in_use(pipeline))),
            catalog: Arc::new(catalog),
        })
    }

    /// What a user should know of the data before trusting a run on it.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.catalog.warnings();
        warnings.extend(self.catalog.order_warning(self.order));
        warnings
    }

    /// The same photographs as an evaluation takes them: without random crops and flips.
    pub(super) fn for_evaluation(&self) -> ImageWork {
        let reader = self.reader.for_another_order().map(Arc::new);
        ImageWork {
            plan: self.plan.for_evaluation(),
            stages: Pipeline::IMAGES,
            mix: BatchMix::default(),
            reader: reader.unwrap_or_else(|| self.reader.clone()),
            ..self.clone()
        }
    }

    /// Channels, height and width of a sample as the model sees it.
    pub fn shape(&self) -> [usize; 3] {
        let side = self.plan.spatial.output_side() as usize;
        [3, side, side]
    }

    /// Whether all files were read into memory.
    pub(super) fn is_in_memory(&self) -> bool {
        self.reader.is_in_memory()
    }

    /// Whether each sample is fetched from object storage.
    fn reads_from_store(&self) -> bool {
        self.reader.room_for_requests().is_some()
    }

    /// What fetching from object storage took so far; `None` where the data lies elsewhere.
    pub(super) fn store_counts(&self) -> Option<StoreReport> {
        self.reader.store_counts()
    }

    /// The data set.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// What is left for the device to do with the samples, where anything is.
    pub(super) fn on_device(self: &Arc<Self>) -> Option<DevicePreprocess> {
        let side = self.plan.spatial.output_side();
        let (width, height, resize) = match self.finish {
            Finish::Floats => return None,
            Finish::Cropped => (side, side, None),
            Finish::Whole { width, height } => (width, height, Some(side as usize)),
        };
        let work = self.clone();
        Some(DevicePreprocess {
            plan: PixelPlan {
                height: height as usize,
                width: width as usize,
                layout: PixelLayout::Interleaved,
                side: resize,
                mean: self.plan.mean.to_vec(),
                std: self.plan.std.to_vec(),
            },
            crops: Arc::new(move |key| work.crop_on_device(key)),
        })
    }

    /// What was drawn for a sample that is finished on the device.
    fn crop_on_device(&self, key: SampleKey) -> Crop {
        let mut rng = sample_rng(key.seed, key.epoch, key.index.into());
        let record = self.catalog.record(key.index as usize);
        let (Finish::Whole { .. }, Some(record)) = (self.finish, record) else {
            return Crop {
                flip: self.plan.draw_flip(&mut rng),
                ..Crop::default()
            };
        };
        let (width, height) = (record.entry.width, record.entry.height);
        let drawn = self.plan.draw((width, height), &mut rng);
        let sides = [
            drawn.crop.left,
            drawn.crop.top,
            drawn.crop.width,
            drawn.crop.height,
        ];
        let [left, top, wide, high] = sides.map(|side| side as f32);
        Crop {
            left,
            top,
            width: wide,
            height: high,
            seen: if drawn.crop.isolated {
                [left, top, left + wide, top + high]
            } else {
                [0.0, 0.0, width as f32, height as f32]
            },
            flip: drawn.flip,
        }
    }

    /// Asks for samples that come behind `claim`.
    fn look_ahead(&self, claim: &Claim) {
        let mut soon = [0; NAMED_AT_ONCE];
        loop {
            let limits = self.reader.room_for_requests();
            let (distance, room) = limits.unwrap_or((self.read_ahead, NAMED_AT_ONCE));
            let mut count = 0;
            claim.ahead(distance, room.min(NAMED_AT_ONCE), |later| {
                soon[count] = later;
                count += 1;
            });
            self.catalog.ask(&self.reader, &soon[..count]);
            if count < NAMED_AT_ONCE {
                return;
            }
        }
    }

    fn check(&self, encoded: &Encoded, i: usize) -> Result<(), SampleError> {
        let (compared, sample) = (&self.checked[i / 64], 1 << (i % 64));
        let due = compared.load(Ordering::Relaxed) & sample == 0;
        self.catalog.check(&self.reader, encoded, i, due)?;
        if due {
            compared.fetch_or(sample, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A decoder for one worker.
    fn decoder(&self) -> Result<Decoder, DecodeError> {
        match &self.on_device {
            Some(new) => Ok(Decoder::on_device(self.decode, new()?)),
            None => Decoder::new(self.decode),
        }
    }

    fn give_back(&self, buffer: RgbBuffer) {
        let used = buffer.pixels.len();
        self.spare.give_back(buffer.pixels, used);
    }

    /// Decodes what the crop of the sample `key` needs.
    fn decode_image(
        &self,
        key: SampleKey,
        encoded: &Encoded,
        decoder: &mut Decoder,
    ) -> Result<RgbBuffer, SampleError> {
        let input = Input {
            bytes: self.reader.bytes(encoded),
            private: self.reader.is_private(encoded),
        };
        let mut image = RgbBuffer {
            pixels: self.spare.take(),
            ..RgbBuffer::default()
        };
        let region = |width, height| {
            let mut rng = sample_rng(key.seed, key.epoch, key.index.into());
            (!self.whole).then(|| self.plan.region((width, height), &mut rng))
        };
        let decoded = decoder.decode(input, region, &mut image);
        // Zeros stood where the file had been, or the record is damaged: that is the reason, whatever the
        // decoder says.
        let sound = self.check(encoded, key.index as usize);
        match sound.and(decoded.map_err(of_sample)) {
            Ok(()) => Ok(image),
            Err(error) => {
                self.give_back(image);
                Err(error)
            }
        }
    }

    /// Writes a finished sample to `out`.
    fn finish(
        &self,
        key: SampleKey,
        image: Rgb<'_>,
        preprocessor: &mut Preprocessor,
        out: &mut [u8],
    ) -> Result<(), SampleError> {
        let mut rng = sample_rng(key.seed, key.epoch, key.index.into());
        match self.finish {
            Finish::Floats => {
                let floats =
                    bytemuck::try_cast_slice_mut(out).map_err(|error| error.to_string())?;
                preprocessor.apply(image, &mut rng, floats)?;
            }
            Finish::Cropped => preprocessor.apply_crop(image, &mut rng, out)?,
            Finish::Whole { width, .. } => {
                let rows = image.pixels.chunks_exact(image.width as usize * 3);
                for (row, to) in rows.zip(out.chunks_exact_mut(width as usize * 3)) {
                    to[..row.len()].copy_from_slice(row);
                }
            }
        }
        Ok(())
    }
}

/// A device that fails is no sample's fault.
fn of_sample(error: DecodeError) -> SampleError {
    match error {
        DecodeError::Device { .. } => StageFailed(error.to_string()).into(),
        _ => error.into(),
    }
}

impl SampleWork for ImageWork {
    type Encoded = Encoded;
    type Decoded = Pixels;
    /// `None` only where the plan is invalid, which `new` has ruled out.
    type Scratch = Option<Tools>;

    fn samples(&self) -> usize {
        self.catalog.len()
    }

    fn sample_bytes(&self) -> usize {
        let side = self.plan.spatial.output_side() as usize;
        match self.finish {
            Finish::Floats => 3 * side * side * size_of::<f32>(),
            Finish::Cropped => 3 * side * side,
            Finish::Whole { width, height } => 3 * width as usize * height as usize,
        }
    }

    fn label(&self, index: u32) -> u32 {
        self.catalog.label(index as usize)
    }

    fn name(&self, index: u32) -> String {
        self.catalog.name(index as usize)
    }

    fn pipeline(&self) -> &'static Pipeline {
        self.stages
    }

    fn scratch(&self) -> Option<Tools> {
        Some(Tools {
            decoder: None,
            preprocessor: Preprocessor::new(&self.plan).ok()?,
        })
    }

    fn read(&self, claim: &Claim) -> Result<Encoded, SampleError> {
        let sample = claim.first().index as usize;
        if self.reads_from_store() {
            // Its own comes first, and the batch is begun before others name samples of it.
            claim.ahead(0, 0, |_| {});
            self.catalog.ask(&self.reader, &[claim.first().index]);
        }
        self.look_ahead(claim);
        Ok(self.catalog.read(&self.reader, sample)?)
    }

    fn decode(
        &self,
        claim: &Claim,
        encoded: Encoded,
        tools: &mut Option<Tools>,
    ) -> Result<Pixels, SampleError> {
        let key = claim.first();
        if self.catalog.is_raw()
            && let Some(record) = self.catalog.record(key.index as usize)
        {
            self.check(&encoded, key.index as usize)?;
            return Ok(Pixels::Raw(encoded, record));
        }
        let own = &mut tools.as_mut().ok_or("there are no tools")?.decoder;
        let decoder = match own {
            Some(decoder) => decoder,
            None => {
                let new = self.decoder();
                own.insert(new.map_err(|error| StageFailed(error.to_string()))?)
            }
        };
        let decoded = self.decode_image(key, &encoded, decoder);
        self.reader.give_back(encoded);
        decoded.map(Pixels::Decoded)
    }

    fn preprocess(
        &self,
        claim: &Claim,
        decoded: Pixels,
        tools: &mut Option<Tools>,
        out: &mut [u8],
    ) -> Result<(), SampleError> {
        let preprocessor = &mut tools
            .as_mut()
            .ok_or("there is no preprocessor")?
            .preprocessor;
        let key = claim.first();
        match decoded {
            Pixels::Decoded(buffer) => {
                let done = self.finish(key, buffer.as_rgb(), preprocessor, out);
                self.give_back(buffer);
                done
            }
            Pixels::Raw(encoded, record) => {
                let image = Rgb {
                    pixels: self.reader.bytes(&encoded),
                    width: record.entry.width,
                    height: record.entry.height,
                    view: View::whole(record.entry.width, record.entry.height),
                };
                let done = self.finish(key, image, preprocessor, out);
                // The file may have shrunk since it was checked.
                let sound = self.check(&encoded, key.index as usize);
                self.reader.give_back(encoded);
                sound.and(done)
            }
        }
    }

    fn collate(&self, batch: &mut HostBatch) -> Result<(), SampleError> {
        mix(self.mix, self.shape(), batch)
    }

    fn encoded_bytes(&self, encoded: &Encoded) -> u64 {
        self.reader.bytes(encoded).len() as u64
    }

    fn decoded_bytes(&self, decoded: &Pixels) -> u64 {
        match decoded {
            Pixels::Decoded(buffer) => buffer.pixels.len() as u64,
            Pixels::Raw(encoded, _) => self.encoded_bytes(encoded),
        }
    }
}

#[cfg(test)]
mod tests;

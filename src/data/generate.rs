//! Generates a folder of photo-like images, so that a pipeline can be measured where no data set is at hand.
//!
//! Invariants: file bytes depend on the options but never on `jobs`. The folder appears under its name only when
//! complete: images are written to a hidden sibling `.NAME.partial`, which is renamed last; an interrupted run leaves
//! that sibling and the next one with the same options goes on from it. The manifest says which options made a
//! folder, so asking again costs nothing and asking for something else is an error instead of a mixture.
//!
//! May use: `data::{error, folder, painting, sampler}`.

use std::fs;
use std::ops::RangeInclusive;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder};
use jpeg_encoder::{ColorType as JpegColor, SamplingFactor};
use serde::{Deserialize, Serialize};

use super::DataError;
use super::painting::{Canvas, Painter, Subject, span};
use manifest::{Manifest, fill_folder, report_existing};
use stallscope_core::pipeline::sampler::{below, mix_all, sample_rng};

pub(crate) mod manifest;

pub use manifest::{MANIFEST_NAME, made_otherwise};

const GRAIN_DOMAIN: u64 = 0x4752_4149_4e21_2121;
const SIDE_LIMITS_PIXELS: RangeInclusive<u32> = 8..=16_384;

/// File format of generated images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    Jpeg,
    Png,
}

impl ImageFormat {
    /// File name extension, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            ImageFormat::Jpeg => "jpg",
            ImageFormat::Png => "png",
        }
    }
}

/// What to generate, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    pub out: PathBuf,
    pub images: usize,
    pub classes: usize,
    pub format: ImageFormat,
    pub seed: u64,
    pub width_range: RangeInclusive<u32>,
    pub height_range: RangeInclusive<u32>,
    /// Share of images written with a single grey channel.
    pub grey_fraction: f32,
    /// JPEG quality, 1 to 100.
    pub quality: u8,
    /// Threads; has no influence on the bytes.
    pub jobs: usize,
}

impl GenerateOptions {
    /// The defaults: 1,000 JPEGs in 10 classes, about 500x400 and 100 KB each, as ImageNet's are.
    pub fn new(out: impl Into<PathBuf>) -> GenerateOptions {
        GenerateOptions {
            out: out.into(),
            images: 1_000,
            classes: 10,
            format: ImageFormat::Jpeg,
            seed: 0,
            width_range: 400..=600,
            height_range: 300..=500,
            grey_fraction: 0.05,
            quality: 90,
            jobs: std::thread::available_parallelism().map_or(1, |jobs| jobs.get()),
        }
    }
}

/// Whether anything had to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GenerateOutcome {
    Written,
    /// The folder was already there, made with the same options.
    AlreadyThere,
}

/// What a call to [`generate`] left on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GenerateReport {
    pub outcome: GenerateOutcome,
    pub images: u64,
    pub bytes: u64,
}

/// Generates the images `options` describe. `progress` is called from worker threads with the number done so far.
pub fn generate(
    options: &GenerateOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<GenerateReport, DataError> {
    generate_until(options, progress, &|| false)
}

/// The same, until `stop`, which is asked before each image.
///
/// # Errors
/// As [`generate`], and [`DataError::Stopped`].
pub fn generate_until(
    options: &GenerateOptions,
    progress: &(dyn Fn(u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<GenerateReport, DataError> {
    check(options)?;
    let manifest = Manifest::of(options);
    if let Some(report) = report_existing(&options.out, &manifest)? {
        return Ok(report);
    }
    let bytes = fill_folder(&options.out, &manifest, |folder| {
        for class in 0..options.classes {
            let class = folder.join(class_name(class, options.classes));
            fs::create_dir_all(&class).map_err(DataError::io("create", class))?;
        }
        write_images(folder, options, progress, stop)
    })?;
    Ok(GenerateReport {
        outcome: GenerateOutcome::Written,
        images: manifest.images,
        bytes,
    })
}

fn check(options: &GenerateOptions) -> Result<(), DataError> {
    let bad = |option, value: String, want| {
        Err(DataError::BadOption {
            action: "generate images",
            option,
            value,
            want,
        })
    };
    if options.classes == 0 {
        return bad("classes", "0".into(), "at least one class");
    }
    if options.images < options.classes || u32::try_from(options.images).is_err() {
        let want = "at least one image per class, at most 4,294,967,295 in all";
        return bad("images", options.images.to_string(), want);
    }
    let sides = [
        ("width", &options.width_range),
        ("height", &options.height_range),
    ];
    for (option, range) in sides {
        let inside = |side| SIDE_LIMITS_PIXELS.contains(side);
        if range.is_empty() || !inside(range.start()) || !inside(range.end()) {
            let want = "a range within 8..=16384 pixels";
            return bad(option, format!("{range:?}"), want);
        }
    }
    if !(0.0..=1.0).contains(&options.grey_fraction) {
        let value = options.grey_fraction.to_string();
        return bad("grey fraction", value, "a share between 0 and 1");
    }
    if !(1..=100).contains(&options.quality) {
        let value = options.quality.to_string();
        return bad("quality", value, "a JPEG quality from 1 to 100");
    }
    if options.jobs == 0 {
        return bad("jobs", "0".into(), "at least one thread");
    }
    Ok(())
}

fn class_name(class: usize, classes: usize) -> String {
    let digits = (classes - 1).to_string().len().max(2);
    format!("class_{class:0digits$}")
}

fn image_path(folder: &Path, index: usize, options: &GenerateOptions) -> PathBuf {
    let digits = (options.images - 1).to_string().len().max(5);
    let class = class_name(index % options.classes, options.classes);
    folder.join(class).join(format!(
        "img_{index:0digits$}.{}",
        options.format.extension()
    ))
}

/// Writes every image that is not there yet, on `options.jobs` threads; returns the bytes of all of them.
fn write_images(
    folder: &Path,
    options: &GenerateOptions,
    progress: &(dyn Fn(u64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<u64, DataError> {
    let painter = Painter::new(
        mix_all(GRAIN_DOMAIN, &[options.seed]),
        *options.width_range.end() as usize,
    );
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let work = || {
        let mut brush = Brush::new(options, &painter);
        let mut bytes = 0;
        while !is_over.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= options.images as u64 {
                break;
            }
            let written = match stop() {
                true => Err(DataError::Stopped),
                false => brush.write(folder, index as usize),
            };
            bytes += written.inspect_err(|_| is_over.store(true, Ordering::Relaxed))?;
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
        Ok(bytes)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.jobs).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
            .sum()
    })
}

/// One thread's tools.
struct Brush<'a> {
    options: &'a GenerateOptions,
    painter: &'a Painter,
    canvas: Canvas,
    grey: Vec<u8>,
    encoded: Vec<u8>,
}

impl<'a> Brush<'a> {
    fn new(options: &'a GenerateOptions, painter: &'a Painter) -> Brush<'a> {
        Brush {
            options,
            painter,
            canvas: Canvas::default(),
            grey: Vec::new(),
            encoded: Vec::new(),
        }
    }

    /// Writes image `index` unless an interrupted run already did; returns its size in bytes.
    fn write(&mut self, folder: &Path, index: usize) -> Result<u64, DataError> {
        let path = image_path(folder, index, self.options);
        if let Ok(metadata) = fs::metadata(&path) {
            return Ok(metadata.len());
        }
        self.encode(index)?;
        let temporary = path.with_extension("tmp");
        fs::write(&temporary, &self.encoded).map_err(DataError::io("write", &temporary))?;
        fs::rename(&temporary, &path).map_err(DataError::io("rename", &path))?;
        Ok(self.encoded.len() as u64)
    }

    /// Paints and encodes image `index` into `self.encoded`.
    fn encode(&mut self, index: usize) -> Result<(), DataError> {
        let options = self.options;
        let mut rng = sample_rng(options.seed, 0, index as u64);
        let mut side = |range: &RangeInclusive<u32>| {
            range.start() + below(&mut rng, u64::from(range.end() - range.start()) + 1) as u32
        };
        let (width, height) = (side(&options.width_range), side(&options.height_range));
        let is_grey = span(&mut rng, 0.0, 1.0) < options.grey_fraction;
        let subject = Subject {
            width: width as usize,
            height: height as usize,
            class: (index % options.classes) as u64,
            classes: options.classes as u64,
        };
        self.painter.paint(subject, &mut rng, &mut self.canvas);
        let pixels = if is_grey {
            self.grey.clear();
            self.grey
                .extend(self.canvas.pixels.chunks_exact(3).map(luminance));
            &self.grey
        } else {
            &self.canvas.pixels
        };
        self.encoded.clear();
        let size = (width, height);
        let encoded = match options.format {
            ImageFormat::Jpeg => {
                encode_jpeg(pixels, size, is_grey, options.quality, &mut self.encoded)
            }
            ImageFormat::Png => encode_png(pixels, size, is_grey, &mut self.encoded),
        };
        encoded.map_err(|reason| DataError::Encode {
            index: index as u64,
            width,
            height,
            reason,
        })
    }
}

/// Baseline 4:2:0, as most photographs are. `image`'s own encoder writes 4:4:4 only and takes four times as long.
fn encode_jpeg(
    pixels: &[u8],
    size: (u32, u32),
    is_grey: bool,
    quality: u8,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let mut encoder = jpeg_encoder::Encoder::new(out, quality);
    encoder.set_sampling_factor(SamplingFactor::R_4_2_0);
    let color = if is_grey {
        JpegColor::Luma
    } else {
        JpegColor::Rgb
    };
    // Sides are at most 16,384 pixels (`SIDE_LIMITS_PIXELS`), so nothing is cut off.
    encoder
        .encode(pixels, size.0 as u16, size.1 as u16, color)
        .map_err(|error| error.to_string())
}

fn encode_png(
    pixels: &[u8],
    size: (u32, u32),
    is_grey: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let color = if is_grey {
        ExtendedColorType::L8
    } else {
        ExtendedColorType::Rgb8
    };
    PngEncoder::new_with_quality(out, CompressionType::Fast, FilterType::Adaptive)
        .write_image(pixels, size.0, size.1, color)
        .map_err(|error| error.to_string())
}

fn luminance(pixel: &[u8]) -> u8 {
    let weighted = 77 * u32::from(pixel[0]) + 150 * u32::from(pixel[1]) + 29 * u32::from(pixel[2]);
    ((weighted + 128) >> 8) as u8
}

#[cfg(test)]
mod tests;

//! A configuration that a run can be built from: typed, complete and free of contradictions.
//!
//! Invariants (made by `resolve`, so nobody downstream checks them again): every stage has at least
//! one worker, except `copy`, where 0 means "in the trainer's thread"; every queue holds at least
//! one item; sizes, steps and rates are positive; ranges are ordered.
//!
//! May use: `presets`, and the choices of `pipeline` and `data`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::presets;
pub use crate::data::SourceKind;
pub use crate::data::stages::augment::{Augmentation, BatchMix, ColorJitter, RandAugment};
pub use crate::data::stages::decode::DecoderKind as Decoder;
pub use crate::data::stages::reading::ReadMode;
pub use crate::pipeline::OnError;
use crate::pipeline::sampler::Share;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// One experiment, ready to run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Resolved {
    /// The experiment file's stem.
    pub name: String,
    pub pipeline: PipelineConfig,
    pub model: ModelConfig,
    pub device: DeviceConfig,
    /// The figures of the emulated device, where `device` is one.
    pub emulated: Option<EmulatedConfig>,
    /// How a GPU is used and watched, where `device` is one.
    pub gpu: Option<GpuConfig>,
    /// Measured steps, after the warm-up; `None`: as many as `epochs` has.
    pub steps: Option<u64>,
    pub warmup_steps: u64,
    /// The run ends with the step in which it has measured so long; `None`: whatever the steps take.
    pub max_time_ns: Option<u64>,
    /// Passes over the data at most; `None` repeats it for as long as the steps last.
    pub epochs: Option<u64>,
    pub seed: u64,
    /// Which of the processes that train together this one is.
    pub rank: RankConfig,
    pub mode: Mode,
    pub cache: CacheConfig,
    pub trace: TraceConfig,
    /// Off only to measure what the recorder itself costs.
    pub recorder: bool,
    pub generate: Option<GenerateConfig>,
}

impl Resolved {
    /// Whether steps end when all ranks have ended theirs.
    pub fn ranks_meet(&self) -> bool {
        self.rank.all_reduce && self.rank.world_size > 1 && self.mode != Mode::LoaderOnly
    }

    /// How many of an epoch's `samples` this process loads.
    pub fn share_of(&self, samples: usize) -> usize {
        let share = self.rank.share();
        share.samples(samples, self.pipeline.drop_last)
    }
}

/// One of several processes that train together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RankConfig {
    /// Which one, from 0.
    pub index: usize,
    /// How many there are.
    pub world_size: usize,
    /// They average their gradients, or end their steps together.
    pub all_reduce: bool,
}

impl RankConfig {
    /// Its part of each epoch.
    pub fn share(self) -> Share {
        Share {
            rank: self.index,
            of: self.world_size,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Loader, copies and trainer.
    #[default]
    Normal,
    /// The same with the data set's encoded bytes in memory before the run: nothing is fetched.
    Cached,
    /// Copies and trainer, on a few batches that stay in host memory: nothing is loaded.
    HostResident,
    /// The loader alone, its batches thrown away: the rate the trainer could be fed at.
    LoaderOnly,
    /// The trainer alone, on a few batches that stay on the device: the rate the device can train at.
    DeviceOnly,
}

impl Mode {
    /// Batches that [`HostResident`](Mode::HostResident) and [`DeviceOnly`](Mode::DeviceOnly) load and keep,
    /// where an epoch has so many.
    pub const RESIDENT_BATCHES: u64 = 4;

    /// The word for it in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Normal => "normal",
            Mode::Cached => "cached",
            Mode::HostResident => "host-resident",
            Mode::DeviceOnly => "device-only",
            Mode::LoaderOnly => "loader-only",
        }
    }

    /// Warm-up steps that the mode needs: on every batch as it is loaded, and on one that stayed.
    pub(super) fn least_warmup(self) -> u64 {
        match self {
            mode if mode.is_resident() => Mode::RESIDENT_BATCHES + 1,
            _ => 0,
        }
    }

    /// Whether a few batches stay and are trained on again and again.
    pub fn is_resident(self) -> bool {
        matches!(self, Mode::HostResident | Mode::DeviceOnly)
    }
}

/// The stage graph, from the sampler to the device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PipelineConfig {
    pub source: SourceConfig,
    /// The storage to wait for at every read, where it is emulated.
    pub storage: Option<StorageConfig>,
    pub split: SplitConfig,
    pub order: OrderConfig,
    pub drop_last: bool,
    pub ordered: bool,
    pub on_error: OnError,
    /// Workers that each assemble whole batches, 0 in the trainer's thread; `None` where each stage has its own.
    pub num_workers: Option<usize>,
    /// Batches that each of these may have outstanding.
    pub prefetch_factor: usize,
    pub read: ReadConfig,
    pub decode: DecodeConfig,
    pub preprocess: PreprocessStageConfig,
    pub batch: BatchConfig,
    pub copy: StageConfig,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceConfig {
    pub kind: SourceKind,
    /// Relative to the current directory.
    pub path: PathBuf,
}

/// What is held out of the training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SplitConfig {
    pub validation: PartSize,
    pub test: PartSize,
    pub choose: HeldOut,
}

/// A part of all samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PartSize {
    Share(f64),
    Samples(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldOut {
    #[default]
    Random,
    Last,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StageConfig {
    pub workers: usize,
    /// Capacity of the stage's output queue: samples for read, decode and preprocess, batches for
    /// batch and copy.
    pub prefetch: usize,
}

/// In which order an epoch visits the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderConfig {
    /// As they lie.
    Sequential,
    Random,
    /// Blocks of `block` samples in random order, then `window` samples at a time.
    Block {
        block: usize,
        window: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadConfig {
    #[serde(flatten)]
    pub stage: StageConfig,
    pub mode: ReadMode,
    /// Samples.
    pub ahead: usize,
    /// To object storage, of each thread that reads.
    pub requests: usize,
    /// A folder for samples from object storage.
    pub cache: Option<PathBuf>,
    pub cache_bytes: u64,
}

/// What is done to the data's pages in the page cache before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheConfig {
    #[default]
    AsIs,
    /// All are read in.
    Warm,
    /// All are dropped.
    Cold,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DecodeConfig {
    #[serde(flatten)]
    pub stage: StageConfig,
    pub decoder: Decoder,
    /// Decode everything, whatever the crop needs.
    pub whole: bool,
    /// Turn pictures upright as their EXIF block says.
    pub exif_orientation: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PreprocessStageConfig {
    #[serde(flatten)]
    pub stage: StageConfig,
    #[serde(flatten)]
    pub transform: PreprocessConfig,
    /// Copy 8-bit pixels and finish them on the device.
    pub on_device: bool,
}

/// What happens to one decoded sample.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PreprocessConfig {
    pub spatial: Spatial,
    /// Probability of a horizontal flip.
    pub flip: f32,
    /// Pixels around a small image, from which a part is cut at random.
    pub pad: usize,
    pub augmentation: Augmentation,
    /// Per channel (red, green, blue, or grey alone), of values scaled to 0..1.
    pub mean: Vec<f32>,
    pub std: Vec<f32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spatial {
    /// A random part of the image, resized to `size` x `size` pixels.
    RandomResizedCrop {
        size: usize,
        scale: [f32; 2],
        ratio: [f32; 2],
    },
    /// The shorter side resized to `resize` pixels, then the middle `size` x `size`.
    ResizeCenterCrop { resize: usize, size: usize },
    /// The image's own size.
    AsIs,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BatchConfig {
    #[serde(flatten)]
    pub stage: StageConfig,
    /// Samples in a batch.
    pub size: usize,
    #[serde(flatten)]
    pub mix: BatchMix,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelConfig {
    pub kind: ModelKind,
    pub precision: Precision,
    pub optimizer: Optimizer,
    pub learning_rate: f64,
    /// `None`: as many as the source has.
    pub classes: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelKind {
    Linear,
    /// With hidden layers of these sizes.
    Dense {
        hidden: Vec<usize>,
    },
    #[default]
    SmallCnn,
    #[serde(rename = "lenet")]
    LeNet,
    #[serde(rename = "resnet18")]
    ResNet18,
    #[serde(rename = "resnet50")]
    ResNet50,
    #[serde(rename = "resnet200")]
    ResNet200,
    Vgg16,
    Vgg19,
}

/// In which type the model computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    #[default]
    F32,
    Bf16,
    F16,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    Sgd { momentum: f64 },
    Adam,
}

/// A disk or store that takes the time it is told to. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StorageConfig {
    pub preset: &'static str,
    /// Where the preset's figures are from.
    pub source: &'static str,
    /// Whether the configuration gives any figure of its own.
    pub changed: bool,
    pub latency_ns: u64,
    pub seek_ns: u64,
    /// `None` takes no time.
    pub bytes_per_second: Option<u64>,
}

/// An accelerator that takes the time it is told to. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EmulatedConfig {
    /// Where the preset's figures are from.
    pub source: &'static str,
    /// Whether the configuration gives any figure of its own.
    pub changed: bool,
    pub step_base_ns: u64,
    pub step_per_sample_ns: u64,
    pub preprocess_per_sample_ns: u64,
    pub copy_latency_ns: u64,
    /// `None` takes no time.
    pub copy_bytes_per_second: Option<u64>,
    pub launch_ns: u64,
    pub run_ahead: usize,
    /// Memory of the device; `None` is unlimited.
    pub memory_bytes: Option<u64>,
    /// What a step needs of it: this, and so much for each sample.
    pub memory_base_bytes: u64,
    pub memory_per_sample_bytes: u64,
    /// Whether burn trains beside it.
    pub train: bool,
}

/// How a GPU is used and watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GpuConfig {
    pub timeline: GpuTimeline,
    pub run_ahead: usize,
    /// Between two readings of NVML's counters, in nanoseconds; 0 reads none.
    pub sample_period_ns: u64,
    pub copy_pinned: bool,
    pub copy_overlap: bool,
}

/// Who says when a GPU worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuTimeline {
    /// CUPTI where it can be used, events where not.
    #[default]
    Auto,
    Cupti,
    Events,
    Host,
}

/// What executes the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceConfig {
    Cpu,
    /// The CUDA device of this ordinal.
    Cuda(usize),
    /// The emulated accelerator of this name.
    Emulated(&'static str),
}

impl fmt::Display for DeviceConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceConfig::Cpu => formatter.write_str("cpu"),
            DeviceConfig::Cuda(ordinal) => write!(formatter, "cuda:{ordinal}"),
            DeviceConfig::Emulated(name) => write!(formatter, "emulated:{name}"),
        }
    }
}

impl FromStr for DeviceConfig {
    /// Completes "`device` ...".
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceConfig, String> {
        if let Some(name) = text.strip_prefix("emulated") {
            let preset = name.strip_prefix(':').and_then(presets::device);
            let known: Vec<&str> = presets::DEVICES.iter().map(|preset| preset.name).collect();
            return preset
                .map(|preset| DeviceConfig::Emulated(preset.name))
                .ok_or_else(|| {
                    let known = known.join(", ");
                    format!(
                        "expects \"emulated:NAME\", where NAME is one of {known}, found \"{text}\""
                    )
                });
        }
        let ordinal = match text {
            "cpu" => return Ok(DeviceConfig::Cpu),
            "cuda" => Some(0),
            other => other
                .strip_prefix("cuda:")
                .and_then(|digits| digits.parse().ok()),
        };
        let expected = || {
            format!(
                "expects \"cpu\", \"cuda:N\" (\"cuda:0\" is the first) or \"emulated:NAME\", found \"{text}\""
            )
        };
        ordinal.map(DeviceConfig::Cuda).ok_or_else(expected)
    }
}

impl Serialize for DeviceConfig {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceConfig {
    pub enabled: bool,
    /// `None`: `trace.json` in the run's own folder.
    pub path: Option<PathBuf>,
    /// The first step traced, counted from 0, warm-up steps included.
    pub start_step: u64,
    /// How many steps are traced.
    pub steps: u64,
    pub max_bytes: u64,
    pub compress: bool,
    /// Whether threads show what they do to a tool that reads NVTX.
    pub nvtx: bool,
}

/// Data to make when the source's path does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GenerateConfig {
    pub images: usize,
    pub classes: usize,
    pub format: ImageFormat,
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ImageFormat {
    #[default]
    Jpeg,
    Png,
}

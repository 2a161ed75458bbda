//! From settings to [`Resolved`]: reads every key as its type, then checks keys against each other.
//!
//! Invariant: either a complete `Resolved`, or every problem there is.
//!
//! May use: everything in `config`.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::condition::{BLOCK, CENTER, DENSE, SGD, SOURCE_HAS_PHOTOS};
use super::contradictions::contradictions;
use super::error::Problem;
use super::lookup::Lookup;
use super::presets::{self, CUSTOM};
use super::resolved::{
    Augmentation, BatchConfig, BatchMix, ColorJitter, DecodeConfig, Decoder, DeviceConfig,
    EmulatedConfig, GenerateConfig, GpuConfig, Mode, ModelConfig, ModelKind, Optimizer,
    OrderConfig, PartSize, PipelineConfig, PreprocessConfig, PreprocessStageConfig, RandAugment,
    RankConfig, ReadConfig, ReadMode, Resolved, SourceConfig, Spatial, SplitConfig, StageConfig,
    StorageConfig, TraceConfig,
};
use super::schema::{self, Default};
use super::settings::Settings;
use super::value::Value;

/// Measured steps where neither they nor epochs are asked for.
const DEFAULT_STEPS: u64 = 200;

/// Resolves settings, or says all that is wrong with them.
pub(super) fn resolve(settings: &Settings) -> Result<Resolved, Vec<Problem>> {
    let (lookup, refusals) = Lookup::new(settings);
    let mut problems = settings.problems().to_vec();
    problems.extend(refusals);
    problems.extend(missing(&lookup));
    problems.extend(lookup.without_effect());
    let mut reader = Reader {
        lookup: &lookup,
        problems: Vec::new(),
    };
    let resolved = reader.resolved(settings);
    problems.append(&mut reader.problems);
    problems.extend(contradictions(&lookup, &resolved));
    problems.sort_by_key(|problem| problem.reading_order(settings.path()));
    if problems.is_empty() {
        Ok(resolved)
    } else {
        Err(problems)
    }
}

/// Whether any figure was typed.
fn typed_any(figures: [Option<u64>; 3]) -> bool {
    figures.iter().any(Option::is_some)
}

fn missing(lookup: &Lookup) -> Vec<Problem> {
    let required = schema::keys().filter(|key| matches!(key.default, Default::Required));
    let absent =
        required.filter(|key| lookup.value(key.name).is_none() && !lookup.is_refused(key.name));
    let problem = |key: &schema::Key| {
        let what = format!("`{}` is not set, and there is no default", key.name);
        let hint = format!(
            "write it in the pipeline file, or pass --set {}=...",
            key.name
        );
        lookup.problem(key.name, what).hint(hint)
    };
    absent.map(problem).collect()
}

/// Reads checked values as Rust types. A value of the wrong type here is a mistake in the schema,
/// reported like any other rather than by a panic.
struct Reader<'a> {
    lookup: &'a Lookup<'a>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn resolved(&mut self, settings: &Settings) -> Resolved {
        let stem = settings.path().file_stem();
        let device = self.device("device");
        let epochs = self.optional("epochs", Self::whole);
        let steps = self.optional("steps", Self::whole);
        let steps = steps.or(epochs.is_none().then_some(DEFAULT_STEPS));
        let mode: Mode = self.choice("mode");
        Resolved {
            name: stem.map_or_else(String::new, |stem| stem.to_string_lossy().into_owned()),
            pipeline: self.pipeline(mode),
            model: self.model(),
            device,
            emulated: self.emulated(device),
            gpu: self.gpu(device),
            steps,
            warmup_steps: self.whole("warmup_steps").max(mode.least_warmup()),
            max_time_ns: self.optional("max_time", Self::whole),
            epochs,
            seed: self.whole("seed"),
            rank: RankConfig {
                index: self.optional("rank.index", Self::size).unwrap_or(0),
                world_size: self.optional("rank.world_size", Self::size).unwrap_or(1),
                all_reduce: self.flag("rank.all_reduce"),
            },
            mode,
            cache: self.choice("page_cache"),
            trace: self.trace(),
            recorder: self.flag("recorder"),
            generate: self.generate(),
        }
    }

    /// The figures of an emulated device: the preset's, or what was typed instead.
    fn emulated(&mut self, device: DeviceConfig) -> Option<EmulatedConfig> {
        let DeviceConfig::Emulated(name) = device else {
            return None;
        };
        let preset = presets::device(name)?;
        let mut typed = |key| self.optional(key, Self::whole);
        let step_base = typed("emulated.step_base");
        let step_per_sample = typed("emulated.step_per_sample");
        let copy_bandwidth = typed("emulated.copy_bandwidth");
        Some(EmulatedConfig {
            source: preset.source,
            changed: name != CUSTOM && typed_any([step_base, step_per_sample, copy_bandwidth]),
            step_base_ns: step_base.unwrap_or(preset.step_base),
            step_per_sample_ns: step_per_sample.unwrap_or(preset.step_per_sample),
            preprocess_per_sample_ns: self.whole("emulated.preprocess_per_sample"),
            copy_latency_ns: self.whole("emulated.copy_latency"),
            copy_bytes_per_second: copy_bandwidth.or(preset.copy_bandwidth),
            launch_ns: self.whole("emulated.launch"),
            run_ahead: self.size("emulated.run_ahead"),
            memory_bytes: self.optional("emulated.memory", Self::whole),
            memory_base_bytes: self.whole("emulated.memory_base"),
            memory_per_sample_bytes: self.whole("emulated.memory_per_sample"),
            train: self.flag("train"),
        })
    }

    fn gpu(&mut self, device: DeviceConfig) -> Option<GpuConfig> {
        matches!(device, DeviceConfig::Cuda(_)).then(|| GpuConfig {
            timeline: self.choice("gpu.timeline"),
            run_ahead: self.size("gpu.run_ahead"),
            sample_period_ns: self.whole("gpu.sample_period"),
            copy_pinned: self.flag("copy.pinned"),
            copy_overlap: self.flag("copy.overlap"),
        })
    }

    /// The figures of emulated storage, likewise.
    fn storage(&mut self) -> Option<StorageConfig> {
        let Some(Value::Text(name)) = self.lookup.value("storage.emulate") else {
            return None;
        };
        let preset = presets::storage(name)?;
        let mut typed = |key| self.optional(key, Self::whole);
        let latency = typed("storage.latency");
        let seek = typed("storage.seek");
        let bandwidth = typed("storage.bandwidth");
        Some(StorageConfig {
            preset: preset.name,
            source: preset.source,
            changed: preset.name != CUSTOM && typed_any([latency, seek, bandwidth]),
            latency_ns: latency.unwrap_or(preset.latency),
            seek_ns: seek.unwrap_or(preset.seek),
            bytes_per_second: bandwidth.or(preset.bandwidth),
        })
    }

    fn model(&mut self) -> ModelConfig {
        let kind = match self.says("model.kind", DENSE) {
            true => ModelKind::Dense {
                hidden: self.sizes("model.hidden"),
            },
            false => self.choice("model.kind"),
        };
        let optimizer = match self.says("model.optimizer", SGD) {
            true => Optimizer::Sgd {
                momentum: self.number("model.momentum"),
            },
            false => Optimizer::Adam,
        };
        ModelConfig {
            kind,
            precision: self.choice("model.precision"),
            optimizer,
            learning_rate: self.number("model.learning_rate"),
            classes: self.optional("model.classes", Self::size),
        }
    }

    fn pipeline(&mut self, mode: Mode) -> PipelineConfig {
        let cached = mode == Mode::Cached;
        PipelineConfig {
            source: SourceConfig {
                kind: self.choice("source.kind"),
                path: self.optional("source.path", Self::path).unwrap_or_default(),
            },
            // What lies in memory needs no disk.
            storage: self.storage().filter(|_| !cached),
            split: SplitConfig {
                validation: self.part("split.validation"),
                test: self.part("split.test"),
                choose: self.choice("split.choose"),
            },
            order: self.order(),
            drop_last: self.flag("drop_last"),
            ordered: self.flag("ordered"),
            on_error: self.choice("on_error"),
            num_workers: self.num_workers(),
            prefetch_factor: self.size("prefetch_factor"),
            read: ReadConfig {
                stage: self.stage("read.workers", "read.prefetch"),
                mode: match cached {
                    true => ReadMode::Ram,
                    false => self.choice("read.method"),
                },
                ahead: self.size("read.ahead"),
                requests: self.size("read.requests"),
                cache: self.optional("read.cache", Self::path),
                cache_bytes: self.whole("read.cache_size"),
            },
            decode: DecodeConfig {
                stage: self.stage("decode.workers", "decode.prefetch"),
                decoder: match self.optional("decode.decoder", Self::choice) {
                    Some(chosen) => chosen,
                    None if cfg!(feature = "turbojpeg") => Decoder::Turbojpeg,
                    None => Decoder::Image,
                },
                whole: self.says("decode.part", "whole"),
                exif_orientation: self.flag("decode.exif_orientation"),
            },
            preprocess: PreprocessStageConfig {
                stage: self.stage("preprocess.workers", "preprocess.prefetch"),
                transform: self.transform(),
                on_device: self.says("preprocess.on", "device"),
            },
            batch: BatchConfig {
                stage: self.stage("batch.workers", "batch.prefetch"),
                size: self.size("batch.size"),
                mix: BatchMix {
                    mixup: self.number("batch.mixup") as f32,
                    cutmix: self.number("batch.cutmix") as f32,
                },
            },
            copy: self.stage("copy.workers", "copy.prefetch"),
        }
    }

    fn order(&mut self) -> OrderConfig {
        match self.lookup.value("shuffle") {
            Some(Value::Text(word)) if word == BLOCK => OrderConfig::Block {
                block: self.size("shuffle_block"),
                window: self.size("shuffle_window"),
            },
            Some(Value::Bool(false)) => OrderConfig::Sequential,
            _ => OrderConfig::Random,
        }
    }

    fn num_workers(&mut self) -> Option<usize> {
        let counted = matches!(self.lookup.value("num_workers"), Some(Value::Integer(_)));
        counted.then(|| self.size("num_workers"))
    }

    fn stage(&mut self, workers: &'static str, prefetch: &'static str) -> StageConfig {
        StageConfig {
            workers: self.size(workers),
            prefetch: self.size(prefetch),
        }
    }

    fn transform(&mut self) -> PreprocessConfig {
        let size = self.size("preprocess.size");
        let spatial = match self.lookup.value("preprocess.crop") {
            _ if !self.lookup.holds(&SOURCE_HAS_PHOTOS) => Spatial::AsIs,
            Some(Value::Text(crop)) if crop == CENTER => Spatial::ResizeCenterCrop {
                resize: self.size("preprocess.resize"),
                size,
            },
            _ => Spatial::RandomResizedCrop {
                size,
                scale: self.numbers("preprocess.scale"),
                ratio: self.numbers("preprocess.ratio"),
            },
        };
        PreprocessConfig {
            spatial,
            flip: self.number("preprocess.flip") as f32,
            pad: self.size("preprocess.pad"),
            augmentation: self.augmentation(),
            mean: self.list("preprocess.mean"),
            std: self.list("preprocess.std"),
        }
    }

    fn augmentation(&mut self) -> Augmentation {
        let jitter @ [brightness, contrast, saturation, hue] =
            self.numbers("preprocess.color_jitter");
        let operations = self.whole("preprocess.randaugment") as u32;
        Augmentation {
            color_jitter: (jitter != [0.0; 4]).then_some(ColorJitter {
                brightness,
                contrast,
                saturation,
                hue,
            }),
            randaugment: (operations > 0).then_some(RandAugment {
                operations,
                magnitude: self.whole("preprocess.randaugment_magnitude") as u32,
            }),
        }
    }

    fn trace(&mut self) -> TraceConfig {
        TraceConfig {
            enabled: self.flag("trace.enabled"),
            path: self.optional("trace.path", Self::path),
            start_step: self.whole("trace.start_step"),
            steps: self.whole("trace.steps"),
            max_bytes: self.whole("trace.max_bytes"),
            compress: self.flag("trace.compress"),
            nvtx: self.flag("trace.nvtx"),
        }
    }

    fn generate(&mut self) -> Option<GenerateConfig> {
        if !self.lookup.generates() {
            return None;
        }
        Some(GenerateConfig {
            images: self.size("generate.images"),
            classes: self.size("generate.classes"),
            format: self.choice("generate.format"),
            seed: self.whole("generate.seed"),
        })
    }

    /// Reads a key that may be unset.
    fn optional<T>(
        &mut self,
        key: &'static str,
        read: fn(&mut Self, &'static str) -> T,
    ) -> Option<T> {
        self.lookup.value(key).is_some().then(|| read(self, key))
    }

    fn flag(&mut self, key: &'static str) -> bool {
        match self.lookup.value(key) {
            Some(Value::Bool(flag)) => *flag,
            _ => self.misread(key),
        }
    }

    fn whole(&mut self, key: &'static str) -> u64 {
        match self.lookup.value(key) {
            Some(Value::Integer(number)) => number.unsigned_abs(),
            _ => self.misread(key),
        }
    }

    fn size(&mut self, key: &'static str) -> usize {
        usize::try_from(self.whole(key)).unwrap_or(usize::MAX)
    }

    fn number(&mut self, key: &'static str) -> f64 {
        match self.lookup.value(key) {
            Some(Value::Float(number)) => *number,
            _ => self.misread(key),
        }
    }

    fn numbers<const N: usize>(&mut self, key: &'static str) -> [f32; N] {
        let list = self.list(key);
        std::array::from_fn(|place| list.get(place).copied().unwrap_or_default())
    }

    fn part(&mut self, key: &'static str) -> PartSize {
        match self.lookup.value(key) {
            Some(Value::Float(share)) => PartSize::Share(*share),
            _ => PartSize::Samples(self.size(key)),
        }
    }

    fn list(&mut self, key: &'static str) -> Vec<f32> {
        self.items(key, |item| match item {
            Value::Float(number) => Some(*number as f32),
            _ => None,
        })
    }

    fn sizes(&mut self, key: &'static str) -> Vec<usize> {
        self.items(key, |item| match item {
            Value::Integer(size) => usize::try_from(*size).ok(),
            _ => None,
        })
    }

    fn items<T>(&mut self, key: &'static str, read: fn(&Value) -> Option<T>) -> Vec<T> {
        match self.lookup.value(key) {
            Some(Value::List(items)) => items.iter().filter_map(read).collect(),
            _ => self.misread(key),
        }
    }

    fn path(&mut self, key: &'static str) -> PathBuf {
        match self.lookup.value(key) {
            Some(Value::Text(path)) => PathBuf::from(path),
            _ => self.misread(key),
        }
    }

    fn device(&mut self, key: &'static str) -> DeviceConfig {
        let text = self.path(key);
        let parsed = text.to_str().and_then(|text| text.parse().ok());
        parsed.unwrap_or(DeviceConfig::Cpu)
    }

    /// The value that is serialized as the key's word.
    fn choice<T: DeserializeOwned + std::default::Default>(&mut self, key: &'static str) -> T {
        let chosen = match self.lookup.value(key) {
            Some(Value::Text(word)) => {
                T::deserialize(StrDeserializer::<ValueError>::new(word)).ok()
            }
            _ => None,
        };
        chosen.unwrap_or_else(|| self.misread(key))
    }

    /// Whether the key's word is this one.
    fn says(&self, key: &'static str, word: &str) -> bool {
        matches!(self.lookup.value(key), Some(Value::Text(text)) if text == word)
    }

    fn misread<T: std::default::Default>(&mut self, key: &'static str) -> T {
        let what = format!(
            "`{key}`: the schema lets through a value that cannot be read; this is a bug in stallscope"
        );
        self.problems.push(self.lookup.problem(key, what));
        T::default()
    }
}

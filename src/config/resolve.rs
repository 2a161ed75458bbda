//! From settings to [`Resolved`]: reads every key as its type, then checks keys against each other.
//!
//! Invariant: either a complete `Resolved`, or every problem there is.
//!
//! May use: everything in `config`.

use std::path::PathBuf;

use super::condition::{CENTER, DENSE, IDX, IMAGE_FOLDER, SGD, SOURCE_IS_IDX};
use super::error::Problem;
use super::lookup::Lookup;
use super::resolved::{
    BatchConfig, DecodeConfig, Decoder, DeviceConfig, GenerateConfig, HeldOut, ImageFormat, Mode,
    ModelConfig, ModelKind, OnError, Optimizer, PartSize, PipelineConfig, PreprocessConfig,
    PreprocessStageConfig, Resolved, SourceConfig, SourceKind, Spatial, SplitConfig, StageConfig,
    TraceConfig, WorkerMode,
};
use super::schema::{self, Default};
use super::settings::Settings;
use super::value::Value;

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
        Resolved {
            name: stem.map_or_else(String::new, |stem| stem.to_string_lossy().into_owned()),
            pipeline: self.pipeline(),
            model: self.model(),
            device: self.device("device"),
            steps: self.whole("steps"),
            warmup_steps: self.whole("warmup_steps"),
            epochs: self.optional("epochs", Self::whole),
            seed: self.whole("seed"),
            mode: self.choice(
                "mode",
                &[("normal", Mode::Normal), ("loader-only", Mode::LoaderOnly)],
            ),
            trace: self.trace(),
            recorder: self.flag("recorder"),
            generate: self.generate(),
        }
    }

    fn model(&mut self) -> ModelConfig {
        let dense = ModelKind::Dense {
            hidden: self.sizes("model.hidden"),
        };
        let kinds = [
            ("small-cnn", ModelKind::SmallCnn),
            ("linear", ModelKind::Linear),
            (DENSE, dense),
            ("lenet", ModelKind::LeNet),
            ("resnet18", ModelKind::ResNet18),
        ];
        let sgd = Optimizer::Sgd {
            momentum: self.number("model.momentum"),
        };
        ModelConfig {
            kind: self.choice("model.kind", &kinds),
            optimizer: self.choice("model.optimizer", &[(SGD, sgd), ("adam", Optimizer::Adam)]),
            learning_rate: self.number("model.learning_rate"),
            classes: self.optional("model.classes", Self::size),
        }
    }

    fn pipeline(&mut self) -> PipelineConfig {
        PipelineConfig {
            source: SourceConfig {
                kind: self.choice(
                    "source.kind",
                    &[
                        (IMAGE_FOLDER, SourceKind::ImageFolder),
                        (IDX, SourceKind::Idx),
                    ],
                ),
                path: self.optional("source.path", Self::path).unwrap_or_default(),
            },
            split: SplitConfig {
                validation: self.part("split.validation"),
                test: self.part("split.test"),
                choose: self.choice(
                    "split.choose",
                    &[("random", HeldOut::Random), ("last", HeldOut::Last)],
                ),
            },
            shuffle: self.flag("shuffle"),
            drop_last: self.flag("drop_last"),
            ordered: self.flag("ordered"),
            on_error: self.choice(
                "on_error",
                &[("fail", OnError::Fail), ("skip", OnError::Skip)],
            ),
            workers: self.worker_mode(),
            read: self.stage("read.workers", "read.prefetch"),
            decode: DecodeConfig {
                stage: self.stage("decode.workers", "decode.prefetch"),
                decoder: self.choice("decode.decoder", &[("image", Decoder::Image)]),
            },
            preprocess: PreprocessStageConfig {
                stage: self.stage("preprocess.workers", "preprocess.prefetch"),
                transform: self.transform(),
            },
            batch: BatchConfig {
                stage: self.stage("batch.workers", "batch.prefetch"),
                size: self.size("batch.size"),
            },
            copy: self.stage("copy.workers", "copy.prefetch"),
        }
    }

    fn worker_mode(&mut self) -> WorkerMode {
        match self.lookup.value("num_workers") {
            Some(Value::Integer(_)) => WorkerMode::WholeBatch {
                num_workers: self.size("num_workers"),
                prefetch_factor: self.size("prefetch_factor"),
            },
            _ => WorkerMode::PerStage,
        }
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
            _ if self.lookup.holds(&SOURCE_IS_IDX) => Spatial::AsIs,
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
            mean: self.list("preprocess.mean"),
            std: self.list("preprocess.std"),
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
        }
    }

    fn generate(&mut self) -> Option<GenerateConfig> {
        if !self.lookup.generates() {
            return None;
        }
        let formats = [("jpeg", ImageFormat::Jpeg), ("png", ImageFormat::Png)];
        Some(GenerateConfig {
            images: self.size("generate.images"),
            classes: self.size("generate.classes"),
            format: self.choice("generate.format", &formats),
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

    /// The value that a word stands for. The first one stands in where the schema is at fault.
    fn choice<T: Clone, const N: usize>(&mut self, key: &'static str, words: &[(&str, T); N]) -> T {
        let chosen = match self.lookup.value(key) {
            Some(Value::Text(text)) => words.iter().find(|(word, _)| word == text),
            _ => None,
        };
        if chosen.is_none() {
            let () = self.misread(key);
        }
        chosen.unwrap_or(&words[0]).1.clone()
    }

    fn misread<T: std::default::Default>(&mut self, key: &'static str) -> T {
        let what = format!(
            "`{key}`: the schema lets through a value that cannot be read; this is a bug in stallscope"
        );
        self.problems.push(self.lookup.problem(key, what));
        T::default()
    }
}

/// Values that are fine alone but not together.
fn contradictions(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let checks = [crop_ranges, channels, trace_window, classes, enough_images];
    let found = checks.iter().flat_map(|check| check(lookup, resolved));
    found
        .filter(|problem| {
            !problem
                .key
                .as_ref()
                .is_some_and(|key| lookup.is_refused(key))
        })
        .collect()
}

fn crop_ranges(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let mut problems = Vec::new();
    match resolved.pipeline.preprocess.transform.spatial {
        Spatial::RandomResizedCrop { scale, ratio, .. } => {
            for (key, [least, most]) in [("preprocess.scale", scale), ("preprocess.ratio", ratio)] {
                if least > most {
                    let what =
                        format!("`{key}` must not begin above its end, found [{least}, {most}]");
                    problems.push(lookup.problem(key, what).hint(format!("[{most}, {least}]")));
                }
            }
            if scale[1] > 1.0 {
                let what = format!(
                    "`preprocess.scale` is a share of the image, at most 1, found {}",
                    scale[1]
                );
                problems.push(lookup.problem("preprocess.scale", what));
            }
        }
        Spatial::ResizeCenterCrop { resize, size } if resize < size => {
            let key = if lookup.is_typed("preprocess.resize") {
                "preprocess.resize"
            } else {
                "preprocess.size"
            };
            let what = format!(
                "a centre crop of preprocess.size = {size} pixels does not fit into preprocess.resize = {resize}"
            );
            let hint = format!("set preprocess.resize to {size} or more");
            problems.push(lookup.problem(key, what).hint(hint));
        }
        Spatial::ResizeCenterCrop { .. } | Spatial::AsIs => {}
    }
    problems
}

fn channels(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let (channels, what) = match resolved.pipeline.source.kind {
        SourceKind::ImageFolder => (3, "images in red, green and blue"),
        SourceKind::Idx => (1, "grey images"),
    };
    let transform = &resolved.pipeline.preprocess.transform;
    let lists = [
        ("preprocess.mean", &transform.mean),
        ("preprocess.std", &transform.std),
    ];
    let wrong = lists.into_iter().filter(|(_, list)| list.len() != channels);
    let problem = |(key, list): (&str, &Vec<f32>)| {
        let found = list.len();
        let what = format!(
            "`{key}` has {found} numbers, but {} has {what}",
            lookup.cite("source.kind")
        );
        lookup
            .problem(key, what)
            .hint(format!("give {channels}, or leave it out"))
    };
    wrong.map(problem).collect()
}

fn trace_window(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let steps = resolved.warmup_steps.saturating_add(resolved.steps);
    if !resolved.trace.enabled || resolved.trace.start_step < steps {
        return Vec::new();
    }
    let what = format!(
        "`trace.start_step` = {} is past the run's {steps} steps ({} warm-up and {} measured): the trace would be empty",
        resolved.trace.start_step, resolved.warmup_steps, resolved.steps
    );
    vec![
        lookup
            .problem("trace.start_step", what)
            .hint(format!("a start below {steps}, or more steps")),
    ]
}

fn classes(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let (Some(outputs), Some(generate)) = (resolved.model.classes, resolved.generate) else {
        return Vec::new();
    };
    if outputs >= generate.classes {
        return Vec::new();
    }
    let what = format!(
        "`model.classes` = {outputs} is less than {}",
        lookup.cite("generate.classes")
    );
    let hint =
        "leave model.classes out: the model then has as many outputs as the data has classes";
    vec![lookup.problem("model.classes", what).hint(hint)]
}

fn enough_images(lookup: &Lookup, resolved: &Resolved) -> Vec<Problem> {
    let Some(generate) = resolved.generate else {
        return Vec::new();
    };
    let batch = resolved.pipeline.batch.size;
    let mut problems = Vec::new();
    if generate.images < generate.classes {
        let what = format!(
            "`generate.images` = {} leaves some of the {} classes empty",
            generate.images, generate.classes
        );
        problems.push(
            lookup
                .problem("generate.images", what)
                .hint("at least one image a class"),
        );
    }
    if generate.images < batch && resolved.pipeline.drop_last {
        let what = format!(
            "`generate.images` = {} does not fill one batch of {batch}, and drop_last leaves out batches that are not full",
            generate.images
        );
        let hint = "more images, a smaller batch.size, or `drop_last = false`";
        problems.push(lookup.problem("generate.images", what).hint(hint));
    }
    problems
}

//! A training with burn's `Learner`, in the shape of the one in burn's guide, that is profiled with five lines: those
//! that name `profile`.
//!
//!     cargo run --release -p stallscope-burn --example burn_mnist [get|batcher|metric] [MNIST_FOLDER]
//!
//! The first word makes one part of the training slow, which the verdict then names. The folder holds MNIST's IDX files,
//! plain or gzipped; without it the digits are drawn.

use burn::backend::{Autodiff, Flex};
use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::AdamConfig;
use burn::prelude::{Backend, Int, Tensor, TensorData};
use burn::record::CompactRecorder;
use burn::tensor::backend::AutodiffBackend;
use burn::train::metric::{
    AccuracyMetric, LossMetric, Metric, MetricMetadata, MetricName, SerializedEntry,
};
use burn::train::{
    ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep,
};
use stallscope_burn::Profile;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

const SIDE: usize = 28;

/// A digit as MNIST has it.
#[derive(Clone, Debug)]
pub struct Digit {
    image: Vec<u8>,
    label: u8,
}

/// Digits in memory.
#[derive(Clone)]
pub struct Digits {
    digits: Arc<Vec<Digit>>,
    slow: bool,
}

impl Dataset<Digit> for Digits {
    fn get(&self, index: usize) -> Option<Digit> {
        if self.slow {
            sleep(Duration::from_millis(1));
        }
        self.digits.get(index).cloned()
    }

    fn len(&self) -> usize {
        self.digits.len()
    }
}

/// The bytes behind the header of an IDX file, plain or gzipped.
fn idx(folder: &Path, name: &str, header: usize) -> std::io::Result<Vec<u8>> {
    let plain = folder.join(name);
    let mut bytes = Vec::new();
    match File::open(&plain) {
        Ok(mut file) => file.read_to_end(&mut bytes)?,
        Err(_) => {
            let file = File::open(folder.join(format!("{name}.gz")))?;
            flate2::read::GzDecoder::new(file).read_to_end(&mut bytes)?
        }
    };
    Ok(bytes.split_off(header.min(bytes.len())))
}

impl Digits {
    /// The first `count` digits of `part` (`train` or `t10k`) in `folder`.
    pub fn of_mnist(folder: &Path, part: &str, count: usize) -> std::io::Result<Digits> {
        let images = idx(folder, &format!("{part}-images-idx3-ubyte"), 16)?;
        let labels = idx(folder, &format!("{part}-labels-idx1-ubyte"), 8)?;
        let images = images.chunks_exact(SIDE * SIDE).zip(labels).take(count);
        let digits = images.map(|(image, label)| Digit {
            image: image.to_vec(),
            label,
        });
        Ok(Digits::of(digits.collect()))
    }

    /// `count` digits that are bars of ten widths.
    pub fn drawn(count: usize) -> Digits {
        let digit = |index: usize| {
            let label = (index % 10) as u8;
            let ink = |place: usize| match place % SIDE < 2 + 2 * usize::from(label) {
                true => 255 - (index % 50) as u8,
                false => 0,
            };
            let image = (0..SIDE * SIDE).map(ink).collect();
            Digit { image, label }
        };
        Digits::of((0..count).map(digit).collect())
    }

    fn of(digits: Vec<Digit>) -> Digits {
        let digits = Arc::new(digits);
        Digits {
            digits,
            slow: false,
        }
    }
}

/// Digits as the model takes them.
#[derive(Clone, Debug)]
pub struct DigitBatch<B: Backend> {
    /// Batch, height, width.
    images: Tensor<B, 3>,
    targets: Tensor<B, 1, Int>,
}

/// Makes tensors of digits.
#[derive(Clone, Default)]
pub struct DigitBatcher {
    slow: bool,
}

impl<B: Backend> Batcher<B, Digit, DigitBatch<B>> for DigitBatcher {
    fn batch(&self, items: Vec<Digit>, device: &B::Device) -> DigitBatch<B> {
        if self.slow {
            sleep(Duration::from_millis(64));
        }
        let pixels = items.iter().flat_map(|digit| &digit.image);
        let pixels: Vec<f32> = pixels
            .map(|value| (f32::from(*value) / 255.0 - 0.1307) / 0.3081)
            .collect();
        let labels: Vec<i32> = items.iter().map(|digit| i32::from(digit.label)).collect();
        DigitBatch {
            images: Tensor::from_data(TensorData::new(pixels, [items.len(), SIDE, SIDE]), device),
            targets: Tensor::from_data(TensorData::new(labels, [items.len()]), device),
        }
    }
}

/// Two convolutions and a linear layer.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    first: Conv2d<B>,
    second: Conv2d<B>,
    pool: AdaptiveAvgPool2d,
    classes: Linear<B>,
    activation: Relu,
}

impl<B: Backend> Model<B> {
    fn new(device: &B::Device) -> Model<B> {
        Model {
            first: Conv2dConfig::new([1, 4], [3, 3])
                .with_stride([2, 2])
                .init(device),
            second: Conv2dConfig::new([4, 8], [3, 3])
                .with_stride([2, 2])
                .init(device),
            pool: AdaptiveAvgPool2dConfig::new([4, 4]).init(),
            classes: LinearConfig::new(8 * 4 * 4, 10).init(device),
            activation: Relu::new(),
        }
    }

    fn classify(&self, batch: DigitBatch<B>) -> ClassificationOutput<B> {
        let [size, height, width] = batch.images.dims();
        let images = batch.images.reshape([size, 1, height, width]);
        let features = self.activation.forward(self.first.forward(images));
        let features = self.activation.forward(self.second.forward(features));
        let features = self.pool.forward(features).flatten(1, 3);
        let output = self.classes.forward(features);
        let loss = CrossEntropyLossConfig::new().init(&output.device());
        let loss = loss.forward(output.clone(), batch.targets.clone());
        ClassificationOutput::new(loss, output, batch.targets)
    }
}

impl<B: AutodiffBackend> TrainStep for Model<B> {
    type Input = DigitBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: DigitBatch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for Model<B> {
    type Input = DigitBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: DigitBatch<B>) -> ClassificationOutput<B> {
        self.classify(batch)
    }
}

/// A metric that takes its time.
#[derive(Clone)]
struct Thorough {
    slow: bool,
}

impl Metric for Thorough {
    type Input = ();

    fn name(&self) -> MetricName {
        Arc::new("Thorough".to_owned())
    }

    fn update(&mut self, (): &(), _: &MetricMetadata) -> SerializedEntry {
        if self.slow {
            sleep(Duration::from_millis(64));
        }
        SerializedEntry::new("done".to_owned(), "1".to_owned())
    }

    fn clear(&mut self) {}
}

/// Trains on `digits` for two epochs; `slow` names the part that is slow.
pub fn train(digits: Digits, held_out: Digits, slow: &str, profile: &Profile) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Default::default();
    let batcher = DigitBatcher {
        slow: slow == "batcher",
    };
    let digits = Digits {
        slow: slow == "get",
        ..digits
    };
    let dataloader_train = DataLoaderBuilder::new(profile.batcher(batcher.clone()))
        .batch_size(64)
        .shuffle(42)
        .num_workers(1)
        .build(profile.dataset("get", digits));
    let dataloader_train = profile.loader(dataloader_train);
    let dataloader_valid = DataLoaderBuilder::new(batcher)
        .batch_size(64)
        .num_workers(1)
        .build(held_out);
    let training = SupervisedTraining::new(folder.path(), dataloader_train, dataloader_valid)
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .metric_train(Thorough {
            slow: slow == "metric",
        })
        .metric_train_numeric(profile.metric())
        .with_file_checkpointer(CompactRecorder::new())
        .num_epochs(2);
    let model = Model::<Autodiff<Flex>>::new(&device);
    let optimizer = profile.optimizer(AdamConfig::new().init());
    training.launch(Learner::new(model, optimizer, 1e-3));
}

#[allow(dead_code)]
fn main() {
    let mut words = std::env::args().skip(1);
    let slow = words.next().unwrap_or_default();
    if !["", "get", "batcher", "metric"].contains(&slow.as_str()) {
        eprintln!("cannot make `{slow}` slow\n  try: get, batcher or metric");
        std::process::exit(2);
    }
    let folder = words.next();
    let digits = |part, count| match &folder {
        Some(folder) => Digits::of_mnist(Path::new(folder), part, count).unwrap_or_else(|error| {
            eprintln!("cannot read the {part} files of MNIST in {folder}: {error}");
            eprintln!("  try: a folder with its IDX files, or none");
            std::process::exit(1)
        }),
        None => Digits::drawn(count),
    };
    let profile = Profile::new();
    train(digits("train", 2_048), digits("t10k", 128), &slow, &profile);
    // The report is printed when the profile is dropped.
}

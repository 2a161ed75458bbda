//! burn's `Learner` on JPEG files, which our loader reads, decodes and batches.
//!
//!     cargo run --release -p stallscope-burn --example burn_loader [compare [PAIRS]]
//!
//! The files are made in a temporary folder. The report says which stage keeps the training waiting. With `compare`
//! burn's own loader and ours train in turns, with two workers each.

use burn::backend::{Autodiff, Flex};
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::Dataset;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::prelude::{Backend, Int, Tensor, TensorData};
use burn::tensor::backend::AutodiffBackend;
use burn::train::metric::LossMetric;
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};
use burn::train::{
    ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep,
};
use image::codecs::jpeg::JpegEncoder;
use image::imageops::{FilterType, resize};
use image::{ExtendedColorType, RgbImage};
use stallscope_burn::{EngineLoader, EngineLoaderBuilder};
use stallscope_core::report::render;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const FILES: usize = 256;
const SIDE: u32 = 32;
const BATCH: usize = 16;
const CLASSES: usize = 10;

pub type Train = Autodiff<Flex>;

/// A decoded file.
#[derive(Clone, Debug)]
pub struct Photo {
    index: usize,
    image: RgbImage,
}

/// An epoch of `samples` samples, of files in a folder.
#[derive(Clone)]
pub struct Photos {
    pub folder: PathBuf,
    pub samples: usize,
}

impl Photos {
    fn file(folder: &Path, index: usize) -> PathBuf {
        folder.join(format!("{}.jpg", index % FILES))
    }

    /// Makes the files.
    pub fn write(folder: &Path) -> Result<(), Box<dyn Error>> {
        const WIDTH: u32 = 320;
        const HEIGHT: u32 = 240;
        for index in 0..FILES as u32 {
            let value = |place: u32| (place * (3 + index % 7) / 4 + (place * place) % 23) as u8;
            let pixels: Vec<u8> = (0..WIDTH * HEIGHT * 3).map(value).collect();
            let file = File::create(Photos::file(folder, index as usize))?;
            JpegEncoder::new_with_quality(BufWriter::new(file), 85).encode(
                &pixels,
                WIDTH,
                HEIGHT,
                ExtendedColorType::Rgb8,
            )?;
        }
        Ok(())
    }
}

impl Dataset<Photo> for Photos {
    fn get(&self, index: usize) -> Option<Photo> {
        let bytes = std::fs::read(Photos::file(&self.folder, index)).ok()?;
        let image = image::load_from_memory(&bytes).ok()?.into_rgb8();
        Some(Photo { index, image })
    }

    fn len(&self) -> usize {
        self.samples
    }
}

#[derive(Clone, Debug)]
pub struct PhotoBatch<B: Backend> {
    /// Batch, height, width, channel.
    images: Tensor<B, 4>,
    targets: Tensor<B, 1, Int>,
    /// Which samples these are.
    indices: Vec<usize>,
}

/// Resizes and normalises.
#[derive(Clone)]
struct PhotoBatcher;

impl<B: Backend> Batcher<B, Photo, PhotoBatch<B>> for PhotoBatcher {
    fn batch(&self, items: Vec<Photo>, device: &B::Device) -> PhotoBatch<B> {
        let small = |photo: &Photo| resize(&photo.image, SIDE, SIDE, FilterType::Triangle);
        let pixels = items.iter().flat_map(|photo| small(photo).into_raw());
        let pixels: Vec<f32> = pixels
            .map(|value| (f32::from(value) / 255.0 - 0.45) / 0.225)
            .collect();
        let indices: Vec<usize> = items.iter().map(|photo| photo.index).collect();
        let class = |index: &usize| (index % CLASSES) as i32;
        let classes: Vec<i32> = indices.iter().map(class).collect();
        let (count, side) = (items.len(), SIDE as usize);
        PhotoBatch {
            images: Tensor::from_data(TensorData::new(pixels, [count, side, side, 3]), device),
            targets: Tensor::from_data(TensorData::new(classes, [count]), device),
            indices,
        }
    }
}

/// So small that only the loader takes time.
#[derive(Module, Debug)]
struct Model<B: Backend> {
    pool: AdaptiveAvgPool2d,
    classes: Linear<B>,
}

impl<B: Backend> Model<B> {
    fn new(device: &B::Device) -> Model<B> {
        Model {
            pool: AdaptiveAvgPool2dConfig::new([4, 4]).init(),
            classes: LinearConfig::new(3 * 4 * 4, CLASSES).init(device),
        }
    }

    fn classify(&self, batch: PhotoBatch<B>) -> ClassificationOutput<B> {
        let images = batch.images.permute([0, 3, 1, 2]);
        let features = self.pool.forward(images).flatten(1, 3);
        let output = self.classes.forward(features);
        let loss = CrossEntropyLossConfig::new().init(&output.device());
        let loss = loss.forward(output.clone(), batch.targets.clone());
        ClassificationOutput::new(loss, output, batch.targets)
    }
}

impl<B: AutodiffBackend> TrainStep for Model<B> {
    type Input = PhotoBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: PhotoBatch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for Model<B> {
    type Input = PhotoBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: PhotoBatch<B>) -> ClassificationOutput<B> {
        self.classify(batch)
    }
}

/// Shows nothing of a training.
struct Silent;

impl MetricsRendererTraining for Silent {
    fn update_train(&mut self, _: MetricState) {}
    fn update_valid(&mut self, _: MetricState) {}
    fn render_train(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {}
    fn render_valid(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {}
}

impl MetricsRendererEvaluation for Silent {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}
    fn render_test(&mut self, _: EvaluationProgress, _: Vec<ProgressType>) {}
}

impl MetricsRenderer for Silent {
    fn manual_close(&mut self) {}
    fn register_metric(&mut self, _: burn::train::metric::MetricDefinition) {}
}

pub type Loader<B> = Arc<dyn DataLoader<B, PhotoBatch<B>>>;
pub type Ours = EngineLoader<Train, Photo, PhotoBatch<Train>>;

/// burn's own loader.
fn burns<B: Backend>(photos: Photos, workers: usize) -> Loader<B> {
    DataLoaderBuilder::new(PhotoBatcher)
        .batch_size(BATCH)
        .shuffle(42)
        .num_workers(workers)
        .build(photos)
}

/// The same on our engine.
pub fn ours(photos: Photos, workers: usize) -> Result<Arc<Ours>, Box<dyn Error>> {
    let builder = EngineLoaderBuilder::new(PhotoBatcher)
        .batch_size(BATCH)
        .shuffle(42)
        .num_workers(workers);
    Ok(builder.build(photos)?)
}

/// Trains, and validates with one batch after each epoch; returns samples/s over all of it.
pub fn train(
    loader: Loader<Train>,
    held_out: Photos,
    epochs: usize,
) -> Result<f64, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let samples = loader.num_items() * epochs;
    let training = SupervisedTraining::new(folder.path(), loader, burns(held_out, 1))
        .metric_train_numeric(LossMetric::new())
        .renderer(Silent)
        .with_application_logger(None)
        .num_epochs(epochs);
    let model = Model::<Train>::new(&Default::default());
    let began = Instant::now();
    training.launch(Learner::new(model, AdamConfig::new().init(), 1e-3));
    Ok(samples as f64 / began.elapsed().as_secs_f64())
}

/// The samples of the first epoch, in the order in which they are trained on.
fn order(loader: &dyn DataLoader<Train, PhotoBatch<Train>>) -> Vec<usize> {
    loader.iter().flat_map(|batch| batch.indices).collect()
}

/// The middle of `values` and their range.
fn summary(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    let middle = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
    format!("{middle:.digits$} ({least:.digits$} to {most:.digits$})")
}

fn compare(photos: &Photos, pairs: usize) -> Result<(), Box<dyn Error>> {
    let of = |samples| Photos {
        samples,
        ..photos.clone()
    };
    let expected = order(&*ours(of(128), 1)?);
    for workers in [2, 4] {
        let same = |ours: bool| if ours { "the same" } else { "another" };
        let our = order(&*ours(of(128), workers)?) == expected;
        let own = order(&*burns(of(128), workers)) == order(&*burns(of(128), 1));
        println!(
            "order with {workers} workers and with 1: ours {}, burn's {}",
            same(our),
            same(own)
        );
    }
    println!("samples/s in burn's Learner, 2 workers: median (range) of {pairs} pairs in turns");
    for (samples, epochs) in [(64, 16), (256, 4), (1_024, 1), (1_024, 4)] {
        let (mut rates, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        for pair in 0..pairs {
            let mut rate = [0.0; 2];
            for turn in [pair % 2, 1 - pair % 2] {
                let loader: Loader<Train> = match turn {
                    0 => burns(of(samples), 2),
                    _ => ours(of(samples), 2)?,
                };
                rate[turn] = train(loader, of(BATCH), epochs)?;
                rates[turn].push(rate[turn]);
            }
            ratios.push(rate[1] / rate[0]);
        }
        let [burns, ours] = rates.map(|rates| summary(rates, 0));
        let ratio = summary(ratios, 3);
        println!("{epochs:2} epochs of {samples:4}: burn {burns}, ours {ours}, ratio {ratio}");
    }
    Ok(())
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let folder = tempfile::tempdir()?;
    Photos::write(folder.path())?;
    let photos = Photos {
        folder: folder.path().to_owned(),
        samples: FILES,
    };
    if words.next().as_deref() == Some("compare") {
        let pairs = words.next().map_or(Ok(15), |pairs| pairs.parse())?;
        return compare(&photos, pairs);
    }
    let held_out = Photos {
        samples: BATCH,
        ..photos.clone()
    };
    let loader = ours(photos, 2)?;
    let rate = train(loader.clone(), held_out, 4)?;
    if let Some(report) = loader.finish() {
        println!("{}", render(&report));
    }
    println!("{rate:.0} samples/s with validation");
    Ok(())
}

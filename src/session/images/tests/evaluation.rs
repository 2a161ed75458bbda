//! Evaluation draws nothing at random, whatever the training does, and tells what it could not load.

use super::*;
use crate::data::stages::decode::RgbBuffer;
use crate::report::{Evaluation, Training};
use crate::session::evaluation::HeldOut;
use crate::session::run::{RunOptions, Session};
use crate::session::trainee::{Ended, Trainee};
use crate::timeline::Nanos;
use crate::train::{BurnTrainer, DeviceWait};
use fast_image_resize::images::Image;
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

/// 64 / 0.875, rounded.
const RESIZE: u32 = 73;
const SIDE: usize = 64;

/// Where pictures lie, and how they are loaded.
const LOADED: [(&str, &str, &[&str]); 5] = [
    ("image-folder", "folder", &["decode.part=whole"]),
    ("image-folder", "folder", &["decode.part=crop"]),
    ("shard", "encoded", &[]),
    ("shard", "raw", &[]),
    ("webdataset", "tar", &["preprocess.crop=random-resized"]),
];

fn evaluated(place: &Place, kind: &str, name: &str, sets: &[&str]) -> Arc<ImageWork> {
    Arc::new(place.work(kind, name, sets).for_evaluation())
}

#[test]
fn training_crops_become_a_resize_and_its_centre() {
    let place = Place::new();
    let centre = [
        "preprocess.crop=center",
        "preprocess.resize=73",
        "preprocess.flip=0",
    ];
    for (kind, name, sets) in LOADED {
        let reference = batches(&place.work(kind, name, &centre), Order::Sequential);
        let found = batches(&evaluated(&place, kind, name, sets), Order::Sequential);
        assert!(bytes(&found) == bytes(&reference), "{kind}, {sets:?}");
        let (first, second) = found.split_at(found.len() / 2);
        assert!(bytes(first) == bytes(second), "{kind}: another epoch");
    }
    // What the configuration says of a centre crop holds for evaluation, too.
    let own = [
        "preprocess.crop=center",
        "preprocess.resize=90",
        "preprocess.flip=1",
    ];
    let found = batches(
        &evaluated(&place, "image-folder", "folder", &own),
        Order::Random,
    );
    let own = [own[0], own[1], "preprocess.flip=0"];
    let reference = batches(&place.work("image-folder", "folder", &own), Order::Random);
    assert!(bytes(&found) == bytes(&reference));
}

/// The whole picture resized so that its shorter side is 73, then its centre: red, green and blue from 0 to 255.
fn resized_then_cropped(image: &RgbBuffer) -> Vec<u8> {
    let (width, height) = (image.width, image.height);
    let bytes = image.as_rgb().view.pixel_bytes as usize;
    let rgb = image
        .pixels
        .chunks(bytes)
        .flat_map(|pixel| pixel[..3].to_vec());
    let source = Image::from_vec_u8(width, height, rgb.collect(), PixelType::U8x3).unwrap();
    let scaled = |side: u32| side * RESIZE / width.min(height);
    let mut target = Image::new(scaled(width), scaled(height), PixelType::U8x3);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    Resizer::new()
        .resize(&source, &mut target, &options)
        .unwrap();
    let start = |side: u32| (f64::from(side - SIDE as u32) / 2.0).round_ties_even() as usize;
    let (left, top) = (start(target.width()), start(target.height()));
    let rows = target.buffer().chunks(target.width() as usize * 3);
    let rows = rows.skip(top).take(SIDE);
    rows.flat_map(|row| row[left * 3..(left + SIDE) * 3].to_vec())
        .collect()
}

#[test]
fn the_pixels_of_an_evaluation_are_those_of_a_resize_and_a_crop() {
    let place = Place::new();
    let sets = ["preprocess.mean=[0, 0, 0]", "preprocess.std=[1, 1, 1]"];
    let work = evaluated(&place, "image-folder", "folder", &sets);
    let found = batches(&work, Order::Sequential);
    let mut decoder = Decoder::new(DecodeOptions::default()).unwrap();
    let Catalog::Folder(folder) = work.catalog() else {
        unreachable!();
    };
    let samples = found.iter().take(3).flat_map(|batch| {
        let floats = batch.floats().unwrap().chunks(3 * SIDE * SIDE);
        floats.zip(&batch.samples)
    });
    for (planes, sample) in samples {
        let bytes = fs::read(folder.path(*sample as usize)).unwrap();
        let input = Input {
            bytes: &bytes,
            private: true,
        };
        let mut image = RgbBuffer::default();
        decoder.decode(input, |_, _| None, &mut image).unwrap();
        for (at, wanted) in resized_then_cropped(&image).into_iter().enumerate() {
            let (pixel, channel) = (at / 3, at % 3);
            let found = 255.0 * planes[channel * SIDE * SIDE + pixel];
            // The one rounds where the other does not yet.
            assert!(
                (found - f32::from(wanted)).abs() <= 1.5,
                "{sample}, {at}: {found}, {wanted}"
            );
        }
    }
}

#[test]
fn a_device_crops_the_centre_too() {
    let place = Place::new();
    for (kind, name) in [("image-folder", "folder"), ("shard", "raw")] {
        let host = batches(&evaluated(&place, kind, name, &[]), Order::Random);
        let device = on_the_device(&evaluated(&place, kind, name, &["preprocess.on=device"]));
        let (most, mean) = difference(&host, &device);
        assert!(most < 0.04 && mean < 0.006, "{kind}: {most}, {mean}");
    }
}

fn trainer(work: &Arc<ImageWork>) -> BurnTrainer {
    let spec = ModelSpec {
        architecture: Architecture::Linear,
        input: work.shape(),
        classes: 3,
        optimizer: OptimizerSpec::Sgd { momentum: 0.0 },
        learning_rate: 0.1,
        precision: Precision::F32,
        seed: 0,
    };
    on_cpu(&spec, work.on_device()).unwrap()
}

fn held_out(work: &ImageWork) -> HeldOut<ImageWork> {
    let work = Arc::new(work.for_evaluation());
    HeldOut {
        part: "test",
        pixels: work.on_device(),
        samples: (0..IMAGES as u32).collect(),
        work,
    }
}

/// `work` evaluated by a run with this seed.
fn evaluation(work: &Arc<ImageWork>, seed: u64) -> Evaluation {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
    let stop = StopSignal::new(clock.clone());
    let plan = Plan {
        seed,
        on_error: OnError::Skip,
        ..plan_of(Order::Random)
    };
    let evaluated = held_out(work).evaluate(
        &plan,
        &mut trainer(work),
        &clock,
        &stop,
        &DeviceWait::default(),
    );
    evaluated.unwrap().unwrap()
}

#[test]
fn two_evaluations_are_the_same_whatever_the_seed() {
    let place = Place::new();
    for (kind, name) in [("image-folder", "folder"), ("shard", "raw")] {
        for on in ["host", "device"] {
            let on = format!("preprocess.on={on}");
            let work = place.work(kind, name, &[&on, "preprocess.flip=0.5"]);
            let [one, other] = [1, 2].map(|seed| evaluation(&work, seed).score);
            assert_eq!(one.samples, IMAGES as u64);
            assert_eq!(one, other, "{kind}, {on}");
        }
    }
}

#[test]
fn skips_of_an_evaluation_are_in_its_report() {
    let place = Place::new();
    let work = place.work("image-folder", "folder", &["read.method=pread"]);
    let Catalog::Folder(folder) = work.catalog() else {
        unreachable!();
    };
    fs::write(folder.path(4), b"no picture").unwrap();
    let found = evaluation(&work, 1);
    assert_eq!(found.score.samples, IMAGES as u64 - 1);
    assert_eq!(found.skipped.count, 1);
    assert_eq!(found.skipped.listed[0].sample, 4);
}

/// A run that was stopped in its evaluation is interrupted, though its steps were all done.
#[test]
fn a_stop_in_the_evaluation_interrupts_the_run() {
    let place = Place::new();
    let config = place.resolved("image-folder", "folder", &["split.validation=10"]);
    let options = RunOptions {
        run_dir: place.path("run"),
        on_progress: Box::new(|_, _| {}),
        on_wait: Box::new(|_| {}),
        settings: Vec::new(),
        evaluate: true,
        on_hang: None,
    };
    let session = Session::open(config, options).unwrap();
    let work = place.work("image-folder", "folder", &[]);
    let plan = plan_of(Order::Random);
    let trainee = Trainee {
        plan: &plan,
        session: &session,
        recorder: &Recorder::off(),
        training: Arc::new(Mutex::new(Training::default())),
        device_wait: Arc::default(),
    };
    let held_out = [held_out(&work)];
    let ended = || trainee.evaluated(Ended::of(Ok(5)), &held_out, &mut trainer(&work));
    let whole = ended();
    assert!(!whole.stopped && whole.evaluation_cpu > Nanos::ZERO);
    session.stop.stop();
    assert!(ended().stopped);
    let evaluations = &trainee.training.lock().unwrap().evaluations;
    assert_eq!(evaluations.len(), 1, "none that was cut short");
}

//! MNIST's files through the whole program: every model trains on them, and what is wrong with them or with
//! the model is said.

mod place;
mod program;

use place::Place;
use stallscope::report::{Report, Score};
use stallscope::timeline::Nanos;
use std::fs;
use std::path::Path;

fn last_loss(report: &Report) -> f64 {
    report.training.last_loss.unwrap()
}

#[test]
fn every_model_learns_what_is_easy() {
    let place = Place::with_images(230);
    for (model, rate) in [
        ("linear", "0.01"),
        ("dense", "0.05"),
        ("lenet", "0.05"),
        ("small-cnn", "0.1"),
    ] {
        let rate = format!("model.learning_rate={rate}");
        let kind = format!("model.kind={model}");
        let report = place.report(&[&kind, &rate, "steps=60", "model.momentum=0.9"]);
        let first = report.training.first_loss.unwrap();
        let last = last_loss(&report);
        assert!(last < 0.7 * first, "{model}: {first} -> {last}");
        assert_eq!(report.samples, 60 * 46);
    }
    let report = place.report(&[
        "model.kind=linear",
        "model.optimizer=adam",
        "model.learning_rate=0.002",
    ]);
    assert!(last_loss(&report) < 1.5, "{report:?}");
}

#[test]
fn both_layouts_load_the_same_and_count_every_sample() {
    let place = Place::with_images(230);
    let model = ["model.kind=linear", "trace.steps=10", "steps=100"];
    let losses = [
        &["num_workers=2"][..],
        &["num_workers=0"],
        &["preprocess.workers=2", "preprocess.prefetch=300"],
        &[
            "read.prefetch=1",
            "decode.prefetch=1",
            "preprocess.prefetch=1",
        ],
    ]
    .map(|sets| {
        let report = place.report(&[&model[..], sets].concat());
        let sum: Nanos = report.idle_causes.iter().map(|cause| cause.ns).sum();
        assert_eq!(sum, report.device.as_ref().unwrap().idle_ns);
        let mut stages = report.stages.iter();
        let preprocess = stages.find(|row| row.stage.name() == "preprocess").unwrap();
        // Of 4,600 samples some batches were ahead when the window began.
        assert!(
            (3_000..=5_500).contains(&preprocess.items),
            "{preprocess:?}"
        );
        last_loss(&report)
    });
    assert!(losses.iter().all(|loss| *loss == losses[0]), "{losses:?}");
}

#[test]
fn what_is_held_out_is_evaluated_after_the_training() {
    let place = Place::with_images(230);
    let sets = [
        "split.validation=0.2",
        "split.test=24",
        "split.choose=last",
        "model.kind=dense",
        "model.hidden=[20]",
        "model.learning_rate=0.1",
        "steps=200",
    ];
    let report = place.report(&sets);
    let training = &report.training;
    assert_eq!(training.parameters, Some((784 + 1) * 20 + 21 * 10));
    let epochs: Vec<&Score> = training.epochs.iter().map(|epoch| &epoch.score).collect();
    assert_eq!(epochs[0].samples, 160, "46 and 24 of 230 are held out");
    assert!(epochs[epochs.len() - 2].accuracy > epochs[0].accuracy);
    let evaluations = &training.evaluations;
    let parts = evaluations.iter().map(|of| (&*of.part, of.score.samples));
    assert!(
        parts.eq([("validation", 46), ("test", 24)]),
        "{evaluations:?}"
    );
    for evaluation in evaluations {
        assert!(evaluation.score.accuracy > 0.9, "{evaluation:?}");
    }
    place.refused(
        &["split.validation=230"],
        &["split.validation", "230 samples"],
    );
}

#[test]
fn what_is_wrong_is_said() {
    let place = Place::with_images(120);
    place.refused(
        &["batch.size=500", "drop_last=true"],
        &["120 samples", "batch.size"],
    );
    place.refused(
        &["model.kind=linear", "model.classes=5"],
        &["classes", "model has 5 outputs"],
    );
    place.refused(
        &["model.kind=linear", "model.learning_rate=1e38"],
        &["the loss is", "learning_rate"],
    );
    place.refused(
        &["preprocess.mean=[0.1, 0.2, 0.3]"],
        &["preprocess.mean", "grey"],
    );
    place.refused(&["preprocess.size=32"], &["preprocess.size", "source.kind"]);
    place.refused(&["model.hidden=[10]"], &["model.hidden", "dense"]);
    let images = place.path("data/train-images-idx3-ubyte");
    let whole = fs::read(&images).unwrap();
    fs::write(&images, &whole[..whole.len() - 5]).unwrap();
    place.refused(&[], &["train-images-idx3-ubyte", "fewer than"]);
    fs::remove_file(&images).unwrap();
    place.refused(&[], &["train-images-idx3-ubyte", ".gz"]);
}

#[test]
fn the_real_files_are_learned_from() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/mnist");
    if !data.is_dir() {
        eprintln!("skipped: {} is not there", data.display());
        return;
    }
    let place = Place::with_images(50);
    let path = format!("source.path={}", data.display());
    let report = place.report(&[
        &path,
        "model.kind=linear",
        "steps=1000",
        "trace.enabled=false",
    ]);
    let test = &report.training.evaluations[0].score;
    assert_eq!(test.samples, 10_000);
    assert!(test.accuracy > 0.85, "{test:?}");
}

//! What `stallscope run` changes at random: rows of their own, the same samples for the same seed, and training with mixed
//! labels.

mod program;

use program::{images, refused, succeeds};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The report of a run with `sets` over a configuration for 40 images.
fn run(folder: &Path, sets: &[&str]) -> Value {
    let config = "warmup_steps = 0\nepochs = 2\nbatch.size = 8\npreprocess.size = 32\n";
    fs::write(folder.join("x.toml"), config).unwrap();
    let mut arguments = vec!["run", "x.toml", "--quiet", "--run-dir", "out"];
    arguments.extend(sets.iter().flat_map(|set| ["--set", *set]));
    succeeds(folder, &arguments);
    let report = fs::read_to_string(folder.join("out/report.json")).unwrap();
    serde_json::from_str(&report).unwrap()
}

/// Samples that each stage served.
fn served(report: &Value) -> Vec<(String, u64)> {
    let stages = report["stages"].as_array().unwrap().iter();
    let row = |row: &Value| {
        (
            row["stage"].as_str().unwrap().to_owned(),
            row["items"].as_u64().unwrap(),
        )
    };
    stages.map(row).collect()
}

#[test]
fn augmentations_have_rows_of_their_own_and_can_be_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    images(at);
    let sets = [
        "source.path=images",
        "mode=loader-only",
        "preprocess.randaugment=2",
        "preprocess.color_jitter=[0.4,0.4,0.4,0.1]",
        "batch.mixup=0.2",
        "batch.cutmix=1.0",
    ];
    for layout in ["num_workers=1", "num_workers=per-stage"] {
        let report = run(at, &[&sets[..], &[layout]].concat());
        let rows = served(&report);
        for part in ["color_jitter", "randaugment", "preprocess"] {
            let found = rows.iter().find(|(name, _)| name == part);
            assert_eq!(found.map(|row| row.1), Some(80), "{layout}: {rows:?}");
        }
    }
    let predict = ["predict", "out", "--json", "--set"];
    succeeds(at, &[&predict[..], &["preprocess.workers=2"]].concat());
    let said = refused(at, &[&predict[..], &["preprocess.randaugment=3"]].concat());
    assert!(said.contains("preprocess.randaugment"), "{said}");

    let mixed = [
        "run",
        "x.toml",
        "--set",
        "source.path=images",
        "--set",
        "batch.mixup=0.2",
        "--set",
        "preprocess.on=device",
    ];
    let said = refused(at, &mixed);
    assert!(
        said.contains("batch.mixup") && said.contains("preprocess.on = \"host\""),
        "{said}"
    );
}

#[test]
fn small_images_are_cut_mirrored_and_mixed_and_still_learned() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // Ten classes, each a bright column of its own.
    let count: u8 = 200;
    let image = |i: u8| {
        (0..28 * 28).map(move |at| {
            if at % 28 / 2 == usize::from(i % 10) + 2 {
                255
            } else {
                0
            }
        })
    };
    let header = [0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 28, 0, 0, 0, 28];
    let pixels = (0..count).flat_map(image);
    fs::create_dir(at.join("mnist")).unwrap();
    fs::write(
        at.join("mnist/train-images-idx3-ubyte"),
        header.into_iter().chain(pixels).collect::<Vec<u8>>(),
    )
    .unwrap();
    let labels = [0, 0, 8, 1, 0, 0, 0, count]
        .into_iter()
        .chain((0..count).map(|i| i % 10));
    fs::write(
        at.join("mnist/train-labels-idx1-ubyte"),
        labels.collect::<Vec<u8>>(),
    )
    .unwrap();
    let sets = [
        "source.kind=mnist",
        "source.path=mnist",
        "device=cpu",
        "model.kind=linear",
        "epochs=30",
        "split.validation=0.2",
        "num_workers=1",
        "model.learning_rate=0.02",
        "preprocess.pad=1",
        "preprocess.flip=0.0",
        "batch.mixup=0.2",
        "trace.enabled=false",
    ];
    let report = run(at, &sets);
    let rows = served(&report);
    let cut = rows.iter().find(|(name, _)| name == "random_crop");
    assert_eq!(cut.map(|row| row.1), Some(160 * 30), "{rows:?}");
    // Evaluated on images as they are.
    let evaluation = &report["training"]["evaluations"][0];
    let accuracy = evaluation["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.9, "{evaluation}");
    let again = run(at, &sets);
    let losses = |report: &Value| report["training"]["last_loss"].clone();
    assert_eq!(losses(&report), losses(&again));
    // The same cuts, unmixed.
    let unmixed = run(at, &[&sets[..], &["batch.mixup=0.0"]].concat());
    assert_ne!(losses(&report), losses(&unmixed));
    // Cut on the host, normalised on the device; and mirrored, which makes another class of an image here.
    let last = ["batch.mixup=0.0", "preprocess.on=device"];
    let on_device = run(at, &[&sets[..], &last].concat());
    assert!(
        served(&on_device)
            .iter()
            .any(|(name, _)| name == "random_crop")
    );
    assert!(alike(&on_device, &unmixed));
    let mirrored = run(
        at,
        &[&sets[..], &["batch.mixup=0.0", "preprocess.flip=1.0"]].concat(),
    );
    assert!(!alike(&mirrored, &unmixed));
    let plain = run(
        at,
        &[&sets[..], &["batch.mixup=0.0", "preprocess.pad=0"]].concat(),
    );
    assert!(served(&plain).iter().all(|(name, _)| name != "random_crop"));
}

/// As if they were not there.
#[test]
fn pictures_that_are_skipped_are_not_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    images(at);
    let last = at.join("images/class_03/img_00039.jpg");
    let sets = [
        "source.path=images",
        "shuffle=false",
        "drop_last=false",
        "device=cpu",
        "model.kind=linear",
        "on_error=skip",
        "batch.mixup=1.0",
        "batch.cutmix=1.0",
    ];
    fs::write(&last, b"no picture").unwrap();
    let skipped = run(at, &sets);
    assert_eq!(skipped["samples"], 78, "39 of 40 in each epoch");
    fs::remove_file(last).unwrap();
    let removed = run(at, &sets);
    assert!(alike(&skipped, &removed));
    let unmixed = run(
        at,
        &[&sets[..], &["batch.mixup=0.0", "batch.cutmix=0.0"]].concat(),
    );
    assert!(!alike(&skipped, &unmixed));
}

#[test]
fn pixels_of_shards_are_changed_before_the_device_normalises_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    images(at);
    succeeds(at, &["data", "pack", "images", "shards", "--raw", "64"]);
    let sets = [
        "source.kind=shard",
        "source.path=shards",
        "device=cpu",
        "model.kind=linear",
        "preprocess.randaugment=2",
        "preprocess.color_jitter=[0.4,0.4,0.4,0.1]",
    ];
    let [host, device, plain] = [
        &["preprocess.on=host"][..],
        &["preprocess.on=device"],
        &["preprocess.on=device", "preprocess.randaugment=0"],
    ]
    .map(|last| run(at, &[&sets[..], last].concat()));
    assert!(alike(&host, &device));
    assert!(!alike(&device, &plain));
}

/// Whether two runs' first losses are the same, but for the order in which a device computes.
fn alike(one: &Value, other: &Value) -> bool {
    let [one, other] = [one, other].map(|report| {
        let losses = report["training"]["losses"].as_array().unwrap();
        let losses = losses.iter().take(5).map(|loss| loss.as_f64().unwrap());
        losses.collect::<Vec<f64>>()
    });
    assert_eq!((one.len(), other.len()), (5, 5));
    one.iter()
        .zip(other)
        .all(|(one, other)| (one - other).abs() < 2e-4)
}

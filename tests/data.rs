//! `stallscope data pack` and `data verify`, and runs on what they make.

mod program;

use program::{images, run_in, succeeds};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The report of a run of the loader alone over 3 epochs of 40 images.
fn run(folder: &Path, sets: &[&str]) -> (String, Value) {
    fs::write(folder.join("x.toml"), "mode = \"loader-only\"\nepochs = 3\nbatch.size = 8\nwarmup_steps = 0\nnum_workers = 1\npreprocess.size = 32\n").unwrap();
    let mut arguments = vec![
        "run",
        "x.toml",
        "--quiet",
        "--verbose",
        "--trace",
        "none",
        "--run-dir",
        "out",
    ];
    for set in sets {
        arguments.extend(["--set", set]);
    }
    let text = succeeds(folder, &arguments);
    let report = fs::read_to_string(folder.join("out/report.json")).unwrap();
    (text, serde_json::from_str(&report).unwrap())
}

#[test]
fn images_are_packed_verified_and_loaded() {
    // Beside the sources: /tmp may be a tmpfs, which has no page cache to drop and no O_DIRECT.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = folder.path();
    images(at);
    let pack = [
        "data",
        "pack",
        "images",
        "raw",
        "--raw",
        "64",
        "--samples-per-shard",
        "16",
    ];
    assert!(succeeds(at, &pack).starts_with("packed 40 records in 3 shards in raw"));
    assert!(succeeds(at, &pack).starts_with("already there"));
    assert!(succeeds(at, &["data", "verify", "raw"]).starts_with("sound: 40 records in 3 shards"));
    let other = run_in(at, &["data", "pack", "images", "raw", "--raw", "48"]);
    let error = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        !other.status.success() && error.contains("packed from other images or with other options"),
        "{error}"
    );
    for mode in ["mmap", "pread", "direct", "ram"] {
        let mode = format!("read.method={mode}");
        let (_, report) = run(at, &["source.kind=shard", "source.path=raw", &mode]);
        assert_eq!(report["samples"], 120, "{mode}");
    }
    let (text, report) = run(
        at,
        &["source.kind=shard", "source.path=raw", "page_cache=cold"],
    );
    let before = &report["cache"]["epochs"][0];
    assert!(
        before["resident_share"].as_f64().unwrap() < 0.01,
        "{before}"
    );
    assert!(
        text.contains("before the first epoch (cold was asked for)"),
        "{text}"
    );
    let (_, report) = run(
        at,
        &[
            "source.kind=shard",
            "source.path=raw",
            "page_cache=warm",
            "shuffle=block",
        ],
    );
    assert_eq!(report["cache"]["epochs"][0]["resident_share"], 1.0);
}

/// What could be mistaken for a result is said.
#[test]
fn batches_that_nobody_finishes_come_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    images(at);
    run(at, &["source.path=images"]);
    let warned = run_in(
        at,
        &[
            "run",
            "x.toml",
            "--quiet",
            "--set",
            "source.path=images",
            "--set",
            "preprocess.on=device",
        ],
    );
    let error = String::from_utf8_lossy(&warned.stderr).into_owned();
    assert!(
        warned.status.success() && error.contains("nothing finishes the 8-bit batches"),
        "{error}"
    );
    for (sets, part) in [
        (
            ["read.method=ram", "page_cache=cold"],
            "nothing is read from the page cache",
        ),
        (
            ["source.kind=mnist", "page_cache=cold"],
            "`page_cache` has no effect with",
        ),
    ] {
        let mut arguments = vec!["run", "x.toml", "--set", "source.path=images"];
        for set in sets {
            arguments.extend(["--set", set]);
        }
        let refused = run_in(at, &arguments);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && error.contains(part), "{error}");
    }
}

#[test]
fn damage_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    images(at);
    succeeds(at, &["data", "pack", "images", "shards"]);
    let shard = at.join("shards/data-00000-of-00001.shard");
    let whole = fs::read(&shard).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 0x20;
    fs::write(&shard, &damaged).unwrap();
    let verified = run_in(at, &["data", "verify", "shards"]);
    let text = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert_eq!(verified.status.code(), Some(1));
    assert!(
        text.contains("record") && text.contains(".jpg") && text.contains("damaged: 1 places"),
        "{text}"
    );
    let (_, report) = run(
        at,
        &["source.kind=shard", "source.path=shards", "on_error=skip"],
    );
    assert_eq!(
        report["skipped"]["count"].as_u64(),
        Some(3),
        "{}",
        report["skipped"]
    );
    fs::write(&shard, &whole[..whole.len() - 1]).unwrap();
    let refused = run_in(
        at,
        &[
            "run",
            "x.toml",
            "--set",
            "source.kind=shard",
            "--set",
            "source.path=shards",
        ],
    );
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && error.contains("is not usable as a shard"),
        "{error}"
    );
}

#[test]
fn a_decoder_that_was_left_out_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    images(at);
    fs::write(at.join("x.toml"), "steps = 1\n").unwrap();
    let sets = [
        "run",
        "x.toml",
        "--mode",
        "loader-only",
        "--set",
        "source.path=images",
        "--set",
        "decode.decoder=turbojpeg",
    ];
    let output = run_in(at, &sets);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.success(),
        cfg!(feature = "turbojpeg"),
        "{error}"
    );
    if !cfg!(feature = "turbojpeg") {
        assert!(error.contains("include turbojpeg"), "{error}");
    }
}

/// A file of `pipelines/`, where it looks for data, `preprocess.size` where that has an effect, and the bytes of a sample.
type Pipeline = (&'static str, &'static str, Option<usize>, usize);

const OF_32: usize = 3 * 32 * 32 * 4;
/// The largest record: up to finished pictures of 128 x 128 the host would crop instead.
const FRAME: usize = 3 * 256 * 256;
const PIPELINES: [Pipeline; 12] = [
    ("jpeg-folder.toml", "data/quickstart", Some(32), OF_32),
    ("png-folder.toml", "data/png", Some(32), OF_32),
    ("encoded-shards.toml", "data/shards", Some(32), OF_32),
    ("pixel-shards.toml", "data/pixels", Some(32), OF_32),
    ("finish-on-device.toml", "data/pixels", Some(144), FRAME),
    ("webdataset.toml", "data/webdataset", Some(32), OF_32),
    ("tfrecord.toml", "data/tfrecord", Some(32), OF_32),
    ("mds.toml", "data/mds", Some(32), OF_32),
    ("parquet.toml", "data/parquet", Some(32), OF_32),
    ("mnist.toml", "data/mnist", None, 28 * 28 * 4),
    ("cifar10.toml", "data/cifar10", None, OF_32),
    ("cifar100.toml", "data/cifar100", None, OF_32),
];

/// The names of the TOML files in a folder of this repository.
fn toml_files(folder: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let names = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".toml")).collect()
}

/// 40 samples where every pipeline looks for its data, before anything is packed.
fn small_data(at: &Path) {
    for (folder, format) in [("train", "jpeg"), ("quickstart", "jpeg"), ("png", "png")] {
        let folder = format!("data/{folder}");
        let made = ["data", "generate", &folder, "--images", "40"];
        succeeds(
            at,
            &[&made[..], &["--classes", "4", "--format", format]].concat(),
        );
    }
    for folder in ["samples", "webdataset", "mnist", "cifar10", "cifar100"] {
        fs::create_dir(at.join("data").join(folder)).unwrap();
    }
    for number in 0..40 {
        let class = number % 4;
        let image = format!("data/train/class_{class:02}/img_{number:05}.jpg");
        let sample = at.join(format!("data/samples/{number:05}"));
        fs::copy(at.join(image), sample.with_extension("jpg")).unwrap();
        fs::write(sample.with_extension("cls"), class.to_string()).unwrap();
    }
    let tar = [
        "--sort=name",
        "-cf",
        "data/webdataset/train-0.tar",
        "-C",
        "data/samples",
        ".",
    ];
    let packed = Command::new("tar").args(tar).current_dir(at).status();
    assert!(packed.unwrap().success());

    let write = |name: &str, bytes: Vec<u8>| fs::write(at.join("data").join(name), bytes).unwrap();
    let labels: Vec<u8> = (0..40).map(|number| number % 10).collect();
    let images = [
        &[0, 0, 8, 3, 0, 0, 0, 40, 0, 0, 0, 28, 0, 0, 0, 28][..],
        &[7; 40 * 28 * 28],
    ];
    write("mnist/train-images-idx3-ubyte", images.concat());
    let header = [0, 0, 8, 1, 0, 0, 0, 40];
    write(
        "mnist/train-labels-idx1-ubyte",
        [&header[..], &labels].concat(),
    );
    let record = |label: &[u8]| [label, &[7; 3 * 32 * 32]].concat();
    for (file, labels) in labels.chunks(8).enumerate() {
        let records: Vec<u8> = labels.iter().flat_map(|label| record(&[*label])).collect();
        write(&format!("cifar10/data_batch_{}.bin", file + 1), records);
    }
    let records = labels.iter().flat_map(|label| record(&[0, *label]));
    write("cifar100/train.bin", records.collect());
}

/// Data sets of 6 samples that the libraries of their formats wrote.
const FIXTURES: [(&str, &str); 3] = [
    ("data/tfrecord", "tfrecord-imagenet"),
    ("data/mds", "mds-png"),
    ("data/parquet", "parquet-hugging-face"),
];

fn copy_fixtures(at: &Path) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/data/tests/formats");
    for (data, name) in FIXTURES {
        fs::create_dir(at.join(data)).unwrap();
        for file in fs::read_dir(fixtures.join(name)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), at.join(data).join(file.file_name())).unwrap();
        }
    }
}

/// Packs what the comment of a pipeline file says is to be packed for it.
fn packed_as_said(at: &Path, pipeline: &str) {
    let commands = pipeline
        .lines()
        .filter_map(|line| line.strip_prefix("#   stallscope data pack "));
    for command in commands {
        let words: Vec<&str> = ["data", "pack"]
            .into_iter()
            .chain(command.split(' '))
            .collect();
        succeeds(at, &words);
    }
}

/// The files as they stand, from the folders that they name, and packed as their comments say.
#[test]
fn every_pipeline_file_trains_on_its_kind_of_data() {
    let named = PIPELINES.map(|(file, ..)| file.to_owned());
    assert_eq!(
        toml_files("pipelines"),
        BTreeSet::from(named),
        "a file without a row in PIPELINES is used by no test"
    );
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    small_data(at);
    copy_fixtures(at);
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines");
    for (file, data, size, sample_bytes) in PIPELINES {
        let pipeline = fs::read_to_string(home.join(file)).unwrap();
        packed_as_said(at, &pipeline);
        let mut text = format!(
            "pipeline = {:?}\nbatch.size = 4\nwarmup_steps = 1\nsteps = 8\n",
            home.join(file)
        );
        if let Some(size) = size {
            text += &format!("preprocess.size = {size}\n");
        }
        fs::write(at.join("x.toml"), text).unwrap();
        let run = [
            "run",
            "x.toml",
            "--quiet",
            "--trace",
            "none",
            "--run-dir",
            "out",
        ];
        let output = run_in(at, &run);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && error.is_empty(),
            "{file}: {error}"
        );
        let report = fs::read_to_string(at.join("out/report.json")).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(
            report["config"]["pipeline"]["source"]["path"], data,
            "{file}"
        );
        let is_fixture = FIXTURES.iter().any(|(folder, _)| *folder == data);
        let samples = if is_fixture { 6 } else { 40 };
        assert_eq!(report["data"]["samples"], samples, "{file}");
        assert_eq!(report["data"]["sample_bytes"], sample_bytes, "{file}");
        assert_eq!(report["samples"], 8 * 4, "{file}");
        assert!(
            report["training"]["last_loss"].as_f64().unwrap() > 0.0,
            "{file}"
        );
    }
}

#[test]
fn every_experiment_file_resolves() {
    for folder in ["configs", "configs/reproduce"] {
        let at = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        for name in toml_files(folder) {
            let output = run_in(&at, &["config", &name]);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                output.status.success() && error.is_empty(),
                "{name}: {error}"
            );
        }
    }
}

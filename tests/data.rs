//! `stallscope data pack` and `data verify`, and runs on what they make.

mod program;

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;

fn stallscope(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = program::stallscope();
    command
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = stallscope(folder, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The report of a run of the loader alone over 3 epochs of 40 images.
fn run(folder: &Path, sets: &[&str]) -> (String, Value) {
    fs::write(folder.join("x.toml"), "mode = \"loader-only\"\nepochs = 3\nbatch.size = 8\nwarmup_steps = 0\nnum_workers = 1\npreprocess.size = 32\n").unwrap();
    let mut arguments = vec![
        "run",
        "x.toml",
        "--quiet",
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

fn images(folder: &Path) {
    let made = [
        "data",
        "generate",
        "images",
        "--images",
        "40",
        "--classes",
        "4",
    ];
    succeeds(folder, &made);
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
    let other = stallscope(at, &["data", "pack", "images", "raw", "--raw", "48"]);
    let error = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        !other.status.success() && error.contains("packed from other images or with other options"),
        "{error}"
    );
    for mode in ["mmap", "pread", "direct", "ram"] {
        let mode = format!("read.mode={mode}");
        let (_, report) = run(at, &["source.kind=shard", "source.path=raw", &mode]);
        assert_eq!(report["samples"], 120, "{mode}");
    }
    let (text, report) = run(at, &["source.kind=shard", "source.path=raw", "cache=cold"]);
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
            "cache=warm",
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
    let warned = stallscope(
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
            ["read.mode=ram", "cache=cold"],
            "nothing is read from the page cache",
        ),
        (
            ["source.kind=idx", "cache=cold"],
            "`cache` has no effect with",
        ),
    ] {
        let mut arguments = vec!["run", "x.toml", "--set", "source.path=images"];
        for set in sets {
            arguments.extend(["--set", set]);
        }
        let refused = stallscope(at, &arguments);
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
    let verified = stallscope(at, &["data", "verify", "shards"]);
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
    let refused = stallscope(
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
    let output = stallscope(at, &sets);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.success(),
        cfg!(feature = "turbojpeg"),
        "{error}"
    );
    if !cfg!(feature = "turbojpeg") {
        assert!(
            error.contains("cargo build --release --features turbojpeg"),
            "{error}"
        );
    }
}

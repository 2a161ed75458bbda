//! `stallscope reproduce`: tables measured through real runs, as small as they can be.

mod program;
mod said;

use program::stallscope;
use said::{assert_says, json, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn reproduce(folder: &Path, arguments: &[&str]) -> std::process::Output {
    let mut command = stallscope();
    command.current_dir(folder).arg("reproduce").args(arguments);
    command.output().unwrap()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_tables_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let output = reproduce(folder.path(), &[]);
    assert!(output.status.success());
    assert_says(
        &text(&output.stdout),
        &["gpu-util", "storage", "stallscope reproduce gpu-util"],
    );
}

#[test]
fn a_table_that_there_is_not_is_named_with_those_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let output = reproduce(folder.path(), &["gpu-utils"]);
    assert_eq!(output.status.code(), Some(1));
    assert_says(
        &text(&output.stderr),
        &["no table `gpu-utils`", "try: one of", "gpu-util"],
    );
}

#[test]
fn the_ladder_is_climbed_and_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let small = [
        "steps=4",
        "warmup_steps=1",
        "batch.size=8",
        "generate.images=48",
    ];
    let mut arguments = vec![
        "gpu-util",
        "--device",
        "emulated:resnet50-h100",
        "--repeats",
        "1",
        "--out",
        "out",
        "--json",
    ];
    for set in small {
        arguments.extend(["--set", set]);
    }
    let output = reproduce(folder.path(), &arguments);
    let printed = json(&output);
    let out = folder.path().join("out");
    let table: Value = read(&out.join("gpu-util.json"));
    assert_eq!(printed, table);
    let rows = table["parts"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    for (number, row) in rows.iter().enumerate() {
        let run = out.join(format!(
            "runs/emulated-resnet50-h100-rung{}-1/report.json",
            number + 1
        ));
        let report = read(&run);
        let rate = &row["cells"][2]["measured"]["median"];
        assert!(
            (rate.as_f64().unwrap() / report["samples_per_second"].as_f64().unwrap() - 1.0).abs()
                < 1e-9
        );
        assert_eq!(row["cells"][2]["predicted"].is_null(), number == 0, "{row}");
    }
    let predictions = read(&out.join("predictions-emulated-resnet50-h100.json"));
    assert_eq!(predictions.as_array().unwrap().len(), 4);
    for file in [
        "gpu-util.md",
        "gpu-util.html",
        "emulated-resnet50-h100.svg",
        "configs/gpu-util.toml",
    ] {
        assert!(!fs::read(out.join(file)).unwrap().is_empty(), "{file}");
    }
    let markdown = fs::read_to_string(out.join("gpu-util.md")).unwrap();
    assert_says(
        &markdown,
        &[
            "emulated-resnet50-h100.svg",
            "stallscope reproduce gpu-util",
            "batch.size=8",
        ],
    );
}

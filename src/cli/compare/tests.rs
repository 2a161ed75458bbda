//! What a comparison shows, and which folders it refuses.

use super::*;
use crate::analysis::{Cause, LengthSummary, StageSummary};
use crate::report::{DeviceReport, IdleCause, Machine, Report, Status};
use crate::timeline::{Nanos, Stage};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Decode was the bottleneck for this share of the time.
fn report(rate: f64, idle: f64, workers: &str) -> Report {
    let mut report = Report::new("run".to_owned(), Machine::default(), ().into());
    report.status = Status::Complete;
    report.settings = json!([{"key": "decode.workers", "value": workers, "layer": "file"}]);
    (report.steps, report.samples) = (100, 3_200);
    report.window_ns = Nanos::from_millis(4_000);
    report.samples_per_second = rate;
    report.data_wait_share = idle;
    let lost = Nanos((idle * 4e9) as u64);
    report.device = Some(DeviceReport {
        busy_share: 1.0 - idle,
        ..DeviceReport::default()
    });
    report.idle_causes = vec![IdleCause {
        cause: Cause::Capacity(Stage::DECODE).to_string(),
        kind: Cause::Capacity(Stage::DECODE),
        stage: Some(Stage::DECODE),
        ns: lost,
        share: 1.0,
    }];
    report.stages = vec![StageSummary {
        stage: Stage::DECODE,
        workers: 1,
        shared_workers: false,
        items: 3_200,
        skipped: 0,
        service: LengthSummary {
            count: 3_200,
            p50: Nanos::from_micros(1_200),
            ..LengthSummary::default()
        },
        busy: Nanos::from_millis(3_960),
        starved: Nanos::ZERO,
        blocked: Nanos::ZERO,
        run_delay: Nanos::ZERO,
        bytes_in: 0,
        bytes_out: 0,
        input_queue_mean: 0.0,
    }];
    report
}

/// Three repeats a side, of which the others are 1.5 and 1.01 times as fast.
fn three_sides() -> Comparison {
    let side = |name: &str, rates: [f64; 3], idle: f64, workers: &str| Side {
        name: name.to_owned(),
        runs: rates.map(|rate| report(rate, idle, workers)).to_vec(),
    };
    Comparison::of(&[
        side("A", [800.0, 810.0, 790.0], 0.5, "1"),
        side("B", [1_200.0, 1_215.0, 1_185.0], 0.25, "2"),
        side("C", [820.0, 780.0, 824.0], 0.5, "1"),
    ])
}

#[test]
fn the_answer_comes_with_the_figures_and_the_settings() {
    let comparison = three_sides();
    let against = comparison.against_first.iter();
    let mut said: Vec<String> = against
        .map(|against| answer::sentence(against, &comparison))
        .collect();
    said.extend(answer::methods(&comparison));
    said.push(table::render(&comparison, 80));
    said.extend(answer::settings(&comparison));
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn the_table_fits_the_terminal() {
    for width in [40, 60, 200] {
        let table = table::render(&three_sides(), width);
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= width, "{table}");
    }
}

/// A folder with reports at these paths.
fn folder(reports: &[(&str, Option<Report>)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, report) in reports {
        let file = folder.path().join(name).join("report.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = report
            .as_ref()
            .map(|report| serde_json::to_vec(report).unwrap());
        fs::write(file, text.unwrap_or_default()).unwrap();
    }
    folder
}

fn refused(path: &Path) -> String {
    match read::side("A".to_owned(), path) {
        Ok(_) => panic!("{} was read", path.display()),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn what_cannot_be_compared_is_refused_with_its_place_and_what_to_try() {
    let good = || report(800.0, 0.5, "1");
    let failed = Report {
        status: Status::Failed,
        error: Some("the disk is full".to_owned()),
        ..good()
    };
    let stepless = Report {
        steps: 0,
        samples: 0,
        samples_per_second: 0.0,
        ..good()
    };
    let newer = Report {
        schema_version: 99,
        ..good()
    };
    for (report, why) in [
        (Some(failed), "failed: the disk is full"),
        (Some(stepless), "no measured steps"),
        (Some(newer), "its schema_version is 99"),
        (None, "is empty"),
    ] {
        let folder = folder(&[("one", report)]);
        let said = refused(&folder.path().join("one"));
        let place = folder.path().join("one/report.json").display().to_string();
        assert!(said.contains(why) && said.contains(&place), "{said}");
        assert!(said.contains("\n  try: "), "{said}");
    }
    let empty = tempfile::tempdir().unwrap();
    assert!(refused(empty.path()).contains("no subfolder of it has one"));
    assert!(refused(&empty.path().join("absent")).contains("cannot read the report"));
}

#[test]
fn a_folder_of_repeats_is_one_side_and_a_broken_one_is_ignored() {
    let good = || Some(report(800.0, 0.5, "1"));
    let folder = folder(&[("b/1", good()), ("b/2", None), ("b/3", good())]);
    let side = read::side("A".to_owned(), &folder.path().join("b")).unwrap();
    assert_eq!(side.side.runs.len(), 2);
    assert_eq!(side.warnings.len(), 1);
    assert!(side.warnings[0].ends_with("this repeat is ignored"));
}

/// The exit status of `compare` with these arguments, and what it printed.
fn compared(paths: &[PathBuf], more: &[&str]) -> (ExitCode, String) {
    use crate::cli::args::{Cli, Command};
    use clap::Parser;
    let words = ["stallscope", "compare"].map(PathBuf::from);
    let words = words.iter().chain(paths).cloned();
    let words = words.chain(more.iter().map(PathBuf::from));
    let Command::Compare(args) = Cli::try_parse_from(words).unwrap().command else {
        panic!("not a comparison");
    };
    let mut out = Vec::new();
    let status = compare(&args, &mut out).unwrap();
    (status, String::from_utf8(out).unwrap())
}

#[test]
fn a_slower_side_fails_only_beyond_the_limit() {
    let rated = |rate| Some(report(rate, 0.5, "1"));
    let folder = folder(&[
        ("a/1", rated(100.0)),
        ("a/2", rated(101.0)),
        ("a/3", rated(99.0)),
        ("b/1", rated(90.0)),
        ("b/2", rated(91.0)),
        ("b/3", rated(89.0)),
    ]);
    let paths = ["a", "b"].map(|name| folder.path().join(name));
    let (status, said) = compared(&paths, &["-q", "--fail-if-slower", "3%"]);
    assert_eq!(status, ExitCode::FAILURE);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        anstream::adapter::strip_str(&said)
            .to_string()
            .starts_with("B is 0.90x as fast as A (0.88 to 0.92x)"),
        "{said}"
    );
    let (status, _) = compared(&paths, &["--fail-if-slower", "12%"]);
    assert_eq!(status, ExitCode::SUCCESS);
    let [a, b] = &paths;
    let (status, said) = compared(
        &[b.clone(), a.clone()],
        &["--fail-if-slower", "0", "--json"],
    );
    assert_eq!(status, ExitCode::SUCCESS);
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(json["against_first"][0]["finding"], "faster");
    assert_eq!(json["sides"][1]["runs"], 3);
}

#[test]
fn the_same_run_twice_is_noticed() {
    let folder = folder(&[("a", Some(report(100.0, 0.5, "1")))]);
    let path = folder.path().join("a");
    let sides = [path.clone(), path.join("report.json")];
    let read = sides
        .iter()
        .zip(["A", "B"])
        .map(|(path, name)| read::side(name.to_owned(), path));
    let read: Vec<ReadSide> = read.map(Result::unwrap).collect();
    let warnings = read::same_twice(&read);
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("A and B both have "),
        "{warnings:?}"
    );
}

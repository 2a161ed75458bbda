//! Sweeps over trials that are planted: stopped, killed, resumed, summed up.

use super::*;
use crate::analysis::Verdict;
use crate::report::{DeviceReport, Report};
use crate::timeline::Nanos;
use crate::tune::trial::{Measured, Outcome as Trial};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn grid(texts: &[&str]) -> Grid {
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    let (grid, problems) = Grid::parse(&texts, &[]);
    assert!(problems.is_empty(), "{problems:?}");
    grid
}

fn measured(rate: f64) -> Trial {
    Trial::Fits(Measured::of(Report {
        samples_per_second: rate,
        device: Some(DeviceReport {
            busy_share: 0.5,
            ..DeviceReport::default()
        }),
        data_wait_share: 0.25,
        first_batch_ns: Some(Nanos(7)),
        verdict: Some(Verdict {
            title: "device-bound".to_owned(),
            ..Verdict::default()
        }),
        ..Report::default()
    }))
}

fn kept(outcome: Trial) -> Outcome {
    outcome.and_then(|measured| Ok(Figures::of(&measured)))
}

fn manifest(repeats: usize) -> Manifest {
    Manifest {
        stallscope_version: "0.1.0".to_owned(),
        config: PathBuf::from("x.toml"),
        grid: grid(&["a=1,2,3", "b=10,20"]),
        repeats,
        seed: 0,
        overrides: vec!["steps=4".to_owned()],
        configuration: BTreeMap::from([("seed".to_owned(), Some("0".to_owned()))]),
        ..Manifest::default()
    }
}

/// Runs trials of the sweep in `folder` until `most` have ended; returns those that were run.
fn run(folder: &Path, most: usize) -> (Vec<String>, Journal) {
    let manifest = manifest(3);
    let opened = SweepFolder::open(folder, &manifest).unwrap();
    let mut journal = Journal::open(&opened.file("trials.jsonl")).unwrap();
    let points = manifest.grid.points();
    let order = order(points.len(), manifest.repeats, manifest.seed);
    let mut ran = Vec::new();
    let trial = |name: &str, sets: &[String]| {
        if ran.len() == most {
            return Err(TrialError::Stopped);
        }
        ran.push(format!("{name} {}", sets.join(" ")));
        Ok(measured(1.0))
    };
    sweep(&points, &order, &mut journal, trial, |_, _, _| {}).unwrap();
    (ran, journal)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Stopped anywhere, a sweep goes on where it was, in the same order.
    #[test]
    fn nothing_is_lost_and_nothing_twice(first in 0usize..20, second in 0usize..20, torn in 0usize..40) {
        let folder = tempfile::tempdir().unwrap();
        let (mut ran, _) = run(folder.path(), first);
        let journal = folder.path().join("trials.jsonl");
        let mut text = std::fs::read(&journal).unwrap();
        text.extend(&b"{\"point\":0,\"repeat\":0,\"settings\":[\"a=1\"]}"[..torn]);
        std::fs::write(&journal, text).unwrap();
        ran.extend(run(folder.path(), second).0);
        ran.extend(run(folder.path(), 100).0);
        let whole = tempfile::tempdir().unwrap();
        prop_assert_eq!(ran, run(whole.path(), 100).0);
        prop_assert_eq!(run(folder.path(), 100).1.records().len(), 18);
    }
}

#[test]
fn failures_are_results_and_other_errors_end_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&folder.path().join("j")).unwrap();
    let grid = grid(&["a=1,2,3,4"]);
    let (points, places) = (grid.points(), order(4, 1, 0));
    let trial = |_: &str, sets: &[String]| match sets[0].as_str() {
        "a=1" => Ok(measured(5.0)),
        "a=2" => Ok(Trial::OutOfMemory),
        "a=3" => Ok(Trial::Killed),
        _ => Ok(Trial::Failed {
            reason: "no such data".to_owned(),
        }),
    };
    let end = sweep(&points, &places, &mut journal, trial, |_, _, _| {}).unwrap();
    assert_eq!(end, End::Complete);
    let results = summarize(&grid, 1, journal.records());
    let failures: Vec<_> = results.points.iter().map(PointResult::failure).collect();
    assert_eq!(failures[0], None);
    assert_eq!(failures[1], Some("out of device memory"));
    assert!(failures[2].unwrap().starts_with("killed"));
    assert_eq!(failures[3], Some("no such data"));
    let first = &results.points[0];
    assert_eq!(
        (first.data_wait_share, first.first_batch_ns),
        (Some(0.25), Some(7))
    );

    let mut journal = Journal::open(&folder.path().join("other")).unwrap();
    let trial = |_: &str, _: &[String]| {
        Err(TrialError::Io {
            action: "start",
            path: PathBuf::from("stallscope"),
            source: std::io::ErrorKind::NotFound.into(),
        })
    };
    let end = sweep(&points, &places, &mut journal, trial, |_, _, _| {});
    assert!(matches!(end, Err(SweepError::Trial(_))), "{end:?}");
    assert!(journal.records().is_empty());
}

fn records(rates: &[(usize, Option<f64>)]) -> Vec<Record> {
    let each = rates
        .iter()
        .enumerate()
        .map(|(repeat, (point, rate))| Record {
            place: Place {
                point: *point,
                repeat,
            },
            settings: Vec::new(),
            ended_at_unix_seconds: 0.0,
            elapsed_ns: 1_000 * (*point as u64 + 1),
            outcome: kept(rate.map_or(Trial::OutOfMemory, measured)),
            node: None,
        });
    each.collect()
}

#[test]
fn the_knee_is_the_smallest_that_is_as_fast() {
    // Typed in descending order, which is not the order of size.
    let grid = grid(&["a=4,2", "b=64,32"]);
    let of = |rates: &[f64]| {
        let rates: Vec<_> = rates.iter().copied().map(Some).enumerate().collect();
        let results = summarize(&grid, 1, &records(&rates));
        (results.best, results.knee)
    };
    assert_eq!(of(&[100.0, 99.0, 98.5, 90.0]), (Some(0), Some(2)));
    assert_eq!(of(&[100.0, 99.0, 97.0, 90.0]), (Some(0), Some(1)));
    assert_eq!(of(&[10.0, 10.0, 10.0, 10.0]), (Some(0), Some(3)));
    let failing = [(0, Some(100.0)), (0, None), (3, Some(50.0))];
    let results = summarize(&grid, 2, &records(&failing));
    assert_eq!((results.best, results.knee), (Some(3), Some(3)));
    assert_eq!((results.trials_done, results.trials_in_all), (3, 8));
    assert_eq!(summarize(&grid, 2, &[]).best, None);
}

#[test]
fn the_knee_is_sure_only_as_far_as_the_runs_agree() {
    let grid = grid(&["a=1,2,3"]);
    let of = |rates: &[(usize, f64)]| {
        let rates: Vec<_> = rates
            .iter()
            .map(|(point, rate)| (*point, Some(*rate)))
            .collect();
        let results = summarize(&grid, 2, &records(&rates));
        assert_eq!((results.best, results.knee), (Some(2), Some(1)));
        (results.knee_is_sure, results.run_spread)
    };
    let clear = [
        (0, 50.0),
        (0, 60.0),
        (1, 99.0),
        (1, 99.2),
        (2, 100.0),
        (2, 99.8),
    ];
    assert!(
        of(&clear).0,
        "a smaller point that is far from it may be as noisy as it likes"
    );
    let noisy = [
        (0, 50.0),
        (0, 60.0),
        (1, 96.0),
        (1, 102.2),
        (2, 100.0),
        (2, 99.8),
    ];
    assert!(!of(&noisy).0);
    let once = [(0, 50.0), (1, 99.0), (2, 100.0)];
    assert_eq!(of(&once), (false, None));
}

#[test]
fn the_time_left_goes_by_what_each_point_took() {
    let left = |points: &[usize]| {
        let places = points.iter().map(|point| Place {
            point: *point,
            repeat: 9,
        });
        time_left(
            &records(&[(0, Some(1.0)), (2, None)]),
            &places.collect::<Vec<_>>(),
        )
    };
    assert_eq!(left(&[0, 2]), Some(Duration::from_nanos(4_000)));
    assert_eq!(left(&[1]), Some(Duration::from_nanos(2_000)));
    assert_eq!(time_left(&[], &[]), None);
}

#[test]
fn a_folder_is_one_sweeps_and_one_process() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("sweep");
    let open = |manifest: &Manifest| SweepFolder::open(&path, manifest);
    let first = open(&manifest(3)).unwrap();
    assert!(!first.resumed);
    let left = first.trials().unwrap().keep();
    assert!(matches!(open(&manifest(3)), Err(SweepError::Busy { .. })));
    drop(first);
    assert!(open(&manifest(3)).unwrap().resumed);
    assert!(!left.exists());

    let mut other = manifest(5);
    other
        .configuration
        .insert("batch.size".to_owned(), Some("8".to_owned()));
    let error = open(&other).unwrap_err().to_string();
    for part in [
        "repeats: 3 there, 5 here",
        "batch.size: not set there, 8 here",
    ] {
        assert!(error.contains(part), "{error}");
    }

    let foreign = place.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("notes.txt"), "mine").unwrap();
    let error = SweepFolder::open(&foreign, &manifest(3)).unwrap_err();
    assert!(matches!(error, SweepError::NotASweep { .. }));
}

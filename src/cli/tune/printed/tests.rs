//! What a made-up search says.

use super::*;
use crate::analysis::{Change, Suggestion, Verdict};
use crate::report::{DeviceReport, Report};
use crate::tune::tuning::{Axis, Estimate, Forecast, Forecaster, NoForecast, Request, Space, tune};
use crate::tune::{Measured, TrialError};

/// 100 samples/s a worker, up to 350; forecast 2 % too high.
struct HundredEach;

fn workers(sets: &[String]) -> f64 {
    let set = sets.iter().find_map(|set| set.strip_prefix("num_workers="));
    set.map_or(1.0, |workers| workers.parse().unwrap())
}

fn rate(sets: &[String]) -> f64 {
    (100.0 * workers(sets)).min(350.0)
}

impl Forecaster for HundredEach {
    fn forecast(&mut self, sets: &[String]) -> Result<Forecast, NoForecast> {
        let value = 1.02 * rate(sets);
        if sets.iter().any(|set| set == "prefetch_factor=8") {
            return Err(NoForecast::Invalid("too deep".to_owned()));
        }
        Ok(Forecast {
            samples_per_second: Estimate {
                value,
                low: 0.95 * value,
                high: 1.05 * value,
            },
            device_busy: Some(Estimate::exactly(value / 400.0)),
            loader_memory_bytes: 1 << 20,
            size: Size {
                threads: workers(sets) as usize,
                ..Size::default()
            },
            next_bottleneck: Some("the device's own time".to_owned()),
        })
    }

    fn learn(&mut self, _: &[String], _: &Report) -> Result<(), String> {
        Ok(())
    }
}

/// A search whose trials measure `rate`.
fn search(mut rate: impl FnMut(usize, &[String]) -> Result<f64, TrialError>) -> Tuning {
    let texts = |values: &[usize]| values.iter().map(usize::to_string).collect::<Vec<_>>();
    let request = Request {
        space: Space {
            axes: vec![
                Axis::new("num_workers", "1", texts(&[0, 1, 2, 3, 4, 5])),
                Axis::new("prefetch_factor", "2", texts(&[1, 2, 8])),
            ],
        },
        objective: Objective::SamplesPerSecond,
        trials: 6,
        most_loader_memory_bytes: None,
    };
    let mut runs = 0;
    let mut trial = |sets: &[String]| {
        runs += 1;
        let samples_per_second = match rate(runs, sets) {
            Err(TrialError::Failed { reason, .. }) => return Ok(Outcome::Failed { reason }),
            rate => rate?,
        };
        let verdict = Verdict {
            title: "device-bound".to_owned(),
            suggestion: Some(Suggestion::new(Change::FewerBytes, 1.25)),
            ..Verdict::default()
        };
        Ok(Outcome::Fits(Measured::of(Report {
            samples_per_second,
            device: Some(DeviceReport {
                busy_share: samples_per_second / 400.0,
                ..DeviceReport::default()
            }),
            verdict: Some(verdict),
            ..Report::default()
        })))
    };
    tune(&request, &mut HundredEach, &mut trial, &mut |_| ()).unwrap()
}

fn shown(found: &Tuning, width: usize) -> String {
    text(found, Some(Path::new("traces/tune x/tuned.toml")), width)
}

#[test]
fn a_search_that_found_something() {
    let found = search(|_, sets| Ok(rate(sets)));
    insta::assert_snapshot!(shown(&found, 80));
    let lines: Vec<String> = found.trials.iter().map(line).collect();
    insta::assert_snapshot!(lines.join("\n"));
    let json = as_json(&found, Some(Path::new("out/tuned.toml")));
    assert_eq!(json["objective"], "samples_per_second");
    assert_eq!(json["winner"]["sets"], json!(["num_workers=4"]));
    assert_eq!(json["winner"]["size"]["threads"], 4);
    assert_eq!(json["confirmation"]["ratio"], 3.5);
    assert_eq!(json["trials"][1]["result"], "fits");
    assert_eq!(json["trials"][1]["purpose"], "best");
    assert_eq!(json["trials"][1]["samples_per_second"], 350.0);
    assert_eq!(json["tuned_command"], "stallscope run out/tuned.toml");
    assert_eq!(json["trials"][0]["predicted"], Value::Null);
}

#[test]
fn a_winner_that_was_lucky() {
    let found = search(|run, sets| match run {
        2 => Ok(120.0),
        _ if sets.is_empty() => Ok(100.0),
        _ => Ok(90.0),
    });
    insta::assert_snapshot!(shown(&found, 80));
}

#[test]
fn a_search_that_was_stopped_and_one_with_a_failure() {
    let found = search(|run, sets| match run {
        2 => Err(TrialError::Failed {
            settings: sets.join(" "),
            reason: "a worker panicked".to_owned(),
        }),
        4 => Err(TrialError::Stopped),
        _ => Ok(rate(sets)),
    });
    insta::assert_snapshot!(shown(&found, 80));
}

/// Runs of the same settings differ by more than the winner gains, and by more than the knee is about.
#[test]
fn what_the_noise_of_the_runs_does_not_show_is_not_claimed() {
    let mut runs = std::collections::HashMap::new();
    let noisy = |_: usize, sets: &[String]| {
        let run = runs.entry(sets.join(" ")).or_insert(0);
        *run += 1;
        Ok(match (workers(sets), *run) {
            (1.0, 1) => 100.0,
            (1.0, _) => 96.0,
            (more, 1) => 104.0 + more,
            (more, _) => 95.0 + more,
        })
    };
    let said = shown(&search(noisy), 400);
    assert!(said.contains("in doubt  1.0"), "{said}");
    assert!(said.contains("is within the noise of the runs: "), "{said}");
    assert!(
        said.contains("is not known: runs of the same differ by up to"),
        "{said}"
    );
    let clear = shown(&search(|_, sets| Ok(rate(sets))), 400);
    assert!(clear.contains("confirmed 3.50x: "), "{clear}");
    assert!(
        clear.contains("the smallest of the settings measured or forecast within 2 % of the best"),
        "{clear}"
    );
}

/// What there were no trials for is named, and nothing is claimed of what was not looked at.
#[test]
fn what_was_never_tried() {
    let mut found = search(|_, sets| Ok(rate(sets)));
    let modes = ["pread", "direct", "ram", "a", "b", "c"];
    found.never_tried = modes
        .map(|mode| vec![format!("read.method={mode}")])
        .to_vec();
    found.excluded.unforecastable = 2;
    found.excluded.invalid -= 2;
    found.confirmation = None;
    found.next.bottleneck = None;
    found.trials[1].not_learned = Some("the report has no costs".to_owned());
    insta::assert_snapshot!(shown(&found, 80));
    let json = as_json(&found, None);
    assert_eq!(json["never_tried"][0], json!(["read.method=pread"]));
    assert_eq!(json["next"]["bottleneck"], Value::Null);
    found.winner.sets.clear();
    assert!(shown(&found, 80).contains("no trial is better than the start"));
}

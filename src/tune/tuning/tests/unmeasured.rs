//! Values of which nothing can be forecast before a run has had them, and how often anybody is asked.

use super::*;

/// Ways to read, with what a worker gives.
const MODES: [(&str, f64); 3] = [("mmap", 100.0), ("pread", 130.0), ("direct", 60.0)];

/// The mode and the workers of a point.
fn reading(sets: &[String]) -> (String, usize) {
    let of = |key: &str| sets.iter().find_map(|set| set.strip_prefix(key));
    let workers = of("read.workers=").map_or(1, |workers| workers.parse().unwrap());
    (of("read.method=").unwrap_or("mmap").to_owned(), workers)
}

/// Up to 4 workers help, and the device takes 450.
fn truly(sets: &[String]) -> f64 {
    let (mode, workers) = reading(sets);
    let each = MODES.iter().find(|(name, _)| *name == mode).unwrap().1;
    (each * workers as f64).min(450.0)
}

/// Knows what it has learned the mode of, and nothing else.
#[derive(Default)]
struct Learning {
    modes: Vec<String>,
    in_full: Vec<String>,
    ranked: usize,
    refuses: bool,
}

impl Learning {
    fn expected(&self, sets: &[String]) -> Result<Forecast, NoForecast> {
        let (mode, workers) = reading(sets);
        if !self.modes.contains(&mode) {
            let why = format!("{mode} was not measured");
            return Err(NoForecast::Unforecastable(why));
        }
        Ok(Forecast {
            samples_per_second: Estimate::exactly(truly(sets)),
            device_busy: None,
            loader_memory_bytes: 0,
            size: Size {
                threads: workers,
                ..Size::default()
            },
            next_bottleneck: None,
        })
    }
}

impl Forecaster for Learning {
    fn forecast(&mut self, sets: &[String]) -> Result<Forecast, NoForecast> {
        self.in_full.push(sets.join(" "));
        let next_bottleneck = Some("the disk".to_owned());
        Ok(Forecast {
            next_bottleneck,
            ..self.expected(sets)?
        })
    }

    fn rank(&mut self, sets: &[String]) -> Result<Forecast, NoForecast> {
        self.ranked += 1;
        self.expected(sets)
    }

    fn learn(&mut self, sets: &[String], _: &Report) -> Result<(), String> {
        let (mode, _) = reading(sets);
        if self.refuses && mode == "direct" {
            return Err("its report has no costs".to_owned());
        }
        self.modes.push(mode);
        Ok(())
    }
}

fn of_modes(trials: usize) -> Request {
    let modes = MODES.map(|(mode, _)| mode.to_owned());
    let workers = (1..=4).map(|workers: usize| workers.to_string());
    Request {
        space: Space {
            axes: vec![
                Axis::new("read.method", "mmap", modes),
                Axis::new("read.workers", "1", workers),
            ],
        },
        ..request(trials)
    }
}

fn find(
    trials: usize,
    forecaster: &mut Learning,
    mut trial: impl FnMut(&[String]) -> Result<Outcome, TrialError>,
) -> Tuning {
    tune(&of_modes(trials), forecaster, &mut trial, &mut |_| ()).unwrap()
}

fn truth_of(sets: &[String]) -> Result<Outcome, TrialError> {
    Ok(fits(sets, truly(sets)))
}

fn words(purpose: Purpose, sets: &str) -> (Purpose, String) {
    (purpose, sets.to_owned())
}

#[test]
fn each_is_run_once_and_the_rest_forecast_from_that() {
    let mut forecaster = Learning::default();
    let found = find(8, &mut forecaster, truth_of);
    let best = "read.method=pread read.workers=4";
    assert_eq!(
        tried(&found),
        [
            words(Purpose::Start, ""),
            words(Purpose::Unmeasured, "read.method=pread"),
            words(Purpose::Unmeasured, "read.method=direct"),
            words(Purpose::Best, best),
            words(Purpose::Confirm, ""),
            words(Purpose::Confirm, best),
        ]
    );
    assert_eq!(found.winner.sets.join(" "), best);
    assert!(found.never_tried.is_empty());
    assert_eq!(
        (found.forecast_points, found.excluded.unforecastable),
        (12, 0)
    );
    // Only what is tried, and the winner, is looked at in full.
    assert_eq!(forecaster.in_full, [best, best]);
    assert!(forecaster.ranked > 12);
    assert_eq!(found.next.bottleneck.as_deref(), Some("the disk"));
}

#[test]
fn what_trials_do_not_suffice_for_is_told() {
    let found = find(5, &mut Learning::default(), truth_of);
    assert_eq!(found.never_tried, [["read.method=direct"]]);
    assert_eq!(found.excluded.unforecastable, 4);
    // The last trial goes to the best forecast.
    assert_eq!(
        found.winner.sets.join(" "),
        "read.method=pread read.workers=4"
    );
    assert_eq!(found.trials.len(), 5);
    let found = find(4, &mut Learning::default(), truth_of);
    assert_eq!(
        found.never_tried,
        [["read.method=pread"], ["read.method=direct"]]
    );
    assert_eq!(found.winner.sets, ["read.workers=4"]);
}

#[test]
fn a_run_that_fails_is_not_tried_again() {
    let found = find(10, &mut Learning::default(), |sets| {
        match reading(sets).0.as_str() {
            "pread" => Ok(Outcome::OutOfMemory),
            _ => truth_of(sets),
        }
    });
    let of_pread = found.trials.iter();
    let of_pread = of_pread.filter(|one| one.sets.contains(&"read.method=pread".to_owned()));
    assert_eq!(of_pread.count(), 1, "{:?}", tried(&found));
    assert!(found.never_tried.is_empty());
    assert_eq!(found.winner.sets, ["read.workers=4"]);
}

#[test]
fn a_report_that_nothing_can_be_forecast_from_is_told() {
    let mut forecaster = Learning {
        refuses: true,
        ..Learning::default()
    };
    let found = find(10, &mut forecaster, truth_of);
    let of = |mode: &str| {
        let set = format!("read.method={mode}");
        let one = found.trials.iter().find(|one| one.sets == [set.as_str()]);
        one.unwrap().not_learned.clone()
    };
    assert_eq!(of("direct").as_deref(), Some("its report has no costs"));
    assert_eq!(of("pread"), None);
    assert_eq!(
        found.winner.sets.join(" "),
        "read.method=pread read.workers=4"
    );
}

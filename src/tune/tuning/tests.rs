//! Searches led by made-up forecasters, on a made-up machine whose best setting is known.

use super::*;
use crate::analysis::{Change, Setting, Verdict};
use crate::report::{DeviceReport, Report};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[path = "tests/confirm.rs"]
mod confirm;
#[path = "tests/failures.rs"]
mod failures;
#[path = "tests/unmeasured.rs"]
mod unmeasured;

/// A whole-batch loader of up to 16 workers: 100 samples/s each up to the device's 620, a little less with
/// every worker beyond the 8 cores, and 5 % less with a prefetch factor of 1.
fn truth(workers: usize, prefetch: usize) -> f64 {
    let fed = match workers {
        0 => 70.0,
        _ => 100.0 * workers as f64,
    };
    let crowded = 1.0 - 0.01 * workers.saturating_sub(8) as f64;
    let shallow = if prefetch == 1 { 0.95 } else { 1.0 };
    fed.min(620.0) * crowded * shallow
}

/// `num_workers` and `prefetch_factor` of a point.
fn knobs(sets: &[String]) -> (usize, usize) {
    let of = |key: &str, start: usize| {
        let value = |set: &String| set.strip_prefix(key)?.strip_prefix('=')?.parse().ok();
        sets.iter().find_map(value).unwrap_or(start)
    };
    (of("num_workers", 1), of("prefetch_factor", 2))
}

fn bytes(workers: usize, prefetch: usize) -> u64 {
    1_000 + 10 * (workers * prefetch) as u64
}

/// Says the truth times `bias`.
struct Biased<F> {
    bias: F,
    learned: Vec<Vec<String>>,
}

impl<F: Fn(usize, usize) -> f64> Forecaster for Biased<F> {
    fn forecast(&mut self, sets: &[String]) -> Result<Forecast, NoForecast> {
        let (workers, prefetch) = knobs(sets);
        if workers == 13 {
            return Err(NoForecast::Invalid("13 is unlucky".to_owned()));
        }
        let value = truth(workers, prefetch) * (self.bias)(workers, prefetch);
        let around = |value: f64| Estimate {
            value,
            low: 0.97 * value,
            high: 1.03 * value,
        };
        Ok(Forecast {
            samples_per_second: around(value),
            device_busy: Some(around(value / 650.0)),
            loader_memory_bytes: bytes(workers, prefetch),
            size: Size {
                threads: workers,
                queued_samples: workers * prefetch,
                batch_size: 32,
                device_samples: 32,
            },
            next_bottleneck: Some("device".to_owned()),
        })
    }

    fn learn(&mut self, sets: &[String], report: &Report) -> Result<(), String> {
        assert_eq!(report.name, sets.join(" "));
        self.learned.push(sets.to_vec());
        Ok(())
    }
}

fn biased<F: Fn(usize, usize) -> f64>(bias: F) -> Biased<F> {
    Biased {
        bias,
        learned: Vec::new(),
    }
}

fn request(trials: usize) -> Request {
    let texts = |values: std::ops::RangeInclusive<usize>| values.map(|value| value.to_string());
    let prefetch = [1, 2, 4, 8].map(|value: usize| value.to_string());
    Request {
        space: Space {
            axes: vec![
                Axis::new("num_workers", "1", texts(0..=16)),
                Axis::new("prefetch_factor", "2", prefetch),
            ],
        },
        objective: Objective::SamplesPerSecond,
        trials,
        most_loader_memory_bytes: None,
    }
}

fn fits(sets: &[String], samples_per_second: f64) -> Outcome {
    let change = Change::Set(vec![Setting::count("num_workers", 9, 1)]);
    let verdict = Verdict {
        title: "device-bound".to_owned(),
        suggestion: Some(Suggestion::new(change, 1.2)),
        ..Verdict::default()
    };
    Outcome::Fits(Measured::of(Report {
        name: sets.join(" "),
        samples_per_second,
        device: Some(DeviceReport {
            busy_share: samples_per_second / 650.0,
            ..DeviceReport::default()
        }),
        verdict: Some(verdict),
        ..Report::default()
    }))
}

/// The machine does as `truth` says.
fn run(sets: &[String]) -> Result<Outcome, TrialError> {
    let (workers, prefetch) = knobs(sets);
    Ok(fits(sets, truth(workers, prefetch)))
}

fn search(request: &Request, forecaster: &mut dyn Forecaster) -> Tuning {
    tune(
        request,
        forecaster,
        &mut |sets: &[String]| run(sets),
        &mut |_| (),
    )
    .unwrap()
}

fn tried(found: &Tuning) -> Vec<(Purpose, String)> {
    let trials = found.trials.iter();
    trials
        .map(|one| (one.purpose, one.sets.join(" ")))
        .collect()
}

#[test]
fn a_perfect_forecaster_needs_one_look_and_the_confirmation() {
    let mut forecaster = biased(|_, _| 1.0);
    let found = search(&request(8), &mut forecaster);
    // 7 workers reach the device's 620, and with the prefetch factor of the start.
    assert_eq!(found.winner.sets, ["num_workers=7"]);
    assert_eq!(found.knee.sets, found.winner.sets);
    assert!(found.knee.measured);
    let purposes: Vec<Purpose> = tried(&found)
        .into_iter()
        .map(|(purpose, _)| purpose)
        .collect();
    use Purpose::{Best, Confirm, Start};
    assert_eq!(purposes, [Start, Best, Confirm, Confirm]);
    let best = &found.trials[1];
    assert_eq!(
        best.predicted.as_ref().unwrap().samples_per_second.value,
        620.0
    );
    assert_eq!(best.error_share, Some(0.0));
    let confirmation = found.confirmation.unwrap();
    assert!((confirmation.ratio - 6.2).abs() < 1e-9 && !confirmation.start_wins);
    assert_eq!(
        (confirmation.start.len(), confirmation.winner.len()),
        (2, 2)
    );
    assert_eq!(forecaster.learned.len(), 4);
    assert_eq!((found.points, found.excluded.invalid), (68, 4));
    // The verdict advises what the search has looked at.
    assert_eq!(found.next.suggestion, None);
    assert_eq!(found.next.bottleneck.as_deref(), Some("device"));
    assert_eq!(found.next.verdict.as_deref(), Some("device-bound"));
}

#[test]
fn a_bias_is_corrected_by_the_first_trial() {
    for bias in [0.9, 1.1, 2.0] {
        let found = search(&request(8), &mut biased(|_, _| bias));
        assert_eq!(found.winner.sets, ["num_workers=7"], "{bias}");
        let error = found.trials[1].error_share.unwrap();
        assert!(error.abs() < 1e-9, "{bias}: {error}");
        assert_eq!(found.trials.len(), 4, "{bias}: {:?}", tried(&found));
    }
}

/// Forecast best: 5 workers, which really give 500.
fn wrong(workers: usize, _: usize) -> f64 {
    match workers {
        5 => 1.3,
        6.. => 0.95,
        _ => 1.0,
    }
}

#[test]
fn a_wrong_ranking_near_the_optimum_is_found_out() {
    let found = search(&request(8), &mut biased(wrong));
    let (workers, prefetch) = knobs(&found.winner.sets);
    let reached = truth(workers, prefetch);
    assert!(reached >= 0.99 * 620.0, "{:?}", tried(&found));
    assert!(found.trials.len() <= 8);
}

#[test]
fn the_objective_decides() {
    let objective = |objective| Request {
        objective,
        ..request(10)
    };
    // 6 workers: 600 of 620 is more than 2 % short; so the cheapest is 7 as well.
    let cheap = search(&objective(Objective::Cost), &mut biased(|_, _| 1.0));
    assert_eq!(cheap.winner.sets, ["num_workers=7"]);
    let busy = search(&objective(Objective::DeviceBusy), &mut biased(|_, _| 1.0));
    assert_eq!(busy.winner.sets, ["num_workers=7"]);
    assert!((busy.winner.device_busy.unwrap() - 620.0 / 650.0).abs() < 1e-9);
}

#[test]
fn the_cheapest_may_be_smaller_than_the_start() {
    let mut request = request(8);
    request.space.axes[0] = Axis::new("num_workers", "12", (0..=16).map(|n| n.to_string()));
    request.objective = Objective::Cost;
    let with_start = |sets: &[String]| {
        let mut sets = sets.to_vec();
        if !sets.iter().any(|set| set.starts_with("num_workers")) {
            sets.push("num_workers=12".to_owned());
        }
        sets
    };
    struct FromTwelve<F>(F);
    impl<F: Fn(&[String]) -> Vec<String>> Forecaster for FromTwelve<F> {
        fn forecast(&mut self, sets: &[String]) -> Result<Forecast, NoForecast> {
            biased(|_, _| 1.0).forecast(&(self.0)(sets))
        }
        fn learn(&mut self, _: &[String], _: &Report) -> Result<(), String> {
            Ok(())
        }
    }
    let mut trial = |sets: &[String]| run(&with_start(sets));
    let mut forecaster = FromTwelve(with_start);
    let found = tune(&request, &mut forecaster, &mut trial, &mut |_| ()).unwrap();
    assert_eq!(found.winner.sets, ["num_workers=7"]);
    assert!(found.winner.size < found.start.size);
}

/// Stages with workers of their own: more points than can be looked at.
#[test]
fn large_spaces_are_climbed() {
    const WORK: [f64; 4] = [1.0, 5.0, 3.0, 0.5];
    let axis = |name: &str| {
        Axis::new(
            &format!("{name}.workers"),
            "1",
            (1..=16).map(|n: usize| n.to_string()),
        )
    };
    let stages = ["read", "decode", "preprocess", "batch"];
    let workers = |sets: &[String]| {
        stages.map(|stage| {
            let key = format!("{stage}.workers=");
            let value = |set: &String| set.strip_prefix(&key)?.parse::<usize>().ok();
            sets.iter().find_map(value).unwrap_or(1)
        })
    };
    // The device takes 2 samples at a time: 10 decoders and 6 for preprocessing.
    let rate = move |sets: &[String]| {
        let rates = workers(sets).into_iter().zip(WORK);
        rates.fold(2.0_f64, |least, (n, work)| least.min(n as f64 / work))
    };
    struct Stages<R, W>(R, W);
    impl<R: Fn(&[String]) -> f64, W: Fn(&[String]) -> [usize; 4]> Forecaster for Stages<R, W> {
        fn forecast(&mut self, sets: &[String]) -> Result<Forecast, NoForecast> {
            Ok(Forecast {
                samples_per_second: Estimate::exactly((self.0)(sets)),
                device_busy: None,
                loader_memory_bytes: 0,
                size: Size {
                    threads: (self.1)(sets).iter().sum(),
                    ..Size::default()
                },
                next_bottleneck: Some("device".to_owned()),
            })
        }
        fn learn(&mut self, _: &[String], _: &Report) -> Result<(), String> {
            Ok(())
        }
    }
    let request = Request {
        space: Space {
            axes: stages.map(axis).to_vec(),
        },
        ..request(8)
    };
    let mut trial = |sets: &[String]| Ok(fits(sets, rate(sets)));
    let mut forecaster = Stages(rate, workers);
    let found = tune(&request, &mut forecaster, &mut trial, &mut |_| ()).unwrap();
    assert_eq!(workers(&found.winner.sets), [2, 10, 6, 1]);
    assert!(found.forecast_points < 3_000, "{}", found.forecast_points);
}

/// Machines that run trials at once, of which the last one started is done first.
struct Machines<T> {
    count: usize,
    trial: T,
    most_underway: usize,
}

impl<T: FnMut(&[String]) -> Result<Outcome, TrialError>> Trials for Machines<T> {
    fn at_once(&self) -> usize {
        self.count
    }

    fn wait(&mut self, underway: &[Underway]) -> Result<(usize, Outcome), TrialError> {
        self.most_underway = self.most_underway.max(underway.len());
        let last = underway.len() - 1;
        (self.trial)(&underway[last].sets).map(|outcome| (last, outcome))
    }
}

fn search_at_once(request: &Request, forecaster: &mut dyn Forecaster, count: usize) -> Tuning {
    let mut trials = Machines {
        count,
        trial: run,
        most_underway: 0,
    };
    let found = tune(request, forecaster, &mut trials, &mut |_| ()).unwrap();
    assert_eq!(trials.most_underway, count, "{:?}", tried(&found));
    found
}

#[test]
fn several_trials_at_once_find_what_one_after_another_finds() {
    let alone = search(&request(10), &mut biased(wrong));
    let found = search_at_once(&request(10), &mut biased(wrong), 3);
    let (alone, rate) = (alone.winner, found.winner.samples_per_second);
    assert!(
        rate >= 0.97 * alone.samples_per_second,
        "{:?}",
        tried(&found)
    );
    // They are numbered as they were decided on, and noted as they ended.
    let mut numbers: Vec<usize> = found.trials.iter().map(|one| one.number).collect();
    assert!(!numbers.is_sorted(), "{numbers:?}");
    numbers.sort_unstable();
    assert_eq!(numbers, Vec::from_iter(1..=found.trials.len()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn trials_are_few_and_never_the_same_before_the_end(
        trials in 1usize..12,
        noise in prop::collection::vec(0.7f64..1.4, 17),
        failing in prop::collection::btree_set(0usize..=16, 0..6),
        objective in prop::sample::select(vec![
            Objective::SamplesPerSecond, Objective::DeviceBusy, Objective::Cost]),
        count in 1usize..4,
    ) {
        let trial = |sets: &[String]| match knobs(sets) {
            (workers, _) if workers != 1 && failing.contains(&workers) => Ok(Outcome::OutOfMemory),
            (workers, prefetch) => Ok(fits(sets, truth(workers, prefetch) * noise[16 - workers])),
        };
        let mut trials_at_once = Machines { count, trial, most_underway: 0 };
        let mut forecaster = biased(|workers, _| noise[workers]);
        let request = Request { objective, ..request(trials) };
        let found = tune(&request, &mut forecaster, &mut trials_at_once, &mut |_| ()).unwrap();
        prop_assert!(found.trials.len() <= trials);
        // Start and winner are confirmed at once.
        prop_assert!(trials_at_once.most_underway <= count.max(2));
        let before = found.trials.iter().filter(|one| one.purpose != Purpose::Confirm);
        let sets: Vec<String> = before.map(|one| one.sets.join(" ")).collect();
        prop_assert_eq!(sets.iter().collect::<BTreeSet<_>>().len(), sets.len());
        let confirming = found.trials.len() - sets.len();
        prop_assert!(confirming != 1);
        prop_assert!(found.winner.measured);
        let runs_of_winner = found.trials.iter().filter(|one| one.sets == found.winner.sets).count();
        prop_assert!(confirming == 0 || found.winner.sets.is_empty() || runs_of_winner >= 2);
        // Never knowingly worse than the start.
        let value = |answer: &Answer| objective.value(answer.samples_per_second, answer.device_busy).unwrap();
        let (winner, start) = (value(&found.winner), value(&found.start));
        prop_assert!(winner >= (1.0 - objective.tolerance()) * start, "{} {}", winner, start);
    }
}

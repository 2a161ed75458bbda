//! Limits of memory, trials that fail or are lucky, and searches that are stopped.

use super::*;

#[test]
fn memory_limits_leave_points_out() {
    let request = Request {
        most_loader_memory_bytes: Some(bytes(4, 2)),
        ..request(8)
    };
    let found = search(&request, &mut biased(|_, _| 1.0));
    for attempt in &found.trials {
        let (workers, prefetch) = knobs(&attempt.sets);
        assert!(
            bytes(workers, prefetch) <= bytes(4, 2),
            "{:?}",
            attempt.sets
        );
    }
    // 8 workers with a prefetch factor of 1 need as much as 4 with 2.
    assert_eq!(found.winner.sets, ["num_workers=7", "prefetch_factor=1"]);
    assert!(found.excluded.memory > 0);
}

/// A machine that kills what needs more than this.
#[test]
fn what_is_killed_rules_out_all_that_needs_as_much() {
    let mut killed = Vec::new();
    let limit = bytes(5, 2);
    let mut trial = |sets: &[String]| {
        let (workers, prefetch) = knobs(sets);
        if bytes(workers, prefetch) > limit {
            killed.push(bytes(workers, prefetch));
            return Ok(Outcome::Killed);
        }
        run(sets)
    };
    let mut forecaster = biased(|_, _| 1.0);
    let found = tune(&request(10), &mut forecaster, &mut trial, &mut |_| ()).unwrap();
    assert!(!killed.is_empty());
    assert!(killed.is_sorted_by(|a, b| a > b), "{killed:?}");
    assert!(
        found.winner.samples_per_second > 400.0,
        "{:?}",
        tried(&found)
    );
    assert!(found.excluded.ruled_out > 0);
}

fn with_batches() -> Request {
    let sizes = [16, 32, 64, 128].map(|size: usize| size.to_string());
    Request {
        space: Space {
            axes: vec![Axis::new("batch.size", "16", sizes)],
        },
        ..request(8)
    }
}

/// Larger batches are expected to be faster; from 64 on they do not fit the device.
struct Batches;

impl Forecaster for Batches {
    fn forecast(&mut self, sets: &[String]) -> Result<Forecast, NoForecast> {
        let size = sets
            .first()
            .map_or(16, |set| set["batch.size=".len()..].parse().unwrap());
        Ok(Forecast {
            samples_per_second: Estimate::exactly(100.0 + size as f64),
            device_busy: None,
            loader_memory_bytes: size as u64,
            size: Size {
                threads: 1,
                queued_samples: 0,
                batch_size: size,
                device_samples: size,
            },
            next_bottleneck: Some("device".to_owned()),
        })
    }

    fn learn(&mut self, _: &[String], _: &Report) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_batch_that_does_not_fit_rules_out_larger_ones() {
    let mut trial = |sets: &[String]| match sets.first().map(String::as_str) {
        None => Ok(fits(sets, 116.0)),
        Some("batch.size=32") => Ok(fits(sets, 132.0)),
        Some("batch.size=64" | "batch.size=128") => Ok(Outcome::OutOfMemory),
        other => panic!("{other:?}"),
    };
    let found = tune(&with_batches(), &mut Batches, &mut trial, &mut |_| ()).unwrap();
    assert_eq!(found.winner.sets, ["batch.size=32"]);
    let outcomes = found.trials.iter().map(|one| one.outcome.fits().is_some());
    assert_eq!(
        outcomes.collect::<Vec<_>>(),
        [true, false, false, true, true, true]
    );
}

#[test]
fn a_failing_trial_is_a_result_and_not_tried_again() {
    let mut trial = |sets: &[String]| match knobs(sets) {
        (7, 2) => Ok(Outcome::Failed {
            reason: "a worker panicked".to_owned(),
        }),
        _ => run(sets),
    };
    let mut forecaster = biased(|_, _| 1.0);
    let found = tune(&request(8), &mut forecaster, &mut trial, &mut |_| ()).unwrap();
    let failed = Outcome::Failed {
        reason: "a worker panicked".to_owned(),
    };
    let failures = found.trials.iter().filter(|one| one.outcome == failed);
    assert_eq!(failures.count(), 1);
    assert!(
        found.winner.samples_per_second >= 0.99 * 620.0,
        "{:?}",
        tried(&found)
    );
}

#[test]
fn luck_does_not_win() {
    // Its first run is lucky; in truth it is slower than the start.
    let mut runs = 0;
    let mut trial = |sets: &[String]| {
        runs += usize::from(!sets.is_empty());
        let rate = match (sets.is_empty(), runs) {
            (true, _) => 600.0,
            (false, 1) => 640.0,
            (false, _) => 520.0,
        };
        Ok(fits(sets, rate))
    };
    let mut forecaster = biased(|_, _| 1.0);
    let found = tune(&request(4), &mut forecaster, &mut trial, &mut |_| ()).unwrap();
    let confirmation = found.confirmation.as_ref().unwrap();
    assert!(confirmation.start_wins && confirmation.ratio < 1.0);
    assert!(!confirmation.sets.is_empty());
    assert_eq!(found.winner.sets, [""; 0]);
    assert_eq!(found.winner.samples_per_second, 600.0);
}

#[test]
fn a_winner_that_does_not_fit_again_is_none() {
    let mut runs = 0;
    let mut trial = |sets: &[String]| {
        runs += usize::from(!sets.is_empty());
        match (sets.is_empty(), runs) {
            (false, 2..) => Ok(Outcome::OutOfMemory),
            _ => run(sets),
        }
    };
    let mut forecaster = biased(|_, _| 1.0);
    let found = tune(&request(4), &mut forecaster, &mut trial, &mut |_| ()).unwrap();
    assert!(found.confirmation.unwrap().start_wins);
    assert_eq!(found.winner.sets, [""; 0]);
}

#[test]
fn what_was_found_before_a_stop_is_kept() {
    for stop_at in 1..4 {
        let mut runs = 0;
        let mut told = 0;
        let mut trial = |sets: &[String]| {
            runs += 1;
            if runs > stop_at {
                return Err(TrialError::Stopped);
            }
            run(sets)
        };
        let mut forecaster = biased(|_, _| 1.0);
        let on_trial = &mut |_: &Attempt| told += 1;
        let found = tune(&request(8), &mut forecaster, &mut trial, on_trial).unwrap();
        assert!(found.stopped && found.confirmation.is_none(), "{stop_at}");
        assert_eq!((found.trials.len(), told), (stop_at, stop_at));
        let best = if stop_at == 1 { 100.0 } else { 620.0 };
        assert_eq!(found.winner.samples_per_second, best, "{stop_at}");
    }
}

#[test]
fn a_start_that_does_not_run_ends_it() {
    let mut forecaster = biased(|_, _| 1.0);
    let mut end = |result: fn() -> Result<Outcome, TrialError>| {
        let mut trial = |_: &[String]| result();
        tune(&request(8), &mut forecaster, &mut trial, &mut |_| ()).unwrap_err()
    };
    assert!(matches!(
        end(|| Ok(Outcome::Killed)),
        TuneError::Start { .. }
    ));
    let too_large = end(|| Ok(Outcome::OutOfMemory));
    assert!(matches!(too_large, TuneError::OutOfMemory));
    let stopped = end(|| Err(TrialError::Stopped));
    assert!(matches!(stopped, TuneError::Trial(TrialError::Stopped)));
    struct Clueless;
    impl Forecaster for Clueless {
        fn forecast(&mut self, _: &[String]) -> Result<Forecast, NoForecast> {
            Err(NoForecast::Invalid("no step was measured".to_owned()))
        }
        fn learn(&mut self, _: &[String], _: &Report) -> Result<(), String> {
            Ok(())
        }
    }
    let error = tune(
        &request(8),
        &mut Clueless,
        &mut |sets: &[String]| run(sets),
        &mut |_| (),
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("no step was measured"),
        "{error}"
    );
}

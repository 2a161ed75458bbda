//! Runs that are not what the same setting gives again, and what the trials that are left do about it.

use super::*;

/// What the machine of these tests gives with 1, 6 and 7 workers.
const ONE: f64 = 100.0;
const SIX: f64 = 590.0;
const SEVEN: f64 = 620.0;

/// Whose runs of 6 and 7 workers give these shares of the truth, one after the other, and then the truth.
fn machine(six: &[f64], seven: &[f64]) -> impl FnMut(&[String]) -> Outcome {
    let (mut six, mut seven) = (six.iter(), seven.iter());
    move |sets| {
        let rate = match knobs(sets).0 {
            6 => SIX * six.next().unwrap_or(&1.0),
            7 => SEVEN * seven.next().unwrap_or(&1.0),
            _ => ONE,
        };
        fits(sets, rate)
    }
}

/// Searches with these forecasts of 6 and 7 workers.
fn search_with(
    (six, seven): (f64, f64),
    trials: usize,
    mut trial: impl FnMut(&[String]) -> Outcome,
) -> Tuning {
    let mut forecaster = biased(|workers, prefetch| {
        let forecast = match workers {
            6 => six,
            7 => seven,
            _ => ONE,
        };
        forecast / truth(workers, prefetch)
    });
    let workers = ["1", "6", "7"].map(str::to_owned);
    let space = Space {
        axes: vec![Axis::new("num_workers", "1", workers)],
    };
    let request = Request {
        space,
        ..request(trials)
    };
    let mut trial = |sets: &[String]| Ok(trial(sets));
    tune(&request, &mut forecaster, &mut trial, &mut |_| ()).unwrap()
}

fn runs_of(found: &Tuning, workers: usize) -> usize {
    let trials = found.trials.iter();
    trials.filter(|one| knobs(&one.sets).0 == workers).count()
}

/// 7 workers are unlucky in their first run, and 6 lucky: the second runs leave in doubt which is better.
#[test]
fn trials_that_are_left_tell_settings_apart_that_noise_does_not() {
    let search = |trials| search_with((600.0, 610.0), trials, machine(&[1.03, 0.95], &[0.96]));
    let few = search(5);
    assert_eq!(few.winner.sets, ["num_workers=6"], "{:?}", tried(&few));
    let found = search(8);
    assert_eq!(found.winner.sets, ["num_workers=7"], "{:?}", tried(&found));
    // Start twice, and the two in turn.
    assert_eq!((found.trials.len(), runs_of(&found, 1)), (8, 2));
    assert_eq!((runs_of(&found, 6), runs_of(&found, 7)), (3, 3));
    let confirmation = found.confirmation.unwrap();
    assert_eq!(confirmation.sets, found.winner.sets);
    assert!(confirmation.winner.len() == 3 && !confirmation.start_wins);
    // 1.03 and 0.95 of a mean of 0.993.
    let spread = found.run_spread.unwrap();
    assert!((spread - 0.24 / 2.98).abs() < 1e-9, "{spread}");
}

/// Where runs of a setting are alike none is needed for a third time, however near another is.
#[test]
fn what_is_certain_is_not_run_again() {
    let found = search_with((600.0, 610.0), 12, machine(&[], &[0.96]));
    assert_eq!(found.winner.sets, ["num_workers=6"], "{:?}", tried(&found));
    assert_eq!((runs_of(&found, 6), runs_of(&found, 7)), (2, 1));
    assert_eq!(found.run_spread, Some(0.0));
}

/// The winner's second run does not fit: the next best is tried, run again, and wins.
#[test]
fn a_winner_that_fails_the_second_time_leaves_its_place_to_the_next() {
    let mut truth = machine(&[], &[]);
    let mut seven = 0;
    let trial = |sets: &[String]| {
        seven += usize::from(knobs(sets).0 == 7);
        if seven == 2 && knobs(sets).0 == 7 {
            Outcome::OutOfMemory
        } else {
            truth(sets)
        }
    };
    let found = search_with((SIX, SEVEN), 8, trial);
    let (six, seven) = ("num_workers=6".to_owned(), "num_workers=7".to_owned());
    use Purpose::{Best, Confirm, Start};
    let expected = [
        (Start, String::new()),
        (Best, seven.clone()),
        (Confirm, String::new()),
        (Confirm, seven),
        (Best, six.clone()),
        (Confirm, six.clone()),
    ];
    assert_eq!(tried(&found), expected);
    assert_eq!(found.winner.sets, [six]);
    let confirmation = found.confirmation.unwrap();
    assert_eq!(confirmation.sets, found.winner.sets);
    assert!(confirmation.winner.len() == 2 && !confirmation.start_wins);
}

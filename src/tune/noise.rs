//! How far runs of the same setting lie apart, and what can be said of settings then. May use: `report`.

use crate::report;

/// A setting is as fast as another where it reaches this share of its samples/s.
pub const AS_FAST: f64 = 0.98;

/// The most by which figures of one of `settings` differ, (most - least) / mean; `None` where none has several.
pub fn run_spread(settings: &[Vec<f64>]) -> Option<f64> {
    let several = settings.iter().filter(|figures| figures.len() >= 2);
    let spreads = several.map(|figures| {
        let (least, most) = ends(figures);
        (most - least) * figures.len() as f64 / figures.iter().sum::<f64>()
    });
    spreads.reduce(f64::max)
}

/// Whether the runs of `settings`, of which the smallest comes first and each has run, show that the one at `knee` is the
/// smallest that is as fast as the one at `best`. Another run of a setting that has run once may differ as much as those
/// of others do.
pub fn is_sure_knee(settings: &[Vec<f64>], knee: usize, best: usize) -> bool {
    let Some(spread) = run_spread(settings) else {
        return false;
    };
    let range = |at: usize| {
        let (least, most) = ends(&settings[at]);
        match settings[at].len() {
            1 => (least * (1.0 - spread), most * (1.0 + spread)),
            _ => (least, most),
        }
    };
    let (slowest_best, fastest_best) = range(best);
    let is_as_fast = knee == best || range(knee).0 >= AS_FAST * fastest_best;
    is_as_fast && (0..knee).all(|smaller| range(smaller).1 < AS_FAST * slowest_best)
}

/// What is said of the smallest of `what` that is as fast as the best: that it is, where that `is_sure`, or why not.
pub fn of_the_knee(what: &str, is_sure: bool, run_spread: Option<f64>) -> String {
    let percent = 100.0 * (1.0 - AS_FAST);
    if is_sure {
        return format!("the smallest of {what} within {percent:.0} % of the best");
    }
    let why = match run_spread {
        Some(spread) => format!(
            "runs of the same differ by up to {}",
            report::percent(spread)
        ),
        None => "nothing was run twice".to_owned(),
    };
    format!("which of {what} is the smallest within {percent:.0} % of the best is not known: {why}")
}

fn ends(figures: &[f64]) -> (f64, f64) {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    (least, figures.iter().copied().fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_the_setting_whose_runs_differ_most() {
        let runs = [vec![100.0, 101.0], vec![50.0], vec![9.0, 11.0, 10.0]];
        assert_eq!(run_spread(&runs), Some(0.2));
        assert_eq!(run_spread(&[vec![50.0], Vec::new()]), None);
    }

    #[test]
    fn a_knee_is_sure_where_no_run_says_otherwise() {
        let sure = |first: &[f64], knee: &[f64], best: &[f64]| {
            is_sure_knee(&[first.to_vec(), knee.to_vec(), best.to_vec()], 1, 2)
        };
        assert!(sure(&[80.0, 97.0], &[99.5, 99.0], &[100.0, 100.5]));
        assert!(
            !sure(&[80.0, 98.5], &[99.5, 99.0], &[100.0, 100.5]),
            "the smaller may be it"
        );
        assert!(
            !sure(&[80.0, 97.0], &[99.5, 97.0], &[100.0, 100.5]),
            "it may be slower"
        );
        assert!(
            !sure(&[80.0, 97.0], &[99.5, 99.0], &[98.0, 103.0]),
            "the best may be faster"
        );
        // One run of the smaller setting, which may be off by as much as the others' runs are.
        assert!(sure(&[96.0], &[99.5, 99.0], &[100.0, 100.5]));
        assert!(!sure(&[97.7], &[99.5, 99.0], &[100.0, 100.5]));
        assert!(!sure(&[50.0], &[99.5], &[100.0]), "nothing was run twice");
    }

    #[test]
    fn nothing_is_said_of_what_is_not_sure() {
        let said = |is_sure, spread| of_the_knee("the 5 sizes tried", is_sure, spread);
        assert_eq!(
            said(true, Some(0.01)),
            "the smallest of the 5 sizes tried within 2 % of the best"
        );
        let noisy = said(false, Some(0.031));
        assert!(
            noisy.ends_with("is not known: runs of the same differ by up to 3.1 %"),
            "{noisy}"
        );
        assert!(said(false, None).ends_with("is not known: nothing was run twice"));
    }
}

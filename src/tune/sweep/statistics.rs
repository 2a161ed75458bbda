//! Medians, and how sure they are. May use: `analysis`.

use crate::analysis::median;
use serde::Serialize;

/// From so many values on an interval of the median at [`CONFIDENCE`] exists.
const ENOUGH: usize = 6;
const CONFIDENCE: f64 = 0.95;

/// What an interval is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalKind {
    /// The least and the most of all values.
    LeastToMost,
    /// Holds the true median with 95 % probability, whatever the values' distribution.
    #[serde(rename = "median_95_percent")]
    Median95Percent,
}

/// A median with its interval.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub interval: IntervalKind,
    /// Values it rests on.
    pub count: usize,
}

impl Spread {
    /// Of `values`; `None` where there are none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let median = median(values)?;
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let left_out = left_out(sorted.len());
        let interval = match sorted.len() {
            ENOUGH.. => IntervalKind::Median95Percent,
            _ => IntervalKind::LeastToMost,
        };
        Some(Spread {
            median,
            low: sorted[left_out],
            high: sorted[sorted.len() - 1 - left_out],
            interval,
            count: sorted.len(),
        })
    }
}

/// Values to leave out at each end of `count`, so that what is left still holds the median with
/// [`CONFIDENCE`]. The number of values below the median is binomial: the interval misses it where fewer
/// than that many, plus one, lie on one side.
fn left_out(count: usize) -> usize {
    let (mut probability, mut below) = (0.5_f64.powi(count as i32), 0.0);
    let mut left_out = 0;
    for fewer in 0..count / 2 {
        below += probability;
        if 2.0 * below > 1.0 - CONFIDENCE {
            break;
        }
        left_out = fewer;
        probability *= (count - fewer) as f64 / (fewer + 1) as f64;
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_shown_whole() {
        let spread = Spread::of(&[5.0, 1.0, 4.0]).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (1.0, 4.0, 5.0));
        assert_eq!(spread.interval, IntervalKind::LeastToMost);
        assert_eq!(Spread::of(&[]), None);
    }

    /// Against the published table of order statistics for a 95 % interval of the median.
    #[test]
    fn intervals_of_the_median_are_those_of_the_table() {
        let table = [
            (5, 1),
            (6, 1),
            (8, 1),
            (9, 2),
            (11, 2),
            (12, 3),
            (15, 4),
            (20, 6),
            (25, 8),
            (30, 10),
        ];
        for (count, rank) in table {
            assert_eq!(left_out(count) + 1, rank, "{count}");
        }
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        let spread = Spread::of(&values).unwrap();
        assert_eq!((spread.low, spread.high), (6.0, 15.0));
        assert_eq!(spread.interval, IntervalKind::Median95Percent);
        assert!(left_out(1_000) > 450);
    }
}

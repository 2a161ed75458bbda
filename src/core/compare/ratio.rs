//! The ratio of two rates with its 95 % interval, made from the logarithms of the rates: a machine that is slower for a
//! while is so by a factor.
//!
//! - Repeats that took turns: Student's t on the difference within each pair, since the machine drifts.
//! - Other repeats: Welch's t (B. L. Welch, Biometrika 34, 1947).
//! - One run against repeats: the repeats' spread is taken for both sides.
//! - One run each: batch means of blocks of the window ([`blocks`](super::blocks)), then Welch's t.

use super::blocks::{self, NoBlocks};
use crate::report::Report;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// With fewer pairs than that their differences have so few degrees of freedom that Welch's t is the sharper one.
const LEAST_PAIRS: usize = 3;

/// With more degrees of freedom Student's t is the normal distribution to 0.1 %, and statrs is no longer exact.
const MOST_FREE: f64 = 1e3;

/// What an interval is made from.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Method {
    /// Repeats that took turns.
    Pairs {
        /// How many.
        pairs: usize,
    },
    /// Repeats on both sides.
    Repeats {
        /// Runs of the first side.
        first: usize,
        /// Runs of the other.
        other: usize,
    },
    /// One run on one side, whose spread is taken to be that of the other side's runs.
    OneAgainstRepeats {
        /// Runs of the side that has several.
        repeats: usize,
    },
    /// One run each: noise within a run, other programs that took the cores, and 2 % between runs, up to 5 % where they
    /// compute; larger differences between runs are not covered.
    Blocks {
        /// Blocks of the first run.
        first: usize,
        /// Blocks of the other.
        other: usize,
    },
    /// There is no interval.
    None {
        /// What the reports lack.
        reason: NoBlocks,
    },
}

/// A ratio, and where it lies with a probability of 95 %.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// As measured.
    pub value: f64,
    /// Lower end of the interval, where there is one.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// What the interval is made from.
    pub method: Method,
}

/// A mean of logarithms, and how well it is known.
#[derive(Copy, Clone, Debug)]
pub(super) struct Mean {
    pub value: f64,
    /// Variance of the mean.
    pub variance: f64,
    /// Degrees of freedom of that variance.
    pub free: f64,
    /// Of what it is the mean.
    pub count: usize,
}

impl Mean {
    /// The mean of at least two independent `values`.
    fn of(values: &[f64]) -> Mean {
        let count = values.len() as f64;
        let value = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|each| (each - value).powi(2)).sum();
        Mean {
            value,
            variance: squares / (count - 1.0) / count,
            free: count - 1.0,
            count: values.len(),
        }
    }
}

/// Where Student's t with `free` degrees of freedom lies above with a probability of 2.5 %.
pub(super) fn student(free: f64) -> f64 {
    let t = StudentsT::new(0.0, 1.0, free.min(MOST_FREE));
    t.map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

impl Ratio {
    /// The rate of the `other` runs over that of the `first`.
    pub(super) fn of(first: &[Report], other: &[Report]) -> Ratio {
        let (a, b) = (log_rates(first), log_rates(other));
        match (&a[..], &b[..]) {
            (&[one], &[two]) => of_single_runs(&first[0], &other[0], two - one),
            (&[one], _) => {
                let many = Mean::of(&b);
                of_one_against_repeats(many, many.value - one)
            }
            (_, &[one]) => {
                let many = Mean::of(&a);
                of_one_against_repeats(many, one - many.value)
            }
            _ => of_repeats(first, other, &a, &b),
        }
    }
}

/// One run, whose rate is taken to vary as that of the `many` repeats does.
fn of_one_against_repeats(many: Mean, difference: f64) -> Ratio {
    let repeats = many.count;
    let mean = Mean {
        value: difference,
        variance: many.variance * (1.0 + repeats as f64),
        ..many
    };
    around(mean, Method::OneAgainstRepeats { repeats })
}

fn of_repeats(first: &[Report], other: &[Report], a: &[f64], b: &[f64]) -> Ratio {
    if let Some(differences) = differences_in_turns(first, other) {
        let pairs = differences.len();
        return around(Mean::of(&differences), Method::Pairs { pairs });
    }
    let (first, other) = (a.len(), b.len());
    let difference = welch(Mean::of(a), Mean::of(b));
    around(difference, Method::Repeats { first, other })
}

fn log_rates(runs: &[Report]) -> Vec<f64> {
    let logs = runs.iter().map(|run| run.samples_per_second.ln());
    logs.collect()
}

fn of_single_runs(first: &Report, other: &Report, difference: f64) -> Ratio {
    let blocks = |report: &Report| blocks::mean(report);
    match (blocks(first), blocks(other)) {
        (Ok(a), Ok(b)) => {
            let method = Method::Blocks {
                first: a.count,
                other: b.count,
            };
            around(welch(a, b), method)
        }
        (Err(reason), _) | (_, Err(reason)) => Ratio {
            value: difference.exp(),
            low: None,
            high: None,
            method: Method::None { reason },
        },
    }
}

/// The differences of runs that took turns (each pair was over before the next began), or `None` where they did not.
fn differences_in_turns(first: &[Report], other: &[Report]) -> Option<Vec<f64>> {
    if first.len() != other.len() || first.len() < LEAST_PAIRS {
        return None;
    }
    let in_time = |runs: &[Report]| {
        let mut runs: Vec<(f64, f64)> = runs
            .iter()
            .map(|run| (run.written_at_unix_seconds, run.samples_per_second.ln()))
            .collect();
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        runs
    };
    let (first, other) = (in_time(first), in_time(other));
    let pairs: Vec<_> = first.iter().zip(&other).collect();
    let in_turns = pairs.windows(2).all(|two| {
        let [(a, b), (next_a, next_b)] = [two[0], two[1]];
        a.0.max(b.0) < next_a.0.min(next_b.0)
    });
    in_turns.then(|| pairs.iter().map(|(a, b)| b.1 - a.1).collect())
}

/// The difference of two independent means, with the degrees of freedom of Welch and Satterthwaite.
pub(super) fn welch(a: Mean, b: Mean) -> Mean {
    let variance = a.variance + b.variance;
    let each = a.variance.powi(2) / a.free + b.variance.powi(2) / b.free;
    let free = match each > 0.0 {
        true => variance.powi(2) / each,
        false => a.free + b.free,
    };
    Mean {
        value: b.value - a.value,
        variance,
        free,
        count: a.count + b.count,
    }
}

/// Student's interval around `difference`.
fn around(difference: Mean, method: Method) -> Ratio {
    let half = student(difference.free) * difference.variance.sqrt();
    let end = |side: f64| Some((difference.value + side * half).exp());
    Ratio {
        value: difference.value.exp(),
        low: end(-1.0),
        high: end(1.0),
        method,
    }
}

//! Clocks of several machines, aligned by what their ranks do together: a step ends for all of them at once.
//!
//! First by the time of day, which may be off by milliseconds; then by a line through the differences of the ends of steps, so
//! that it holds while clocks drift apart. The error is what remains of these differences.

use super::merged::CLOSE;
use super::read::RankLog;
use crate::analysis::median;
use crate::timeline::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How the clock of a machine was aligned with that of the first rank's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockFit {
    /// The machine, since it was started.
    pub boot_id: String,
    /// Ranks on it.
    pub ranks: Vec<u32>,
    /// How much later its time of day was than the first's, at the first common step.
    pub later_ns: f64,
    /// How much faster its clock goes, in parts of a million.
    pub drift_ppm: f64,
    /// 95 % of its steps end within this time of the others', once both are taken off. `None`: steps do not tell, and only the time
    /// of day was used.
    pub error_ns: Option<f64>,
}

/// Fewer common steps say nothing.
const FEWEST_STEPS: usize = 16;
/// Parts of the run of which each has a point of the line.
const PARTS: usize = 16;

/// From a rank's own clock to that of the first one's machine.
#[derive(Copy, Clone, Debug, Default)]
pub struct ToCommonClock {
    later: i128,
    line: Option<Line>,
}

impl ToCommonClock {
    /// What the first one's clock says at `at` of the rank's own.
    pub fn of(&self, at: Nanos) -> Nanos {
        let moved = Nanos(u64::try_from(i128::from(at.0) + self.later).unwrap_or(0));
        self.line.map_or(moved, |line| line.taken_off(moved))
    }
}

/// Brings `logs` on the clock of the first one's machine: how, of each, and what that came to for each other machine.
pub(super) fn align(logs: &mut [RankLog]) -> (Vec<ToCommonClock>, Vec<ClockFit>) {
    let Some(reference) = logs.first().map(|log| log.header.clone()) else {
        return (Vec::new(), Vec::new());
    };
    let mut clocks: Vec<ToCommonClock> = { logs.iter() }
        .map(|log| ToCommonClock {
            later: log.later_than(&reference),
            line: None,
        })
        .collect();
    for (log, clock) in logs.iter_mut().zip(&clocks) {
        log.move_times(|at| clock.of(at));
    }
    let mut machines: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, log) in logs.iter().enumerate() {
        let machine = machines.entry(log.header.boot_id.clone()).or_default();
        machine.push(place);
    }
    let first = machines.remove(&reference.boot_id).unwrap_or_default();
    let fits = machines.into_iter().map(|(boot_id, places)| {
        let line = Line::between(&ends(logs, &first), &ends(logs, &places));
        if let Some(line) = line {
            for place in &places {
                logs[*place].move_times(|at| line.taken_off(at));
                clocks[*place].line = Some(line);
            }
        }
        ClockFit {
            boot_id,
            ranks: places
                .iter()
                .map(|place| logs[*place].header.rank)
                .collect(),
            later_ns: line.map_or(0.0, |line| line.later),
            drift_ppm: line.map_or(0.0, |line| 1e6 * line.drift),
            error_ns: line.map(|line| line.error),
        }
    });
    let fits = fits.collect();
    (clocks, fits)
}

/// When each step ended for the ranks at `places`: the median, as far as all of them have done it.
fn ends(logs: &[RankLog], places: &[usize]) -> Vec<f64> {
    let steps = places.iter().map(|place| logs[*place].steps.len());
    let step = |number: usize| {
        let ends = places.iter().map(|place| logs[*place].steps[number].end);
        middle(ends.map(|end| end.0 as f64))
    };
    (0..steps.min().unwrap_or(0)).map(step).collect()
}

/// Zero where there are none.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    median(&values.collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// What a clock is later by: `later` at `from`, and more by `drift` of what follows.
#[derive(Copy, Clone, Debug)]
struct Line {
    from: f64,
    later: f64,
    drift: f64,
    error: f64,
}

impl Line {
    /// Of a clock that says `theirs` of the ends of steps of which the first one says `ours`; `None` where they do not end together.
    fn between(ours: &[f64], theirs: &[f64]) -> Option<Line> {
        let count = ours.len().min(theirs.len());
        if count < FEWEST_STEPS {
            return None;
        }
        let (ours, theirs) = (&ours[..count], &theirs[..count]);
        let from = theirs[0];
        let points: Vec<(f64, f64)> = { ours.iter().zip(theirs) }
            .map(|(own, their)| (their - from, their - own))
            .collect();
        // A step in which one machine stood still moves no median.
        let parts = points.chunks(count.div_ceil(PARTS));
        let parts: Vec<(f64, f64)> = parts
            .map(|part| {
                let of = |of: fn(&(f64, f64)) -> f64| middle(part.iter().map(of));
                (of(|point| point.0), of(|point| point.1))
            })
            .collect();
        // Theil and Sen: the median of the slopes between any two.
        let slopes = parts.iter().enumerate().flat_map(|(number, one)| {
            let after = parts[number + 1..].iter();
            after.map(move |other| (other.1 - one.1) / (other.0 - one.0).max(1.0))
        });
        let drift = middle(slopes);
        let later = middle(parts.iter().map(|(at, by)| by - drift * at));
        let mut left: Vec<f64> = points
            .iter()
            .map(|(at, by)| (by - later - drift * at).abs())
            .collect();
        left.sort_unstable_by(f64::total_cmp);
        let error = left[(count - 1) * 95 / 100];
        let period = (ours[count - 1] - ours[0]) / (count - 1) as f64;
        (error <= CLOSE * period).then_some(Line {
            from,
            later,
            drift,
            error,
        })
    }

    fn taken_off(self, at: Nanos) -> Nanos {
        let since = at.0 as f64 - self.from;
        let later = (self.later + self.drift * since).round() as i64;
        Nanos(at.0.saturating_add_signed(-later))
    }
}

//! Compares runs by their reports: how much faster one side is than another, how sure that is, and what else differs.
//!
//! Pure functions over reports; a side is one run or repeats of the same run. May use `report`, `analysis` and
//! `timeline`.

mod blocks;
mod differences;
mod figures;
mod ratio;
#[cfg(test)]
mod tests;

pub use blocks::NoBlocks;
pub use differences::{Mismatch, Property, SettingDifference};
pub use figures::{CauseFigures, Figures, StageFigures};
pub use ratio::{Method, Ratio};

use crate::report::Report;
use serde::Serialize;

/// Emulated devices have almost no noise; smaller differences than that do not matter.
const NOTHING: f64 = 1e-4;

/// One run, or repeats of the same run.
#[derive(Clone, Debug)]
pub struct Side {
    /// What the reader calls it.
    pub name: String,
    /// At least one, each with measured steps.
    pub runs: Vec<Report>,
}

/// How a side does against the first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// The whole interval is above 1.
    Faster,
    /// The whole interval is below 1.
    Slower,
    /// 1 is in the interval.
    NoDifference,
    /// There is no interval.
    Unknown,
}

/// A side against the first.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    /// The side's name.
    pub side: String,
    /// Its samples/s over those of the first side.
    pub samples_per_second: Ratio,
    /// What that comes to.
    pub finding: Finding,
    /// Settings that differ.
    pub settings: Vec<SettingDifference>,
    /// What else differs and makes the ratio doubtful.
    pub mismatches: Vec<Mismatch>,
}

impl Against {
    /// Whether the side is slower than the first by more than `share` (0 to 1) of its rate, noise considered.
    pub fn is_slower_by(&self, share: f64) -> bool {
        let high = self.samples_per_second.high;
        high.is_some_and(|high| high < 1.0 - share)
    }
}

/// What a side measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The side's name.
    pub side: String,
    /// Its runs.
    pub runs: usize,
    /// Settings that its own runs do not agree on.
    pub mixed_settings: Vec<String>,
    /// Means over its runs.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Some sides, the later ones against the first.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// All of them, in order.
    pub sides: Vec<Measured>,
    /// One for each side but the first.
    pub against_first: Vec<Against>,
}

impl Comparison {
    /// Compares the other `sides` with the first.
    pub fn of(sides: &[Side]) -> Comparison {
        let measured = sides.iter().map(|side| Measured {
            side: side.name.clone(),
            runs: side.runs.len(),
            mixed_settings: differences::mixed_settings(&side.runs),
            figures: Figures::of(&side.runs),
        });
        let others = sides.iter().skip(1);
        Comparison {
            sides: measured.collect(),
            against_first: others.map(|side| against(&sides[0], side)).collect(),
        }
    }
}

fn against(first: &Side, side: &Side) -> Against {
    let ratio = Ratio::of(&first.runs, &side.runs);
    let finding = match (ratio.low, ratio.high) {
        (Some(low), _) if low > 1.0 + NOTHING => Finding::Faster,
        (_, Some(high)) if high < 1.0 - NOTHING => Finding::Slower,
        (Some(_), Some(_)) => Finding::NoDifference,
        _ => Finding::Unknown,
    };
    Against {
        side: side.name.clone(),
        samples_per_second: ratio,
        finding,
        settings: differences::settings(&first.runs[0], &side.runs[0]),
        mismatches: differences::mismatches(&first.runs, &side.runs),
    }
}

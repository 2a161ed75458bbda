//! What came of a table: published, predicted and measured figures side by side, and what explains them. May use:
//! `analysis`.
//!
//! Invariant: figures are in the base unit of their column's [`Unit`] (seconds, shares of 1, plain counts), and
//! nothing measured stands anywhere but in a [`Measurement`].

use crate::analysis::predict::Estimate;
use serde::{Deserialize, Serialize};

/// A published table, and what it comes to here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    pub schema: String,
    pub schema_version: u32,
    /// As on the command line, such as `gpu-util`.
    pub table: String,
    pub title: String,
    /// Where the published figures are from.
    pub sources: Vec<Source>,
    pub made: Provenance,
    pub parts: Vec<Part>,
    /// What explains the figures, computed from the attribution of the runs.
    pub explanation: Vec<String>,
    /// What to know when reading it: deviations, data that is not the real one.
    pub notes: Vec<String>,
}

impl Reproduction {
    pub const SCHEMA: &'static str = "stallscope-reproduction";
    /// Raised when a field changes its meaning or goes away.
    pub const SCHEMA_VERSION: u32 = 1;
}

/// Where a published figure is from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Author, title, year, as far as known.
    pub title: String,
    pub url: Option<String>,
    /// What it measured on, where it says that.
    pub setup: Option<String>,
}

impl Source {
    /// One whose address is not known.
    pub fn unlinked(title: &str, setup: &str) -> Source {
        Source {
            title: title.to_owned(),
            url: None,
            setup: Some(setup.to_owned()),
        }
    }
}

/// How the measured figures came about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// For a shell.
    pub command: String,
    /// UTC, `2026-11-22`.
    pub date: String,
    pub stallscope_version: String,
    pub machine: Hardware,
    pub seed: u64,
    pub data: Vec<DataUsed>,
    /// The experiment files, relative to the folder of the results.
    pub configs: Vec<String>,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hardware {
    /// As the kernel names it.
    pub processor: String,
    /// That the process may use.
    pub cores: f64,
    pub memory_bytes: Option<u64>,
    pub operating_system: String,
    pub gpu: Option<String>,
}

/// Data that was measured with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataUsed {
    pub name: String,
    pub path: String,
    pub origin: DataOrigin,
}

/// What is known of data.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataOrigin {
    /// Its files have the published checksums.
    Real,
    /// stallscope has made it, in the same format: accuracies cannot be compared.
    Generated,
    /// The user's.
    Unknown,
}

/// One table of rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// A name for files and JSON, such as `rungs`.
    pub name: String,
    pub title: String,
    /// What a row stands for, such as `strategy`.
    pub rows_are: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// The places of the columns that a chart shows, each in a panel of its own; none: no chart.
    pub charted: Vec<usize>,
    /// How the chart is drawn.
    pub chart: ChartKind,
}

/// How the figures of a part are drawn.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChartKind {
    /// A bar for each row: published, predicted and measured beside each other.
    #[default]
    Bars,
    /// Lines over the rows, whose names are numbers, on logarithmic axes: one line for each charted column, all in
    /// one panel.
    Lines,
}

/// What a column holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Such as `GPU-Util`.
    pub name: String,
    pub unit: Unit,
}

impl Column {
    pub fn of(name: impl Into<String>, unit: Unit) -> Column {
        Column {
            name: name.into(),
            unit,
        }
    }
}

/// In what a figure is, and how it is shown.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// 0 to 1, shown in percent with one place.
    Share,
    /// 0 to 1, shown in percent with two places.
    Accuracy,
    /// Seconds, shown in the unit that suits: us, ms, s, `3 min 14 s`, h.
    Seconds,
    /// Seconds, shown in minutes.
    Minutes,
    PerSecond,
    /// How many times, shown as `1.52x`.
    Factor,
    Count,
    Bytes,
}

/// One line of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    /// What its runs have set beside the experiment file, as `key=value`.
    pub settings: Vec<String>,
    /// As many as there are columns.
    pub cells: Vec<Cell>,
    /// Why measured and published differ, or what was gained over the row before: from the attribution of the run.
    pub reason: Option<String>,
}

/// One figure of a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// As printed in the source: one figure, or a range.
    pub published: Option<Span>,
    /// What was predicted before anything of this row was measured.
    pub predicted: Option<Estimate>,
    pub measured: Option<Measurement>,
    /// In words, where there is no figure: why it was not run, or why it cannot be compared.
    pub remark: Option<String>,
}

/// A figure, or from where to where it goes.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    pub low: f64,
    pub high: f64,
}

/// What runs came to.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    pub median: f64,
    /// The least and the most of the runs.
    pub low: f64,
    pub high: f64,
    pub runs: usize,
}

impl Span {
    pub fn of(value: f64) -> Span {
        Span {
            low: value,
            high: value,
        }
    }

    pub fn range(low: f64, high: f64) -> Span {
        Span { low, high }
    }

    pub fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
}

impl Measurement {
    /// Of the figures of several runs; `None` of none.
    pub fn of(figures: &[f64]) -> Option<Measurement> {
        let mut sorted: Vec<f64> = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let (upper, lower) = (sorted[sorted.len() / 2], sorted[(sorted.len() - 1) / 2]);
        Some(Measurement {
            median: f64::midpoint(lower, upper),
            low,
            high,
            runs: sorted.len(),
        })
    }

    /// How many times as much as `other` it is: by the medians, and the least and the most that single runs of both come
    /// to. Its runs are those of the figure with fewer.
    pub fn over(self, other: Measurement) -> Measurement {
        let figures = [
            self.median / other.median,
            self.low / other.high,
            self.high / other.low,
        ];
        Measurement::over_runs(figures, self.runs.min(other.runs))
    }

    /// Of the medians of so many runs; `figures` are that and what other runs come to.
    pub fn over_runs(figures: [f64; 3], runs: usize) -> Measurement {
        Measurement {
            median: figures[0],
            low: figures.into_iter().fold(f64::INFINITY, f64::min),
            high: figures.into_iter().fold(f64::NEG_INFINITY, f64::max),
            runs,
        }
    }

    /// Whether it is above `limit`; `None` where the runs do not tell, or where there is but one.
    pub fn is_above(self, limit: f64) -> Option<bool> {
        let is_told = self.runs >= 2 && !(self.low <= limit && limit <= self.high);
        is_told.then_some(self.low > limit)
    }

    /// How sure a ratio is, in words: `0.95 to 1.08 by the runs`.
    pub fn margin(self) -> String {
        match self.runs {
            0 | 1 => "one run each, so its noise is not known".to_owned(),
            _ => format!("{:.2} to {:.2} by the runs", self.low, self.high),
        }
    }
}

impl Cell {
    pub fn measured(figures: &[f64]) -> Cell {
        Cell {
            measured: Measurement::of(figures),
            ..Cell::default()
        }
    }

    /// `published` beside what this cell has.
    pub fn beside(self, published: impl Into<Option<Span>>) -> Cell {
        Cell {
            published: published.into(),
            ..self
        }
    }

    /// With `remark`, where something was measured.
    pub fn remarked(self, remark: Option<String>) -> Cell {
        match self.measured {
            Some(_) => Cell { remark, ..self },
            None => self,
        }
    }

    /// Nothing was measured, and why.
    pub fn not_run(why: impl Into<String>) -> Cell {
        Cell {
            remark: Some(why.into()),
            ..Cell::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_told_as_far_as_its_runs_agree() {
        let over = |a: &[f64], b: &[f64]| {
            Measurement::of(a)
                .unwrap()
                .over(Measurement::of(b).unwrap())
        };
        let clear = over(&[2.0, 2.2, 2.1], &[1.0, 1.1]);
        assert!((clear.low - 2.0 / 1.1).abs() < 1e-9 && clear.high == 2.2);
        assert_eq!(
            (clear.is_above(1.0), clear.is_above(3.0)),
            (Some(true), Some(false))
        );
        assert_eq!(clear.is_above(2.0), None);
        assert_eq!(
            over(&[2.0], &[1.0, 1.1]).is_above(1.0),
            None,
            "one run shows no noise"
        );
    }

    #[test]
    fn the_median_lies_in_the_middle() {
        let of = |figures: &[f64]| Measurement::of(figures).map(|m| (m.low, m.median, m.high));
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(of(&[4.0, 1.0]), Some((1.0, 2.5, 4.0)));
        assert_eq!(of(&[]), None);
    }
}

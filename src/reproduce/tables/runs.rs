//! The runs of a table's rows, in turns: the rungs of an experiment file, or one run on several devices. May use:
//! nothing.

use super::Ask;
use crate::config::Rung;
use crate::report::Report;
use crate::reproduce::evidence::Evidence;
use crate::reproduce::lab::{DataNeed, DataPlace, Lab, LabError, Run};
use crate::reproduce::outcome::{Cell, Measurement, Span};
use std::sync::Arc;

/// What is run for a row, and what came of it.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// Of the rung, or the device.
    pub name: String,
    /// Why it is not run.
    pub lacking: Option<String>,
    /// All that is set beside the experiment file.
    pub set: Vec<String>,
    /// What the runs' folders are called, before their number.
    pub folder: String,
    pub reports: Vec<Arc<Report>>,
}

/// A row that was run, by the run in the middle.
#[derive(Copy, Clone, Debug)]
pub struct Typical<'a> {
    pub name: &'a str,
    pub run: Evidence<'a>,
    /// Samples/s of all runs.
    pub rate: Measurement,
}

/// Tables of files have a part for each of these: what its rungs do to the page cache, and its title.
pub const CACHES: [(&str, &str); 2] = [
    ("warm", "From the page cache"),
    ("cold", "From this machine's disk, page cache emptied"),
];

impl Runs {
    /// What is asked of the page cache.
    pub fn cache(&self) -> &str {
        set_to(&self.set, "page_cache").unwrap_or("warm")
    }

    fn runs(&self) -> impl Iterator<Item = Evidence<'_>> {
        self.reports.iter().map(|report| Evidence::of(report))
    }

    /// A figure of every run that has it.
    pub fn figures(&self, figure: impl Fn(Evidence<'_>) -> Option<f64>) -> Vec<f64> {
        let figures = self.runs().filter_map(figure);
        figures.filter(|figure| figure.is_finite()).collect()
    }

    /// A figure of every run, as a cell.
    pub fn cell(
        &self,
        published: impl Into<Option<Span>>,
        figure: impl Fn(Evidence<'_>) -> Option<f64>,
    ) -> Cell {
        let figures = self.figures(figure);
        let cell = match figures.is_empty() {
            false => Cell::measured(&figures),
            true if self.lacking.is_some() => Cell::not_run("not run"),
            true => Cell::not_run("not reported"),
        };
        cell.beside(published)
    }

    /// Samples/s of all runs.
    pub fn rate(&self) -> Option<Measurement> {
        Measurement::of(&self.figures(|run| Some(run.samples_per_second)))
    }

    /// The run in the middle by samples/s, where there is one.
    pub fn median(&self) -> Option<Evidence<'_>> {
        let mut runs: Vec<Evidence<'_>> = self.runs().collect();
        runs.sort_by(|a, b| a.samples_per_second.total_cmp(&b.samples_per_second));
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }

    /// The same with the name of the row, where it was run.
    pub fn typical(&self) -> Option<Typical<'_>> {
        Some(Typical {
            name: &self.name,
            run: self.median()?,
            rate: self.rate()?,
        })
    }

    /// What is said of the row: `of` its run, or why it was not run.
    pub fn reason(&self, of: impl Fn(Evidence<'_>) -> String) -> Option<String> {
        match &self.lacking {
            // What to try about each thing that is missing, `stallscope doctor` says.
            Some(why) => Some(format!(
                "not run: {}",
                why.lines().next().unwrap_or_default()
            )),
            None => self.median().map(of),
        }
    }

    /// Runs it once more.
    ///
    /// # Errors
    /// A run that failed, or was stopped.
    pub fn run(
        &mut self,
        lab: &mut dyn Lab,
        experiment: &str,
        evaluate: bool,
    ) -> Result<(), LabError> {
        let report = lab.run(&Run {
            name: &format!("{}-{}", self.folder, self.reports.len() + 1),
            experiment,
            sets: &self.set,
            evaluate,
        })?;
        self.reports.push(report);
        Ok(())
    }
}

/// Runs each of `rows` that can be run so often, in turns, so that a machine that gets slower does so in all of them.
///
/// # Errors
/// The first run that fails.
pub fn run_in_turns<'a>(
    lab: &mut dyn Lab,
    experiment: &str,
    evaluate: bool,
    rows: impl IntoIterator<Item = &'a mut Runs>,
    repeats: usize,
) -> Result<(), LabError> {
    let mut rows: Vec<&mut Runs> = rows.into_iter().collect();
    rows.retain(|row| row.lacking.is_none());
    for _ in 0..repeats {
        for row in &mut rows {
            row.run(lab, experiment, evaluate)?;
        }
    }
    Ok(())
}

/// Has the pictures made that the keys of `experiment` say, and runs every rung on them `ask.repeats` times.
///
/// # Errors
/// Data that cannot be made, and the first run that fails.
pub fn measure_rungs(
    lab: &mut dyn Lab,
    experiment: &'static str,
    ask: &Ask,
) -> Result<(DataPlace, Vec<Runs>), LabError> {
    let device = ask.one_device(lab)?;
    let images = lab.data(&DataNeed::Images { experiment })?;
    let sets: Vec<String> = std::iter::once(images.set()).chain(device).collect();
    let rungs = (1..).zip(lab.rungs(experiment)?);
    let rungs = rungs.map(|(number, rung)| Runs {
        name: rung.name,
        set: [&sets[..], &rung.set].concat(),
        folder: format!("rung{number}"),
        ..Runs::default()
    });
    let mut rungs: Vec<Runs> = rungs.collect();
    run_in_turns(lab, experiment, false, &mut rungs, ask.repeats)?;
    Ok((images, rungs))
}

/// What is run on each device.
#[derive(Clone, Debug)]
pub struct Job {
    /// Of the runs' folders, after the device's name.
    pub name: String,
    pub experiment: &'static str,
    pub sets: Vec<String>,
    pub evaluate: bool,
}

impl Job {
    /// A training for `epochs` that ends with an evaluation.
    pub fn training(experiment: &'static str, data: &DataPlace, epochs: u64) -> Job {
        Job {
            name: format!("{epochs}-epochs"),
            experiment,
            sets: vec![data.set(), format!("epochs={epochs}")],
            evaluate: true,
        }
    }

    /// Runs it `repeats` times on each of `devices` that is there, in turns.
    ///
    /// # Errors
    /// The first run that fails.
    pub fn run_on(
        &self,
        lab: &mut dyn Lab,
        devices: &[String],
        repeats: usize,
    ) -> Result<Vec<Runs>, LabError> {
        let rows = devices.iter().map(|device| Runs {
            name: device.clone(),
            lacking: lab.lacks(device),
            set: [&self.sets[..], &[format!("device={device}")]].concat(),
            folder: format!("{}-{}", device.replace(':', ""), self.name),
            ..Runs::default()
        });
        let mut rows: Vec<Runs> = rows.collect();
        run_in_turns(lab, self.experiment, self.evaluate, &mut rows, repeats)?;
        Ok(rows)
    }
}

/// What each rung sets in all where it adds to the ones before it, and the first to `sets`.
pub fn climbing(mut sets: Vec<String>, rungs: &[Rung]) -> Vec<Vec<String>> {
    let all = rungs.iter().map(|rung| {
        sets.extend(rung.set.iter().cloned());
        sets.clone()
    });
    all.collect()
}

/// What `key` is set to among `sets`, where it is.
pub fn set_to<'a>(sets: &'a [String], key: &str) -> Option<&'a str> {
    let values = sets.iter().rev();
    let mut values = values.filter_map(|set| set.strip_prefix(key)?.strip_prefix('='));
    values.next()
}

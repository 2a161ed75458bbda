//! The same run on several devices, in turns, each as far as it is there. May use: nothing.

use crate::reproduce::evidence::Evidence;
use crate::reproduce::lab::{Lab, LabError, Run};
use crate::reproduce::outcome::{Cell, Span};
use serde_json::Value;
use std::sync::Arc;

/// What is run on each device.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Of the runs' folders, after the device's name.
    pub name: &'a str,
    pub experiment: &'static str,
    pub sets: Vec<String>,
    pub evaluate: bool,
}

/// What came of it on one device.
#[derive(Clone, Debug)]
pub struct OnDevice {
    pub device: String,
    /// Why there is no such device.
    pub lacking: Option<String>,
    /// All that was set beside the experiment file.
    pub set: Vec<String>,
    pub reports: Vec<Arc<Value>>,
}

impl OnDevice {
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

    /// The run in the middle by samples/s, where there is one.
    pub fn median(&self) -> Option<Evidence<'_>> {
        let mut runs: Vec<Evidence<'_>> = self.runs().collect();
        runs.sort_by(|a, b| a.samples_per_second().total_cmp(&b.samples_per_second()));
        runs.get(runs.len().saturating_sub(1) / 2).copied()
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
}

/// Runs `job` `repeats` times on each of `devices`, in turns.
///
/// # Errors
/// The first run that fails.
pub fn run_on(
    lab: &mut dyn Lab,
    job: &Job<'_>,
    devices: &[String],
    repeats: usize,
) -> Result<Vec<OnDevice>, LabError> {
    let mut all: Vec<OnDevice> = devices
        .iter()
        .map(|device| {
            let mut set = job.sets.clone();
            set.push(format!("device={device}"));
            OnDevice {
                device: device.clone(),
                lacking: lab.lacks(device),
                set,
                reports: Vec::new(),
            }
        })
        .collect();
    for repeat in 1..=repeats {
        for one in all.iter_mut().filter(|one| one.lacking.is_none()) {
            let device = one.device.replace(':', "");
            let report = lab.run(&Run {
                name: &format!("{device}-{}-{repeat}", job.name),
                experiment: job.experiment,
                sets: &one.set,
                evaluate: job.evaluate,
            })?;
            one.reports.push(report);
        }
    }
    Ok(all)
}

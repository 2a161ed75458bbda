//! Ladders: the rungs of an experiment file, each run as often as asked for. May use: nothing.

use super::Ask;
use crate::config::Rung;
use crate::reproduce::evidence::Evidence;
use crate::reproduce::lab::{DataNeed, DataPlace, Lab, LabError, Run};
use crate::reproduce::outcome::Measurement;
use serde_json::Value;
use std::sync::Arc;

/// A rung that was run.
#[derive(Clone, Debug)]
pub struct RungRuns {
    pub name: String,
    /// All that it sets beside the experiment file.
    pub set: Vec<String>,
    pub reports: Vec<Arc<Value>>,
}

impl RungRuns {
    /// A figure of every run that has it.
    pub fn figures(&self, figure: impl Fn(Evidence<'_>) -> Option<f64>) -> Vec<f64> {
        let runs = self.reports.iter().map(|report| Evidence::of(report));
        runs.filter_map(figure)
            .filter(|figure| figure.is_finite())
            .collect()
    }

    /// Samples/s of all runs.
    pub fn rate(&self) -> Option<Measurement> {
        Measurement::of(&self.figures(|run| Some(run.samples_per_second())))
    }

    /// The run in the middle by samples/s. There is at least one.
    pub fn median(&self) -> Evidence<'_> {
        let mut runs: Vec<Evidence<'_>> = self
            .reports
            .iter()
            .map(|report| Evidence::of(report))
            .collect();
        runs.sort_by(|a, b| a.samples_per_second().total_cmp(&b.samples_per_second()));
        runs[(runs.len() - 1) / 2]
    }
}

/// Has the pictures made that the keys of `experiment` say, and runs every rung on them `ask.repeats` times.
///
/// # Errors
/// Data that cannot be made, and the first run that fails.
pub fn measure_rungs(
    lab: &mut dyn Lab,
    experiment: &'static str,
    ask: &Ask,
) -> Result<(DataPlace, Vec<RungRuns>), LabError> {
    let device = ask.one_device(lab)?;
    let images = lab.data(&DataNeed::Images { experiment })?;
    let sets: Vec<String> = std::iter::once(images.set()).chain(device).collect();
    let rungs = lab.rungs(experiment)?.into_iter();
    let mut runs: Vec<RungRuns> = rungs
        .map(|rung| RungRuns {
            name: rung.name,
            set: [&sets[..], &rung.set].concat(),
            reports: Vec::new(),
        })
        .collect();
    run_in_turns(lab, experiment, &mut runs, ask.repeats)?;
    Ok((images, runs))
}

/// What each rung sets in all where it adds to the ones before it, and the first to `sets`.
pub fn climbing(mut sets: Vec<String>, rungs: &[Rung]) -> Vec<Vec<String>> {
    let all = rungs.iter().map(|rung| {
        sets.extend(rung.set.iter().cloned());
        sets.clone()
    });
    all.collect()
}

/// Runs each of `rungs` so often, in turns, so that a machine that gets slower does so in all of them.
///
/// # Errors
/// The first run that fails.
pub fn run_in_turns(
    lab: &mut dyn Lab,
    experiment: &str,
    rungs: &mut [RungRuns],
    repeats: usize,
) -> Result<(), LabError> {
    for repeat in 1..=repeats {
        for (number, rung) in rungs.iter_mut().enumerate() {
            let report = lab.run(&Run {
                name: &format!("rung{}-{repeat}", number + 1),
                experiment,
                sets: &rung.set,
                evaluate: false,
            })?;
            rung.reports.push(report);
        }
    }
    Ok(())
}

/// What `key` is set to among `sets`, where it is.
pub fn set_to<'a>(sets: &'a [String], key: &str) -> Option<&'a str> {
    let values = sets.iter().rev();
    let mut values = values.filter_map(|set| set.strip_prefix(key)?.strip_prefix('='));
    values.next()
}

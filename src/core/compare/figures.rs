//! What a side measured: means over its runs.

use crate::report::Report;
use serde::Serialize;

/// Means over the runs of a side; times are nanoseconds, shares from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The rates are of steps: the runs are profilers' traces, which do not tell samples.
    pub counts_steps: bool,
    /// Geometric mean, since ratios are compared.
    pub samples_per_second: f64,
    /// The same of each run, in the order given.
    pub each_samples_per_second: Vec<f64>,
    /// `None` where no run has a device.
    pub device_busy_share: Option<f64>,
    /// Of the window.
    pub data_wait_share: f64,
    /// Median of the trainer's own time a step; `None` where it does none.
    pub step_p50_ns: Option<f64>,
    /// Causes of device idle time, longest first.
    pub idle_causes: Vec<CauseFigures>,
    /// In the order of the data's way.
    pub stages: Vec<StageFigures>,
}

/// One cause of device idle time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CauseFigures {
    /// In words.
    pub cause: String,
    /// Of the window.
    pub share: f64,
    /// Idle time a step.
    pub ns_per_step: f64,
}

/// One stage of the loader.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageFigures {
    /// Its name.
    pub stage: String,
    /// Threads that serve it; 0 where the trainer's own thread does.
    pub workers: usize,
    /// Of its workers' time.
    pub busy_share: f64,
    /// Median time an item.
    pub service_p50_ns: f64,
}

impl Figures {
    pub(super) fn of(runs: &[Report]) -> Figures {
        let rates: Vec<f64> = runs.iter().map(|run| run.samples_per_second).collect();
        let logs: f64 = rates.iter().map(|rate| rate.ln()).sum();
        Figures {
            counts_steps: runs.iter().all(|run| run.is_of_trace()),
            samples_per_second: (logs / rates.len() as f64).exp(),
            each_samples_per_second: rates,
            device_busy_share: mean(runs, |run| Some(run.device.as_ref()?.busy_share)),
            data_wait_share: mean(runs, |run| Some(run.data_wait_share)).unwrap_or_default(),
            step_p50_ns: mean(runs, |run| {
                (run.step.count > 0).then_some(run.step.p50.0 as f64)
            }),
            idle_causes: causes(runs),
            stages: stages(runs),
        }
    }
}

/// Over the runs that have it.
pub(super) fn mean(runs: &[Report], value: impl Fn(&Report) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = runs.iter().filter_map(value).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The names that any of the runs has, each once.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn causes(runs: &[Report]) -> Vec<CauseFigures> {
    let all = runs.iter().flat_map(|run| &run.idle_causes);
    let names = names(all.map(|cause| cause.cause.as_str()));
    // A run that does not name a cause lost no time to it.
    let per = |name: &str, whole: fn(&Report) -> u64| {
        let of_run = |run: &Report| {
            let cause = run.idle_causes.iter().find(|cause| cause.cause == name);
            let ns = cause.map_or(0, |cause| cause.ns.0);
            Some(ns as f64 / whole(run).max(1) as f64)
        };
        mean(runs, of_run).unwrap_or_default()
    };
    let mut causes: Vec<CauseFigures> = names
        .into_iter()
        .map(|name| CauseFigures {
            cause: name.to_owned(),
            share: per(name, |run| run.window_ns.0),
            ns_per_step: per(name, |run| run.steps),
        })
        .collect();
    causes.sort_by(|a, b| b.share.total_cmp(&a.share));
    causes
}

fn stages(runs: &[Report]) -> Vec<StageFigures> {
    let all = runs.iter().flat_map(|run| &run.stages);
    let names = names(all.map(|row| row.stage.name()));
    let stages = names.into_iter().filter_map(|name| {
        let row = |run: &Report| {
            run.stages
                .iter()
                .find(|row| row.stage.name() == name)
                .cloned()
        };
        Some(StageFigures {
            stage: name.to_owned(),
            workers: runs.iter().find_map(row)?.workers,
            busy_share: mean(runs, |run| Some(row(run)?.busy_share(run.window_ns)))?,
            service_p50_ns: mean(runs, |run| Some(row(run)?.service.p50.0 as f64))?,
        })
    });
    stages.collect()
}

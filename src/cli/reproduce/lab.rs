//! The world that tables are measured in: this machine. May use: `config`, `device`, `report`, `reproduce`,
//! `session`, `train`, `tune`.

use super::data::{self, refused};
use super::small_sets;
use crate::cli::args::ReproduceArgs;
use crate::cli::{out_folder, progress};
use crate::config::{Resolved, Rung, Settings, rungs};
use crate::device::probe;
use crate::report::Report;
use crate::reproduce::{Answer, DataNeed, DataPlace, KernelTimes, Lab, LabError, Question, Run};
use crate::session::{FreeStages, Predictor, WhatIf};
use crate::train::TrainError;
use crate::tune::{Outcome, TrialRunner};
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub struct ThisMachine {
    /// Of the results.
    folder: PathBuf,
    runner: TrialRunner,
    /// The user's `key=value` texts.
    sets: Vec<String>,
    /// The user's data.
    data: Option<PathBuf>,
    stop: Arc<AtomicBool>,
}

impl ThisMachine {
    /// # Errors
    /// A system that does not say which program this is, or a folder that cannot be written to.
    pub fn new(
        args: &ReproduceArgs,
        folder: &Path,
        stop: Arc<AtomicBool>,
    ) -> anyhow::Result<ThisMachine> {
        Ok(ThisMachine {
            folder: folder.to_owned(),
            runner: TrialRunner::new(
                folder,
                Vec::new(),
                tempfile::tempdir_in(folder)?,
                stop.clone(),
            )?,
            sets: args.set.clone(),
            data: args.data.clone(),
            stop,
        })
    }

    /// `value` as results have it: the user's data goes by the name of its folder, wherever that lies here.
    ///
    /// # Errors
    /// A value that is no JSON.
    pub fn published(&self, value: &impl Serialize) -> serde_json::Result<Value> {
        let typed = self.sets.iter().filter_map(|set| set.split_once('='));
        let typed = typed.map(|(_, value)| Path::new(value));
        let places = self.data.as_deref().into_iter().chain(typed);
        let mut value = serde_json::to_value(value)?;
        for place in places.filter(|place| place.is_absolute()) {
            if let (Some(path), Some(name)) = (place.to_str(), place.file_name()) {
                replace(&mut value, path, &name.to_string_lossy());
            }
        }
        Ok(value)
    }

    fn experiment(&self, name: &str) -> PathBuf {
        self.folder.join("configs").join(name)
    }

    /// The seed of the first of `experiments`.
    ///
    /// # Errors
    /// Settings that cannot be resolved.
    pub fn seed(&self, experiments: &[&str]) -> Result<u64, LabError> {
        let Some(first) = experiments.first() else {
            return Ok(0);
        };
        Ok(self.config(first)?.seed)
    }

    /// An experiment's configuration, the user's settings on top.
    fn config(&self, experiment: &str) -> Result<Resolved, LabError> {
        let settings = Settings::load(&self.experiment(experiment), &self.sets).map_err(refused)?;
        settings.resolve().map_err(refused)
    }
}

impl Lab for ThisMachine {
    fn run(&mut self, run: &Run<'_>) -> Result<Arc<Report>, LabError> {
        let mut sets = run.sets.to_vec();
        sets.extend(self.sets.iter().cloned());
        let memory = |remedy| LabError::Memory {
            run: run.name.to_owned(),
            remedy,
        };
        self.runner.experiment = self.experiment(run.experiment);
        self.runner.evaluates = run.evaluate;
        match self.runner.measure(run.name, &sets)? {
            Outcome::Fits(measured) => {
                progress::say(format!(
                    "{:<24} {:>12.1} samples/s",
                    run.name, measured.samples_per_second
                ));
                let folder = self.folder.join("runs").join(run.name);
                out_folder::write_report(&folder, &measured.report).map_err(refused)?;
                Ok(measured.report)
            }
            Outcome::OutOfMemory => Err(memory("a smaller --set batch.size, or another --device")),
            _ => Err(memory(
                "a smaller --set batch.size, or a machine with more memory",
            )),
        }
    }

    fn predict(&self, report: &Report, question: &Question) -> Result<Answer, LabError> {
        let predictor = Predictor::from_report(report).map_err(refused)?;
        let what_if = WhatIf {
            free: FreeStages {
                decode: question.free_loader,
                preprocess: question.free_loader,
            },
            stored_bytes: question.bytes_per_sample,
            ..WhatIf::default()
        };
        let mut sets = question.sets.clone();
        sets.extend(self.sets.iter().cloned());
        let prediction = predictor.predict(&sets, what_if).map_err(refused)?;
        Ok(Answer {
            samples_per_second: prediction.forecast.samples_per_second,
            device_busy: prediction.forecast.device_busy,
            assumptions: prediction.assumptions,
        })
    }

    fn rungs(&self, experiment: &str) -> Result<Vec<Rung>, LabError> {
        rungs(&self.experiment(experiment)).map_err(refused)
    }

    fn keep(&mut self, name: &str, value: &Value) -> Result<(), LabError> {
        let value = self.published(value).map_err(refused)?;
        out_folder::write(&self.folder.join(name), &format!("{value:#}")).map_err(refused)
    }

    fn data(&mut self, need: &DataNeed) -> Result<DataPlace, LabError> {
        let config = |name: &str| self.config(name);
        let own = self.data.as_deref();
        match need {
            DataNeed::Images { experiment } => data::images(&config(experiment)?, own, &self.stop),
            DataNeed::Png { experiment } => data::png(&config(experiment)?, own, &self.stop),
            DataNeed::Packed { experiment, raw } => {
                let config = config(experiment)?;
                data::packed(
                    &data::images(&config, own, &self.stop)?,
                    *raw,
                    &config,
                    &self.stop,
                )
            }
            DataNeed::Mnist => small_sets::find(&small_sets::MNIST, own, &self.stop),
            DataNeed::Cifar100 => small_sets::find(&small_sets::CIFAR100, own, &self.stop),
            DataNeed::MnistPng => small_sets::mnist_png(own, &self.stop),
        }
    }

    fn time_kernels(&mut self, arguments: &[String]) -> Result<Option<KernelTimes>, LabError> {
        let mut words: Vec<OsString> = vec!["time-kernels".into(), "--json".into()];
        words.extend(arguments.iter().map(OsString::from));
        match self.runner.finish(&words)? {
            Outcome::Fits(printed) => serde_json::from_str(&printed).map(Some).map_err(refused),
            Outcome::Failed { reason } => Err(LabError::Refused(format!(
                "timing {} failed: {reason}",
                arguments.join(" ")
            ))),
            // A CPU's memory is the machine's: the kernel ends who wants more.
            Outcome::OutOfMemory | Outcome::Killed | Outcome::TooLargeForHost => Ok(None),
        }
    }

    fn lacks(&self, device: &str) -> Option<String> {
        if let Err(TrainError::Device { reason, .. }) = TrainError::require_built(device) {
            return reason.lines().next().map(str::to_owned);
        }
        let ordinal = device.strip_prefix("cuda:")?.parse().ok()?;
        let missing = probe::cuda().require(ordinal).err()?;
        // The first is what the others follow from; `stallscope doctor` has them all.
        let first = missing.first()?;
        Some(format!("{}: {}", first.piece, first.detail))
    }

    fn say(&mut self, what: &str) {
        progress::say(what);
    }
}

/// Puts `new` for `old` in every text of `value`.
fn replace(value: &mut Value, old: &str, new: &str) {
    match value {
        Value::String(text) => *text = text.replace(old, new),
        Value::Array(values) => values.iter_mut().for_each(|value| replace(value, old, new)),
        Value::Object(values) => values
            .values_mut()
            .for_each(|value| replace(value, old, new)),
        _ => {}
    }
}

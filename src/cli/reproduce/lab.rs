//! The world that tables are measured in: this machine. May use: `config`, `device`, `reproduce`, `session`, `tune`.

use super::data;
use crate::analysis::predict::Estimate;
use crate::cli::args::ReproduceArgs;
use crate::config::{Rung, Settings, rungs};
use crate::device::probe;
use crate::reproduce::{Answer, DataNeed, DataPlace, Lab, LabError, Predicted, Question, Run};
use crate::session::{Predictor, WhatIf};
use crate::tune::{TrialResult, TrialRunner};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub struct ThisMachine {
    /// Of the results.
    folder: PathBuf,
    /// Where trials write until they are done.
    trials: tempfile::TempDir,
    program: PathBuf,
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
            trials: tempfile::tempdir_in(folder)?,
            program: std::env::current_exe()?,
            sets: args.set.clone(),
            data: args.data.clone(),
            stop,
        })
    }

    fn experiment(&self, name: &str) -> PathBuf {
        self.folder.join("configs").join(name)
    }

    fn runner(&self, run: &Run<'_>) -> TrialRunner {
        let mut command: Vec<OsString> = vec![self.program.clone().into(), "run".into()];
        command.push(self.experiment(run.experiment).into());
        command.extend(["--quiet", "--no-fit-search", "--trace", "none"].map(OsString::from));
        if !run.evaluate {
            command.push("--trial".into());
        }
        TrialRunner {
            command,
            overrides: Vec::new(),
            folder: self.trials.path().to_owned(),
            stop: self.stop.clone(),
            deadline: None,
        }
    }
}

impl Lab for ThisMachine {
    fn run(&mut self, run: &Run<'_>) -> Result<Arc<Value>, LabError> {
        let mut sets = run.sets.to_vec();
        sets.extend(self.sets.iter().cloned());
        let memory = |remedy| LabError::Memory {
            run: run.name.to_owned(),
            remedy,
        };
        match self.runner(run).run(run.name, &sets)? {
            TrialResult::Fits(measured) => {
                eprintln!(
                    "{:<24} {:>12.1} samples/s",
                    run.name, measured.samples_per_second
                );
                let text = serde_json::to_vec_pretty(&*measured.report).map_err(refused)?;
                let folder = self.folder.join("runs").join(run.name);
                fs::create_dir_all(&folder).map_err(refused)?;
                fs::write(folder.join("report.json"), text).map_err(refused)?;
                Ok(measured.report)
            }
            TrialResult::OutOfMemory => {
                Err(memory("a smaller --set batch.size, or another --device"))
            }
            TrialResult::Killed => Err(memory(
                "a smaller --set batch.size, or a machine with more memory",
            )),
        }
    }

    fn predict(&self, report: &Value, question: &Question) -> Result<Answer, LabError> {
        let predictor = Predictor::from_report(report).map_err(refused)?;
        let prediction = predictor
            .predict(&question.sets, WhatIf::default())
            .map_err(refused)?;
        Ok(Answer {
            samples_per_second: predicted(prediction.forecast.samples_per_second),
            device_busy: prediction.forecast.device_busy.map(predicted),
            assumptions: prediction.assumptions,
        })
    }

    fn rungs(&self, experiment: &str) -> Result<Vec<Rung>, LabError> {
        rungs(&self.experiment(experiment)).map_err(refused)
    }

    fn keep(&mut self, name: &str, value: &Value) -> Result<(), LabError> {
        let text = serde_json::to_vec_pretty(value).map_err(refused)?;
        fs::write(self.folder.join(name), text).map_err(refused)
    }

    fn data(&mut self, need: &DataNeed) -> Result<DataPlace, LabError> {
        let config = |name: &str| {
            let path = self.experiment(name);
            let settings = Settings::load(&path, &self.sets).map_err(refused)?;
            settings.resolve().map_err(refused)
        };
        let own = self.data.as_deref();
        match need {
            DataNeed::Images { experiment } => data::images(&config(experiment)?, own),
            DataNeed::Png { experiment } => data::png(&config(experiment)?, own),
            DataNeed::Packed { experiment, raw } => {
                let config = config(experiment)?;
                data::packed(&data::images(&config, own)?, *raw, &config, &self.stop)
            }
            DataNeed::Mnist | DataNeed::Cifar100 => Err(LabError::Refused("not yet".to_owned())),
        }
    }

    fn time_kernels(&mut self, arguments: &[String]) -> Result<Option<Value>, LabError> {
        Err(LabError::Refused(format!("not yet: {arguments:?}")))
    }

    fn lacks(&self, device: &str) -> Option<String> {
        let ordinal = device.strip_prefix("cuda:")?.parse().ok()?;
        let missing = probe::cuda().require(ordinal).err()?;
        let reasons: Vec<String> = missing.iter().map(|missing| missing.to_string()).collect();
        Some(reasons.join("; "))
    }

    fn say(&mut self, what: &str) {
        eprintln!("{what}");
    }
}

fn predicted(estimate: Estimate) -> Predicted {
    Predicted {
        value: estimate.value,
        low: estimate.low,
        high: estimate.high,
    }
}

fn refused(error: impl Into<anyhow::Error>) -> LabError {
    LabError::Refused(format!("{:#}", error.into()))
}

//! Prediction from a report: what a run with other settings, cores or another device would measure.
//!
//! The costs are those that the report's run has measured; everything else follows from the configuration,
//! which is resolved anew with the changes.

mod disk;
mod modelled;
mod ranks;
mod scenario;
mod suggested;

pub use ranks::{Binds, ManyRanks, RanksPrediction, gain_without};
pub(super) use suggested::predict_suggested;

use super::plan::plan;
use crate::analysis::Profile;
use crate::analysis::predict::{
    Doubts, Forecast, LEAST_MACHINE, Scenario, ServiceCosts, corrected, expected, forecast,
    simulate,
};
use crate::config::{ConfigError, Mode, Resolved, Settings, TypedKey};
use crate::pipeline::Plan;
use crate::report::{DataReport, FormatError, Report};
use crate::timeline::{Layout, Pipeline, Stage};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Why nothing can be predicted.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// The report lacks what predictions are made from.
    #[error("the report has no {what}, so nothing can be predicted from it\n  try: {remedy}")]
    Incomplete {
        what: &'static str,
        remedy: &'static str,
    },
    #[error(transparent)]
    Report(#[from] FormatError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A change whose effect on the costs was not measured.
    #[error(
        "`{key}` changes what is done to a sample or what trains on it, and the report has no costs for that\n  \
         try: a run with --set {key}={value}, and predict from its report"
    )]
    NotModelled { key: String, value: String },
    /// Batches or steps are not possible as asked.
    #[error("{0}")]
    Impossible(String),
}

/// What is changed beside the configuration.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct WhatIf {
    /// Of the machine; `None` leaves it as it was.
    pub cores: Option<f64>,
    /// How many times as fast a device executes steps.
    pub device_speedup: f64,
    /// What would cost the host nothing: as where pixels are stored, or the device preprocesses.
    pub free: FreeStages,
    /// What a sample would take on the disk, where the data is another; only an emulated disk's time depends on it.
    pub stored_bytes: Option<f64>,
}

/// Stages that cost nothing.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeStages {
    pub decode: bool,
    pub preprocess: bool,
}

impl Default for WhatIf {
    fn default() -> WhatIf {
        WhatIf {
            cores: None,
            device_speedup: 1.0,
            free: FreeStages::default(),
            stored_bytes: None,
        }
    }
}

/// What a run would measure, and what it would take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    #[serde(flatten)]
    pub forecast: Forecast,
    /// Of the loader's buffers and queues when they are full of the largest samples.
    pub host_memory_bytes: u64,
    /// What the prediction takes for granted, where that is not sure.
    pub assumptions: Vec<String>,
}

/// Predicts from one report.
#[derive(Clone, Debug)]
pub struct Predictor {
    pub(super) name: String,
    pub(super) typed: Vec<TypedKey>,
    pub(super) profile: Profile,
    pub(super) data: DataReport,
    pub(super) cores: f64,
    /// The configuration that was measured, and what came of it.
    pub(super) config: Resolved,
    pub(super) measured: MeasuredRun,
    part: Arc<[u32]>,
    /// What the costs of the loader are multiplied with, so that the simulation of the measured run comes to what
    /// was measured, where the loader holds it back.
    factor: f64,
    /// What the simulation, so corrected, says of the measured run, over what was measured.
    bias: f64,
    /// CPU time of a step that neither services nor the waking that is simulated account for.
    background: f64,
    /// Nanoseconds before the first batch that are not simulated, such as starting threads.
    start: f64,
    /// The share of a step on the host in which it counts as busy.
    busy_in_step: f64,
}

/// What the report's own run came to.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredRun {
    pub samples_per_second: f64,
    pub device_busy: Option<f64>,
    pub first_batch_ns: Option<f64>,
}

impl Predictor {
    /// From a run's report.
    ///
    /// # Errors
    /// A report without the costs, or of a configuration that this version does not know.
    pub fn from_report(report: &Report) -> Result<Predictor, PredictError> {
        if !report.pipeline.is_of_images() {
            return Err(PredictError::Impossible(format!(
                "the report is from a pipeline of your own ({:?}), which `predict` does not know\n  try: stallscope_core::loader::Predictor, in your program",
                report.pipeline
            )));
        }
        let typed = Vec::deserialize(&report.settings).map_err(|error| {
            let text = format!("`settings`: {error}");
            PredictError::Report(FormatError::Content(text))
        })?;
        if report.steps == 0 {
            return Err(lacks("measured steps"));
        }
        let measured = MeasuredRun {
            samples_per_second: report.samples_per_second,
            device_busy: report.device.as_ref().map(|device| device.busy_share),
            first_batch_ns: report.first_batch_ns.map(|length| length.0 as f64),
        };
        Predictor::new(
            report.name.clone(),
            typed,
            report.profile.clone().ok_or(lacks("profile"))?,
            report.data,
            report.machine.cores,
            measured,
        )
    }

    /// From the parts of a report.
    ///
    /// # Errors
    /// Costs that are missing, or a configuration that cannot be resolved.
    pub fn new(
        name: String,
        typed: Vec<TypedKey>,
        profile: Profile,
        data: DataReport,
        cores: f64,
        measured: MeasuredRun,
    ) -> Result<Predictor, PredictError> {
        if data.samples == 0 {
            return Err(PredictError::Impossible(
                "the report's data has no samples".to_owned(),
            ));
        }
        if profile.service(Stage::PREPROCESS).is_none() {
            return Err(PredictError::Incomplete {
                what: "costs of the loader: it loaded nothing while it was measured",
                remedy: "predict from a run with mode = \"normal\" or \"loader-only\"",
            });
        }
        let config = Settings::recorded(&name, &typed, &[]).resolve()?;
        let mut predictor = Predictor {
            part: (0..data.samples as u32).collect(),
            name,
            typed,
            profile,
            data,
            cores,
            config,
            measured,
            factor: 1.0,
            bias: 1.0,
            background: 0.0,
            start: 0.0,
            busy_in_step: 1.0,
        };
        predictor.calibrate()?;
        Ok(predictor)
    }

    /// Compares the simulation of the measured run with what was measured, and corrects the loader's costs by
    /// what that is off, as far as it helps.
    fn calibrate(&mut self) -> Result<(), PredictError> {
        let on_host =
            self.config.emulated.is_none() && self.profile.service(Stage::DEVICE).is_none();
        if !on_host || self.config.mode == Mode::LoaderOnly {
            self.background = self.profile.other_cpu_ns_per_step;
        }
        let (factor, (rate, busy)) = match self.config.ranks_meet() {
            // What was measured is the pace of all ranks, and this simulation knows one.
            true => (1.0, self.own()?),
            false => corrected(self.measured.samples_per_second, |factor| {
                self.factor = factor;
                self.own()
            })?,
        };
        self.factor = factor;
        self.bias = rate / self.measured.samples_per_second;
        if let Some(measured) = self.measured.device_busy.filter(|_| on_host && busy > 0.0) {
            self.busy_in_step = (measured / busy).clamp(0.1, 1.0);
        }
        if let Some(first_batch) = self.measured.first_batch_ns {
            let own = self.scenario(&self.config, WhatIf::default())?;
            self.start = (first_batch - simulate(&own, 0).first_batch).max(0.0);
        }
        Ok(())
    }

    fn own(&self) -> Result<(f64, f64), PredictError> {
        Ok(expected(&self.scenario(&self.config, WhatIf::default())?))
    }

    /// `costs`, corrected by what the simulation of the measured run was off.
    fn calibrated(&self, costs: ServiceCosts) -> ServiceCosts {
        let mut costs = costs.corrected(self.factor);
        costs.background.per_step = self.background;
        costs
    }

    /// What the report's own run came to.
    pub fn measured(&self) -> MeasuredRun {
        self.measured
    }

    /// What the simulation makes of the report's own run: its samples/s over those that were measured.
    pub fn bias(&self) -> f64 {
        self.bias
    }

    /// The configuration with `sets` (`key=value`) on top of the report's.
    ///
    /// # Errors
    /// A configuration that is wrong, or whose costs were not measured.
    pub fn resolve(&self, sets: &[String]) -> Result<Resolved, PredictError> {
        self.resolve_what_if(sets, WhatIf::default())
    }

    fn resolve_what_if(&self, sets: &[String], what_if: WhatIf) -> Result<Resolved, PredictError> {
        let config = Settings::recorded(&self.name, &self.typed, sets).resolve()?;
        modelled::modelled(&self.config, &config, sets, what_if)?;
        Ok(config)
    }

    /// What a run with `sets` would measure.
    ///
    /// # Errors
    /// As of [`resolve`](Self::resolve).
    pub fn predict(&self, sets: &[String], what_if: WhatIf) -> Result<Prediction, PredictError> {
        let config = self.resolve_what_if(sets, what_if)?;
        let scenario = self.scenario(&config, what_if)?;
        let mut forecast = forecast(&scenario, &self.doubts());
        forecast.first_batch_ns = forecast.first_batch_ns.later_by(self.start);
        if let Some(busy) = &mut forecast.device_busy {
            *busy = busy.scaled(self.busy_in_step);
        }
        let plan = self.plan(&config);
        Ok(Prediction {
            forecast,
            host_memory_bytes: self.memory(&plan),
            assumptions: modelled::assumptions(&self.config, &config, what_if),
        })
    }

    /// Only samples/s and device busy (0 to 1), in a fraction of the time.
    ///
    /// # Errors
    /// As of [`resolve`](Self::resolve).
    pub fn rate(&self, sets: &[String], what_if: WhatIf) -> Result<(f64, f64), PredictError> {
        let config = self.resolve_what_if(sets, what_if)?;
        let (rate, busy) = expected(&self.scenario(&config, what_if)?);
        Ok((rate, busy * self.busy_in_step))
    }

    /// Bytes of the loader's buffers and queues with `sets`, when they are full.
    ///
    /// # Errors
    /// As of [`resolve`](Self::resolve).
    pub fn host_memory(&self, sets: &[String]) -> Result<u64, PredictError> {
        let config = self.resolve(sets)?;
        Ok(self.memory(&self.plan(&config)))
    }

    /// How well the costs are known.
    fn doubts(&self) -> Doubts {
        self.profile.doubts(self.machine_doubt(), self.bias)
    }

    /// How much faster or slower the machine may be in another run: as it was in parts of this one.
    fn machine_doubt(&self) -> f64 {
        let drift = self.profile.drift();
        let count = drift.len().max(1) as f64;
        let variance: f64 = drift.iter().map(|part| (part - 1.0).powi(2)).sum::<f64>() / count;
        variance
            .sqrt()
            .hypot(LEAST_MACHINE)
            .hypot((self.factor - 1.0) / 2.0)
    }

    fn plan(&self, config: &Resolved) -> Plan {
        plan(config, self.part.clone(), self.data.claim_samples)
    }

    /// What the loader holds when every queue is full of the largest samples.
    fn memory(&self, plan: &Plan) -> u64 {
        let bytes = |stage, samples| self.profile.bytes_at_most(stage, samples);
        let buffers = plan.most_buffers(self.data.sample_bytes) * plan.batch_size;
        let buffers = (buffers * self.data.sample_bytes) as f64;
        // What each stage but the last has handed on, or is about to, and the next has not done yet.
        let queued: f64 = match &plan.layout {
            Layout::PerStage { samples, .. } => {
                let pairs = samples.windows(2).zip(Pipeline::IMAGES.samples());
                pairs
                    .map(|(two, stage)| {
                        bytes(stage, two[0].workers + two[0].prefetch + two[1].workers)
                    })
                    .sum()
            }
            Layout::WholeBatch { num_workers, .. } => {
                let handing_on = Pipeline::IMAGES
                    .samples()
                    .filter(|stage| !stage.finishes_samples());
                handing_on
                    .map(|stage| bytes(stage, (*num_workers).max(1)))
                    .sum()
            }
        };
        (buffers + queued) as u64
    }

    /// What is simulated for `config`.
    ///
    /// # Errors
    /// Batches that the data cannot fill.
    pub fn scenario(&self, config: &Resolved, what_if: WhatIf) -> Result<Scenario, PredictError> {
        scenario::scenario(self, config, &self.plan(config), what_if)
    }
}

/// A report without `what`.
fn lacks(what: &'static str) -> PredictError {
    let remedy = "a new run with this version, whose report has it";
    PredictError::Incomplete { what, remedy }
}

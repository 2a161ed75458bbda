//! Prediction: what a pipeline of the user's own would do with other settings, from the report of one run.

use super::settings::Settings;
use super::simulated::{batch_sizes, simulated_layout};
use crate::analysis::Profile;
use crate::analysis::predict::{
    BatchCosts, Costs, Device, Doubts, Forecast, LEAST_MACHINE, Scenario, corrected, expected,
    forecast,
};
use crate::report::Report;
use crate::timeline::{Pipeline, Stage, StageKind};

/// Why nothing can be predicted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// A part of the report is missing: which.
    #[error(
        "the report has no {0}\n  try: predict from a run of a loader that has measured some steps"
    )]
    Incomplete(&'static str),
    /// A setting that is none.
    #[error("`{0}` is not a setting of this pipeline\n  try: {1}")]
    Setting(String, String),
    /// What no run could be given.
    #[error("{0}")]
    Impossible(String),
    /// Batches of more samples than the data has.
    #[error(
        "batches of {size} are more than the {samples} samples there are\n  try: a smaller batch.size"
    )]
    Batches {
        /// Samples that a batch would have.
        size: usize,
        /// Samples of the data.
        samples: usize,
    },
}

/// Steps that are simulated at most; more of the same tell nothing new.
const MOST_STEPS: u64 = 4_000;

/// Predicts from one report.
#[derive(Clone, Debug)]
pub struct Predictor {
    pipeline: &'static Pipeline,
    settings: Settings,
    profile: Profile,
    cores: f64,
    /// What the loader's costs are multiplied with.
    factor: f64,
    /// What the simulation makes of the measured run, over what was measured.
    bias: f64,
    /// Of the samples of a batch, the share that is not skipped.
    kept: f64,
    /// The share of a simulated step in which the device counts as busy.
    busy_in_step: f64,
}

impl Predictor {
    /// From the report of a [`Loader`](super::Loader).
    ///
    /// # Errors
    /// A report of something else, or of a run that has measured nothing.
    pub fn from_report(report: &Report) -> Result<Predictor, PredictError> {
        let settings = serde_json::from_value(report.config.clone());
        let settings = settings.map_err(|_| PredictError::Incomplete("settings of a loader"))?;
        let profile = report.profile.clone();
        let profile = profile.ok_or(PredictError::Incomplete("measured costs"))?;
        let measured = report.samples_per_second;
        if measured <= 0.0 {
            return Err(PredictError::Incomplete("measured steps"));
        }
        let mut predictor = Predictor {
            pipeline: report.pipeline,
            settings,
            profile,
            cores: report.machine.cores,
            factor: 1.0,
            bias: 1.0,
            kept: 1.0,
            busy_in_step: 1.0,
        };
        // What came out of the last stage of samples.
        let last = report.pipeline.samples().next_back();
        let last = report.stages.iter().find(|row| Some(row.stage) == last);
        if let Some(row) = last.filter(|row| row.skipped < row.items) {
            predictor.kept = (row.items - row.skipped) as f64 / row.items as f64;
        }
        let measured = measured / predictor.kept;
        let (factor, (rate, busy)) = corrected(measured, |factor| {
            predictor.factor = factor;
            let own = predictor.scenario(&predictor.settings)?;
            Ok::<_, PredictError>(expected(&own))
        })?;
        predictor.factor = factor;
        predictor.bias = rate / measured;
        let measured = report.device.as_ref().map(|device| device.busy_share);
        if let Some(measured) = measured.filter(|_| busy > 0.0) {
            predictor.busy_in_step = (measured / busy).clamp(0.0, 1.0);
        }
        Ok(predictor)
    }

    /// What a run with `sets` would measure: `tokenize.workers=4`, `tokenize.prefetch=32`, `num_workers=2`,
    /// `prefetch_factor=4`, `batch.size=64`, `ordered=false`. `tokenize.cost=0.5` is what it would measure if that stage, or
    /// a named part of one, took half as long.
    ///
    /// # Errors
    /// What is no setting, or batches that the samples do not fill.
    pub fn predict(&self, sets: &[&str]) -> Result<Forecast, PredictError> {
        let mut settings = self.settings.clone();
        let mut stages = Vec::new();
        let mut other = self.clone();
        for set in sets {
            if let Some((stage, factor)) = cost(set, self.pipeline) {
                other.profile = other.profile.with_cost(stage, factor);
                continue;
            }
            settings
                .set(set, self.pipeline)
                .map_err(|valid| PredictError::Setting((*set).to_owned(), valid))?;
            let stage = set.rsplit_once('.').map(|(stage, _)| stage);
            stages.extend(stage.filter(|_| !set.starts_with("batch.size")));
        }
        if let Some(idle) = settings.idle(stages) {
            return Err(PredictError::Impossible(format!(
                "{idle}\n  try: num_workers=per-stage beside it"
            )));
        }
        if let Some(misused) = settings.stream_misused(self.pipeline) {
            return Err(PredictError::Impossible(misused));
        }
        let mut forecast = forecast(&other.scenario(&settings)?, &self.doubts());
        forecast.samples_per_second = forecast.samples_per_second.scaled(self.kept);
        forecast.bound_samples_per_second *= self.kept;
        forecast.device_busy = forecast
            .device_busy
            .map(|busy| busy.scaled(self.busy_in_step));
        Ok(forecast)
    }

    /// How well the costs are known.
    fn doubts(&self) -> Doubts {
        let machine = LEAST_MACHINE.hypot((self.factor - 1.0) / 2.0);
        self.profile.doubts(machine, self.bias)
    }

    /// What is simulated for a run with `settings`.
    fn scenario(&self, settings: &Settings) -> Result<Scenario, PredictError> {
        let plan = settings.plan(self.pipeline);
        let checked = plan.check(self.pipeline, settings.samples);
        checked.map_err(|error| PredictError::Impossible(error.to_string()))?;
        let (size, samples) = (plan.batch_size, settings.samples);
        let batches = batch_sizes(&plan, samples);
        let batches = batches.ok_or(PredictError::Batches { size, samples })?;
        let mut costs = self.profile.costs(0.0).corrected(self.factor);
        let device = match settings.devices.is_empty() {
            true => {
                // All of the caller's thread is the step.
                costs.host = Costs::default();
                self.profile.on_host(self.cores)
            }
            false => Device::Beside {
                step: self
                    .profile
                    .in_proportion(self.pipeline.the(StageKind::Device)),
                launch_wait: 0.0,
                run_ahead: settings.run_ahead.unwrap_or(usize::MAX),
                transfer: BatchCosts::default(),
                copies_ahead: 0,
            },
        };
        let steps = plan.batches.saturating_sub(settings.warmup_steps);
        Ok(Scenario {
            pipeline: self.pipeline,
            layout: simulated_layout(&plan),
            copy_ahead: (plan.copy.workers > 0).then_some(plan.copy.prefetch),
            batches,
            claim: plan.claim_size,
            ordered: plan.ordered,
            outstanding: plan.outstanding(),
            warmup: settings.warmup_steps.min(MOST_STEPS),
            steps: steps.clamp(1, MOST_STEPS),
            later: steps.saturating_sub(MOST_STEPS),
            cores: self.cores,
            others: self.profile.other_programs_cores,
            storage: None,
            costs,
            device,
            waking: self.profile.waking(),
        })
    }
}

/// The stage, or part, of `pipeline` that `set` makes cost so many times as much.
fn cost(set: &str, pipeline: &'static Pipeline) -> Option<(Stage, f64)> {
    let (name, factor) = set.split_once(".cost=")?;
    let stage = pipeline.named(name).filter(|stage| stage.of_loader())?;
    let factor = factor.parse().ok();
    Some((stage, factor.filter(|factor| (0.0..=1e6).contains(factor))?))
}

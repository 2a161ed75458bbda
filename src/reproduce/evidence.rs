//! What a run's report says, as far as tables and explanations ask. May use: `analysis`, `report`.

mod loading;

pub use loading::Passage;

use crate::analysis::Cause;
use crate::report::{Evaluation, Report};
use std::ops::Deref;

/// A report, and what follows from it.
#[derive(Copy, Clone, Debug)]
pub struct Evidence<'a>(&'a Report);

impl Deref for Evidence<'_> {
    type Target = Report;

    fn deref(&self) -> &Report {
        self.0
    }
}

impl<'a> Evidence<'a> {
    pub fn of(report: &'a Report) -> Evidence<'a> {
        Evidence(report)
    }

    /// Of the window, 0 to 1.
    pub fn device_busy(&self) -> Option<f64> {
        Some(self.device.as_ref()?.busy_share)
    }

    /// What stands for GPU-Util, 0 to 1: accelerator utilization as MLPerf Storage defines it of an emulated device, and of
    /// others the mean of what nvidia-smi would have printed.
    pub fn utilization(&self) -> Option<f64> {
        let device = self.device.as_ref()?;
        match &device.emulated {
            Some(emulated) => Some(emulated.accelerator_utilization),
            None => Some(device.nvml.as_ref()?.figures.gpu_util?.mean),
        }
    }

    /// Seconds of a step, data wait included.
    pub fn step_seconds(&self) -> f64 {
        self.window_ns.seconds() / self.steps as f64
    }

    pub fn device_name(&self) -> &'a str {
        let device = self.0.device.as_ref();
        device.map_or("no device", |device| &device.name)
    }

    /// Causes of device idle time with what they took of the window, 0 to 1; the largest first.
    pub fn idle_shares(&self) -> Vec<(Cause, f64)> {
        let window = self.window_ns.seconds();
        let causes = self.idle_causes.iter();
        let shares = causes.map(|cause| (cause.kind, cause.ns.seconds() / window));
        let mut shares: Vec<(Cause, f64)> = shares.filter(|(_, share)| *share > 0.0).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        shares
    }

    /// What a cause took of the window, 0 to 1.
    pub fn idle_by(&self, cause: Cause) -> f64 {
        let causes = self.idle_shares();
        let found = causes.iter().find(|(found, _)| *found == cause);
        found.map_or(0.0, |(_, share)| *share)
    }

    /// Seconds of a stage's service of one item; 0 where nothing was done there.
    pub fn service_seconds(&self, stage: &str) -> f64 {
        let row = self.stage_row(stage);
        row.map_or(0.0, |row| row.service.mean.seconds())
    }

    /// How the model does on `part` ("validation" or "test") after the training, 0 to 1.
    pub fn accuracy(&self, part: &str) -> Option<f64> {
        Some(self.evaluation(part)?.score.accuracy)
    }

    /// Seconds that evaluating `part` took.
    pub fn evaluation_seconds(&self, part: &str) -> Option<f64> {
        Some(self.evaluation(part)?.elapsed_ns.seconds())
    }

    /// Of the last epoch, each sample before the step that learned from it, 0 to 1.
    pub fn training_accuracy(&self) -> Option<f64> {
        Some(self.training.epochs.last()?.score.accuracy)
    }

    fn evaluation(&self, part: &str) -> Option<&'a Evaluation> {
        let mut evaluations = self.0.training.evaluations.iter();
        evaluations.find(|one| one.part == part)
    }
}

//! What a run's report says, as far as tables and explanations ask. May use: nothing.

mod loading;

pub use loading::Passage;

use serde_json::Value;

/// A view of a report.
#[derive(Copy, Clone, Debug)]
pub struct Evidence<'a>(&'a Value);

/// A cause of device idle time.
#[derive(Clone, Debug, PartialEq)]
pub struct IdleCause {
    pub cause: String,
    /// Of the window, 0 to 1.
    pub share: f64,
}

impl<'a> Evidence<'a> {
    pub fn of(report: &'a Value) -> Evidence<'a> {
        Evidence(report)
    }

    pub fn report(&self) -> &'a Value {
        self.0
    }

    pub fn samples_per_second(&self) -> f64 {
        self.number("samples_per_second")
    }

    /// Of the window, 0 to 1.
    pub fn device_busy(&self) -> Option<f64> {
        self.0["device"]["busy_share"].as_f64()
    }

    /// What stands for GPU-Util, 0 to 1: accelerator utilization as MLPerf Storage defines it of an emulated device, and of
    /// others the mean of what nvidia-smi would have printed.
    pub fn utilization(&self) -> Option<f64> {
        let device = &self.0["device"];
        let emulated = device["emulated"]["accelerator_utilization"].as_f64();
        emulated.or_else(|| device["nvml"]["gpu_util"]["mean"].as_f64())
    }

    /// The share of the step time that the trainer's thread waits for its next batch, 0 to 1.
    pub fn data_wait_share(&self) -> f64 {
        self.number("data_wait_share")
    }

    /// Seconds of a step, data wait included.
    pub fn step_seconds(&self) -> f64 {
        self.number("window_ns") / 1e9 / self.number("steps")
    }

    pub fn device_name(&self) -> &'a str {
        self.0["device"]["name"].as_str().unwrap_or("no device")
    }

    /// Causes of device idle time, the largest first.
    pub fn idle_causes(&self) -> Vec<IdleCause> {
        let window = self.number("window_ns");
        let causes = self.0["idle_causes"].as_array();
        let causes = causes.into_iter().flatten().filter_map(|cause| {
            Some(IdleCause {
                cause: cause["cause"].as_str()?.to_owned(),
                share: cause["ns"].as_f64()? / window,
            })
        });
        let mut causes: Vec<IdleCause> = causes.filter(|cause| cause.share > 0.0).collect();
        causes.sort_by(|a, b| b.share.total_cmp(&a.share));
        causes
    }

    /// What a cause took of the window, 0 to 1.
    pub fn idle_by(&self, cause: &str) -> f64 {
        let causes = self.idle_causes();
        let found = causes.iter().find(|found| found.cause == cause);
        found.map_or(0.0, |found| found.share)
    }

    /// Seconds of a stage's service of one item; 0 where nothing was done there.
    pub fn service_seconds(&self, stage: &str) -> f64 {
        let row = self.stage_row(stage);
        let mean = row.and_then(|row| row["service"]["mean_ns"].as_f64());
        mean.unwrap_or(0.0) / 1e9
    }

    /// Samples that are trained on in an epoch.
    pub fn training_samples(&self) -> f64 {
        self.0["data"]["samples"].as_f64().unwrap_or(f64::NAN)
    }

    /// How the model does on `part` ("validation" or "test") after the training, 0 to 1.
    pub fn accuracy(&self, part: &str) -> Option<f64> {
        self.evaluation(part)?["accuracy"].as_f64()
    }

    /// Seconds that evaluating `part` took.
    pub fn evaluation_seconds(&self, part: &str) -> Option<f64> {
        Some(self.evaluation(part)?["elapsed_ns"].as_f64()? / 1e9)
    }

    /// Of the last epoch, each sample before the step that learned from it, 0 to 1.
    pub fn training_accuracy(&self) -> Option<f64> {
        let epochs = self.0["training"]["epochs"].as_array()?;
        epochs.last()?["accuracy"].as_f64()
    }

    pub fn parameters(&self) -> Option<u64> {
        self.0["training"]["parameters"].as_u64()
    }

    fn number(&self, field: &str) -> f64 {
        self.0[field].as_f64().unwrap_or(f64::NAN)
    }

    fn evaluation(&self, part: &str) -> Option<&'a Value> {
        let evaluations = self.0["training"]["evaluations"].as_array()?;
        evaluations.iter().find(|one| one["part"] == part)
    }
}

//! What `stallscope tune` is led by: predictions from the reports of its own trials. May use: `session`, `tune`.

use crate::analysis::predict;
use crate::config::Settings;
use crate::session::{Predictor, WhatIf};
use crate::tune::tuning::{Estimate, Forecast, Forecaster, Size};
use serde_json::Value;
use std::path::Path;

/// Forecasts runs of the experiment at `config` with the `key=value` texts `overrides`.
///
/// # Errors
/// A configuration that is wrong.
pub(super) fn forecaster(
    config: &Path,
    overrides: &[String],
) -> anyhow::Result<Box<dyn Forecaster>> {
    // What is wrong with it is said before anything runs.
    Settings::load(config, overrides)?.resolve()?;
    Ok(Box::new(FromReports { start: None }))
}

/// Predicts from the report of the start.
struct FromReports {
    start: Option<Predictor>,
}

impl Forecaster for FromReports {
    fn forecast(&mut self, sets: &[String]) -> Result<Forecast, String> {
        let start = self.start.as_ref().ok_or("nothing has been measured yet")?;
        let config = start.resolve(sets).map_err(|error| error.to_string())?;
        let prediction = start.predict(sets, WhatIf::default());
        let prediction = prediction.map_err(|error| error.to_string())?;
        let forecast = prediction.forecast;
        let next = forecast.next_bottleneck;
        Ok(Forecast {
            samples_per_second: estimate(forecast.samples_per_second),
            device_busy: forecast.device_busy.map(estimate),
            host_memory_bytes: prediction.host_memory_bytes,
            size: Size::of(&config.pipeline),
            next_bottleneck: next.map_or_else(String::new, |next| next.resource.to_string()),
        })
    }

    fn learn(&mut self, sets: &[String], report: &Value) {
        // Only the start's costs are those that all forecasts rest on; other trials correct the forecasts.
        if sets.is_empty() || self.start.is_none() {
            self.start = Predictor::from_report(report).ok().or(self.start.take());
        }
    }
}

fn estimate(from: predict::Estimate) -> Estimate {
    Estimate {
        value: from.value,
        low: from.low,
        high: from.high,
    }
}

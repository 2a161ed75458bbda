//! What `stallscope tune` is led by: predictions from the reports of its own trials.
//!
//! Invariant: a report that forecasts rest on stays; so what was forecast once stays, too, and is not simulated
//! again. May use: `analysis`, `config`, `report`, `session`, `tune`.

mod bases;

use crate::config::Mode;
use crate::report::Report;
use crate::session::{Predictor, WhatIf};
use crate::tune::tuning::{Estimate, Forecast, Forecaster, NoForecast, Size};
use bases::Bases;
use std::collections::HashMap;

/// Where points are only ranked, forecasts are taken to be off by this share at most.
const RANKED_WITHIN: f64 = 0.03;

/// Predicts from the reports of the start, and of values that it has no costs of.
#[derive(Debug, Default)]
pub(super) struct FromReports {
    bases: Bases<Predictor>,
    ranked: HashMap<Vec<String>, Result<Forecast, NoForecast>>,
}

impl FromReports {
    fn ranked(&self, sets: &[String]) -> Result<Forecast, NoForecast> {
        self.bases.ask(sets, |predictor, changes| {
            let config = predictor.resolve(changes)?;
            let (rate, busy) = predictor.rate(changes, WhatIf::default())?;
            let has_device = config.mode != Mode::LoaderOnly;
            Ok(Forecast {
                samples_per_second: roughly(rate),
                device_busy: has_device.then(|| roughly(busy).at_most(1.0)),
                loader_memory_bytes: predictor.host_memory(changes)?,
                size: Size::of(&config.pipeline),
                next_bottleneck: None,
            })
        })
    }
}

impl Forecaster for FromReports {
    fn forecast(&mut self, sets: &[String]) -> Result<Forecast, NoForecast> {
        self.bases.ask(sets, |predictor, changes| {
            let config = predictor.resolve(changes)?;
            let prediction = predictor.predict(changes, WhatIf::default())?;
            let forecast = prediction.forecast;
            let next = forecast.next_bottleneck;
            Ok(Forecast {
                samples_per_second: forecast.samples_per_second,
                device_busy: forecast.device_busy,
                loader_memory_bytes: prediction.host_memory_bytes,
                size: Size::of(&config.pipeline),
                next_bottleneck: next.map(|next| next.resource.to_string()),
            })
        })
    }

    fn rank(&mut self, sets: &[String]) -> Result<Forecast, NoForecast> {
        if let Some(known) = self.ranked.get(sets) {
            return known.clone();
        }
        let ranked = self.ranked(sets);
        self.ranked.insert(sets.to_vec(), ranked.clone());
        ranked
    }

    fn learn(&mut self, sets: &[String], report: &Report) -> Result<(), String> {
        // Other trials correct the forecasts, which do not rest on them.
        let is_needed =
            self.bases.is_empty() || matches!(self.rank(sets), Err(NoForecast::Unforecastable(_)));
        if is_needed {
            let predictor = Predictor::from_report(report).map_err(|error| error.to_string())?;
            self.bases.add(sets, predictor);
            self.ranked.retain(|_, forecast| forecast.is_ok());
        }
        Ok(())
    }
}

fn roughly(value: f64) -> Estimate {
    Estimate {
        value,
        low: (1.0 - RANKED_WITHIN) * value,
        high: (1.0 + RANKED_WITHIN) * value,
    }
}

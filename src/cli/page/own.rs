//! What other settings of our own loader, and another device, are predicted to give.

use super::counts;
use crate::analysis::predict::Estimate;
use crate::config::Resolved;
use crate::report::{Axis, Grid, Predicted, Report};
use crate::session::{Predictor, WhatIf};
use crate::timeline::{Pipeline, Stage};
use std::time::Instant;

const WORKERS: [usize; 4] = [1, 2, 4, 8];
const NUM_WORKERS: [usize; 6] = [0, 1, 2, 4, 8, 16];
const FACTORS: [usize; 3] = [1, 2, 4];
/// So many times as fast.
const DEVICES: [&str; 3] = ["1", "2", "4"];
/// A stage that takes a smaller share of all stages' time gets no slider.
const NOTICEABLE: f64 = 0.05;

pub(super) fn grid(report: &Report, until: Instant) -> Option<Grid> {
    let predictor = Predictor::from_report(report).ok()?;
    let config = predictor.resolve(&[]).ok()?;
    let mut axes = match config.pipeline.num_workers {
        Some(now) => vec![
            set("num_workers", NUM_WORKERS, now),
            set("prefetch_factor", FACTORS, config.pipeline.prefetch_factor),
        ],
        None => { worth_workers(report) }
            .map(|stage| {
                set(
                    &format!("{stage}.workers"),
                    WORKERS,
                    workers(&config, stage),
                )
            })
            .collect(),
    };
    let size = config.pipeline.batch.size;
    let sizes = [size.div_ceil(2), 2 * size].into_iter();
    let sizes = sizes.filter(|size| *size <= report.data.samples);
    axes.push(set("batch.size", sizes, size));
    if report.device.is_some() {
        axes.push(Axis {
            name: "device speed".to_owned(),
            flag: "--device-speedup {}".to_owned(),
            values: DEVICES.map(str::to_owned).to_vec(),
            now: 0,
            is_setting: false,
        });
    }
    let shown = axes.clone();
    let predict = |places: &[usize], with_interval: bool| {
        let mut what_if = WhatIf::default();
        let mut sets = Vec::new();
        for (axis, place) in shown
            .iter()
            .zip(places)
            .filter(|(axis, place)| axis.now != **place)
        {
            let value = &axis.values[*place];
            match axis.is_setting {
                true => sets.push(format!("{}={value}", axis.name)),
                false => what_if.device_speedup = value.parse().ok()?,
            }
        }
        if !with_interval {
            let (rate, busy) = predictor.rate(&sets, what_if).ok()?;
            return Some(Predicted {
                rate: Estimate::exactly(rate),
                busy: report
                    .device
                    .is_some()
                    .then(|| Estimate::exactly(busy.min(1.0))),
            });
        }
        let forecast = predictor.predict(&sets, what_if).ok()?.forecast;
        Some(Predicted {
            rate: forecast.samples_per_second,
            busy: forecast.device_busy,
        })
    };
    Some(Grid::of(axes, report.samples_per_second, until, predict))
}

fn set(key: &str, values: impl IntoIterator<Item = usize>, now: usize) -> Axis {
    counts(key, format!("--set {key}={{}}"), values, now)
}

/// The stages whose samples take the most, two at most, in the order of the pipeline.
fn worth_workers(report: &Report) -> impl Iterator<Item = Stage> {
    let cost = |stage: Stage| {
        let services = report.profile.iter().flat_map(|profile| &profile.services);
        // With its parts.
        let own = services.filter(|service| service.stage.owner().name() == stage.name());
        own.map(|service| service.mean_ns * service.items as f64)
            .sum::<f64>()
    };
    let mut stages: Vec<Stage> = Pipeline::IMAGES.samples().collect();
    let all: f64 = stages.iter().map(|stage| cost(*stage)).sum();
    stages.retain(|stage| cost(*stage) > NOTICEABLE * all);
    stages.sort_by(|a, b| cost(*b).total_cmp(&cost(*a)));
    stages.truncate(2);
    Pipeline::IMAGES
        .samples()
        .filter(move |stage| stages.contains(stage))
}

fn workers(config: &Resolved, stage: Stage) -> usize {
    let pipeline = &config.pipeline;
    let [read, decode, preprocess] = [
        &pipeline.read.stage,
        &pipeline.decode.stage,
        &pipeline.preprocess.stage,
    ];
    let own = match stage {
        stage if stage == Stage::READ => read,
        stage if stage == Stage::DECODE => decode,
        _ => preprocess,
    };
    own.workers
}

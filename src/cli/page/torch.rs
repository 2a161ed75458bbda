//! What other arguments of a DataLoader are predicted to give.

use super::counts;
use crate::analysis::predict::torch::Predictor;
use crate::report::{Axis, Grid, Predicted, TorchReport};
use std::time::Instant;

const WORKERS: [usize; 7] = [0, 1, 2, 4, 8, 12, 16];
const FACTORS: [usize; 3] = [1, 2, 4];

pub(super) fn grid(report: &TorchReport, until: Instant) -> Option<Grid> {
    let predictor = Predictor::new(&report.costs)?;
    let now = &report.costs.loader;
    let flag = |key: &str| format!("--set {key}={{}}");
    let mut axes = vec![
        counts("num_workers", flag("num_workers"), WORKERS, now.num_workers),
        counts(
            "prefetch_factor",
            flag("prefetch_factor"),
            FACTORS,
            now.prefetch_factor,
        ),
        Axis {
            name: "persistent_workers".to_owned(),
            flag: flag("persistent_workers"),
            values: vec!["false".to_owned(), "true".to_owned()],
            now: usize::from(now.persistent_workers),
            is_setting: true,
        },
    ];
    let most = now.samples.unwrap_or(u64::MAX);
    if let Some(size) = now.batch_size {
        let sizes = [size.div_ceil(2), size, 2 * size];
        let sizes = sizes.into_iter().filter(|size| *size as u64 <= most);
        axes.push(counts("batch_size", flag("batch_size"), sizes, size));
    }
    let values: Vec<Vec<String>> = axes.iter().map(|axis| axis.values.clone()).collect();
    let predict = |places: &[usize], _| {
        let mut new = now.clone();
        let value = |axis: usize| &values[axis][places[axis]];
        let count = |axis: usize| value(axis).parse().ok();
        new.num_workers = count(0)?;
        new.prefetch_factor = count(1)?;
        // Without workers these two mean nothing.
        new.persistent_workers = value(2) == "true" && new.num_workers > 0;
        if values.len() > 3 {
            new.batch_size = count(3);
        }
        let forecast = predictor.predict(&new);
        Some(Predicted {
            rate: forecast.samples_per_second,
            busy: Some(forecast.device_busy),
        })
    };
    Some(Grid::of(axes, predictor.own(), until, predict))
}

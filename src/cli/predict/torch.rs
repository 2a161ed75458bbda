//! Predictions for a PyTorch training.
//!
//! May use: `report`, `text`.

use super::{PredictArgs, doubtful, number, row, say, table, time};
use crate::analysis::predict::torch::{LoaderForecast, Predictor};
use crate::report::{TorchReport, percent};
use crate::text::width;
use anyhow::{Context, bail};
use serde_json::json;
use std::io::Write;

/// Prints what the training of `report` would measure with other settings of its DataLoader.
pub(super) fn predict(
    args: &PredictArgs,
    report: &TorchReport,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if args.device_speedup != 1.0 || !args.free.is_empty() || args.stored_bytes.is_some() {
        bail!(
            "of a PyTorch training only other settings of its DataLoader and other cores are predicted\n  \
             try: --set num_workers=4, or --cores 8"
        );
    }
    if args.many.ranks.is_some() {
        bail!(
            "many ranks of a PyTorch training are not predicted, only those of `stallscope run`\n  \
             try: run it under torchrun with some ranks, and `stallscope report` with the folder of all"
        );
    }
    let mut costs = report.costs.clone();
    let measured = Predictor::new(&costs).context(
        "the report has no measured batches, so nothing can be predicted from it\n  try: profile a training of more steps",
    )?;
    let loader = costs.loader.with(&args.set)?;
    if let Some(cores) = args.cores {
        costs.cores = cores;
    }
    let predictor = measured.on(costs.cores);
    let forecast = predictor.predict(&loader);
    let assumptions = measured.assumptions(&loader);
    if args.output.json {
        let json = json!({
            "set": args.set,
            "cores": args.cores,
            "measured": { "samples_per_second": measured.own() },
            "model_bias": measured.bias(),
            "prediction": forecast,
            "assumptions": assumptions,
        });
        serde_json::to_writer_pretty(&mut *out, &json)?;
        return Ok(writeln!(out)?);
    }
    print(out, &measured, &forecast)?;
    if args.output.quiet {
        return Ok(());
    }
    writeln!(out)?;
    doubtful(out, measured.bias())?;
    for assumption in assumptions {
        say(out, &format!("assumed: {assumption}"))?;
    }
    match measured.advise() {
        Some(suggestion) if args.set.is_empty() => writeln!(out, "\n{}", suggestion.text())?,
        _ => {}
    }
    Ok(())
}

fn print(out: &mut dyn Write, from: &Predictor, forecast: &LoaderForecast) -> std::io::Result<()> {
    let rate = forecast.samples_per_second;
    let gain = rate.value / from.own().max(1e-9);
    let beside = format!("measured run {:.1}, so {gain:.2}x", from.own());
    let mut table = table();
    table.push(row("samples/s", rate, number, &beside));
    table.push(row("device busy", forecast.device_busy, percent, ""));
    for (name, length, beside) in [
        ("data wait p50", forecast.data_wait_p50_ns, ""),
        ("data wait p99", forecast.data_wait_p99_ns, ""),
        ("first batch", forecast.first_batch_ns, ""),
        (
            "pass",
            forecast.pass_ns,
            "over the data, with its start and end",
        ),
    ] {
        table.push(row(name, length, time, beside));
    }
    write!(out, "{}", table.render(width()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::predict::torch::{BatchCost, Cost, LoaderSettings, PassCosts, Replay};
    use crate::cli::args::{OutputArgs, RanksArgs};
    use std::path::PathBuf;

    /// Two workers that wait 10 ms for a batch of 4 samples, and steps of 2 ms.
    fn report() -> TorchReport {
        let loader = LoaderSettings {
            num_workers: 2,
            batch_size: Some(4),
            ..LoaderSettings::default()
        };
        let mut costs = Replay::new(loader, 2.0);
        let mut batch = BatchCost {
            step: Cost::waiting(2_000_000),
            busy: 1_000_000,
            next: 3_000_000,
            ..BatchCost::default()
        };
        batch.fetched(4, Cost::waiting(10_000_000));
        (0..100).for_each(|_| costs.batch(&batch));
        costs.pass(PassCosts {
            batches: 100,
            whole: true,
            ..PassCosts::default()
        });
        TorchReport {
            costs,
            ..TorchReport::default()
        }
    }

    fn predicted(set: &[&str], json: bool) -> Result<String, String> {
        let args = PredictArgs {
            report: PathBuf::new(),
            set: set.iter().map(|set| (*set).to_owned()).collect(),
            cores: None,
            device_speedup: 1.0,
            free: Vec::new(),
            stored_bytes: None,
            many: RanksArgs::default(),
            output: OutputArgs { json, quiet: false },
        };
        let mut out = Vec::new();
        predict(&args, &report(), &mut out).map_err(|error| format!("{error:#}"))?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn other_settings_of_a_data_loader_are_predicted() {
        let now = predicted(&[], false).unwrap();
        assert!(
            now.contains("so 1.00x") && now.contains("\ntry DataLoader(..., num_workers="),
            "{now}"
        );
        let json = predicted(&["num_workers=8", "prefetch_factor=4"], true).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let rate = &json["prediction"]["samples_per_second"];
        // 4 samples a step of 2 ms, and 10 ms until the first.
        let expected = 400.0 / 0.21;
        let value = rate["value"].as_f64().unwrap();
        assert!((value / expected - 1.0).abs() < 0.01, "{json}");
        assert!(rate["low"].as_f64().unwrap() < value && rate["high"].as_f64().unwrap() > value);
        let wrong = predicted(&["decode.workers=2"], false).unwrap_err();
        assert!(wrong.contains("one of num_workers"), "{wrong}");
    }
}

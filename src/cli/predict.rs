//! `stallscope predict`: what a run with other settings would measure.
//!
//! May use: `report`, `session`.

mod torch;

use super::args::{PredictArgs, word};
use super::report::{read, report_path};
use crate::analysis::predict::Estimate;
use crate::report::percent;
use crate::session::{Prediction, Predictor, WhatIf};
use crate::timeline::{Bytes, Nanos};
use anyhow::Context;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

/// Predicts what `args` asks for and prints it.
///
/// # Errors
/// A report that cannot be read or predicted from, or settings that are wrong.
pub fn predict(args: &PredictArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let path = report_path(&args.report);
    let from = || format!("cannot predict from {}", path.display());
    let report = read(&path)?;
    if let Some(of_torch) = &report.torch {
        torch::predict(args, of_torch, out).with_context(from)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let predictor = Predictor::from_report(&report).with_context(from)?;
    let what_if = WhatIf {
        cores: args.cores,
        device_speedup: args.device_speedup,
        free: args.free_stages(),
        stored_bytes: args.stored_bytes.map(|bytes| bytes as f64),
    };
    let prediction = predictor.predict(&args.set, what_if)?;
    if args.json {
        print_json(out, args, &predictor, &prediction)?;
    } else {
        print(out, &predictor, &prediction)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut dyn Write, from: &Predictor, prediction: &Prediction) -> std::io::Result<()> {
    let Prediction {
        forecast,
        host_memory_bytes,
        assumptions,
    } = prediction;
    let measured = from.measured();
    let mut row = |name: &str, value: String, interval: String, beside: String| {
        let line = format!("{name:<14} {value:>10}   {interval:<22} {beside}");
        writeln!(out, "{}", line.trim_end())
    };
    let rate = forecast.samples_per_second;
    let gain = rate.value / measured.samples_per_second;
    let was = format!(
        "measured run {:.1}, so {gain:.2}x",
        measured.samples_per_second
    );
    let number = |value: f64| format!("{value:.1}");
    row("samples/s", number(rate.value), interval(rate, number), was)?;
    if let Some(busy) = forecast.device_busy {
        let was = measured.device_busy.map(percent);
        let was = was.map_or_else(String::new, |was| format!("measured run {was}"));
        row(
            "device busy",
            percent(busy.value),
            interval(busy, percent),
            was,
        )?;
    }
    let time = |ns: f64| Nanos(ns as u64).to_string();
    for (name, wait) in [
        ("data wait p50", forecast.data_wait_p50_ns),
        ("data wait p99", forecast.data_wait_p99_ns),
        ("first batch", forecast.first_batch_ns),
    ] {
        row(name, time(wait.value), interval(wait, time), String::new())?;
    }
    let memory = Bytes(*host_memory_bytes).to_string();
    let what = "of the loader's buffers and queues when full".to_owned();
    row("host memory", memory, String::new(), what)?;
    let bound = number(forecast.bound_samples_per_second);
    let by = format!("at most, by {} alone", forecast.bound_by);
    row("bound", bound, String::new(), by)?;
    match forecast.next_bottleneck {
        Some(next) => writeln!(
            out,
            "\nnext bottleneck: {}; twice as much of it gives {:.2}x",
            next.resource, next.gain
        )?,
        None => writeln!(
            out,
            "\nnext bottleneck: none; twice as much of anything gives less than 1 %"
        )?,
    }
    doubtful(out, from.bias())?;
    for assumption in assumptions {
        writeln!(out, "assumed: {assumption}")?;
    }
    Ok(())
}

/// Says how much the simulation of the measured run is off.
fn doubtful(out: &mut dyn Write, bias: f64) -> std::io::Result<()> {
    let bias = 100.0 * (bias - 1.0);
    writeln!(
        out,
        "the simulation of the measured run itself is {bias:+.1} % off"
    )?;
    if bias.abs() > DOUBTFUL {
        writeln!(
            out,
            "warning: that is much; a longer run on a machine that does nothing else predicts better"
        )?;
    }
    Ok(())
}

/// A simulation that is so many percent off its own run is not to be trusted.
const DOUBTFUL: f64 = 15.0;

fn interval(estimate: Estimate, shown: impl Fn(f64) -> String) -> String {
    format!("[{} .. {}]", shown(estimate.low), shown(estimate.high))
}

fn print_json(
    out: &mut dyn Write,
    args: &PredictArgs,
    from: &Predictor,
    prediction: &Prediction,
) -> anyhow::Result<()> {
    let json = json!({
        "set": args.set,
        "cores": args.cores,
        "device_speedup": args.device_speedup,
        "free": args.free.iter().copied().map(word).collect::<Vec<_>>(),
        "stored_bytes": args.stored_bytes,
        "measured": from.measured(),
        "model_bias": from.bias(),
        "prediction": prediction,
    });
    serde_json::to_writer_pretty(&mut *out, &json)?;
    writeln!(out)?;
    Ok(())
}

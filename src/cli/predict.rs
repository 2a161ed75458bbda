//! `stallscope predict`: what a run with other settings would measure.
//!
//! May use: `config`, `report`, `session`, `text`.

mod ranks;
mod torch;
mod trace;

use super::args::{PredictArgs, word};
use super::report::{read, report_path};
use crate::analysis::predict::Estimate;
use crate::report::percent;
use crate::session::{Prediction, Predictor, WhatIf};
use crate::text::{Column, Table, WARNING, paragraph, width};
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
    if let Some(trace) = &report.profiler_trace {
        trace::predict(args, trace, out).with_context(from)?;
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
    if let Some(many) = args.many.many() {
        ranks::predict(args, &predictor, what_if, many, out)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let prediction = predictor.predict(&args.set, what_if)?;
    if args.output.json {
        print_json(out, args, &predictor, &prediction)?;
    } else {
        print(out, &predictor, &prediction, args.output.quiet)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print(
    out: &mut dyn Write,
    from: &Predictor,
    prediction: &Prediction,
    quiet: bool,
) -> std::io::Result<()> {
    let Prediction {
        forecast,
        host_memory_bytes,
        assumptions,
    } = prediction;
    let measured = from.measured();
    let mut table = table();
    let rate = forecast.samples_per_second;
    let gain = rate.value / measured.samples_per_second;
    let was = measured.samples_per_second;
    let was = format!("measured run {was:.1}, so {gain:.2}x");
    table.push(row("samples/s", rate, number, &was));
    if let Some(busy) = forecast.device_busy {
        let was = measured.device_busy.map(percent);
        let was = was.map_or_else(String::new, |was| format!("measured run {was}"));
        table.push(row("device busy", busy, percent, &was));
    }
    for (name, wait) in [
        ("data wait p50", forecast.data_wait_p50_ns),
        ("data wait p99", forecast.data_wait_p99_ns),
        ("first batch", forecast.first_batch_ns),
    ] {
        table.push(row(name, wait, time, ""));
    }
    let by = format!("at most, by {} alone", forecast.bound_by);
    let memory = Bytes(*host_memory_bytes).to_string();
    for [name, value, beside] in [
        [
            "host memory",
            &memory,
            "of the loader's full buffers and queues",
        ],
        ["bound", &number(forecast.bound_samples_per_second), &by],
    ] {
        table.push([name, value, "", beside].map(str::to_owned));
    }
    write!(out, "{}", table.render(width()))?;
    if quiet {
        return Ok(());
    }
    let next = match &forecast.next_bottleneck {
        Some(next) => format!(
            "{}; twice as much of it gives {:.2}x",
            next.resource, next.gain
        ),
        None => "none; twice as much of anything gives less than 1 %".to_owned(),
    };
    writeln!(out)?;
    say(out, &format!("next bottleneck: {next}"))?;
    doubtful(out, from.bias())?;
    for assumption in assumptions {
        say(out, &format!("assumed: {assumption}"))?;
    }
    Ok(())
}

/// What is predicted, its value, its interval, and what else there is to say.
fn table() -> Table {
    Table::new([
        Column::name(""),
        Column::figure(""),
        Column::words(""),
        Column::words(""),
    ])
}

fn row(name: &str, made: Estimate, shown: fn(f64) -> String, beside: &str) -> [String; 4] {
    let interval = format!("[{} .. {}]", shown(made.low), shown(made.high));
    [name, &shown(made.value), &interval, beside].map(str::to_owned)
}

fn number(value: f64) -> String {
    format!("{value:.1}")
}

fn time(ns: f64) -> String {
    Nanos(ns as u64).to_string()
}

fn say(out: &mut dyn Write, text: &str) -> std::io::Result<()> {
    write!(out, "{}", paragraph("", 0, text, width()))
}

/// Says how much the simulation of the measured run is off.
fn doubtful(out: &mut dyn Write, bias: f64) -> std::io::Result<()> {
    let bias = 100.0 * (bias - 1.0);
    let off = format!("the simulation of the measured run itself is {bias:+.1} % off");
    say(out, &off)?;
    if bias.abs() > DOUBTFUL {
        let text = "warning: that is much; a longer run on a machine that does nothing else predicts better";
        let text = paragraph("", 0, text, width());
        writeln!(out, "{WARNING}{}{WARNING:#}", text.trim_end())?;
    }
    Ok(())
}

/// A simulation that is so many percent off its own run is not to be trusted.
const DOUBTFUL: f64 = 15.0;

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

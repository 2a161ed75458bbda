//! Predictions from a trace of PyTorch's profiler alone.
//!
//! May use: `analysis`, `report`, `text`.

use super::{PredictArgs, doubtful, say};
use crate::analysis::predict::LoopChange;
use crate::report::{ProfilerTrace, percent};
use crate::text::{Column, Table, width};
use anyhow::{Context, bail};
use serde_json::json;
use std::io::Write;

/// Prints what the training of `trace` would do without waiting for data, and with a faster device.
pub(super) fn predict(
    args: &PredictArgs,
    trace: &ProfilerTrace,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let key = |set: &String| set.split('=').next().unwrap_or_default().trim().to_owned();
    let is_size = |set| ["batch_size", "batch.size"].contains(&key(set).as_str());
    if args.set.iter().any(is_size) {
        bail!(
            "a profiler's trace says neither how many samples a step has, nor what a step takes with more of them\n  \
             try: profile a few steps with that batch size"
        );
    }
    let others = args.cores.is_some() || args.stored_bytes.is_some() || args.many.ranks.is_some();
    if !args.set.is_empty() || !args.free.is_empty() || others {
        bail!(
            "a profiler's trace says how long the loop waited, and nothing of what its loader would take with other settings\n  \
             try: `stallscope torch` with the same script, whose report can be predicted from; or --device-speedup"
        );
    }
    let costs = &trace.costs;
    let bias = costs.bias().context(
        "the report has no measured steps, so nothing can be predicted from it\n  try: analyze the trace again",
    )?;
    let speedup = args.device_speedup;
    let changes = [
        ("measured", LoopChange::NOTHING),
        (
            "other device",
            LoopChange {
                waits: true,
                device_speedup: speedup,
            },
        ),
        (
            "without data wait",
            LoopChange {
                waits: false,
                device_speedup: speedup,
            },
        ),
    ];
    let changes = changes
        .into_iter()
        .filter(|(name, _)| speedup != 1.0 || *name != "other device");
    let made = changes.filter_map(|(name, change)| Some((name, costs.forecast(change)?)));
    let made: Vec<_> = made.collect();
    if args.output.json {
        let all = made
            .iter()
            .map(|(name, forecast)| (name.replace(' ', "_"), json!(forecast)));
        let json = json!({
            "device_speedup": speedup,
            "model_bias": bias,
            "predictions": all.collect::<serde_json::Map<_, _>>(),
        });
        serde_json::to_writer_pretty(&mut *out, &json)?;
        return Ok(writeln!(out)?);
    }
    let mut table = Table::new([
        Column::name(""),
        Column::figure("steps/s"),
        Column::figure("speedup"),
        Column::figure("device busy"),
    ]);
    let measured = made.first().map_or(1.0, |(_, own)| own.steps_per_second);
    for (name, forecast) in &made {
        let gain = forecast.steps_per_second / measured;
        let busy = percent(forecast.device_busy);
        let name = match *name {
            "without data wait" if speedup != 1.0 => "and without data wait",
            name => name,
        };
        table.push([
            name.to_owned(),
            format!("{:.2}", forecast.steps_per_second),
            format!("{gain:.2}x"),
            busy,
        ]);
    }
    write!(out, "{}", table.render(width()))?;
    if args.output.quiet {
        return Ok(());
    }
    writeln!(out)?;
    doubtful(out, bias)?;
    let steps = costs.steps.len();
    say(
        out,
        &format!("assumed: the other times of the {steps} steps stay as they were"),
    )?;
    Ok(())
}

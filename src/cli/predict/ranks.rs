//! Predictions for many ranks like the measured one.

use super::{PredictArgs, number, row, say, table};
use crate::config::format_bytes;
use crate::report::percent;
use crate::session::{Binds, ManyRanks, Predictor, RanksPrediction, WhatIf};
use crate::text::width;
use crate::timeline::Bytes;
use serde_json::json;
use std::io::Write;

/// Prints what so many ranks would measure together.
pub(super) fn predict(
    args: &PredictArgs,
    from: &Predictor,
    what_if: WhatIf,
    many: ManyRanks,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let prediction = from.predict_ranks(&args.set, what_if, many)?;
    if args.output.json {
        let json = json!({
            "set": args.set,
            "cores": args.cores,
            "device_speedup": args.device_speedup,
            "ranks": many.ranks,
            "nodes": many.nodes,
            "shared_bandwidth": many.shared_bandwidth,
            "node_bandwidth": many.node_bandwidth,
            "all_reduce_ns": many.all_reduce_ns,
            "measured": from.measured(),
            "model_bias": from.bias(),
            "prediction": prediction,
        });
        serde_json::to_writer_pretty(&mut *out, &json)?;
        return Ok(writeln!(out)?);
    }
    print(out, &prediction, many)?;
    if args.output.quiet {
        return Ok(());
    }
    writeln!(out)?;
    say(out, &binds(&prediction, many))?;
    super::doubtful(out, from.bias())?;
    for assumption in &prediction.assumptions {
        say(out, &format!("assumed: {assumption}"))?;
    }
    Ok(())
}

fn print(out: &mut dyn Write, made: &RanksPrediction, many: ManyRanks) -> std::io::Result<()> {
    let rate = made.samples_per_second;
    let apart = made.apart_samples_per_second;
    let of = format!(
        "{} of what {} independent ranks would reach",
        percent(rate.value / apart.max(1e-9)),
        many.ranks
    );
    let mut table = table();
    table.push(row("samples/s", rate, number, &of));
    let shares = [
        ("device busy", made.device_busy, ""),
        (
            "waiting",
            Some(made.waiting_share),
            "for the last rank of a step",
        ),
    ];
    for (name, share, beside) in shares {
        if let Some(share) = share {
            table.push([name, &percent(share), "", beside].map(str::to_owned));
        }
    }
    let read = format!("{}/s", Bytes(made.read_bytes_per_second as u64));
    table.push(["read", &read, "", "by all ranks together"].map(str::to_owned));
    write!(out, "{}", table.render(width()))
}

fn binds(made: &RanksPrediction, many: ManyRanks) -> String {
    let gain = made.gain_without;
    let rate = |rate: Option<u64>| format_bytes(rate.unwrap_or(0));
    match made.binds {
        Binds::SharedStorage => format!(
            "bound by the file server ({}/s); if it were fast enough: {gain:.2}x",
            rate(many.shared_bandwidth)
        ),
        Binds::NodeNetwork => format!(
            "bound by the network of each node ({}/s); if it were fast enough: {gain:.2}x",
            rate(many.node_bandwidth)
        ),
        Binds::SlowestRank => format!(
            "bound by the slowest rank of each step; if ranks did not wait for each other: {gain:.2}x"
        ),
        Binds::AllReduce => {
            format!("bound by averaging gradients; if that took no time: {gain:.2}x")
        }
        Binds::EachRank => format!(
            "the ranks hardly hold each other up; each is bound by {}",
            made.each_bound_by
        ),
    }
}

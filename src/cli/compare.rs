//! `stallscope compare`: which of some runs is faster, how sure that is, and what else differs.
//!
//! May use: `compare`, `report`, `text`, `timeline`.

mod answer;
mod read;
mod table;
#[cfg(test)]
mod tests;

use super::args::CompareArgs;
use super::messages;
use crate::compare::{Against, Comparison, Side};
use crate::text::{STRONG, paragraph, width};
use anyhow::ensure;
use read::ReadSide;
use serde_json::json;
use std::io::{self, Write};
use std::process::ExitCode;

const SCHEMA_VERSION: u32 = 1;

/// Compares the runs of `args` and prints what was found.
///
/// # Errors
/// A report that cannot be read, or has nothing to compare.
pub fn compare(args: &CompareArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let names = ('A'..='Z').map(String::from);
    let read = names
        .zip(&args.runs)
        .map(|(name, path)| read::side(name, path));
    let read = read.collect::<anyhow::Result<Vec<ReadSide>>>()?;
    let mut runs = read.iter().flat_map(|read| &read.side.runs);
    let of_trace = runs.next().is_some_and(|run| run.is_of_trace());
    ensure!(
        runs.all(|run| run.is_of_trace() == of_trace),
        "a profiler's trace has a rate of steps, and a run one of samples\n  \
         try: compare traces with traces, or profile both with `stallscope torch`"
    );
    let sides: Vec<Side> = read.iter().map(|read| read.side.clone()).collect();
    let comparison = Comparison::of(&sides);
    let mut warnings: Vec<String> = read.iter().flat_map(|read| read.warnings.clone()).collect();
    warnings.extend(read::same_twice(&read));
    warnings.extend(answer::warnings(&comparison));
    let slower = too_slow(&comparison, args.fail_if_slower);
    if args.output.json {
        print_json(out, &read, &comparison, &warnings, &slower)?;
    } else {
        print(out, args, &read, &comparison)?;
    }
    out.flush()?;
    for warning in &warnings {
        messages::warn(warning);
    }
    for (against, share) in &slower {
        messages::error(answer::too_slow(against, &comparison, *share));
    }
    Ok(match slower.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The sides that are slower than the `limit` allows, with it.
fn too_slow(comparison: &Comparison, limit: Option<f64>) -> Vec<(&Against, f64)> {
    let against = comparison.against_first.iter();
    let pairs = against.filter_map(|against| Some((against, limit?)));
    pairs
        .filter(|(against, limit)| against.is_slower_by(*limit))
        .collect()
}

fn print(
    out: &mut dyn Write,
    args: &CompareArgs,
    read: &[ReadSide],
    comparison: &Comparison,
) -> io::Result<()> {
    for against in &comparison.against_first {
        writeln!(
            out,
            "{STRONG}{}{STRONG:#}",
            answer::sentence(against, comparison)
        )?;
    }
    if args.output.quiet {
        return Ok(());
    }
    for line in answer::methods(comparison)
        .iter()
        .flat_map(|text| text.lines())
    {
        let indent = line.len() - line.trim_start().len();
        write!(out, "{}", paragraph("", indent, line.trim_start(), width()))?;
    }
    writeln!(out)?;
    for ReadSide { side, path, .. } in read {
        let runs = match side.runs.len() {
            1 => "1 run".to_owned(),
            runs => format!("mean of {runs} runs"),
        };
        writeln!(out, "{}  {} ({runs})", side.name, path.display())?;
    }
    write!(out, "\n{}", table::render(comparison, width()))?;
    let settings = answer::settings(comparison);
    if !settings.is_empty() {
        writeln!(out)?;
    }
    for line in settings {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn print_json(
    out: &mut dyn Write,
    read: &[ReadSide],
    comparison: &Comparison,
    warnings: &[String],
    slower: &[(&Against, f64)],
) -> anyhow::Result<()> {
    let sides = read
        .iter()
        .map(|read| json!({ "side": read.side.name, "path": read.path, "reports": read.reports }));
    let json = json!({
        "schema": "stallscope-comparison",
        "schema_version": SCHEMA_VERSION,
        "stallscope_version": env!("CARGO_PKG_VERSION"),
        "confidence": 0.95,
        "paths": sides.collect::<Vec<_>>(),
        "sides": comparison.sides,
        "against_first": comparison.against_first,
        "too_slow": slower.iter().map(|(against, _)| &against.side).collect::<Vec<_>>(),
        "warnings": warnings,
    });
    // As one text: an error of `out`, such as a closed pipe, stays one.
    let text = serde_json::to_string_pretty(&json)?;
    Ok(writeln!(out, "{text}")?)
}

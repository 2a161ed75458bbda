//! `stallscope analyze`: the report on a trace of PyTorch's profiler.
//!
//! May use: `report`, `text`.

use super::args::AnalyzeArgs;
use super::report::print_json;
use super::run::default_run_dir;
use super::{latest, out_folder, page};
use crate::report::{render_as, write_json};
use crate::text::Look;
use anyhow::Context;
use stallscope_torch::kineto::{self, AnalyzeOptions};
use std::io::Write;
use std::process::ExitCode;

/// Steps in the trace that is written.
const TRACED: u64 = 200;

/// Analyses the trace that `args` names, writes report, page and trace, and prints the verdict.
///
/// # Errors
/// A file that is no trace of PyTorch's profiler, or has no steps; a folder that cannot be written.
pub fn analyze(args: &AnalyzeArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let name = kineto::name_of(&args.trace);
    let run_dir = args
        .run_dir
        .clone()
        .unwrap_or_else(|| default_run_dir(&name));
    let mut report = kineto::analyze(&AnalyzeOptions {
        trace: args.trace.clone(),
        step: args.step.clone(),
        device: args.device,
        warmup_steps: args.warmup_steps,
        out: Some((run_dir.join("trace.json"), TRACED)),
    })?;
    out_folder::make(&run_dir)?;
    let path = run_dir.join("report.json");
    let cannot = || {
        format!(
            "cannot write {}; free some space or use another --run-dir",
            path.display()
        )
    };
    write_json(&mut report, &path).with_context(cannot)?;
    let page = page::write(&report, &path).with_context(cannot)?;
    latest::point_to(&run_dir);
    if args.shown.output.json {
        print_json(&report, out)?;
    } else {
        if !args.shown.output.quiet {
            write!(
                out,
                "{}",
                render_as(&report, &Look::coloured(args.shown.verbose))
            )?;
        }
        writeln!(out, "\nreport   {}", path.display())?;
        writeln!(out, "page     {}", page.display())?;
        if let Some(trace) = &report.trace {
            writeln!(
                out,
                "trace    {} (open it in https://ui.perfetto.dev)",
                trace.path
            )?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

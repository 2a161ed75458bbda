//! `stallscope analyze`: the report on a trace of PyTorch's profiler, or on those of several ranks.
//!
//! May use: `report`, `text`.

use super::args::{AnalyzeArgs, ReportArgs};
use super::report::{print_json, report};
use super::run::default_run_dir;
use super::{latest, out_folder, page};
use crate::report::{Report, render_as, write_json};
use crate::text::Look;
use anyhow::Context;
use stallscope_torch::kineto::{self, AnalyzeOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Steps in the trace that is written.
const TRACED: u64 = 200;

/// Analyses the traces that `args` names, writes report, page and trace of each, and prints the verdict.
///
/// # Errors
/// A file that is no trace of PyTorch's profiler, or has no steps; a folder that cannot be written.
pub fn analyze(args: &AnalyzeArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let [first, others @ ..] = &args.traces[..] else {
        return Ok(ExitCode::FAILURE);
    };
    let run_dir = args.run_dir.clone();
    let run_dir = run_dir.unwrap_or_else(|| default_run_dir(&kineto::name_of(first)));
    let run = args.join.as_deref();
    if others.is_empty() {
        let (report, path, page) = analyzed(args, first, run, &run_dir, None)?;
        // It stays the run that was joined.
        if run.is_none() {
            latest::point_to(&run_dir);
        }
        print(args, &report, &path, &page, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let of = args.traces.len() as u32;
    // What another run has left there would pass for ranks of this one.
    out_folder::make_empty(&run_dir)?;
    for (place, trace) in (0..).zip(&args.traces) {
        analyzed(args, trace, run, &run_dir, Some((place, of)))?;
    }
    if run.is_none() {
        latest::point_to(&run_dir);
    }
    let merged = ReportArgs {
        report: run_dir,
        html: None,
        open: false,
        shown: args.shown,
    };
    report(&merged, out)
}

/// The report on `trace`, joined with `run` where there is one, with where it and its page are; `rank` is its number among how
/// many.
fn analyzed(
    args: &AnalyzeArgs,
    trace: &Path,
    run: Option<&Path>,
    run_dir: &Path,
    rank: Option<(u32, u32)>,
) -> anyhow::Result<(Report, PathBuf, PathBuf)> {
    let options = AnalyzeOptions {
        step: args.step.clone(),
        device: args.device,
        warmup_steps: args.warmup_steps,
        rank,
        ..options(trace, run_dir)
    };
    let mut report = match run {
        Some(run) => kineto::join(&options, run)?,
        None => kineto::analyze(&options)?,
    };
    let own = report.profiler_trace.as_ref().and_then(|own| own.rank);
    let folder = match own.filter(|_| rank.is_some()) {
        Some(rank) => run_dir.join(format!("rank-{rank}")),
        None => run_dir.to_owned(),
    };
    let (path, page) = write(&mut report, &folder)?;
    Ok((report, path, page))
}

fn options(trace: &Path, run_dir: &Path) -> AnalyzeOptions {
    AnalyzeOptions {
        trace: trace.to_owned(),
        out: Some(run_dir.to_owned()),
        traced_steps: TRACED,
        ..AnalyzeOptions::default()
    }
}

/// Writes report and page into `folder`; returns where they are.
fn write(report: &mut Report, folder: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    out_folder::make(folder)?;
    let path = folder.join("report.json");
    let shown = path.display();
    let cannot = || format!("cannot write {shown}; free some space or use another --run-dir");
    write_json(report, &path).with_context(cannot)?;
    let page = page::write(report, &path).with_context(cannot)?;
    Ok((path, page))
}

/// Puts a trace of torch's profiler together with the run in `run`, whose it is; report, page and trace go to `folder`. Returns
/// the report, and where its page is.
///
/// # Errors
/// As of [`analyze`].
pub fn join(trace: &Path, run: &Path, folder: &Path) -> anyhow::Result<(Report, PathBuf)> {
    let mut report = kineto::join(&options(trace, folder), run)?;
    let (_, page) = write(&mut report, folder)?;
    Ok((report, page))
}

fn print(
    args: &AnalyzeArgs,
    report: &Report,
    path: &Path,
    page: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if args.shown.output.json {
        print_json(report, out)?;
    } else {
        if !args.shown.output.quiet {
            let look = Look::coloured(args.shown.verbose);
            write!(out, "{}", render_as(report, &look))?;
        }
        writeln!(out, "\nreport   {}", path.display())?;
        writeln!(out, "page     {}", page.display())?;
        if let Some(trace) = &report.trace {
            let trace = &trace.path;
            writeln!(out, "trace    {trace} (open it in https://ui.perfetto.dev)")?;
        }
    }
    Ok(out.flush()?)
}

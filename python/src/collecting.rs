//! The collector's process, in an interpreter of its own.

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use serde::Deserialize;
use stallscope::cli::{analyze::join, latest::point_to, page::write, use_colour};
use stallscope::live::{Snapshot, StatusLines};
use stallscope_core::report::{Report, Status, render_as};
use stallscope_core::text::Look;
use stallscope_torch::collector::{
    CollectOptions, OnProgress, Outcome, Progress, collect as collect_from,
};
use stallscope_torch::ring::Rings;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What the hooks ask for.
#[derive(Deserialize)]
struct Asked {
    #[serde(flatten)]
    options: CollectOptions,
    /// Print the report as JSON.
    #[serde(default)]
    json: bool,
    /// Print only where the report is.
    #[serde(default)]
    quiet: bool,
    /// Print all of the report.
    #[serde(default)]
    verbose: bool,
    /// When to print in colour.
    #[serde(default)]
    color: String,
    /// Say how the training stands while it is on.
    #[serde(default)]
    live: bool,
    /// `traces/latest` is to lead to this report.
    #[serde(default)]
    latest: bool,
}

/// Takes what the rings at `path` get until their process has said all, or has ended, writes report and trace, and prints
/// the verdict; returns the exit status.
#[pyfunction]
pub fn collect(py: Python<'_>, path: PathBuf, options: String) -> PyResult<u8> {
    let rings = Rings::open(&path)?;
    let asked: Asked = serde_json::from_str(&options)
        .map_err(|error| PyValueError::new_err(format!("options of the collector: {error}")))?;
    use_colour(&asked.color);
    let json = asked.json;
    let look = (!asked.quiet).then(|| Look::coloured(asked.verbose));
    let outcome = py.detach(|| {
        let mut status = StatusLines::new();
        let mut on_progress = |progress: Progress| {
            let snapshot = Snapshot {
                totals: progress.totals,
                ..Snapshot::default()
            };
            let snapshot = snapshot.with_findings(&progress.report);
            if let Some(line) = status.next(&snapshot) {
                // Who reads it may be gone.
                writeln!(io::stderr(), "{line}").ok();
            }
        };
        let on_progress: Option<OnProgress> = match asked.live {
            true => Some(&mut on_progress),
            false => None,
        };
        collect_from(&rings, asked.options, on_progress)
    });
    let outcome = outcome.map_err(|error| PyOSError::new_err(error.to_string()))?;
    if let Some(run_dir) = outcome.path.parent().filter(|_| asked.latest) {
        point_to(run_dir);
    }
    let page = match write(&outcome.report, &outcome.path) {
        Ok(page) => Some(page),
        Err(error) => {
            eprintln!("stallscope: no page was written: {error}");
            None
        }
    };
    // The output may be closed already.
    if json {
        print_json(&outcome).ok();
    } else {
        print(&outcome, page.as_deref(), look.as_ref()).ok();
    }
    if let (Some(trace), Some(run)) = (&outcome.profiled, outcome.path.parent()) {
        match py.detach(|| join(trace, run, &run.join("kineto"))) {
            Ok((report, page)) if !json => {
                print_joined(&report, &page, look.as_ref()).unwrap_or(())
            }
            Ok(_) => {}
            Err(error) => eprintln!("stallscope: {error:#}"),
        }
    }
    Ok(0)
}

fn print_json(outcome: &Outcome) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &outcome.report)?;
    writeln!(out)
}

/// `look` is none where only paths are wanted.
fn print(outcome: &Outcome, page: Option<&Path>, look: Option<&Look>) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    if let Some(look) = look {
        write!(out, "\n{}", render_as(&outcome.report, look))?;
    }
    if let (Status::Failed, Some(error)) = (outcome.report.status, &outcome.report.error) {
        writeln!(out, "\nthe script ended with an error: {error}")?;
    }
    writeln!(out, "\nreport   {}", outcome.path.display())?;
    if let Some(page) = page {
        writeln!(out, "page     {}", page.display())?;
    }
    if let Some(trace) = &outcome.report.trace {
        writeln!(
            out,
            "trace    {} (open it at https://ui.perfetto.dev)",
            trace.path
        )?;
    }
    if let (true, Some(events)) = (outcome.has_profiled, &outcome.events) {
        let run = events.parent().unwrap_or(events).display();
        writeln!(
            out,
            "profiler add the trace of torch.profiler: stallscope analyze TRACE --join {run}"
        )?;
    }
    let session = outcome.report.torch.as_ref().map(|torch| &torch.session);
    let run = outcome.path.parent().and_then(Path::parent);
    if let (Some(run), Some(0)) = (run, session.and_then(|session| session.rank)) {
        writeln!(
            out,
            "ranks    merge them: stallscope report {}",
            run.display()
        )?;
    }
    out.flush()
}

/// What some of the steps are with torch.profiler's trace of them.
fn print_joined(report: &Report, page: &Path, look: Option<&Look>) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    if let Some(look) = look {
        let steps = report.steps;
        writeln!(out, "\n{steps} of these steps, with torch.profiler:\n")?;
        write!(out, "{}", render_as(report, look))?;
    }
    writeln!(out, "\njoined   {}", page.display())?;
    out.flush()
}

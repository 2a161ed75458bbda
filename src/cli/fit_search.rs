//! After a run that was out of memory: the batch size that fits, found by measurement.
//!
//! The run's own process turns into the search, since as long as it lives its pools keep the memory that the
//! search needs. May use: `report`, `session`, `train`, `tune`.

use super::args::{FitSearchArgs, RunArgs};
use super::batch_size::in_words;
use super::interruption::{INTERRUPTED, interrupt_switch};
use super::{messages, progress};
use crate::report::{Report, write_json};
use crate::session::SessionError;
use crate::train::{OutOfMemory, TrainError};
use crate::tune::{MOST_FIT_TRIALS, TrialError, TrialRunner, batch_size_that_fits};
use anyhow::Context;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// For all trials together.
const TIME: Duration = Duration::from_secs(120);

/// Steps of a trial, as many as one of `batch-size`.
const STEPS: [&str; 2] = ["warmup_steps=1", "steps=20"];

/// Replaces this process, whose report is at `report`, with the search for a smaller batch. Returns where
/// none could help, or the system does not let it: the error then goes without a size that fits.
pub(super) fn become_fit_search(args: &RunArgs, report: Option<&Path>, too_large: &OutOfMemory) {
    if !too_large.smaller_batch_helps() {
        return;
    }
    let (Ok(program), Ok(error)) = (crate::tune::program(), serde_json::to_string(too_large))
    else {
        return;
    };
    let mut command = Command::new(&program[0]);
    command
        .args(&program[1..])
        .arg("fit-search")
        .arg(&args.config);
    command.arg("--error").arg(error);
    if let Some(report) = report {
        command.arg("--report").arg(report);
    }
    if args.shown.output.quiet {
        command.arg("--quiet");
    }
    for set in args.overrides() {
        command.arg("--set").arg(set);
    }
    let _failed = command.exec();
}

/// Looks for a batch size that fits, and fails as the run did, with that size in its message.
///
/// # Errors
/// Always: the run's.
pub fn fit_search(args: &FitSearchArgs) -> anyhow::Result<ExitCode> {
    let mut error: OutOfMemory =
        serde_json::from_str(&args.error).context("--error is not known")?;
    let stop = interrupt_switch()?;
    progress::say(format!(
        "batch.size = {} does not fit; looking for a batch size that fits: at most {MOST_FIT_TRIALS} short runs \
         and {} s (--no-fit-search leaves that out)",
        error.batch_size,
        TIME.as_secs()
    ));
    match search(args, &error, &stop) {
        Some(Ok(fits)) => error.fits = Some(fits),
        Some(Err(too_large)) => error.too_large = too_large,
        None => {}
    }
    let error = SessionError::Train(TrainError::OutOfMemory(Box::new(error)));
    if let Some(report) = &args.report {
        // What the run has measured is on disk in any case.
        complete(report, &error.to_string()).ok();
    }
    if stop.load(Ordering::Relaxed) {
        messages::error(&error);
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Err(error.into())
}

/// The largest size that a trial has shown to fit, or else the smallest that does not.
fn search(
    args: &FitSearchArgs,
    error: &OutOfMemory,
    stop: &Arc<AtomicBool>,
) -> Option<Result<usize, usize>> {
    let folder = tempfile::tempdir().ok()?;
    let sets = args.set.iter().cloned().chain(STEPS.map(str::to_owned));
    let mut runner = TrialRunner::new(&args.config, sets.collect(), folder, stop.clone()).ok()?;
    runner.deadline = Some(Instant::now() + TIME);
    let trial = |size| match runner.measure_batch_size(size) {
        Ok(outcome) => {
            progress::say(format!("  batch.size = {size}: {}", in_words(&outcome)));
            Some(outcome)
        }
        Err(TrialError::Stopped) => None,
        Err(error) => {
            progress::say(format!("  {error}"));
            None
        }
    };
    Some(batch_size_that_fits(error.batch_size, trial))
}

/// Writes `error` into the report at `path`.
fn complete(path: &Path, error: &str) -> anyhow::Result<()> {
    let mut report = Report::from_json(&fs::read(path)?)?;
    report.error = Some(error.to_owned());
    Ok(write_json(&mut report, path)?)
}

//! `stallscope tune`: better workers, prefetch and other keys in a few trials that forecasts lead.
//!
//! Each trial is a run in a process of its own, and on disk when it has ended. May use: `config`,
//! `session`, `tune`.

mod forecaster;
mod page;
mod printed;
mod space;
mod tuned_file;

use super::args::TuneArgs;
use super::interruption::{INTERRUPTED, interrupt_switch};
use super::run::{default_run_dir, provide_data, trial_steps};
use super::sweep::different_hardware;
use super::{messages, out_folder, progress};
use crate::config::{Resolved, Settings};
use crate::machine::memory_to_fill_bytes;
use crate::report::page::document_page;
use crate::session::training_samples;
use crate::text::width;
use crate::tune::sweep::{Manifest, SweepFolder, write_whole};
use crate::tune::tuning::{self, Attempt, Request, Trials, TuneError, Tuning};
use crate::tune::{Elsewhere, TrialError, TrialRunner};
use anyhow::{Context, bail};
use forecaster::FromReports;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measured steps of a trial at most, where nobody says how many.
const MOST_STEPS: u64 = 100;

/// Searches around the configuration of `args` and prints what it has found.
///
/// # Errors
/// A configuration or data that cannot be used, a start that does not run, and whatever keeps the results
/// from being written.
pub fn tune(args: &TuneArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let overrides = args.experiment.overrides();
    let start = Settings::load(&args.experiment.config, &overrides)?;
    let config = start.resolve()?;
    anyhow::ensure!(
        !config.mode.is_resident(),
        "with `mode = \"{}\"` nothing is loaded while it is measured, so there is nothing to tune\n  \
         try: --set mode=normal",
        config.mode.name()
    );
    provide_data(&config)?;
    let samples = training_samples(&config)?;
    let request = Request {
        space: space::space(args, &config, &start.rows(), samples)?,
        objective: args.objective.into(),
        trials: args.trials,
        most_loader_memory_bytes: {
            let own = memory_to_fill_bytes().filter(|_| args.elsewhere.launcher.is_none());
            args.max_memory.into_iter().chain(own).min()
        },
    };
    let folder = Folder::make(args, &config)?;
    let steps = steps(args, &config);
    announce(&request, steps, &folder.path);
    let sets = [&overrides[..], &trial_steps(steps, &config)].concat();
    let stop = interrupt_switch()?;
    let search = |trials: &mut dyn Trials| {
        let mut noted = |one: &Attempt| folder.note(one);
        tuning::tune(&request, &mut FromReports::default(), trials, &mut noted)
    };
    let found = match &args.elsewhere.launcher {
        None => {
            let runs = tempfile::tempdir_in(&folder.path);
            let runs = runs.context("cannot make a folder for the trials")?;
            let runner = TrialRunner::new(&args.experiment.config, sets, runs, stop)?;
            search(&mut |sets: &[String]| runner.run("trial", sets))
        }
        Some(launcher) => {
            let manifest = Manifest {
                config: args.experiment.config.clone(),
                overrides: sets,
                keeps_reports: true,
                ..Manifest::default()
            };
            let launched = SweepFolder::open(&folder.path.join("launched"), &manifest)?;
            let at_once = args.elsewhere.jobs.unwrap_or(1);
            let launcher = &mut *launcher.launcher(Some(at_once), &launched)?;
            let mut trials = Elsewhere::new((&launched, manifest), launcher, at_once, stop)?;
            let found = search(&mut trials);
            if let Err(error) = trials.end() {
                messages::warn(format!("some trials may still be running: {error}"));
            }
            if let Some(different) = different_hardware(trials.records()) {
                messages::warn(different);
            }
            found
        }
    };
    let found = match found {
        Err(TuneError::Trial(TrialError::Stopped)) => {
            eprintln!("stopped before anything was measured");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        found => found?,
    };
    let tuned = folder.path.join("tuned.toml");
    write_tuned(&tuned, args, &start, &found)?;
    let page = document_page(&page::page(args, &found, printed::command(&tuned)));
    out_folder::write(&folder.path.join("report.html"), &page)?;
    if args.output.json {
        serde_json::to_writer_pretty(&mut *out, &printed::as_json(&found, Some(&tuned)))?;
        writeln!(out)?;
    } else {
        write!(out, "{}", printed::text(&found, Some(&tuned), width()))?;
    }
    out.flush()?;
    if let Some(reason) = found.cut_off {
        bail!("the search ended early because no more trials could run: {reason}");
    }
    Ok(match found.stopped {
        true => ExitCode::from(INTERRUPTED),
        false => ExitCode::SUCCESS,
    })
}

/// Measured steps of a trial.
fn steps(args: &TuneArgs, config: &Resolved) -> usize {
    let own = config.steps.unwrap_or(MOST_STEPS).min(MOST_STEPS);
    args.steps.unwrap_or(own as usize)
}

fn announce(request: &Request, steps: usize, folder: &Path) {
    let space = &request.space;
    progress::say(format!(
        "{} settings to search, at most {} trials of {steps} steps, noted in {}:",
        space.points(),
        request.trials,
        folder.display()
    ));
    for axis in &space.axes {
        progress::say(format!("  {} = {}", axis.key, axis.values.join(", ")));
    }
}

/// Where a search writes.
struct Folder {
    path: PathBuf,
    /// A line of JSON for each trial.
    trials: PathBuf,
    file: File,
}

impl Folder {
    fn make(args: &TuneArgs, config: &Resolved) -> anyhow::Result<Folder> {
        let path = args.out.clone();
        let path = path.unwrap_or_else(|| default_run_dir(&format!("tune-{}", config.name)));
        out_folder::make(&path)?;
        let trials = path.join("trials.jsonl");
        let file = File::create_new(&trials).with_context(|| {
            format!(
                "cannot begin {}: each search needs a folder of its own",
                trials.display()
            )
        })?;
        Ok(Folder { path, trials, file })
    }

    /// Tells of a trial, and has it on disk when this returns.
    fn note(&self, attempt: &Attempt) {
        progress::say(printed::line(attempt));
        let write = || -> io::Result<()> {
            let mut line = serde_json::to_vec(attempt)?;
            line.push(b'\n');
            (&self.file).write_all(&line)?;
            self.file.sync_data()
        };
        if let Err(error) = write() {
            messages::warn(format!(
                "cannot write to {}: {error}",
                self.trials.display()
            ));
        }
    }
}

/// Writes the winner's configuration to `path`.
fn write_tuned(
    path: &Path,
    args: &TuneArgs,
    start: &Settings,
    found: &Tuning,
) -> anyhow::Result<()> {
    let sets = [args.experiment.overrides(), found.winner.sets.clone()].concat();
    let winner = Settings::load(&args.experiment.config, &sets)?;
    let text = tuned_file::text(start, &winner, &heading(path, args, found));
    write_whole(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

fn heading(path: &Path, args: &TuneArgs, found: &Tuning) -> Vec<String> {
    let config = args.experiment.config.display();
    let confirmed = found
        .confirmation
        .as_ref()
        .filter(|found| !found.start_wins);
    let measured = match confirmed {
        Some(found) => {
            let noise = match found.is_within_noise() {
                true => " and within the noise of the runs",
                false => "",
            };
            let ratio = found.ratio;
            format!("measured {ratio:.2}x the samples/s, each run twice or more{noise}")
        }
        None if found.winner.sets.is_empty() => "nothing better was found".to_owned(),
        None => {
            let ratio = found.winner.samples_per_second / found.start.samples_per_second;
            format!("measured {ratio:.2}x the samples/s, each run once")
        }
    };
    vec![
        format!("{config}, tuned by stallscope: {measured}."),
        "Paths are relative to the directory that it is run in, as they were.".to_owned(),
        format!("  stallscope run {}", path.display()),
    ]
}

//! `stallscope diagnose`: where the time of a sample goes, told twice: by the difference of runs that each leave
//! something out, and by the attribution of the normal run.
//!
//! Each run is a process of its own; the repeats of the modes are interleaved, so that a machine that gets slower
//! does so in all of them. May use: `analysis`, `config`, `session`, `tune`.

mod findings;
mod next;
mod remarks;
mod table;

use super::args::DiagnoseArgs;
use super::interruption::{INTERRUPTED, on_interrupt};
use super::run::{provide_data, require_device, trial_command};
use crate::config::{Mode, PipelineConfig, ReadMode, Resolved, Settings, SourceKind};
use crate::session::{SessionError, fits_in_memory};
use crate::tune::{Measured, TrialError, TrialResult, TrialRunner};
use anyhow::{Context, bail, ensure};
use findings::{Diagnosis, LeftOut, ModeRuns};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The modes, in the order in which they leave more and more out, and the loader alone.
const MODES: [Mode; 5] = [
    Mode::Normal,
    Mode::Cached,
    Mode::HostResident,
    Mode::DeviceOnly,
    Mode::LoaderOnly,
];

/// Runs the experiment of `args` in every mode and prints what the differences say.
///
/// # Errors
/// A configuration, data or a machine that cannot be used, or a run that failed.
pub fn diagnose(args: &DiagnoseArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let overrides = args.overrides();
    ensure!(
        !overrides.iter().any(|set| key_of(set) == "mode"),
        "`mode` is what diagnose varies: drop --set mode=..., or use `stallscope run` for one mode"
    );
    let config = Settings::load(&args.config, &overrides)?.resolve()?;
    require_device(&config)?;
    provide_data(&config, args.json)?;
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let (modes, without_cached) = modes(&config)?;
    let runs = match run_all(args, &overrides, &config, &modes) {
        Err(error) if matches!(error.downcast_ref(), Some(TrialError::Stopped)) => {
            eprintln!("stopped before there was an answer");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        runs => runs?,
    };
    let diagnosis = Diagnosis::of(args, &config, &runs, without_cached)?;
    let json = serde_json::to_string_pretty(&diagnosis)?;
    if let Some(folder) = &args.out {
        write(&folder.join("diagnosis.json"), &format!("{json}\n"))?;
    }
    if args.json {
        writeln!(out, "{json}")?;
    } else {
        write!(out, "{}", table::render(&diagnosis))?;
        if let Some(folder) = &args.out {
            let path = folder.join("diagnosis.json");
            writeln!(
                out,
                "written  {}, each run's report beside it",
                path.display()
            )?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The modes to run, and why `cached` is not among them where it is not.
fn modes(config: &Resolved) -> Result<(Vec<Mode>, Option<LeftOut>), SessionError> {
    let left_out = match fits_in_memory(config) {
        _ if reads_nothing(config) => Some(LeftOut::AlwaysInMemory),
        Err(error @ SessionError::TooLargeToCache { .. }) => {
            Some(LeftOut::TooLarge(error.to_string()))
        }
        fits => {
            fits?;
            None
        }
    };
    let runs = |mode: &Mode| *mode != Mode::Cached || left_out.is_none();
    Ok((MODES.into_iter().filter(runs).collect(), left_out))
}

/// Whether a normal run has its data in memory: a cached one would be the same.
fn reads_nothing(config: &Resolved) -> bool {
    let PipelineConfig {
        source,
        storage,
        read,
        ..
    } = &config.pipeline;
    let files = matches!(
        source.kind,
        SourceKind::ImageFolder | SourceKind::Shard | SourceKind::WebDataset
    );
    storage.is_none() && (!files || read.mode == ReadMode::Ram)
}

/// Runs every mode `args.repeats` times, in turns.
fn run_all(
    args: &DiagnoseArgs,
    overrides: &[String],
    config: &Resolved,
    modes: &[Mode],
) -> anyhow::Result<Vec<ModeRuns>> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = stop.clone();
    on_interrupt(move || stopping.store(true, Ordering::Relaxed))?;
    let folder = tempfile::tempdir().context("cannot make a folder for the runs")?;
    let command = trial_command(&args.config)?;
    let runner = |mode| TrialRunner {
        command: command.clone(),
        overrides: overrides_in(mode, args, overrides, config),
        folder: folder.path().to_owned(),
        stop: stop.clone(),
        deadline: None,
    };
    let mut runs: Vec<ModeRuns> = modes.iter().map(|mode| ModeRuns::of(*mode)).collect();
    for repeat in 1..=args.repeats {
        for runs in &mut runs {
            let name = format!("{}-{repeat}", runs.mode.name());
            let measured = run_one(&runner(runs.mode), runs.mode, &name)?;
            let rate = measured.samples_per_second;
            eprintln!("{name:<16} {rate:>10.1} samples/s");
            if let Some(folder) = &args.out {
                keep_report(&folder.join(&name), &measured)?;
            }
            runs.reports.push(measured.report);
        }
    }
    Ok(runs)
}

fn run_one(runner: &TrialRunner, mode: Mode, name: &str) -> anyhow::Result<Measured> {
    let set = format!("mode={}", mode.name());
    match runner.run(name, &[set])? {
        TrialResult::Fits(measured) => Ok(measured),
        TrialResult::OutOfMemory => bail!(
            "the run with mode = \"{}\" ran out of the device's memory; `stallscope batch-size` finds a batch that fits",
            mode.name()
        ),
        TrialResult::Killed => bail!(
            "the run with mode = \"{}\" was killed: this machine's memory was not enough; try a smaller batch.size or \
             less prefetch",
            mode.name()
        ),
    }
}

/// What the runs of `mode` are set to, apart from the mode itself.
fn overrides_in(
    mode: Mode,
    args: &DiagnoseArgs,
    overrides: &[String],
    config: &Resolved,
) -> Vec<String> {
    // What is asked of the page cache is asked of runs that read from it.
    let without_effect = |set: &&String| mode == Mode::Cached && key_of(set) == "cache";
    let kept = overrides.iter().filter(|set| !without_effect(set));
    let mut all: Vec<String> = kept.cloned().collect();
    if let Some(steps) = args.steps {
        all.push(format!("steps={steps}"));
        if config.epochs.is_some() {
            let batches = config.warmup_steps.saturating_add(steps as u64);
            all.push(format!("epochs={}", batches.min(1 << 32)));
        }
    }
    all
}

fn keep_report(folder: &Path, measured: &Measured) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let text = serde_json::to_string_pretty(&*measured.report)?;
    write(&folder.join("report.json"), &text)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| {
        let path = path.display();
        format!("cannot write {path}; free some space or use another --out")
    })
}

/// The key that `key=value` sets.
fn key_of(set: &str) -> &str {
    set.split('=').next().unwrap_or_default().trim()
}

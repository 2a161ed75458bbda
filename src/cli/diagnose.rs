//! `stallscope diagnose`: where the time of a sample goes, measured twice: by the difference of runs that each leave
//! something out, and by the attribution of the normal run.
//!
//! Each run is a process of its own; the repeats of the modes are interleaved, so that a machine that gets slower
//! does so in all of them. May use: `analysis`, `config`, `session`, `tune`.

mod findings;
mod largest;
mod next;
mod page;
mod remarks;
mod table;

use super::args::DiagnoseArgs;
use super::interruption::{INTERRUPTED, interrupt_switch};
use super::run::{provide_data, require_device, trial_steps};
use super::{messages, out_folder, progress};
use crate::config::{Mode, ReadMode, Resolved, Settings, key_of};
use crate::report::page::document_page;
use crate::session::{SessionError, fits_in_memory};
use crate::text::Look;
use crate::tune::{Outcome, TrialError, TrialRunner};
use anyhow::{Context, bail, ensure};
use findings::{Diagnosis, LeftOut, ModeRuns};
use std::io::Write;
use std::process::ExitCode;

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
    let overrides = args.experiment.overrides();
    ensure!(
        !overrides.iter().any(|set| key_of(set) == "mode"),
        "`mode` is what diagnose varies: drop --set mode=..., or use `stallscope run` for one mode"
    );
    // Whatever mode the file names, every mode is run, and the normal one is what they are compared with.
    let config = Settings::load(
        &args.experiment.config,
        &[&overrides[..], &["mode=normal".to_owned()]].concat(),
    );
    let config = config?.resolve()?;
    require_device(&config)?;
    if let Some(folder) = &args.out {
        out_folder::make_empty(folder)?;
    }
    provide_data(&config)?;
    let (modes, without_cached) = modes(&config)?;
    let (runs, did_not_fit) = match run_all(args, &overrides, &config, &modes) {
        Err(error) if matches!(error.downcast_ref(), Some(TrialError::Stopped)) => {
            eprintln!("stopped before there was an answer");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        runs => runs?,
    };
    let diagnosis = Diagnosis::of(args, &config, &runs, without_cached.or(did_not_fit))?;
    let json = serde_json::to_string_pretty(&diagnosis)?;
    if let Some(folder) = &args.out {
        out_folder::write(&folder.join("diagnosis.json"), &format!("{json}\n"))?;
        let page = document_page(&page::page(&diagnosis));
        out_folder::write(&folder.join("report.html"), &page)?;
    }
    if args.output.json {
        writeln!(out, "{json}")?;
    } else {
        write!(out, "{}", table::render(&diagnosis, &Look::coloured(false)))?;
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
    let pipeline = &config.pipeline;
    let files = pipeline.source.kind.has_photos();
    pipeline.storage.is_none() && (!files || pipeline.read.mode == ReadMode::Ram)
}

/// Runs every mode `args.repeats` times, in turns, as [`in_turns`] does.
fn run_all(
    args: &DiagnoseArgs,
    overrides: &[String],
    config: &Resolved,
    modes: &[Mode],
) -> anyhow::Result<Runs> {
    let folder = tempfile::tempdir().context("cannot make a folder for the runs")?;
    let mut runner = TrialRunner::new(
        &args.experiment.config,
        Vec::new(),
        folder,
        interrupt_switch()?,
    )?;
    in_turns(modes, args.repeats, &mut |mode, name| {
        runner.overrides = overrides_in(mode, args, overrides, config);
        let result = runner.measure(name, &[format!("mode={}", mode.name())])?;
        if let Outcome::Fits(measured) = &result {
            let rate = measured.samples_per_second;
            progress::say(format!("{name:<16} {rate:>10.1} samples/s"));
            if let Some(folder) = &args.out {
                out_folder::write_report(&folder.join(name), &measured.report)?;
            }
        }
        Ok(result)
    })
}

/// The runs of each mode, and why there are no cached ones where memory did not suffice.
type Runs = (Vec<ModeRuns>, Option<LeftOut>);

/// Has `run` run every one of `modes` so often, in turns. Where memory does not suffice for a cached run, there
/// are none, and why comes with the others.
fn in_turns(
    modes: &[Mode],
    repeats: usize,
    run: &mut dyn FnMut(Mode, &str) -> anyhow::Result<Outcome>,
) -> anyhow::Result<Runs> {
    let none = |mode: &Mode| ModeRuns {
        mode: *mode,
        reports: Vec::new(),
    };
    let mut runs: Vec<ModeRuns> = modes.iter().map(none).collect();
    let mut left_out = None;
    for repeat in 1..=repeats {
        for runs in &mut runs {
            let mode = runs.mode;
            if mode == Mode::Cached && left_out.is_some() {
                continue;
            }
            match run(mode, &format!("{}-{repeat}", mode.name()))? {
                Outcome::Fits(measured) => runs.reports.push(measured.report),
                lacking if mode == Mode::Cached => {
                    let why = without_memory(mode, &lacking);
                    messages::warn(format!("{why}; the other modes are measured without it"));
                    left_out = Some(LeftOut::TooLarge(why));
                }
                lacking => bail!("{}{}", without_memory(mode, &lacking), remedy(&lacking)),
            }
        }
    }
    runs.retain(|runs| runs.mode != Mode::Cached || left_out.is_none());
    Ok((runs, left_out))
}

fn without_memory(mode: Mode, result: &Outcome) -> String {
    let how = match result {
        Outcome::OutOfMemory => "ran out of the device's memory",
        _ => "was killed: this machine's memory was not enough",
    };
    format!("the run with mode = \"{}\" {how}", mode.name())
}

fn remedy(result: &Outcome) -> &'static str {
    match result {
        Outcome::OutOfMemory => "; `stallscope batch-size` finds a batch that fits",
        _ => "; try a smaller batch.size or less prefetch",
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
    let without_effect = |set: &&String| mode == Mode::Cached && key_of(set) == "page_cache";
    let kept = overrides.iter().filter(|set| !without_effect(set));
    let mut all: Vec<String> = kept.cloned().collect();
    all.extend(
        args.steps
            .iter()
            .flat_map(|steps| trial_steps(*steps, config)),
    );
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use crate::tune::Measured;

    fn measured() -> Outcome {
        Outcome::Fits(Measured::of(Report {
            samples_per_second: 1.0,
            ..Report::default()
        }))
    }

    /// Two runs of each mode, the one named `lacking` without the memory that it needs.
    fn runs_without(lacking: &str, result: &Outcome) -> (Vec<String>, anyhow::Result<Runs>) {
        let mut names = Vec::new();
        let result = in_turns(&MODES, 2, &mut |_, name| {
            names.push(name.to_owned());
            Ok(if name == lacking {
                result.clone()
            } else {
                measured()
            })
        });
        (names, result)
    }

    #[test]
    fn without_memory_for_cached_runs_the_others_go_on() {
        for result in [Outcome::Killed, Outcome::OutOfMemory] {
            for lacking in ["cached-1", "cached-2"] {
                let (names, result) = runs_without(lacking, &result);
                let (runs, left_out) = result.unwrap();
                let modes: Vec<Mode> = runs.iter().map(|runs| runs.mode).collect();
                let others = MODES.into_iter().filter(|mode| *mode != Mode::Cached);
                assert_eq!(modes, others.collect::<Vec<_>>());
                assert!(runs.iter().all(|runs| runs.reports.len() == 2));
                assert!(matches!(left_out, Some(LeftOut::TooLarge(why)) if why.contains("cached")));
                let last = names.iter().rfind(|name| name.starts_with("cached"));
                assert_eq!(last.map(String::as_str), Some(lacking));
            }
        }
    }

    #[test]
    fn without_memory_for_another_mode_there_is_no_diagnosis() {
        let (names, result) = runs_without("normal-1", &Outcome::Killed);
        let error = result.map(|_| ()).unwrap_err().to_string();
        assert!(
            error.contains("mode = \"normal\"") && error.contains("try a smaller"),
            "{error}"
        );
        assert_eq!(names, ["normal-1"]);
    }
}

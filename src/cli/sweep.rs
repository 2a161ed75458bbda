//! `stallscope sweep`: every combination of some settings, each a few times, in a folder from which it can be resumed.
//!
//! May use: `config`, `text`, `tune`.

mod csv;
mod heatmap;
mod json;
mod matrix;
mod page;
mod progress;
mod table;

use super::args::{LauncherArg, SweepArgs, SweepTrialArgs};
use super::batch_size::run_command;
use super::interruption::{INTERRUPTED, interrupt_switch};
use super::messages;
use super::run::{default_run_dir, provide_data, trial_steps};
use crate::config::{Resolved, Settings};
use crate::report::page::document_page;
use crate::text::{Look, shell_word};
use crate::tune::sweep::{
    self, End, Grid, Journal, Manifest, Node, Outcome, Place, Point, Record, SweepError,
    SweepFolder, SweepResults, order, resolve_points, summarize,
};
use crate::tune::{TrialError, TrialRunner};
use anyhow::{Context, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// Not one trial has measured anything.
#[derive(Debug, thiserror::Error)]
pub enum NothingMeasured {
    #[error(
        "no point of the grid fits the device's memory\n  \
         try: smaller values of batch.size or preprocess.size, or another device"
    )]
    OutOfMemory,
    #[error("every trial failed: {0}")]
    OneReason(String),
    #[error("no trial has measured anything; the table has the reasons")]
    Reasons,
}

impl NothingMeasured {
    /// Whether the device's memory is the reason.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, NothingMeasured::OutOfMemory)
    }

    /// What keeps `results` from being an answer, if anything does.
    fn of(results: &SweepResults) -> Option<NothingMeasured> {
        let trials = || results.points.iter().flat_map(|point| &point.trials);
        if trials().any(|trial| trial.outcome.fits().is_some()) {
            return None;
        }
        let first = trials().next()?;
        if trials().all(|trial| trial.outcome == Outcome::OutOfMemory) {
            return Some(NothingMeasured::OutOfMemory);
        }
        let reason = first.outcome.failure()?;
        let same = trials().all(|trial| trial.outcome.failure() == Some(reason));
        Some(if same {
            NothingMeasured::OneReason(reason.to_owned())
        } else {
            NothingMeasured::Reasons
        })
    }
}

/// Runs the sweep of `args`, or what is left of it, and prints its results.
///
/// # Errors
/// A grid, configuration, data or folder that cannot be used, and [`NothingMeasured`].
pub fn sweep(args: &SweepArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let plan = Plan::of(args)?;
    for config in &plan.configs {
        provide_data(config)?;
    }
    let path = args.out.clone();
    let path = path.unwrap_or_else(|| default_run_dir(&format!("sweep-{}", plan.name())));
    let folder = SweepFolder::open(&path, &plan.manifest)?;
    let mut journal = Journal::open(&folder.file("trials.jsonl"))?;
    progress::announce(&plan, &path, &folder, &journal);
    let end = run_trials(args, &plan, &folder, &mut journal)?;
    let results = summarize(&plan.manifest.grid, args.repeats, journal.records());
    let shown = Shown {
        args,
        plan: &plan,
        results: &results,
    };
    save(&folder, &shown)?;
    print(&shown, &path, out)?;
    if let Some(different) = different_hardware(journal.records()) {
        messages::warn(different);
    }
    if let End::Lost(reason) = end {
        let (done, all) = (results.trials_done, results.trials_in_all);
        bail!(
            "{done} of {all} trials are done; the others were lost each time they were started: {reason}\n  \
             try: one of them alone by what --launcher names; then go on with\n  {}",
            resuming(args, &path)
        );
    }
    if end == End::Stopped {
        let (done, all) = (results.trials_done, results.trials_in_all);
        let command = resuming(args, &path);
        eprintln!("stopped: {done} of {all} trials are done; to go on:\n  {command}");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    match NothingMeasured::of(&results) {
        Some(error) => Err(error.into()),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// What is to be run.
struct Plan {
    manifest: Manifest,
    points: Vec<Point>,
    /// Of each point.
    configs: Vec<Resolved>,
}

impl Plan {
    /// Reads the grid and holds every point against the configuration.
    fn of(args: &SweepArgs) -> anyhow::Result<Plan> {
        let mut overrides = args.overrides();
        let (grid, problems) = Grid::parse(&args.grid, &overrides);
        let points = grid.points();
        let configs = resolve_points(&args.experiment.config, &overrides, &points, problems)?;
        if let Some(steps) = args.steps {
            // The one that needs the most passes over its data for them.
            let endless = configs.iter().filter(|config| config.epochs.is_some());
            let longest = endless.max_by_key(|config| config.warmup_steps);
            overrides.extend(longest.iter().flat_map(|config| trial_steps(steps, config)));
        }
        let configuration = configuration(&args.experiment.config, &overrides, &points, &grid)?;
        let manifest = Manifest {
            config: args.experiment.config.clone(),
            grid,
            repeats: args.repeats,
            seed: args.seed,
            overrides,
            configuration,
            ..Manifest::default()
        };
        Ok(Plan {
            manifest,
            points,
            configs,
        })
    }

    fn name(&self) -> &str {
        self.configs.first().map_or("grid", |config| &config.name)
    }

    /// The device, where it is the same at all points.
    fn device(&self) -> Option<String> {
        let mut devices = self.configs.iter().map(|config| config.device.to_string());
        let first = devices.next()?;
        devices.all(|device| device == first).then_some(first)
    }
}

/// Every key's value at the first of `points`, those of `grid` left out.
fn configuration(
    config: &Path,
    overrides: &[String],
    points: &[Point],
    grid: &Grid,
) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    let first = points.first().map_or(&[][..], |point| &point.settings);
    let rows = Settings::load(config, &[overrides, first].concat())?.rows();
    let swept = |key: &str| grid.axes.iter().any(|axis| axis.key == key);
    let others = rows.into_iter().filter(|row| !swept(row.key));
    Ok(others.map(|row| (row.key.to_owned(), row.value)).collect())
}

/// Runs what the journal does not have yet, until Ctrl-C.
fn run_trials(
    args: &SweepArgs,
    plan: &Plan,
    folder: &SweepFolder,
    journal: &mut Journal,
) -> anyhow::Result<End> {
    let stop = interrupt_switch()?;
    let order = order(plan.points.len(), args.repeats, args.seed);
    let Some(launcher) = &args.elsewhere.launcher else {
        // Of a sweep that was begun with a launcher.
        sweep::take_ended(folder, &plan.points, journal)?;
        let runner = runner(&plan.manifest, folder.trials()?, stop)?;
        let trial = |name: &str, sets: &[String]| runner.run(name, sets);
        let noted = |journal: &Journal, record: &Record, left: &[Place]| {
            progress::show(journal, record, left, 1);
        };
        let end = sweep::sweep(&plan.points, &order, journal, trial, noted)?;
        return Ok(end);
    };
    let launcher = &mut *launcher.launcher(args.elsewhere.jobs, folder)?;
    let kept = (folder, journal);
    let end = sweep::launch(&plan.points, &order, kept, launcher, &stop, progress::show)?;
    Ok(end)
}

/// What runs the trials of the sweep `manifest` here, in `folder`, until `stop` is set.
fn runner(
    manifest: &Manifest,
    folder: TempDir,
    stop: Arc<AtomicBool>,
) -> Result<TrialRunner, TrialError> {
    TrialRunner::new(&manifest.config, manifest.overrides.clone(), folder, stop)
}

/// Runs the trial of `args` and leaves its record in the sweep's folder.
///
/// # Errors
/// A folder that holds no such sweep, and a trial that could not be started.
pub fn trial(args: &SweepTrialArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let manifest = Manifest::read(&args.folder)?;
    let manifest = manifest.with_context(|| format!("{} holds no sweep", args.folder.display()))?;
    let own = env!("CARGO_PKG_VERSION");
    ensure!(
        manifest.stallscope_version == own,
        "the sweep was begun by stallscope {}, and this is {own}\n  try: the same program on all machines",
        manifest.stallscope_version
    );
    // For the launcher's log.
    writeln!(out, "trial {} on {}", args.place, Node::this().host)?;
    let stop = interrupt_switch()?;
    let runner = runner(&manifest, tempfile::tempdir()?, stop.clone())?;
    let trial = |name: &str, sets: &[String]| runner.run(name, sets);
    match sweep::run_one(&args.folder, &manifest, args.place, &stop, trial) {
        Err(SweepError::Trial(TrialError::Stopped)) => Ok(ExitCode::from(INTERRUPTED)),
        run => Ok(run.map(|()| ExitCode::SUCCESS)?),
    }
}

/// The hardware of those trials that a launcher started, with the machines that have it, where there are several.
pub(super) fn different_hardware(records: &[Record]) -> Option<String> {
    let mut hosts: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for node in records.iter().filter_map(|record| record.node.as_ref()) {
        hosts.entry(node.hardware()).or_default().insert(&node.host);
    }
    let each = hosts.iter().map(|(hardware, hosts)| {
        let hosts: Vec<&str> = hosts.iter().copied().collect();
        format!("\n  {}: {hardware}", hosts.join(", "))
    });
    (hosts.len() > 1).then(|| {
        format!(
            "the trials ran on different machines, which may be why settings differ:{}",
            each.collect::<String>()
        )
    })
}

/// All there is to show.
struct Shown<'a> {
    args: &'a SweepArgs,
    plan: &'a Plan,
    results: &'a SweepResults,
}

impl Shown<'_> {
    fn grid(&self) -> &Grid {
        &self.plan.manifest.grid
    }

    /// The command that runs the point at `index` once.
    fn command(&self, index: usize) -> String {
        let experiment = &self.args.experiment;
        let own = &self.results.points[index].settings;
        run_command(&experiment.config, &experiment.overrides(), own)
    }
}

/// Writes the files with the results, each whole.
fn save(folder: &SweepFolder, shown: &Shown<'_>) -> anyhow::Result<()> {
    folder.write("results.json", &json::render(shown)?)?;
    folder.write("results.csv", csv::render(shown).as_bytes())?;
    if let Some(map) = heatmap::heatmap(shown) {
        folder.write("heatmap.svg", map.svg().as_bytes())?;
    }
    let page = document_page(&page::page(shown));
    folder.write("report.html", page.as_bytes())?;
    Ok(())
}

fn print(shown: &Shown<'_>, path: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    if shown.args.output.json {
        out.write_all(&json::render(shown)?)?;
    } else {
        let look = Look::coloured(false);
        write!(out, "{}", table::render(shown, look.width))?;
        let map = heatmap::heatmap(shown);
        write!(out, "{}", matrix::render(map.as_ref(), &look))?;
        writeln!(out, "\nresults  {}", path.display())?;
    }
    out.flush().context("cannot print the results")
}

/// The command that goes on with the sweep in `folder`.
fn resuming(args: &SweepArgs, folder: &Path) -> String {
    let mut words = vec![format!(
        "stallscope sweep {}",
        shell_path(&args.experiment.config)
    )];
    let flag = |name: &str, value: &str| format!("{name} {}", shell_word(value));
    words.extend(args.grid.iter().map(|grid| flag("--grid", grid)));
    words.extend(args.experiment.set.iter().map(|set| flag("--set", set)));
    words.extend(
        args.experiment
            .device
            .iter()
            .map(|device| flag("--device", device)),
    );
    words.extend(args.steps.map(|steps| format!("--steps {steps}")));
    words.push(format!("--repeats {} --seed {}", args.repeats, args.seed));
    let elsewhere = &args.elsewhere;
    let launcher = elsewhere.launcher.iter().map(LauncherArg::to_string);
    words.extend(launcher.map(|launcher| flag("--launcher", &launcher)));
    words.extend(elsewhere.jobs.map(|jobs| format!("--jobs {jobs}")));
    words.push(format!("--out {}", shell_path(folder)));
    words.join(" ")
}

fn shell_path(path: &Path) -> String {
    shell_word(&path.display().to_string())
}

#[cfg(test)]
mod tests;

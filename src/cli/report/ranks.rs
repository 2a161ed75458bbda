//! The report of a run of several ranks: which one the others wait for, and why.
//!
//! May use: `analysis`, `charts`, `ranks`, `report`, `session`, `text`, `timeline`, `trace`.

mod page;
mod trace;
mod words;

use super::{cannot_write, open, read};
use crate::analysis::Cause;
use crate::analysis::predict::Estimate;
use crate::analysis::predict::torch::Predictor;
use crate::cli::args::ReportArgs;
use crate::cli::messages;
use crate::ranks::{Cut, Logs, Merged, RankLog, RankTimes, STEP_LOG};
use crate::report::page::document_page;
use crate::report::{IdleCause, Report, Status};
use crate::session::{self, gain_without};
use crate::text::Look;
use crate::timeline::{HostWork, Nanos};
use anyhow::{Context, bail};
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const SCHEMA: &str = "stallscope-ranks";
const SCHEMA_VERSION: u32 = 1;

/// How a rank's own run went.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Standing {
    pub(super) rank: u32,
    /// As its report says; `None` where there is none to be read.
    pub(super) status: Option<Status>,
    pub(super) samples_per_second: Option<f64>,
    /// What is wrong with its files.
    pub(super) problem: Option<String>,
}

/// What keeps ranks waiting for each other.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Straggler {
    /// One rank above all.
    Rank(u32),
    /// Now one rank and now another one.
    Changing,
}

/// What the whole run is predicted to come to without the straggler.
#[derive(Copy, Clone, Debug, Serialize)]
pub(super) struct Mended {
    pub(super) straggler: Straggler,
    /// Share of the others' time that they wait, 0 to 1.
    pub(super) share: f64,
    /// Times as fast, where that can be predicted.
    pub(super) gain: Option<Estimate>,
}

/// Who keeps the others waiting for less of their time is no straggler: a rank, or ranks in turn.
const NOTICEABLE: f64 = 0.03;
const NOTICEABLE_IN_ALL: f64 = 0.1;
/// Ranks whose pace is simulated, the slowest; and those of our own runs, which are simulated together.
const MOST_SIMULATED: usize = 8;
const MOST_TOGETHER: usize = 63;
/// One rank is the straggler where it has at least so much of the waits.
const MOSTLY: f64 = 0.6;

/// All that is known of a run of several ranks.
#[derive(Serialize)]
pub(super) struct Run {
    schema: &'static str,
    schema_version: u32,
    stallscope_version: &'static str,
    #[serde(skip)]
    pub(super) folder: PathBuf,
    #[serde(flatten)]
    pub(super) merged: Merged,
    pub(super) standing: Vec<Standing>,
    /// Ranks that left nothing.
    pub(super) missing: Vec<u32>,
    pub(super) mended: Option<Mended>,
    /// The traces of all ranks in one, on the clock of the first.
    trace: Option<String>,
}

/// Where the page is written, unless `--html` says.
const PAGE: &str = "ranks.html";

/// The folders of a run's ranks, in order; none where it is no such run.
pub(super) fn folders(run: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(run).into_iter().flatten().flatten();
    let mut folders: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let rank = name.to_str()?.strip_prefix("rank-")?.parse().ok()?;
            let is_ours = name == *format!("rank-{rank}") && entry.path().is_dir();
            is_ours.then(|| (rank, entry.path()))
        })
        .collect();
    folders.sort_unstable();
    folders
}

/// Merges the reports of the ranks in `folders`, prints what came of it and writes the page.
///
/// # Errors
/// No rank that left a log of its steps; a page that cannot be written.
pub(super) fn report(
    args: &ReportArgs,
    folders: &[(u32, PathBuf)],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let run = Run::read(&args.report, folders)?;
    let trace = run.trace.as_ref();
    let html = args.html.clone();
    let html = html.unwrap_or_else(|| args.report.join(PAGE));
    let page = document_page(&page::page(&run));
    fs::write(&html, page).with_context(|| cannot_write(&html))?;
    if args.shown.output.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&run)?)?;
    } else {
        if !args.shown.output.quiet {
            write!(
                out,
                "{}",
                words::render(&run, &Look::coloured(args.shown.verbose))
            )?;
        }
        writeln!(out, "\npage     {}", html.display())?;
        if let Some(trace) = trace {
            writeln!(out, "trace    {trace} (open it in https://ui.perfetto.dev)")?;
        }
    }
    out.flush()?;
    match args.open {
        true => open(&html),
        false => Ok(()),
    }
}

impl Run {
    fn read(folder: &Path, folders: &[(u32, PathBuf)]) -> anyhow::Result<Run> {
        let (mut logs, mut standing) = (Vec::new(), Vec::new());
        for (rank, path) in folders {
            let log = RankLog::read(path);
            let at = path.join("report.json");
            // A PyTorch training has none yet while it runs.
            let report = at.exists().then(|| read(&at));
            let mut problems: Vec<String> = Vec::new();
            match &log {
                Err(error) => problems.push(error.to_string()),
                Ok(log) if log.header.rank != *rank => {
                    problems.push(format!("{STEP_LOG} is that of rank {}", log.header.rank));
                }
                Ok(log) => problems.extend(log.cut.map(|cut| match cut {
                    Cut::Line => format!("{STEP_LOG} is cut off"),
                    Cut::Lost => format!(
                        "records were lost, so its steps are compared up to step {} only",
                        log.steps.len()
                    ),
                })),
            }
            let report = match report.transpose() {
                Ok(report) => report,
                Err(error) => {
                    problems.push(format!("{error:#}"));
                    None
                }
            };
            problems.extend(report.as_ref().and_then(|report| report.error.clone()));
            standing.push(Standing {
                rank: *rank,
                status: report.as_ref().map(|report| report.status),
                samples_per_second: report.as_ref().map(|report| report.samples_per_second),
                problem: (!problems.is_empty()).then(|| problems.join("; ")),
            });
            logs.extend(log.ok().filter(|log| log.header.rank == *rank));
        }
        leave_out_earlier_runs(&mut logs, &mut standing);
        if logs.is_empty() {
            bail!(
                "cannot merge the ranks in {}: none of them has a {STEP_LOG}\n  \
                 try: `stallscope report` with the folder of one rank, or profile again with this version",
                folder.display()
            )
        }
        let logs = Logs::new(logs);
        let merged = logs.merged();
        let trace = trace::write(folder, folders, &logs);
        let trace = trace.unwrap_or_else(|error| {
            messages::warn(error);
            None
        });
        let known: Vec<u32> = folders.iter().map(|(rank, _)| *rank).collect();
        Ok(Run {
            schema: SCHEMA,
            schema_version: SCHEMA_VERSION,
            stallscope_version: env!("CARGO_PKG_VERSION"),
            folder: folder.to_owned(),
            missing: (0..merged.world_size)
                .filter(|rank| !known.contains(rank))
                .collect(),
            mended: mended(&logs, &merged, folders),
            merged,
            standing,
            trace: trace.map(|trace| trace.display().to_string()),
        })
    }
}

/// Leaves out what a run of another number of ranks has left in the same folder.
fn leave_out_earlier_runs(logs: &mut Vec<RankLog>, standing: &mut [Standing]) {
    let latest = logs.iter().max_by_key(|log| log.header.unix_ns);
    let Some(of) = latest.map(|log| log.header.world_size) else {
        return;
    };
    logs.retain(|log| {
        let (rank, other) = (log.header.rank, log.header.world_size);
        if other != of
            && let Some(own) = standing.iter_mut().find(|own| own.rank == rank)
        {
            own.problem = Some(format!(
                "left out, as it belongs to another run of {other} ranks"
            ));
        }
        other == of
    });
}

/// What keeps the ranks waiting, and what would be without it.
fn mended(logs: &Logs, merged: &Merged, folders: &[(u32, PathBuf)]) -> Option<Mended> {
    let blamed = merged.blamed();
    let (worst, time) = *blamed.first().filter(|_| merged.is_in_step())?;
    let all: Nanos = blamed.iter().map(|(_, time)| *time).sum();
    let [share, in_all] = [time, all].map(|time| merged.share_of_waiting(time));
    if share >= NOTICEABLE && time.0 as f64 >= MOSTLY * all.0 as f64 {
        return Some(Mended {
            straggler: Straggler::Rank(worst),
            share,
            gain: without(worst, logs, merged, folders),
        });
    }
    let late: Nanos = merged.ranks.iter().map(|rank| rank.late).sum();
    (in_all >= NOTICEABLE_IN_ALL).then(|| Mended {
        straggler: Straggler::Changing,
        share: in_all,
        gain: Some(Estimate::exactly(
            merged.window.0 as f64 / (merged.window - late).0.max(1) as f64,
        )),
    })
}

/// What a step of a rank took to average gradients, waiting included, in nanoseconds.
fn all_reduce(report: &Report) -> f64 {
    let of = |cause: &&IdleCause| cause.kind == Cause::Host(HostWork::AllReduce);
    let total: Nanos = { report.idle_causes.iter() }
        .filter(of)
        .map(|cause| cause.ns)
        .sum();
    total.0 as f64 / report.steps.max(1) as f64
}

/// How many times as fast the run is predicted to be if rank `worst` were as fast as the others: at the pace of the slowest of
/// them, where steps wait for the rest of them only.
fn without(
    worst: u32,
    logs: &Logs,
    merged: &Merged,
    folders: &[(u32, PathBuf)],
) -> Option<Estimate> {
    let rest = logs.merged_without(Some(worst));
    let mut others: Vec<(&RankTimes, &RankTimes)> = { merged.ranks.iter() }
        .filter_map(|rank| {
            let mut rest = rest.ranks.iter();
            Some((rank, rest.find(|other| other.rank == rank.rank)?))
        })
        .collect();
    // Those that had to wait least are the slowest.
    others.sort_by_key(|(rank, _)| rank.waited_for_others);
    let simulated: Vec<u32> = { others.iter() }
        .take(MOST_TOGETHER)
        .map(|(rank, _)| rank.rank)
        .chain([worst])
        .collect();
    let own = simulated.iter().map(|rank| {
        let (_, folder) = folders.iter().find(|(number, _)| number == rank)?;
        let report = read(&folder.join("report.json")).ok()?;
        let own = session::Predictor::from_report(&report).ok()?;
        Some((own, all_reduce(&report)))
    });
    if let Some(own) = own.collect::<Option<Vec<_>>>() {
        let (own, all_reduce): (Vec<_>, Vec<f64>) = own.into_iter().unzip();
        // Who comes last waits for nobody.
        let least = all_reduce.into_iter().reduce(f64::min).unwrap_or(0.0);
        return gain_without(&own, own.len() - 1, least).map(Estimate::exactly);
    }
    others.truncate(MOST_SIMULATED);
    let (mut slowest, mut own): (Option<Estimate>, Vec<f64>) = (None, Vec::new());
    for (rank, still) in others {
        let (_, folder) = folders.iter().find(|(number, _)| *number == rank.rank)?;
        let Ok(report) = read(&folder.join("report.json")) else {
            continue;
        };
        // What a device beside the trainer's thread waits for is not in that thread's steps.
        let on_device = { report.device.as_ref() }.is_some_and(|device| device.timeline.is_some());
        if on_device || rank.is_cut || report.steps != rank.steps {
            continue;
        }
        let Some(predictor) =
            { report.torch.as_ref() }.and_then(|torch| Predictor::new(&torch.costs))
        else {
            continue;
        };
        own.push(predictor.own());
        let waits = rank.waits.iter().zip(&still.waits);
        let waits: Vec<u64> = waits.map(|(wait, still)| (*wait - *still).0).collect();
        let alone = predictor.without_waits(&waits);
        let pace = alone.predict(alone.loader()).samples_per_second;
        if slowest.is_none_or(|slowest| pace.value < slowest.value) {
            slowest = Some(pace);
        }
    }
    let now = own.iter().sum::<f64>() / own.len().max(1) as f64;
    slowest
        .filter(|_| now > 0.0)
        .map(|slowest| slowest.scaled(1.0 / now))
}

//! From an argument to the reports that it names. May use: `compare`, `report`.

use crate::cli::report::read_json;
use crate::compare::Side;
use crate::report::{Report, Status};
use anyhow::{Context, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};

const REPORT: &str = "report.json";

/// A side, and where it was read from.
pub(super) struct ReadSide {
    pub side: Side,
    pub path: PathBuf,
    /// One for each run.
    pub reports: Vec<PathBuf>,
    pub warnings: Vec<String>,
}

/// Reads the run or the repeats at `path`.
pub(super) fn side(name: String, path: &Path) -> anyhow::Result<ReadSide> {
    let files = report_files(path)?;
    let alone = files.len() == 1;
    let (mut runs, mut reports, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    for file in files {
        match measured(&file) {
            Ok(report) => {
                warnings.extend(early_end(&report, &file));
                runs.push(report);
                reports.push(file);
            }
            Err(error) if alone => return Err(error),
            // A broken repeat leaves the others comparable.
            Err(error) => warnings.push(format!("{error:#}; this repeat is ignored")),
        }
    }
    ensure!(
        !runs.is_empty(),
        "no run in {} has measured steps:\n  {}\n  try: measure again",
        path.display(),
        warnings.join("\n  ")
    );
    one_rank(&runs, path, &reports)?;
    Ok(ReadSide {
        side: Side { name, runs },
        path: path.to_owned(),
        reports,
        warnings,
    })
}

/// The report files that `path` stands for, sorted by name.
fn report_files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let own = path.join(REPORT);
    if own.is_file() {
        return Ok(vec![own]);
    }
    let shown = path.display();
    let entries = fs::read_dir(path).with_context(|| format!("cannot read the folder {shown}"))?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read the folder {shown}"))?;
        let file = entry.path().join(REPORT);
        if file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    ensure!(
        !files.is_empty(),
        "{shown} has no {REPORT}, and no subfolder of it has one\n  \
         try: the folder that `stallscope run` printed last, or a folder of such folders"
    );
    Ok(files)
}

/// The report in `file`, which has measured steps.
fn measured(file: &Path) -> anyhow::Result<Report> {
    let shown = file.display();
    let json = read_json(file)?;
    ensure!(
        !json.is_empty(),
        "the report {shown} is empty\n  try: measure again"
    );
    let report = Report::from_json(&json).with_context(|| format!("cannot compare {shown}"))?;
    let error = report.error.as_deref().unwrap_or("no reason was noted");
    if report.status == Status::Failed {
        bail!("the run of {shown} failed: {error}\n  try: remove the cause and measure again");
    }
    ensure!(
        report.steps > 0 && report.samples > 0 && report.samples_per_second > 0.0,
        "{shown} has no measured steps, so it has no samples/s\n  \
         try: a longer run, or fewer warmup_steps"
    );
    Ok(report)
}

/// A warning where the run did not end by itself.
fn early_end(report: &Report, file: &Path) -> Option<String> {
    let (file, steps) = (file.display(), report.steps);
    match report.status {
        Status::Interrupted => Some(format!(
            "the run of {file} was stopped after {steps} measured steps; its figures are of those"
        )),
        Status::Running => Some(format!(
            "the run of {file} has not ended; its figures are of its first {steps} measured steps"
        )),
        Status::Complete | Status::Failed => None,
    }
}

/// Refuses the ranks of one training as repeats: they ran at the same time.
fn one_rank(runs: &[Report], path: &Path, reports: &[PathBuf]) -> anyhow::Result<()> {
    let rank = |run: &Report| match &run.torch {
        Some(torch) => torch.session.rank.map(u64::from),
        // Reports of earlier versions know no ranks.
        None => Some(run.config["rank"]["index"].as_u64().unwrap_or(0)),
    };
    let ranks: Vec<_> = runs.iter().map(rank).collect();
    let folder = reports[0].parent().unwrap_or(path);
    ensure!(
        ranks.windows(2).all(|two| two[0] == two[1]),
        "the reports in {} are of different ranks, not repeats of the same run\n  \
         try: one rank on each side, such as {}",
        path.display(),
        folder.display()
    );
    Ok(())
}

/// A warning for each report that is on two sides.
pub(super) fn same_twice(sides: &[ReadSide]) -> Vec<String> {
    let real = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    let mut warnings = Vec::new();
    for (at, other) in sides.iter().enumerate() {
        for first in &sides[..at] {
            let both = other.reports.iter().find(|report| {
                let is_same = |known| real(known) == real(report);
                first.reports.iter().any(is_same)
            });
            warnings.extend(both.map(|report| {
                let (first, other) = (&first.side.name, &other.side.name);
                let report = report.display();
                format!("{first} and {other} both have {report}; name two different runs")
            }));
        }
    }
    warnings
}

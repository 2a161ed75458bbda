//! What the runs say together. May use: `analysis`, `config`, `largest`, `next`, `remarks`.

use super::largest::Largest;
use super::{next, remarks};
use crate::analysis::{
    Attributed, Cached, Estimate, Part, SampleTimes, differential, median_place,
};
use crate::cli::args::DiagnoseArgs;
use crate::config::{DeviceConfig, Mode, Resolved};
use crate::report::Report;
use anyhow::Context;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Stalls below this share of the time are not worth a change (XProf's bound for "not input-bound").
pub(super) const WORTH_NAMING: f64 = 0.05;

/// The runs of one mode, in the order in which they were made.
pub(super) struct ModeRuns {
    pub(super) mode: Mode,
    pub(super) reports: Vec<Arc<Report>>,
}

impl ModeRuns {
    fn rates(&self) -> Vec<f64> {
        let rate = |report: &Arc<Report>| report.samples_per_second;
        self.reports.iter().map(rate).collect()
    }

    /// Seconds a sample.
    fn times(&self) -> Vec<f64> {
        self.rates().iter().map(|rate| 1.0 / rate).collect()
    }

    /// The report of the run with the median time.
    fn median(&self) -> Option<&Report> {
        let place = median_place(&self.times())?;
        self.reports.get(place).map(|report| &**report)
    }
}

/// Why there is no cached run.
pub(super) enum LeftOut {
    AlwaysInMemory,
    TooLarge(String),
}

impl LeftOut {
    fn in_words(&self) -> String {
        match self {
            LeftOut::AlwaysInMemory => {
                "the data set lies in memory in a normal run, too: there is nothing to fetch, and no cached run"
                    .to_owned()
            }
            LeftOut::TooLarge(error) => {
                format!("no cached run, so that fetch and preparation are one row: {error}")
            }
        }
    }
}

/// How fast a mode is.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Rate {
    /// The median run's.
    pub(super) samples_per_second: f64,
    /// 0 to 1, in that run; `None` without a device.
    pub(super) device_busy_share: Option<f64>,
    /// Of each run.
    pub(super) runs_samples_per_second: Vec<f64>,
}

impl Rate {
    fn of(runs: &ModeRuns) -> Option<Rate> {
        let report = runs.median()?;
        Some(Rate {
            samples_per_second: report.samples_per_second,
            device_busy_share: report.device.as_ref().map(|device| device.busy_share),
            runs_samples_per_second: runs.rates(),
        })
    }

    /// Half of what lies between the slowest and the fastest run, as a share of the median.
    pub(super) fn spread(&self) -> f64 {
        let rates = self.runs_samples_per_second.iter().copied();
        let most = rates.clone().fold(f64::MIN, f64::max);
        let least = rates.fold(f64::MAX, f64::min);
        (most - least) / 2.0 / self.samples_per_second
    }
}

/// A part of the time a sample takes, told twice.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) part: Part,
    /// By the difference of runs.
    pub(super) differential: Estimate,
    /// By the attribution of the normal run.
    pub(super) attributed_share: f64,
    /// Differential less attributed, in points of the normal run's time.
    pub(super) disagreement_points: f64,
}

impl Row {
    /// The disagreement of `estimate` as it is shown, without noise below 0.
    pub(super) fn shown_disagreement(&self) -> f64 {
        100.0 * (self.differential.clamped() - self.attributed_share)
    }
}

/// All that is printed. Shares are of the time of the normal run, 0 to 1.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Diagnosis {
    pub(super) schema: &'static str,
    pub(super) schema_version: u32,
    pub(super) config: String,
    pub(super) device: String,
    /// Where the disk is emulated, which.
    pub(super) emulated_storage: Option<String>,
    pub(super) repeats: usize,
    /// Measured steps of the normal run.
    pub(super) steps: u64,
    /// By the name of the mode.
    pub(super) modes: BTreeMap<&'static str, Rate>,
    /// DS-Analyzer's G: batches that lie on the device.
    pub(super) max_device_ingestion_samples_per_second: f64,
    /// What free loading would give, over what is measured.
    pub(super) headroom_factor: f64,
    pub(super) time: Vec<Row>,
    /// Of the normal run with the median rate.
    pub(super) attributed: Attributed,
    /// Why no run had the data in memory, where none had.
    pub(super) cached_left_out: Option<String>,
    pub(super) remarks: Vec<String>,
    /// `None` where none is worth naming, or the runs differ too much to tell.
    pub(super) largest_stall: Option<Part>,
    pub(super) conclusion: String,
    pub(super) next_command: String,
}

impl Diagnosis {
    /// Samples/s of the normal run.
    pub(super) fn measured(&self) -> f64 {
        let rate = self.modes.get(Mode::Normal.name());
        rate.map_or(f64::NAN, |rate| rate.samples_per_second)
    }

    /// What `runs` say, which have been made as `args` say.
    ///
    /// # Errors
    /// A report that lacks what every run measures.
    pub(super) fn of(
        args: &DiagnoseArgs,
        config: &Resolved,
        runs: &[ModeRuns],
        left_out: Option<LeftOut>,
    ) -> anyhow::Result<Diagnosis> {
        let of = |mode| runs.iter().find(|runs| runs.mode == mode);
        let times = |mode| of(mode).map_or(Vec::new(), ModeRuns::times);
        let times = SampleTimes {
            normal: times(Mode::Normal),
            cached: match &left_out {
                None => Cached::Runs(times(Mode::Cached)),
                Some(LeftOut::AlwaysInMemory) => Cached::Always,
                Some(LeftOut::TooLarge(_)) => Cached::Unknown,
            },
            host_resident: times(Mode::HostResident),
            device_only: times(Mode::DeviceOnly),
        };
        let normal = of(Mode::Normal).and_then(ModeRuns::median);
        let normal = normal.context("no normal run was made")?;
        let attributed = attributed(normal).context("the report of the normal run is empty")?;
        let parts = differential(&times).context("a mode was not run")?;
        let rows: Vec<Row> = parts
            .into_iter()
            .map(|part| row(part, &attributed))
            .collect();
        let modes: BTreeMap<_, _> = runs
            .iter()
            .filter_map(|runs| Some((runs.mode.name(), Rate::of(runs)?)))
            .collect();
        let rate = |mode: Mode| {
            let rate = modes.get(mode.name());
            rate.map_or(f64::NAN, |rate| rate.samples_per_second)
        };
        let largest = Largest::of(&rows);
        let next = match &largest {
            Largest::Doubtful(_) => next::more_repeats(args),
            _ if !is_repeated(&rows) => next::more_repeats(args),
            largest => next::step(args, config, normal, largest.part(), &attributed),
        };
        Ok(Diagnosis {
            schema: "stallscope-diagnosis",
            schema_version: 1,
            config: args.experiment.config.display().to_string(),
            device: config.device.to_string(),
            emulated_storage: normal.storage.as_ref().map(|disk| disk.name.to_string()),
            repeats: args.repeats,
            steps: normal.steps,
            max_device_ingestion_samples_per_second: rate(Mode::DeviceOnly),
            headroom_factor: rate(Mode::HostResident) / rate(Mode::Normal),
            remarks: remarks::on(
                &rows,
                &attributed,
                normal,
                config.device == DeviceConfig::Cpu,
            ),
            largest_stall: largest.part(),
            conclusion: largest.in_words(&rows, &attributed),
            next_command: next,
            modes,
            time: rows,
            attributed,
            cached_left_out: left_out.as_ref().map(LeftOut::in_words),
        })
    }
}

pub(super) fn row((part, differential): (Part, Estimate), attributed: &Attributed) -> Row {
    let attributed_share = attributed.share_of(part);
    Row {
        part,
        differential,
        attributed_share,
        disagreement_points: 100.0 * (differential.share - attributed_share),
    }
}

/// What the attribution in `report` says.
fn attributed(report: &Report) -> Option<Attributed> {
    let busy = report.device.as_ref()?.busy_ns;
    let causes = report.idle_causes.iter();
    let causes = causes.map(|cause| (cause.kind, cause.ns.0));
    Attributed::of(report.window_ns.0, busy.0, causes)
}

/// The name of a part in words.
pub(super) fn name(part: Part) -> &'static str {
    match part {
        Part::Fetch => "fetch stall",
        Part::Preparation => "preparation stall",
        Part::FetchAndPreparation => "fetch and preparation stall",
        Part::Copy => "copy stall",
        Part::Compute => "compute",
    }
}

/// Whether each mode was run more than once.
pub(super) fn is_repeated(rows: &[Row]) -> bool {
    rows.iter().all(|row| row.differential.repeated)
}

//! The page beside a report, with what is predicted from it.
//!
//! May use: `analysis`, `machine`, `report`, `session`.

mod own;
mod torch;

use crate::machine::{operating_system, usable_cores};
use crate::report::page::{Document, Fact};
use crate::report::{Axis, Grid, Machine, Report, Status, write_page, write_page_to};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The end of a run is not held up longer.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// What somebody waits for who asks for the page itself.
const PATIENCE_FOR_MORE: Duration = Duration::from_secs(20);

/// Writes report.html beside the report at `report_path`, with as many predictions as can be had quickly; with none where
/// somebody stopped a run of ours and waits for its end.
///
/// # Errors
/// What the file system says.
pub fn write(report: &Report, report_path: &Path) -> io::Result<PathBuf> {
    let stopped = report.status != Status::Complete && report.torch.is_none();
    let grid = match stopped {
        true => None,
        false => grid(report, PATIENCE),
    };
    write_page(report, grid.as_ref(), report_path)
}

/// Writes the page to `path`, with more predictions.
pub(super) fn write_whole(report: &Report, path: &Path) -> io::Result<()> {
    write_page_to(report, grid(report, PATIENCE_FOR_MORE).as_ref(), path)
}

/// No page fails for a prediction.
fn grid(report: &Report, patience: Duration) -> Option<Grid> {
    if report.steps == 0 || report.status == Status::Running || report.is_of_trace() {
        return None;
    }
    let until = Instant::now() + patience;
    let grid = catch_unwind(AssertUnwindSafe(|| match &report.torch {
        Some(of_torch) => torch::grid(of_torch, until),
        None => own::grid(report, until),
    }));
    grid.ok().flatten()
}

/// Seconds since 1970.
pub(super) fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}

/// A page of now, with these facts and what every page says of where it was made.
pub(super) fn document(facts: impl IntoIterator<Item = Fact>) -> Document {
    let machine = Machine {
        cores: usable_cores(),
        operating_system: operating_system(),
        architecture: std::env::consts::ARCH.into(),
    };
    let here = [
        Fact::new("Machine", machine.to_string()),
        Fact::new("stallscope", env!("CARGO_PKG_VERSION")),
    ];
    Document {
        written: now(),
        facts: facts.into_iter().chain(here).collect(),
        ..Document::default()
    }
}

/// `counts` that a setting may have, with what it is `now`.
fn counts(key: &str, flag: String, counts: impl IntoIterator<Item = usize>, now: usize) -> Axis {
    let mut values: Vec<usize> = counts.into_iter().chain([now]).collect();
    values.sort_unstable();
    values.dedup();
    Axis {
        name: key.to_owned(),
        flag,
        now: values.iter().position(|value| *value == now).unwrap_or(0),
        values: values.iter().map(usize::to_string).collect(),
        is_setting: true,
    }
}

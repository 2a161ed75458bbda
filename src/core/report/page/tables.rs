//! The page's tables of stages, threads and samples.
//!
//! May use: `analysis`, `timeline`.

use crate::analysis::{LengthSummary, SlowSample, StageSummary, WorkerSummary};
use crate::report::{Report, percent};
use crate::timeline::Nanos;
use serde::Serialize;

/// Samples that are listed.
const LISTED: usize = 10;

/// A table; the first cell of a row names it.
#[derive(Serialize)]
pub(super) struct Table {
    title: &'static str,
    /// How to read its columns.
    reading: &'static str,
    heads: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

/// Those of `report` that have rows.
pub(super) fn tables(report: &Report) -> Vec<Table> {
    let slowest = report.slowest_samples.iter().take(LISTED);
    let tables = [
        Table {
            title: "Steps",
            reading: "Data wait is how long the training's thread waited for a batch. Step is its own time, without that wait.",
            heads: &["", "mean", "p50", "p90", "p99", "max"],
            rows: match report.steps {
                0 => Vec::new(),
                _ => vec![
                    lengths("data wait", &report.data_wait),
                    lengths("step", &report.step),
                ],
            },
        },
        Table {
            title: "Stages",
            reading: "Busy, starved (waiting for input) and blocked (waiting for room downstream) are shares of the workers' time. p50, \
                      p90 and p99 are service times of one item. Queued is how many items waited before the stage.",
            heads: &[
                "stage", "workers", "busy", "starved", "blocked", "items", "p50", "p90", "p99",
                "queued",
            ],
            rows: { report.stages.iter() }
                .map(|row| stage(row, report.window_ns))
                .collect(),
        },
        Table {
            title: "Threads",
            reading: "User and system are CPU time. Run delay is time in which the thread had work but no core: if it is large, there are \
                      too few cores. Voluntary switches are waits; a major fault is a read from the disk.",
            heads: &[
                "thread",
                "user",
                "system",
                "run delay",
                "voluntary",
                "involuntary",
                "major faults",
            ],
            rows: report.workers.iter().map(thread).collect(),
        },
        Table {
            title: "Slowest samples",
            reading: "If a few samples take much longer than the others, look at these files.",
            heads: &["sample", "stage", "time", "batch"],
            rows: slowest.map(sample).collect(),
        },
    ];
    tables
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect()
}

fn lengths(name: &str, own: &LengthSummary) -> Vec<String> {
    let times = [own.mean, own.p50, own.p90, own.p99, own.max].map(|time| time.to_string());
    [name.to_owned()].into_iter().chain(times).collect()
}

fn stage(row: &StageSummary, window: Nanos) -> Vec<String> {
    let shares = row.shares(window);
    let service = &row.service;
    vec![
        row.stage.to_string(),
        row.workers.to_string(),
        percent(shares.busy),
        shares.starved.map_or("-".to_owned(), percent),
        percent(shares.blocked),
        row.items.to_string(),
        service.p50.to_string(),
        service.p90.to_string(),
        service.p99.to_string(),
        format!("{:.1}", row.input_queue_mean),
    ]
}

fn thread(worker: &WorkerSummary) -> Vec<String> {
    let usage = &worker.usage;
    vec![
        worker.name.clone(),
        usage.user.to_string(),
        usage.system.to_string(),
        usage.run_delay.to_string(),
        usage.voluntary_switches.to_string(),
        usage.involuntary_switches.to_string(),
        usage.major_faults.to_string(),
    ]
}

fn sample(slow: &SlowSample) -> Vec<String> {
    let unnamed = || format!("sample {}", slow.index);
    vec![
        slow.name.clone().unwrap_or_else(unnamed),
        slow.stage.to_string(),
        slow.time.to_string(),
        slow.batch.to_string(),
    ]
}

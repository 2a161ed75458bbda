//! The page's tables of stages, threads and samples.
//!
//! May use: `analysis`, `timeline`.

use super::parts::Table;
use crate::analysis::{LengthSummary, SlowSample, StageSummary};
use crate::report::{Report, percent};
use crate::timeline::{Nanos, ThreadUsage};

/// Samples that are listed.
const LISTED: usize = 10;

/// Those of `report` that have rows.
pub(super) fn tables(report: &Report) -> Vec<Table> {
    let slowest = report.slowest_samples.iter().take(LISTED);
    let steps = match report.steps {
        0 => Vec::new(),
        _ => vec![
            lengths("data wait", &report.data_wait),
            lengths("step", &report.step),
        ],
    };
    let stages = report.stages.iter();
    let categories = report.profiler_trace.iter();
    let categories = categories.flat_map(|trace| trace.categories());
    let tables = [
        Table::new(
            "A step by category",
            "Mean of the profiled steps, as PyTorch's TensorBoard plugin counts: each moment belongs to the first category that had \
             something to do.",
            ["category", "share", "time"],
            categories.map(Vec::from).collect(),
        ),
        Table::new(
            "Steps",
            "Data wait is how long the training's thread waited for a batch. Step is its own time, without that wait.",
            ["time", "mean", "p50", "p90", "p99", "max"],
            steps,
        ),
        Table::new(
            "Stages",
            "Busy, starved (waiting for input) and blocked (waiting for room downstream) are shares of the workers' time. p50, \
             p90 and p99 are service times of one item. Queued is how many items waited before the stage.",
            [
                "stage", "workers", "busy", "starved", "blocked", "items", "p50", "p90", "p99",
                "queued",
            ],
            stages.map(|row| stage(row, report.window_ns)).collect(),
        ),
        Table::new(
            "Threads",
            "User and system are CPU time. Run delay is time in which the thread had work but no core: if it is large, there are \
             too few cores. Voluntary switches are waits; a major fault is a read from the disk.",
            [
                "thread",
                "user",
                "system",
                "run delay",
                "voluntary",
                "involuntary",
                "major faults",
            ],
            report.threads().map(thread).collect(),
        ),
        Table::new(
            "Slowest samples",
            "If a few samples take much longer than the others, look at these files.",
            ["sample", "stage", "time", "batch"],
            slowest.map(sample).collect(),
        ),
    ];
    let shown = |table: &Table| !table.is_empty();
    tables.into_iter().filter(shown).collect()
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

fn thread((name, usage): (&str, &ThreadUsage)) -> Vec<String> {
    vec![
        name.to_owned(),
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

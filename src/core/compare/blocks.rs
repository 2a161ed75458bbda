//! How well a single run knows its own rate: the window is cut into a few long blocks, and their rates vary.
//!
//! Steps that follow each other are not independent, blocks that are much longer than a disturbance nearly are: the
//! method of batch means (A. M. Law, Simulation Modeling and Analysis, chapter 9). What is left of the correlation
//! between blocks widens the interval. So do other programs that took the cores while it ran: another run of the same may
//! meet none, or twice as much; and the host itself, which is never as fast in one run as in the next: the less so the
//! more the run computes on it. A block begins and ends with the end of a step, so that no part of one is lost.

use super::ratio::Mean;
use crate::analysis::Cause;
use crate::analysis::predict::{CORES, LEAST_MACHINE};
use crate::report::Report;
use crate::timeline::Nanos;
use serde::Serialize;

/// Blocks of a window that is long enough.
const BLOCKS: usize = 10;
/// With fewer there is no interval.
const LEAST_BLOCKS: usize = 4;
/// Bins in which a step ended to a block, at least.
const LEAST_BINS: usize = 2;

/// Ten blocks cannot tell a higher correlation from a trend.
const MOST_ALIKE: f64 = 0.7;

/// A run that lost more than that says nothing of another.
const MOST_LOST: f64 = 0.95;

/// Why a report has no blocks.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoBlocks {
    /// Its version did not record when steps ended.
    Older,
    /// Some records of steps were lost.
    StepsLost,
    /// Too few steps were measured.
    TooShort,
}

/// Steps between two of their ends.
#[derive(Copy, Clone, Debug)]
struct Block {
    seconds: f64,
    samples: f64,
}

/// The logarithm of the run's rate.
pub(super) fn mean(report: &Report) -> Result<Mean, NoBlocks> {
    let blocks = blocks(report)?;
    let seconds: f64 = blocks.iter().map(|block| block.seconds).sum();
    let samples: f64 = blocks.iter().map(|block| block.samples).sum();
    let count = blocks.len() as f64;
    // The ratio estimator: blocks may have different numbers of samples.
    let off = blocks
        .iter()
        .map(|block| block.seconds - block.samples * seconds / samples);
    let off: Vec<f64> = off.collect();
    let squares: f64 = off.iter().map(|off| off.powi(2)).sum();
    let variance = squares * count / (count - 1.0) / seconds.powi(2) * inflation(&off, squares);
    // Uniform from no disturbance to twice as much; neither this variance nor the machine's is estimated from the blocks.
    let disturbed = -(1.0 - lost_to_others(report).min(MOST_LOST)).ln();
    let machine = LEAST_MACHINE.hypot(CORES * computing(report)) * idle_share(report);
    let whole = variance + disturbed.powi(2) / 3.0 + machine.powi(2);
    let free = (count - 1.0) * (whole / variance.max(f64::MIN_POSITIVE)).powi(2);
    Ok(Mean {
        value: report.samples_per_second.ln(),
        variance: whole,
        free: free.max(count - 1.0),
        count: blocks.len(),
    })
}

/// Share of the window in which the host was the limit, and not the device, whose steps take the same in each run.
fn idle_share(report: &Report) -> f64 {
    let device = report.device.as_ref();
    device.map_or(1.0, |device| 1.0 - device.busy_share.clamp(0.0, 1.0))
}

/// Share of the window in which the run computes, if it did so in one thread at a time.
fn computing(report: &Report) -> f64 {
    let cpu = report.process_cpu_ns.unwrap_or(report.window_ns);
    (cpu.0 as f64 / report.window_ns.0.max(1) as f64).min(1.0)
}

/// Share of the window that other programs cost the run: CPU contention and late wake-ups, as far as it was other
/// programs that used the cores.
fn lost_to_others(report: &Report) -> f64 {
    let is_lost = |cause| matches!(cause, Cause::CpuContention | Cause::WakeUp);
    let causes = report.idle_causes.iter();
    let lost: Nanos = causes
        .filter(|cause| is_lost(cause.kind))
        .map(|cause| cause.ns)
        .sum();
    let own = report.process_cpu_ns.unwrap_or_default().0 as f64;
    let others = match report.other_programs_cpu_ns {
        Some(others) => others.0 as f64 / (others.0 as f64 + own).max(1.0),
        None => 1.0,
    };
    others * lost.0 as f64 / report.window_ns.0.max(1) as f64
}

/// How much more the mean varies since neighbouring blocks are alike: that of a process in which each block is so much
/// like the one before as these are (1 where they are independent).
fn inflation(off: &[f64], squares: f64) -> f64 {
    let products: f64 = off.windows(2).map(|two| two[0] * two[1]).sum();
    let alike = (products / squares.max(f64::MIN_POSITIVE)).clamp(0.0, MOST_ALIKE);
    (1.0 + alike) / (1.0 - alike)
}

fn blocks(report: &Report) -> Result<Vec<Block>, NoBlocks> {
    let bins = &report.over_time.bins;
    let steps: u64 = bins.iter().map(|bin| bin.steps).sum();
    match steps {
        0 => return Err(NoBlocks::Older),
        steps if steps != report.steps => return Err(NoBlocks::StepsLost),
        _ => {}
    }
    let ends: Vec<(Nanos, u64)> = bins
        .iter()
        .filter_map(|bin| Some((bin.last_step_end?, bin.samples)))
        .collect();
    let count = BLOCKS.min(ends.len() / LEAST_BINS);
    if count < LEAST_BLOCKS {
        return Err(NoBlocks::TooShort);
    }
    Ok(cut(&ends, count))
}

/// About `count` blocks of as many samples as possible each.
fn cut(ends: &[(Nanos, u64)], count: usize) -> Vec<Block> {
    let all: u64 = ends.iter().map(|(_, samples)| samples).sum();
    let (mut blocks, mut began, mut until, mut samples) = (Vec::new(), Nanos::ZERO, 0, 0);
    for (end, more) in ends {
        until += more;
        samples += more;
        // The next block is due; the last takes the rest.
        let due = all as f64 * (blocks.len() + 1) as f64 / count as f64;
        if until as f64 + *more as f64 / 2.0 >= due && blocks.len() + 1 < count || until == all {
            blocks.push(Block {
                seconds: (*end - began).seconds(),
                samples: samples as f64,
            });
            (began, samples) = (*end, 0);
        }
    }
    blocks.retain(|block| block.samples > 0.0);
    blocks
}

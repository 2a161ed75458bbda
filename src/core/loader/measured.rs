//! What stands in a report beside what the records say: the machine, what recording and waking cost, the trace.

use crate::analysis::{Summary, WakingProfile};
use crate::machine::operating_system;
use crate::pipeline::{RecordingCost, WakingCost};
use crate::report::{Machine, RecorderReport, TraceReport};
use crate::timeline::{Nanos, Wakings};
use crate::trace::TraceSummary;
use nix::sys::resource::{UsageWho, getrusage};
use std::sync::Arc;

/// What waking costs, as it was `seen` in the run, or measured beside it.
pub fn waking_profile(cost: &WakingCost, seen: Option<&Arc<Wakings>>) -> WakingProfile {
    let ns = |lengths: &[Nanos]| lengths.iter().map(|length| length.0 as f64).collect();
    let middle = WakingCost::MIDDLE;
    let beside = WakingProfile {
        waited_ns: ns(&cost.waited),
        latency_ns: ns(&cost.latency),
        waking_by_wait_ns: ns(&cost.waking),
        waking_ns: cost.waking[middle].0 as f64,
        switching_ns: cost.switching.0 as f64,
    };
    beside.corrected_by(&seen.map_or(Vec::new(), |seen| seen.seen()))
}

/// CPU time so far.
pub fn cpu_of(who: UsageWho) -> Option<Nanos> {
    let usage = getrusage(who).ok()?;
    let nanos = |time: nix::sys::time::TimeVal| {
        Nanos(time.tv_sec() as u64 * 1_000_000_000 + time.tv_usec() as u64 * 1_000)
    };
    Some(nanos(usage.user_time()) + nanos(usage.system_time()))
}

/// What recording a run came to, where a record costs `cost`; `own` is the CPU time of the thread that takes them, and
/// `process` that of the process, both over the whole run.
pub fn recorder_report(
    summary: &Summary,
    cost: &RecordingCost,
    own: Nanos,
    process: Nanos,
) -> RecorderReport {
    let RecordingCost {
        per_record,
        per_reading,
    } = *cost;
    let writing = Nanos(summary.records * per_record.0 + summary.readings * per_reading.0);
    let cpu = writing + own;
    RecorderReport {
        on: true,
        records: summary.records,
        dropped: summary.dropped,
        record_ns: per_record,
        readings: summary.readings,
        reading_ns: per_reading,
        cpu_ns: cpu,
        cpu_share: cpu.0 as f64 / process.0.max(1) as f64,
    }
}

/// This machine, of which the process may use `cores` cores.
pub fn this_machine(cores: f64) -> Machine {
    Machine {
        cores,
        operating_system: operating_system(),
        architecture: std::env::consts::ARCH.into(),
    }
}

/// What became of the trace.
pub fn note_trace(trace: &mut TraceReport, summary: &TraceSummary) {
    trace.path = summary.path.display().to_string();
    trace.base_ns = Some(summary.base);
    trace.events = summary.events;
    trace.bytes = summary.bytes;
    trace.left_out_events = summary.left_out_events;
    trace.error.clone_from(&summary.error);
}

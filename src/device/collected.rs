//! The steps that a GPU's timeline and the host's records are put together to, on their way to analysis, report and
//! trace.
//!
//! May use: `cupti`'s types, `gpu_steps`, `gpu_lanes`, `other_gpus`; the core.

use crate::cupti::{ApiCall, DeviceWork, Direction, HostMemory, RecordCount, WorkKind};
use crate::gpu_lanes::Lanes;
use crate::gpu_steps::{GpuStep, GpuSteps, LaunchedWork};
use crate::other_gpus::OtherGpus;
use stallscope_core::analysis::{Analysis, WindowRule};
use stallscope_core::report::{CopyReport, TimelineReport};
use stallscope_core::timeline::{Nanos, Record};
use stallscope_core::tracing_feed::TracingFeed;
use std::sync::Arc;

/// The steps that CUPTI's records, whoever reads them, and the host's are put together to.
pub struct CollectedSteps {
    pub steps: GpuSteps,
    rule: WindowRule,
    /// Steps put together so far.
    seen: u64,
    pub report: TimelineReport,
    lanes: Lanes,
    others: OtherGpus,
}

impl CollectedSteps {
    /// Of the steps that `steps` puts together, those that `rule` measures are counted in `report`.
    pub fn new(steps: GpuSteps, rule: WindowRule, report: TimelineReport) -> CollectedSteps {
        CollectedSteps {
            steps,
            rule,
            seen: 0,
            report,
            lanes: Lanes::default(),
            others: OtherGpus::default(),
        }
    }

    /// Takes what a device of this process did that is not the one whose steps these are.
    pub fn take_other(&mut self, work: DeviceWork) {
        self.others.take(work);
    }

    /// Once the traced part of the run is known: writes what other devices did in it.
    pub fn trace_others(&mut self, feed: &TracingFeed) {
        self.others.trace(Some(feed), &mut self.lanes);
    }

    /// Hands on what is complete, everything where training `is_over`: units to `records`, the rest to `analysis`
    /// and `feed`, with the names that `name_of` gives to calls. `count` is of the activities so far.
    pub fn settle(
        &mut self,
        is_over: bool,
        count: RecordCount,
        name_of: impl FnMut(&ApiCall) -> Arc<str>,
        records: &mut Vec<(u16, Record)>,
        analysis: &mut Analysis,
        feed: Option<&TracingFeed>,
    ) {
        let done = self.steps.settle(is_over, records);
        for step in &done {
            analysis.host_was_late(&step.late);
            analysis.batch_was_copied(&step.copying);
            self.seen += 1;
            if self.rule.measures(self.seen) {
                tally(&mut self.report, step);
            }
        }
        if let Some(feed) = feed {
            self.lanes.write(feed, &done, name_of);
        }
        self.others.trace(feed, &mut self.lanes);
        self.report.other_gpus = self.others.report();
        self.report.records = count.read;
        self.report.lost = count.lost();
        self.report.late = self.steps.late();
        (self.report.loader_kernels, self.report.loader_kernel_ns) = self.steps.left_out();
        if is_over {
            self.report.doubt = self.report.doubt_of(self.seen);
        }
    }
}

/// Adds a step to what the report says.
fn tally(report: &mut TimelineReport, step: &GpuStep) {
    let kernels = step
        .works
        .iter()
        .filter(|launched| matches!(launched.work.kind, WorkKind::Kernel { .. }));
    let lengths = kernels.map(|launched| launched.work.interval.length());
    let (count, time) = lengths.fold((0, Nanos::ZERO), |(count, time), length| {
        (count + 1, time + length)
    });
    report.kernels += count;
    report.kernel_ns += time;
    let copies = report.copies.get_or_insert_with(CopyReport::default);
    for LaunchedWork { work, .. } in &step.copies {
        if let WorkKind::Copy {
            direction: Direction::HostToDevice,
            bytes,
            host,
        } = work.kind
        {
            copies.count += 1;
            copies.bytes += bytes;
            copies.pinned_bytes += if host == HostMemory::Pinned { bytes } else { 0 };
        }
    }
    copies.ns += step.copied;
    copies.overlapped_ns += step.overlapped;
    copies.overlapped_share = copies.overlapped_ns.0 as f64 / copies.ns.0.max(1) as f64;
}

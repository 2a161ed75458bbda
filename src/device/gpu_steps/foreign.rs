//! Steps of a training that is not ours: they need not read their outcome back, batches are copied in their course, and
//! work may be launched outside of them.
//!
//! Calls come by thread and late, the device's work in order. All of a step's work has been seen once the calls until
//! its end are known, and work of a later step has come.

use super::parts::bytes_to_device;
use super::{GpuLanes, GpuSteps, HostCopy, HostStep, LaunchedWork};
use stallscope_core::timeline::{BusySpan, DevicePhase, Interval, IntervalSet, Nanos, Record};
use std::collections::HashSet;

/// What is known beside the steps.
#[derive(Default)]
pub(super) struct Foreign {
    /// What was before is of no interest.
    since: Nanos,
    /// All steps of the host's until then are known.
    pub(super) host_until: Nanos,
    /// All calls that had returned by then are.
    calls_until: Nanos,
    /// When the last kernel was launched that has come.
    launched_until: Nanos,
    /// No more steps will be known.
    is_over: bool,
    /// The end of the last step that was put together, and its batch.
    settled_until: Nanos,
    batch: u64,
    is_cut_off: bool,
    /// When kernels ran that no step launched, as far as not handed on.
    outside: IntervalSet,
}

impl GpuSteps {
    /// The same for a training that is not ours, of which all is measured from `since` on, although its first step may begin
    /// later.
    pub fn foreign(lanes: GpuLanes, since: Nanos) -> GpuSteps {
        let foreign = Foreign {
            since,
            ..Foreign::default()
        };
        GpuSteps {
            foreign: Some(foreign),
            ..GpuSteps::new(lanes)
        }
    }

    /// All steps that the host had begun by `at` and ended since are known: what else was launched until then is of none.
    pub fn host_known_until(&mut self, at: Nanos) {
        if let Some(own) = &mut self.foreign {
            own.host_until = own.host_until.max(at);
        }
    }

    /// All calls that had returned by `at` were taken.
    pub fn calls_known_until(&mut self, at: Nanos) {
        if let Some(own) = &mut self.foreign {
            own.calls_until = own.calls_until.max(at);
        }
    }

    /// Not all that the training did was told, as where its process was killed: only those steps count whose work has all
    /// come.
    pub fn was_cut_off(&mut self) {
        if let Some(own) = &mut self.foreign {
            own.is_cut_off = true;
        }
    }

    /// At the end, forgets the last steps if nothing is known of their work.
    pub(super) fn forget_unknown(&mut self) {
        let Some(own) = &self.foreign else { return };
        let is_cut_off = own.is_cut_off;
        let known = |step: &HostStep| match is_cut_off {
            true => step.ended,
            false => step.computes,
        };
        let last = self.steps.iter().rposition(known);
        if last.is_some() || is_cut_off {
            self.steps.truncate(last.map_or(0, |last| last + 1));
            self.ended = self.steps.iter().filter(|step| step.ended).count();
        }
    }

    /// No more steps will be known: what is launched after the last is not wanted.
    pub fn host_is_over(&mut self) {
        if let Some(own) = &mut self.foreign {
            own.is_over = true;
            own.host_until = Nanos(u64::MAX);
        }
    }

    /// Whether all that is wanted has come.
    pub fn has_all(&self) -> bool {
        let own = self.foreign.as_ref();
        own.is_some_and(|own| own.is_over) && self.steps.iter().all(|step| step.ended)
    }

    /// Takes note of a kernel that has come with its call.
    pub(super) fn note_launch(&mut self, launched: &LaunchedWork) {
        if let Some(own) = &mut self.foreign
            && launched.work.kind.is_kernel()
        {
            own.launched_until = own.launched_until.max(launched.launched().start);
        }
    }

    /// Takes note of work that no known step launched.
    pub(super) fn note_outside(&mut self, launched: &LaunchedWork) {
        self.note_kernel(launched);
        let last = self.steps.back().map(|step| step.interval.end);
        if let Some(own) = &mut self.foreign {
            let at = launched.launched().start;
            if own.is_over && at >= last.unwrap_or(own.settled_until) {
                return;
            }
            self.late += u64::from(at >= own.since && at < own.settled_until);
            let ran = launched.work.interval;
            if launched.work.kind.is_kernel() {
                own.outside
                    .insert(Interval::new(ran.start.max(own.since), ran.end));
            }
        }
    }

    /// Finds the steps whose work has all come.
    pub(super) fn find_ended(&mut self) {
        let Some(own) = &self.foreign else { return };
        let until = own.calls_until.min(own.launched_until);
        for step in { self.steps.iter_mut() }.take_while(|step| step.interval.end <= until) {
            step.end(&mut self.ended);
        }
    }

    /// Hands on what ran outside of steps.
    pub(super) fn hand_on_outside(&mut self, records: &mut Vec<(u16, Record)>) {
        let Some(own) = &mut self.foreign else { return };
        for part in std::mem::take(&mut own.outside).parts() {
            let span = BusySpan {
                phase: DevicePhase::Kernels,
                batch: own.batch,
                start: part.start,
                end: part.end,
            };
            records.push((self.lanes.device, Record::Busy(span)));
        }
    }

    /// Takes note that a step is put together.
    pub(super) fn settled(&mut self, step: &HostStep) {
        if let Some(own) = &mut self.foreign {
            own.settled_until = own.settled_until.max(step.interval.end);
            own.batch = step.batch;
        }
    }
}

/// Takes the copies to the device out of what a step launched. Where they went before the step's kernels on the same
/// stream, these had to wait: also returns when.
pub(super) fn copies_of(
    step: &HostStep,
    works: &mut Vec<LaunchedWork>,
) -> (Option<HostCopy>, Vec<Interval>) {
    let to_device = |one: &LaunchedWork| bytes_to_device(&one.work).is_some();
    let (copies, rest): (Vec<_>, Vec<_>) = std::mem::take(works).into_iter().partition(to_device);
    *works = rest;
    let mut kernels = works.iter().filter(|one| one.work.kind.is_kernel());
    let first = kernels.next().map(|first| first.work.interval.start);
    let kernels = works.iter().filter(|one| one.work.kind.is_kernel());
    let streams: HashSet<u32> = kernels.map(|kernel| kernel.work.stream).collect();
    let waits = |one: &LaunchedWork| {
        let (interval, stream) = (one.work.interval, one.work.stream);
        let until = first.filter(|first| interval.start < *first && streams.contains(&stream));
        until.map(|until| Interval::new(interval.start, interval.end.min(until)))
    };
    let copying = copies.iter().filter_map(waits).collect();
    let bytes = copies.iter().filter_map(|one| bytes_to_device(&one.work));
    let copy = HostCopy {
        stage: step.stage,
        host: step.host,
        samples: step.samples,
        bytes: bytes.sum(),
        interval: step.interval,
        works: copies,
    };
    (Some(copy), copying)
}

#[cfg(test)]
mod tests;

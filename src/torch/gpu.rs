//! What a training's GPU did, by CUPTI or by CUDA events, beside the steps of its host: the collector's side.
//!
//! Invariants: what is recorded before the steps are known waits for them, as much as there is room for; what finds none is
//! counted as lost.

use crate::event::DeviceEvent;
use serde::Deserialize;
use stallscope_core::analysis::{Analysis, WindowRule};
use stallscope_core::report::{TimelineReport, TimelineSource};
use stallscope_core::timeline::{Nanos, Record};
use stallscope_core::tracing_feed::TracingFeed;
use stallscope_device::collected::CollectedSteps;
use stallscope_device::cupti::{Activity, Api, ApiCall, RecordCount};
use stallscope_device::gpu_steps::{GpuLanes, GpuSteps};
use std::collections::HashMap;
use std::sync::Arc;

/// Activities that wait for the first steps.
const MOST_EARLY: usize = 1 << 18;

/// Who tells what the device does, as the hooks say it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Timeline {
    /// From now on.
    pub source: TimelineSource,
    /// Why it is not the GPU's own timestamps.
    #[serde(default)]
    pub reason: Option<String>,
    /// CUPTI's API version.
    #[serde(default)]
    pub version: Option<u32>,
    /// The GPU's name.
    #[serde(default)]
    pub device: Option<String>,
    /// Since when, in nanoseconds of CLOCK_MONOTONIC.
    #[serde(default)]
    pub at: u64,
}

/// Names of kernels and functions, by their numbers.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) kernels: HashMap<u32, Arc<str>>,
    /// The runtime's behind bit 31.
    pub(crate) functions: HashMap<u32, Arc<str>>,
}

impl Names {
    fn kernel(&self, number: u32) -> Arc<str> {
        let known = self.kernels.get(&number).cloned();
        known.unwrap_or_else(|| "kernel".into())
    }

    /// A function's number among those of both interfaces.
    pub(crate) fn number(api: Api, function: u32) -> u32 {
        function | u32::from(api == Api::Runtime) << 31
    }

    fn function(&self, call: &ApiCall) -> Arc<str> {
        let known = self.functions.get(&Names::number(call.api, call.function));
        let known = known.cloned();
        known.unwrap_or_else(|| "launch".into())
    }
}

/// A GPU's steps, as far as they are known.
#[derive(Default)]
pub(crate) struct Gpu {
    early: Vec<DeviceEvent>,
    collected: Option<CollectedSteps>,
    count: RecordCount,
    /// Events that found no room in the ring or here.
    lost: u64,
    has_all: bool,
}

impl Gpu {
    /// The first steps are known: theirs are the lanes, and `rule` says which of them are measured.
    pub(crate) fn begin(&mut self, lanes: GpuLanes, rule: WindowRule, names: &Names) {
        let report = TimelineReport::default();
        let steps = GpuSteps::foreign(lanes, rule.run_start);
        self.collected = Some(CollectedSteps::new(steps, rule, report));
        for event in std::mem::take(&mut self.early) {
            self.take(event, names);
        }
    }

    /// Takes what was recorded.
    pub(crate) fn take(&mut self, event: DeviceEvent, names: &Names) {
        let Some(collected) = &mut self.collected else {
            match self.early.len() < MOST_EARLY {
                true => self.early.push(event),
                false => self.lost += 1,
            }
            return;
        };
        if self.has_all {
            return;
        }
        if let DeviceEvent::Told { at, read, lost } = event {
            collected.steps.calls_known_until(Nanos(at));
            self.count.read = self.count.read.max(read);
            self.count.dropped = self.count.dropped.max(lost);
        }
        match event.activity(|number| names.kernel(number)) {
            Some(Activity::Work(work)) if event.is_of_other() => collected.take_other(work),
            Some(activity) => collected.steps.take(activity),
            None => {}
        }
    }

    /// Once the first steps are known: has somebody else, whose recording has so many records, `tell` all until `at`.
    pub(crate) fn be_told(
        &mut self,
        at: Nanos,
        count: RecordCount,
        tell: impl FnOnce(&mut GpuSteps),
    ) {
        self.count = count;
        if let Some(collected) = &mut self.collected {
            tell(&mut collected.steps);
            collected.steps.calls_known_until(at);
        }
    }

    /// No more steps will be known.
    pub(crate) fn host_is_over(&mut self) {
        if let Some(collected) = &mut self.collected {
            collected.steps.host_is_over();
        }
    }

    /// Whether all that is wanted has come; what is lost then is no loss.
    pub(crate) fn has_all(&mut self) -> bool {
        let steps = self.collected.as_ref().map(|collected| &collected.steps);
        self.has_all |= steps.is_some_and(GpuSteps::has_all);
        self.has_all
    }

    /// So many events found no room in the ring.
    pub(crate) fn lost(&mut self, events: u64) {
        self.lost += if self.has_all { 0 } else { events };
    }

    /// Takes records of the host, whose steps until `host_until` are all known.
    pub(crate) fn host(&mut self, host: &[(u16, Record)], host_until: Nanos) {
        if let Some(collected) = &mut self.collected {
            collected.steps.host(host);
            collected.steps.host_known_until(host_until);
        }
    }

    /// The device's records of the steps that are complete; at the `end` of all, or of those that are known where not all
    /// was told.
    pub(crate) fn settle(
        &mut self,
        end: Option<bool>,
        names: &Names,
        analysis: &mut Analysis,
        feed: Option<&TracingFeed>,
    ) -> Vec<(u16, Record)> {
        let mut records = Vec::new();
        let Some(collected) = &mut self.collected else {
            return records;
        };
        if end == Some(false) {
            collected.steps.was_cut_off();
        }
        let count = RecordCount {
            dropped: self.count.dropped + self.lost,
            ..self.count
        };
        let name_of = |call: &ApiCall| names.function(call);
        collected.settle(end.is_some(), count, name_of, &mut records, analysis, feed);
        records
    }

    /// Writes what is left for the trace of `feed`, once its part of the run is known.
    pub(crate) fn trace_others(&mut self, feed: Option<&TracingFeed>) {
        if let Some((collected, feed)) = self.collected.as_mut().zip(feed) {
            collected.trace_others(feed);
        }
    }

    /// What the report says of it, where the timeline was `begun` with and then `changed`, before the step of that number.
    pub(crate) fn report(
        &self,
        begun: &Timeline,
        changed: Option<(&Timeline, u64)>,
    ) -> TimelineReport {
        let own = self
            .collected
            .as_ref()
            .map(|collected| collected.report.clone());
        let reason = changed.map_or(&begun.reason, |(timeline, _)| &timeline.reason);
        let own = own.unwrap_or_default();
        TimelineReport {
            source: begun.source,
            fallback: reason.clone(),
            events_from: changed.map(|(_, step)| step),
            version: begun.version,
            // Events stand for no kernels, and all of them are there.
            doubt: own.doubt.filter(|_| {
                begun.source == TimelineSource::Cupti && (changed.is_none() || own.kernels > 0)
            }),
            ..own
        }
    }
}

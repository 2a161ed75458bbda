//! A device that is seen beside the thread that trains: who tells of it, and its lanes.

use super::Translation;
use crate::gpu::Timeline;
use crate::measuring::device_steps;
use stallscope_core::report::TimelineSource;
use stallscope_core::timeline::{Nanos, Record};
use stallscope_device::gpu_steps::GpuLanes;

const LATE: &str = "the training first used the GPU after its first steps; profile it from its first step on the GPU";

impl Translation {
    /// The hooks say who tells what the device does.
    pub(super) fn timeline_is(&mut self, text: &str) {
        match serde_json::from_str::<Timeline>(text) {
            Ok(timeline) if self.timeline.is_none() => {
                let is_late = self.table.is_some();
                self.timeline = Some(match is_late {
                    true => Timeline {
                        source: TimelineSource::Host,
                        reason: Some(LATE.to_owned()),
                        ..timeline
                    },
                    false => timeline,
                });
            }
            Ok(timeline) => self.changed = Some((timeline, None)),
            Err(error) => self.problems.push(format!(
                "cannot read the source of the GPU timeline: {error}"
            )),
        }
    }

    /// Steps begin: whether the device has lanes of its own is settled now.
    pub(super) fn watch_device(&mut self) {
        let source = self.timeline.as_ref().map(|timeline| timeline.source);
        if source.is_some_and(|source| source != TimelineSource::Host) {
            self.beside = Some(self.lanes.add_device());
        }
    }

    /// Takes the device's records of steps: what predictions are made from gets its busy time.
    pub(crate) fn device_did(&mut self, records: &[(u16, Record)]) {
        for (batch, busy) in device_steps(records) {
            let unknown = &mut self.busy_unknown;
            if let Some(place) = unknown.iter().position(|own| *own == batch) {
                unknown.drain(..=place);
                self.replay.device_was_busy(unknown.len(), busy.0);
            }
        }
    }

    /// The lanes of a device that is seen beside the thread that trains, once steps have begun.
    pub(crate) fn device_lanes(&self) -> Option<GpuLanes> {
        self.beside
    }

    /// A step has ended, at `at`.
    pub(super) fn timeline_changes(&mut self, at: Nanos) {
        let steps = self.steps;
        if let Some((changed, from)) = &mut self.changed
            && from.is_none()
            && Nanos(changed.at) <= at
        {
            *from = Some(steps);
        }
    }

    /// Who told what the device did, and who did from which step on instead, counted from one.
    pub(crate) fn timeline(&self) -> Option<(&Timeline, Option<(&Timeline, u64)>)> {
        let begun = self.timeline.as_ref()?;
        let changed = self.changed.as_ref();
        let changed = changed.and_then(|(changed, from)| Some((changed, (*from)?)));
        Some((begun, changed))
    }

    /// Whether no more steps are wanted.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Until when all steps of the thread that trains are known.
    pub(crate) fn host_known_until(&self) -> Nanos {
        let step = self.main.step.as_ref();
        match step.filter(|_| self.main.validating.is_none()) {
            Some(step) => step.start,
            None => self.main.cursor,
        }
    }
}

//! The batches that are traced, each with its records until it is written.

use crate::timeline::{BusySpan, HostSpan, Nanos, StageKind, UnitRecord, UnitRef};

/// Batches of the run that are traced.
#[derive(Copy, Clone, Debug)]
pub struct TracedSteps {
    /// Number of the first batch, from zero.
    pub first: u64,
    /// How many, from the first on.
    pub count: u64,
}

impl TracedSteps {
    /// Whether the traced part lies before `batch`.
    pub(super) fn end_before(self, batch: u64) -> bool {
        batch >= self.first.saturating_add(self.count)
    }

    pub(super) fn holds(self, batch: u64) -> bool {
        batch >= self.first && batch - self.first < self.count
    }
}

/// The records of a batch on its way.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) units: Vec<(UnitRef, UnitRecord)>,
    /// Each with the lane that told of it.
    pub(super) busy: Vec<(u16, BusySpan)>,
    pub(super) host: Vec<HostSpan>,
    /// The step of the trainer's thread.
    pub(super) step: Option<UnitRef>,
}

impl Batch {
    /// The unit of the only stage of `kind`.
    pub(super) fn unit_of(&self, kind: StageKind) -> Option<UnitRef> {
        let mut units = self.units.iter();
        units
            .find(|(_, unit)| unit.stage.kind() == kind)
            .map(|(name, _)| *name)
    }

    /// Whether the way back from the step to the batch's last sample is known.
    fn leads_back(&self) -> bool {
        let mut next = self.step;
        for _ in 0..=self.units.len() {
            match self.units.iter().find(|(name, _)| Some(*name) == next) {
                Some((_, unit)) if unit.begins() => return true,
                Some((_, unit)) => next = Some(unit.lineage),
                None => break,
            }
        }
        false
    }

    /// Whether every record has arrived. A worker hands on before it records, so a thread that has lost
    /// its core in between may be late.
    pub(super) fn is_whole(&self, device_beside: bool) -> bool {
        let units = |kind| {
            self.units
                .iter()
                .filter(move |(_, unit)| unit.stage.kind() == kind)
        };
        let involved = |stage| {
            self.units
                .iter()
                .filter(move |(_, unit)| unit.involves(stage))
        };
        let samples = |stage| involved(stage).map(|(_, unit)| unit.samples).sum::<u32>();
        let trained = self.units.iter().find(|(name, _)| Some(*name) == self.step);
        if trained.is_some_and(|(_, step)| !step.lineage.is_some()) {
            // It was on the device already.
            return !device_beside || self.unit_of(StageKind::Device).is_some();
        }
        if let Some((_, copy)) = units(StageKind::Copy).next()
            && !copy.lineage.is_some()
        {
            // It was in host memory already.
            return trained.is_some()
                && (!device_beside || self.unit_of(StageKind::Device).is_some());
        }
        let all_of = |step: &UnitRecord| {
            let mut of_stages = step.stage.pipeline().samples().map(samples);
            let first = of_stages.next().unwrap_or_default();
            first >= step.samples && of_stages.all(|others| others == first)
        };
        trained.is_some_and(|(_, step)| all_of(step))
            && units(StageKind::Batch).count() == 1
            && self.leads_back()
            && (!device_beside || self.unit_of(StageKind::Device).is_some())
    }
}

/// A batch whose step has ended, to be written once it is whole.
pub(super) struct Ended {
    pub(super) batch: u64,
    /// When the trainer's thread was done with the step before.
    pub(super) since: Nanos,
    /// When its step's record arrived.
    pub(super) arrived: Nanos,
}

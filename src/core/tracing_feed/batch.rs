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
    pub(super) busy: Vec<BusySpan>,
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
            && units(StageKind::Copy).count() == 1
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

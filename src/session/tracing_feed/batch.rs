//! The batches that are traced, each with its records until it is written.

use crate::timeline::{BusySpan, HostSpan, Nanos, Stage, UnitRecord, UnitRef};

/// Batches of the run that are traced.
#[derive(Copy, Clone, Debug)]
pub(in crate::session) struct TracedSteps {
    pub(in crate::session) first: u64,
    pub(in crate::session) count: u64,
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
    /// The unit of the only worker of `stage`.
    pub(super) fn unit_of(&self, stage: Stage) -> Option<UnitRef> {
        let mut units = self.units.iter();
        units
            .find(|(_, unit)| unit.stage == stage)
            .map(|(name, _)| *name)
    }

    /// Whether every record has arrived. A worker hands on before it records, so a thread that has lost
    /// its core in between may be late.
    pub(super) fn is_whole(&self, device_beside: bool) -> bool {
        let units = |stage| {
            self.units
                .iter()
                .filter(move |(_, unit)| unit.stage == stage)
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
            return !device_beside || self.unit_of(Stage::Device).is_some();
        }
        if let Some((_, copy)) = units(Stage::Copy).next()
            && !copy.lineage.is_some()
        {
            // It was in host memory already.
            return trained.is_some() && (!device_beside || self.unit_of(Stage::Device).is_some());
        }
        let read = samples(Stage::Read);
        trained.is_some_and(|(_, step)| read >= step.samples)
            && read == samples(Stage::Decode)
            && read == samples(Stage::Preprocess)
            && units(Stage::Batch).count() == 1
            && units(Stage::Copy).count() == 1
            && (!device_beside || self.unit_of(Stage::Device).is_some())
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

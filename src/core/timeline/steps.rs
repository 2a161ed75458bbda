//! Counts of steps, kept by the threads that end them: a full ring drops records, but none of these.

use super::{Nanos, StageKind, UnitRecord};
use std::sync::{Mutex, PoisonError};

/// Steps that are over.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    /// How many, from the run's first step on.
    pub steps: u64,
    /// Samples of those steps; skipped ones are not.
    pub samples: u64,
    /// Sum of the times between two of them.
    pub waited: Nanos,
    /// When the last of them was over.
    pub until: Nanos,
    /// Pauses since then, which are not waits.
    pub paused: Nanos,
}

/// Steps that are over by now, and those of the warm-up once that is.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedSteps {
    /// Those of the warm-up; `None` until it is over.
    pub warm_up: Option<StepCounts>,
    /// From the run's first step on, warm-up included.
    pub all: StepCounts,
}

impl CountedSteps {
    /// Counts the step of `unit`.
    pub fn count(&mut self, unit: &UnitRecord, warmup_steps: u64) {
        let all = &mut self.all;
        if all.steps > 0 {
            all.waited += unit.start - all.until - all.paused;
        }
        all.steps += 1;
        all.samples += u64::from(unit.samples);
        all.until = unit.pushed;
        all.paused = Nanos::ZERO;
        if all.steps == warmup_steps {
            self.warm_up = Some(*all);
        }
    }
}

/// The steps of a run: those of the trainer's thread, and of a device that runs beside it.
#[derive(Debug, Default)]
pub(super) struct StepCounters {
    warmup_steps: u64,
    trainer: Mutex<CountedSteps>,
    device: Mutex<CountedSteps>,
}

impl StepCounters {
    pub(super) fn after(warmup_steps: u64) -> StepCounters {
        StepCounters {
            warmup_steps,
            ..StepCounters::default()
        }
    }

    fn of(&self, kind: StageKind) -> &Mutex<CountedSteps> {
        match kind {
            StageKind::Device => &self.device,
            _ => &self.trainer,
        }
    }

    /// Those of the `kind` step or device.
    pub(super) fn read(&self, kind: StageKind) -> CountedSteps {
        *self.of(kind).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The trainer's thread paused for `length`.
    pub(super) fn pause(&self, length: Nanos) {
        let trainer = self.trainer.lock();
        let mut trainer = trainer.unwrap_or_else(PoisonError::into_inner);
        trainer.all.paused += length;
    }

    /// Counts `unit` where it is a step.
    pub(super) fn count(&self, unit: &UnitRecord) {
        if unit.is_step() || unit.stage.kind() == StageKind::Device {
            let mut counted = self
                .of(unit.stage.kind())
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            counted.count(unit, self.warmup_steps);
        }
    }
}

//! Takes what was recorded, in the order that the analysis asks for.

use super::measured::cpu_of;
use super::other_programs::OtherPrograms;
use crate::analysis::{Analysis, CpuReading};
use crate::timeline::{Clock, Drain, Nanos, Record, Recorder, StageKind};
use nix::sys::resource::UsageWho;

/// What is kept from one pass to the next.
pub struct Intake {
    others: OtherPrograms,
    /// Empty between passes; kept for its memory.
    records: Vec<(u16, Record)>,
}

/// What one pass took.
pub struct Pass {
    /// Each with its lane, each lane's in order. They are yet to be absorbed by the analysis.
    pub records: Vec<(u16, Record)>,
    /// How many these are, and how many were dropped.
    pub drain: Drain,
    /// When they were taken.
    pub at: Nanos,
    /// The process's CPU time until then, where the kernel tells.
    pub cpu: Option<CpuReading>,
}

impl Intake {
    /// Nothing was taken yet, in the calling process.
    pub fn new() -> Intake {
        Intake {
            others: OtherPrograms::new(),
            records: Vec::new(),
        }
    }

    /// Takes what `recorder` has, for the `last` time maybe, and tells `analysis` what was counted beside it.
    pub fn pass(
        &mut self,
        recorder: &Recorder,
        clock: &dyn Clock,
        analysis: &mut Analysis,
        last: bool,
    ) -> Pass {
        // Steps are counted no later than their records are taken.
        let [trainer, device] =
            [StageKind::Step, StageKind::Device].map(|kind| recorder.steps(kind));
        analysis.counted(trainer, device);
        let mut records = std::mem::take(&mut self.records);
        let drain = recorder.drain(|lane, record| records.push((lane, record)));
        let at = clock.now();
        let cpu = cpu_of(UsageWho::RUSAGE_SELF).map(|used| CpuReading { at, used });
        let others = cpu.and_then(|cpu| self.others.read(at, cpu.used, last));
        if let Some(others) = others {
            analysis.other_programs(others);
        }
        Pass {
            records,
            drain,
            at,
            cpu,
        }
    }

    /// Takes back the memory of a pass that is over.
    pub fn reuse(&mut self, pass: Pass) {
        self.records = pass.records;
        self.records.clear();
    }
}

impl Default for Intake {
    fn default() -> Intake {
        Intake::new()
    }
}

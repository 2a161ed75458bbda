//! The training loop of a trace as records: each batch that its thread waited for, and the step on it.
//!
//! A step lasts until the next batch is asked for; where the loop asks no DataLoader, until the next step begins. A wait that no
//! step follows, as for the end of an epoch, is part of the next one.

use super::trace::{Marked, Trace};
use crate::translation::lanes::{Lanes, MAIN, unit};
use stallscope_core::analysis::predict::StepCosts;
use stallscope_core::timeline::{
    HostWork, Interval, IntervalSet, Nanos, Pipeline, Role, Stage, StageKind, StageNameError,
    UnitRecord,
};

/// The rows of a trace: of the loader only how long it was waited for.
pub(super) struct Rows {
    pub(super) pipeline: &'static Pipeline,
    loader: Stage,
    step: Stage,
}

impl Rows {
    pub(super) fn new() -> Result<Rows, StageNameError> {
        let pipeline = Pipeline::of_rows(&[("dataloader", Role::Stage)])?;
        Ok(Rows {
            pipeline,
            loader: pipeline.the(StageKind::Sample),
            step: pipeline.the(StageKind::Step),
        })
    }
}

/// A batch: when it was waited for, and when the step on it was over.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) waited: Interval,
    pub(super) until: Nanos,
}

impl Batch {
    fn step(&self) -> Interval {
        Interval::new(self.waited.end, self.until)
    }
}

/// What the loop's thread did.
pub(super) struct Loop<'a> {
    pub(super) batches: Vec<Batch>,
    /// When anything was computed, or put on the device, by any thread.
    host: &'a IntervalSet,
    /// When its thread waited for the device.
    synchronized: IntervalSet,
    /// The device tells itself when it works.
    device_beside: bool,
}

impl<'a> Loop<'a> {
    /// That of `trace`, whose host did something in `host` and launched something at `launches`; none where it has
    /// neither steps nor batches.
    pub(super) fn of(
        trace: &Trace,
        zero: i64,
        host: &'a IntervalSet,
        launches: &[Nanos],
        device_beside: bool,
    ) -> Option<Loop<'a>> {
        let thread = trace.trainer()?;
        let own = |all: &[Marked]| -> Vec<Interval> {
            let own = all.iter().filter(|one| one.thread == thread);
            own.map(|one| one.span.since(zero)).collect()
        };
        let steps = own(&trace.steps);
        let recorded = match (steps.first(), steps.last()) {
            (Some(first), Some(last)) => Interval::new(first.start, last.end),
            _ => {
                let last = own(&trace.nexts).last().map(|next| next.end);
                let end = host.parts().last().map(|part| part.end);
                Interval::new(Nanos::ZERO, last.max(end)?)
            }
        };
        let mut batches: Vec<Batch> = Vec::new();
        let nexts = own(&trace.nexts).into_iter();
        for waited in nexts.filter(|next| !next.clip(recorded).is_empty()) {
            match batches.last_mut() {
                // Within another: a loader that is wrapped by another.
                Some(last) if waited.start < last.waited.end => {}
                Some(last) => {
                    last.until = waited.start;
                    let step = last.step();
                    let place = launches.partition_point(|at| *at < step.start);
                    let computes = match device_beside && !launches.is_empty() {
                        true => launches.get(place).is_some_and(|at| *at < step.end),
                        false => host.covered_in(step) > Nanos::ZERO,
                    };
                    let since = last.waited.start;
                    if !computes {
                        batches.pop();
                    }
                    let since = if computes { waited.start } else { since };
                    batches.push(Batch {
                        waited: Interval::new(since, waited.end),
                        until: recorded.end,
                    });
                }
                None => batches.push(Batch {
                    waited,
                    until: recorded.end,
                }),
            }
        }
        // The last one has been asked for, and there may be no step on it any more.
        if let Some(last) = batches.last()
            && host.covered_in(last.step()) == Nanos::ZERO
        {
            batches.pop();
        }
        if batches.is_empty() {
            let ends = steps
                .iter()
                .skip(1)
                .map(|step| step.start)
                .chain([recorded.end]);
            let own = steps.iter().zip(ends).map(|(step, until)| Batch {
                waited: Interval::new(step.start, step.start),
                until,
            });
            batches = own.collect();
        }
        let synchronized = own(&trace.synchronized).into_iter().collect();
        (!batches.is_empty()).then_some(Loop {
            batches,
            host,
            synchronized,
            device_beside,
        })
    }

    /// What the step of that number took; with a device beside the thread, without what that did.
    pub(super) fn costs(&self, number: usize) -> StepCosts {
        let batch = &self.batches[number];
        let step = batch.step();
        let computes = match self.device_beside {
            true => Interval::new(step.end, step.end),
            false => self.computes(step),
        };
        let waited = |part| self.synchronized.covered_in(part);
        let around = [
            Interval::new(step.start, computes.start),
            Interval::new(computes.end, step.end),
        ];
        let synchronized = around.into_iter().map(waited).sum::<Nanos>();
        let computes = computes.length();
        StepCosts {
            wait: batch.waited.length().0,
            host: (step.length() - synchronized - computes).0,
            synchronized: synchronized.0,
            device: computes.0,
        }
    }

    /// From the first operator in `step` to the last; empty at its end where there is none.
    fn computes(&self, step: Interval) -> Interval {
        let mut parts = self.host.parts_in(step);
        let first = parts.next();
        match (first, parts.last().or(first)) {
            (Some(first), Some(last)) => Interval::new(first.start, last.end),
            _ => Interval::new(step.end, step.end),
        }
    }

    /// Writes the records of the batch of that number.
    pub(super) fn record(&self, number: usize, rows: &Rows, lanes: &mut Lanes) {
        let (batch, number) = (&self.batches[number], number as u64);
        let (waited, step) = (batch.waited, batch.step());
        let wait = UnitRecord {
            samples: 1,
            ..unit(rows.loader, number, waited.start, waited.end)
        };
        let loaded = lanes.unit(MAIN, wait);
        let computes = self.computes(step);
        if !self.device_beside {
            lanes.busy(number, computes);
        }
        let before = Interval::new(step.start, computes.start);
        let behind = Interval::new(computes.end, step.end);
        let computing = self.device_beside.then_some((HostWork::Launch, computes));
        let parts = [(HostWork::Between, before)].into_iter().chain(computing);
        for (work, part) in parts.chain([(HostWork::Between, behind)]) {
            for (piece, is_waiting) in self.synchronized.pieces(part) {
                let work = if is_waiting {
                    HostWork::Synchronize
                } else {
                    work
                };
                lanes.host(work, number, piece);
            }
        }
        // The trace does not say of how many samples it is.
        let step = UnitRecord {
            samples: 1,
            cause: loaded,
            lineage: loaded,
            ..unit(rows.step, number, step.start, step.end)
        };
        lanes.unit(MAIN, step);
    }
}

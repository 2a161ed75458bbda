//! The thread that trains: its steps, and what lies between.

mod loading;
mod passes;

use super::Translation;
use super::lanes::{MAIN, unit};
use crate::event::{Batch, Event, Pass, Span, Used};
use stallscope_core::analysis::predict::torch::{BatchCost, Cost};
use stallscope_core::timeline::{HostWork, Interval, IntervalSet, Nanos, UnitRecord, UnitRef};

/// What a stretch of the thread's time outside of loaders is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Within {
    Step,
    Validation,
    Neither,
}

/// Such a stretch, which is not over.
struct Stretch {
    within: Within,
    start: Nanos,
    computes: IntervalSet,
    named: Vec<(HostWork, Interval)>,
}

/// The batch that is trained on.
pub(super) struct Step {
    batch: Batch,
    number: u64,
    pub(super) start: Nanos,
    began: Nanos,
    /// What had been used by then.
    used: Used,
    busy: Nanos,
    samples: u32,
    lineage: UnitRef,
    costs: BatchCost,
}

/// A pass over a loader that trains nothing.
pub(super) struct Validating {
    pass: Pass,
    since: Nanos,
    /// Taken so far.
    batches: u64,
}

/// Where the thread is.
#[derive(Default)]
pub(super) struct Main {
    stretch: Option<Stretch>,
    pub(super) step: Option<Step>,
    /// In `next()` of a pass, since.
    next: Option<(Pass, Nanos)>,
    iter: Option<(Pass, Nanos)>,
    pub(super) validating: Option<Validating>,
    /// What is before has its host spans.
    pub(super) cursor: Nanos,
    /// The number of the batch that is trained on or waited for.
    batch: u64,
    /// Since when a finished batch has had to wait for an earlier one.
    held_since: Option<Nanos>,
    /// A pass whose costs wait for what follows it.
    ended: Option<(Pass, Nanos)>,
}

impl Translation {
    pub(super) fn of_main(&mut self, event: Event) -> Result<(), Event> {
        match event {
            Event::PassBegins { pass, grad, at } => match self.purpose(pass, grad) {
                Some(purpose) => self.pass_begins(pass, purpose, Nanos(at)),
                None => return Err(event),
            },
            Event::PassEnds { pass, early, at } => self.pass_ends(pass, !early, Nanos(at)),
            Event::NextBegins { pass, at, used } => self.next_begins(pass, Nanos(at), used),
            Event::NextEnds {
                batch,
                is_some: true,
                samples,
                at,
                used,
                ..
            } => self.next_ends(batch, samples, Nanos(at), used),
            Event::NextEnds { batch, at, .. } => self.exhausted(batch.pass, Nanos(at)),
            Event::Dispatch {
                batch,
                worker,
                sampler,
                cpu,
                put,
                ..
            } => self.dispatch(batch, worker, (sampler, cpu), Nanos(put)),
            Event::Receive { batch, .. } => {
                let known = self
                    .batches
                    .get(&batch)
                    .and_then(|one| one.pinned.or(one.sent));
                let wanted = self.training(batch.pass).is_some();
                if wanted && known.is_none() && !self.forced && !self.was_ended(&event) {
                    return Err(event);
                }
                if wanted {
                    self.receive(&event);
                }
            }
            Event::Compute { span, .. } => {
                let part = interval(span);
                if let Some(stretch) = &mut self.main.stretch {
                    stretch.computes.insert(part);
                }
            }
            Event::Main {
                work,
                pass,
                span,
                subject,
                used,
            } => self.work(work, pass, subject, (span, used)),
            Event::Sample { batch, .. } if self.training(batch.pass).is_some() => {
                self.sample(self.wanted.main, &event);
            }
            Event::Fetch { batch, .. } if self.training(batch.pass).is_some() => {
                self.fetched_inline(&event);
            }
            _ => {}
        }
        Ok(())
    }

    /// Opens a stretch.
    fn open(&mut self, within: Within, at: Nanos) {
        self.main.stretch = Some(Stretch {
            within,
            start: at,
            computes: IntervalSet::new(),
            named: Vec::new(),
        });
    }

    /// Writes what the stretch in progress was, until `at`: when the device was busy, and what else the thread did.
    fn close(&mut self, at: Nanos) {
        let Some(mut stretch) = self.main.stretch.take() else {
            return;
        };
        let all = Interval::new(stretch.start, at.max(stretch.start));
        let busy = match (stretch.computes.parts(), stretch.within) {
            ([], Within::Step | Within::Validation) if !self.computes => vec![all],
            ([first, .., last], Within::Step | Within::Validation) => {
                vec![Interval::new(first.start, last.end)]
            }
            (parts, _) => parts.to_vec(),
        };
        let number = self.main.batch;
        let mut set = IntervalSet::new();
        for part in busy {
            let part = part.clip(all);
            set.insert(part);
            if self.beside.is_none() {
                self.lanes.busy(number, part);
            }
        }
        if let Some(step) = self
            .main
            .step
            .as_mut()
            .filter(|_| stretch.within == Within::Step)
        {
            step.busy += set.length();
        }
        let filler = match stretch.within {
            Within::Validation => HostWork::Validation,
            _ => HostWork::Between,
        };
        // Beside a device that tells itself when it worked, computing is launching.
        let computing = match (self.beside, filler) {
            (None, _) => None,
            (Some(_), HostWork::Between) => Some(HostWork::Launch),
            (Some(_), filler) => Some(filler),
        };
        stretch.named.sort_unstable_by_key(|(_, part)| part.start);
        for (piece, is_computing) in set.pieces(all) {
            let filler = match (is_computing, computing) {
                (true, None) => continue,
                (true, Some(computing)) => computing,
                (false, _) => filler,
            };
            let mut from = piece.start;
            for (work, part) in &stretch.named {
                let part = Interval::new(part.start.max(from), part.end.min(piece.end));
                if !part.is_empty() {
                    self.lanes
                        .host(filler, number, Interval::new(from, part.start));
                    self.lanes.host(*work, number, part);
                    from = part.end;
                }
            }
            self.lanes
                .host(filler, number, Interval::new(from, piece.end));
        }
        self.main.cursor = self.main.cursor.max(all.end);
    }

    /// What the thread did for its loader: a unit of its own, from where the one before ended at the earliest.
    fn main_unit(&mut self, work: HostWork, start: Nanos, end: Nanos) -> (UnitRef, Nanos) {
        let free = self.lanes.free_at(MAIN);
        let (start, number) = (start.max(free), self.main.batch);
        let end = end.max(start);
        self.lanes.host(work, number, Interval::new(start, end));
        self.main.cursor = self.main.cursor.max(end);
        let Some(table) = &self.table else {
            return (UnitRef::NONE, end);
        };
        (
            self.lanes.unit(MAIN, unit(table.main, number, start, end)),
            end,
        )
    }

    /// A step that another loader interrupts: its part so far.
    fn main_piece(&mut self, at: Nanos) {
        let main = self.table.as_ref().map(|table| table.main);
        if let (Some(step), Some(main)) = (&self.main.step, main) {
            let piece = unit(main, step.number, step.start, at);
            self.lanes.unit(MAIN, piece);
        }
    }

    /// The step that was interrupted goes on.
    fn goes_on(&mut self, at: Nanos) {
        if let Some(step) = &mut self.main.step {
            step.start = at;
        }
        let within = match self.main.step {
            Some(_) => Within::Step,
            None => Within::Neither,
        };
        self.open(within, at);
    }

    fn next_begins(&mut self, pass: Pass, at: Nanos, used: Used) {
        if self.main.validating.is_some() {
            self.close(at);
            return;
        }
        if self.training(pass).is_none() {
            return;
        }
        let own = self
            .main
            .step
            .as_ref()
            .is_some_and(|step| step.batch.pass == pass);
        match own {
            true => self.end_step(at, Some(used)),
            false => {
                self.close(at);
                self.main_piece(at);
            }
        }
        self.main.next = Some((pass, at));
    }

    /// The step in progress is over, when so much had been `used`, where that is known.
    fn end_step(&mut self, at: Nanos, used: Option<Used>) {
        self.close(at);
        let (Some(mut step), Some(table)) = (self.main.step.take(), &self.table) else {
            return;
        };
        let step_unit = UnitRecord {
            samples: step.samples,
            cause: step.lineage,
            lineage: step.lineage,
            ..unit(
                table.step,
                step.number,
                step.start.max(self.lanes.free_at(MAIN)),
                at,
            )
        };
        self.lanes.unit(MAIN, step_unit);
        self.steps += 1;
        self.timeline_changes(at);
        self.over |= self.wanted.steps.is_some_and(|wanted| self.steps >= wanted);
        self.main.batch = step.number + 1;
        let used = used.map_or(
            Used {
                cpu: step.busy.0,
                delay: 0,
            },
            |used| used.since(step.used),
        );
        step.costs.step = Cost {
            wall: (at - step.began).0,
            cpu: used.cpu,
        };
        step.costs.delay = used.delay;
        step.costs.busy = step.busy.0;
        let iterator = step.batch.pass.iterator;
        if self.replays(iterator) {
            self.replay.batch(&step.costs);
            self.busy_unknown.extend(self.beside.map(|_| step.number));
        }
    }

    fn next_ends(&mut self, batch: Batch, samples: u32, at: Nanos, used: Used) {
        if let Some(validating) = &mut self.main.validating {
            let first = validating.batches == 0;
            validating.batches += 1;
            let work = match first {
                true => HostWork::ValidationStart,
                false => HostWork::Validation,
            };
            let wait = Interval::new(self.main.cursor, at.max(self.main.cursor));
            self.lanes.host(work, self.main.batch, wait);
            let loader = self.loader(batch.pass);
            loader.batches += 1;
            loader.samples += u64::from(samples);
            match first {
                true => loader.start_ns += wait.length(),
                false => loader.waited_ns += wait.length(),
            }
            self.main.cursor = at;
            self.open(Within::Validation, at);
            return;
        }
        if self.training(batch.pass).is_none() {
            return;
        }
        let since = self.main.next.take().map_or(at, |(_, since)| since);
        let one = self.batches.remove(&batch);
        let one = one.unwrap_or_else(|| self.unknown(batch));
        let samples = if samples == 0 { one.samples } else { samples };
        self.note_held(one.parked, at);
        if let Some(state) = self.passes.get_mut(&batch.pass) {
            state.taken += 1;
        }
        let loader = self.loader(batch.pass);
        loader.batches += 1;
        loader.samples += u64::from(samples);
        loader.waited_ns += at - since;
        if self.main.step.is_some() {
            self.goes_on(at);
            return;
        }
        let number = self.passes.get(&batch.pass).map_or(0, |state| state.number);
        let costs = BatchCost {
            pass: number,
            next: (at - since).0,
            ..one.costs
        };
        self.main.batch = one.number;
        self.main.step = Some(Step {
            batch,
            number: one.number,
            start: at,
            began: at,
            used,
            busy: Nanos::ZERO,
            samples,
            lineage: one.received.unwrap_or(UnitRef::NONE),
            costs,
        });
        self.open(Within::Step, at);
    }

    /// Nothing follows: what is in progress ends with the last that is known.
    pub(super) fn end(&mut self) {
        self.main.validating = None;
        let at = self
            .main
            .stretch
            .as_ref()
            .and_then(|own| Some(own.computes.parts().last()?.end));
        if let (Some(at), true) = (at, self.main.step.is_some() && !self.over) {
            self.end_step(at, None);
        }
        let at = self.main.ended.map_or(Nanos::ZERO, |(_, at)| at);
        self.finish_costs(at);
    }
}

fn interval(span: Span) -> Interval {
    Interval::new(Nanos(span.start), Nanos(span.end.max(span.start)))
}

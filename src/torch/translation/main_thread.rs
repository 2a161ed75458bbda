//! The thread that trains: steps, what it does for its loader, and what lies between.

use super::bench::{Bound, Made};
use super::lanes::{MAIN, unit};
use super::workers::fetch_costs;
use super::{InFlight, PassState, Purpose, Translation};
use crate::event::{Batch, Event, Main as Work, Pass, Span};
use stallscope_core::analysis::predict::torch::{BatchCost, Cost, PassCosts};
use stallscope_core::report::TorchLoader;
use stallscope_core::timeline::{
    HostWork, Interval, IntervalSet, Nanos, Record, UnitRecord, UnitRef,
};
use std::collections::HashSet;

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
struct Step {
    batch: Batch,
    number: u64,
    start: Nanos,
    began: Nanos,
    busy: Nanos,
    samples: u32,
    lineage: UnitRef,
    costs: BatchCost,
}

/// A pass over a loader that trains nothing.
struct Validating {
    pass: Pass,
    since: Nanos,
    has_batch: bool,
}

/// Where the thread is.
#[derive(Default)]
pub(super) struct Main {
    stretch: Option<Stretch>,
    step: Option<Step>,
    /// In `next()` of a pass, since.
    next: Option<(Pass, Nanos)>,
    iter: Option<(Pass, Nanos)>,
    validating: Option<Validating>,
    /// What is before has its host spans.
    cursor: Nanos,
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
            Event::NextBegins { pass, at } => self.next_begins(pass, Nanos(at)),
            Event::NextEnds {
                batch,
                is_some: true,
                samples,
                at,
                ..
            } => self.next_ends(batch, samples, Nanos(at)),
            Event::NextEnds { batch, at, .. } => self.exhausted(batch.pass, Nanos(at)),
            Event::Dispatch {
                batch,
                worker,
                sampler,
                put,
                ..
            } => self.dispatch(batch, worker, sampler, Nanos(put)),
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
            } => self.work(work, pass, subject, span),
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
            self.lanes.busy(number, part);
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
        stretch.named.sort_unstable_by_key(|(_, part)| part.start);
        for gap in set.gaps_in(all) {
            let mut from = gap.start;
            for (work, part) in &stretch.named {
                let part = Interval::new(part.start.max(from), part.end.min(gap.end));
                if !part.is_empty() {
                    self.lanes
                        .host(filler, number, Interval::new(from, part.start));
                    self.lanes.host(*work, number, part);
                    from = part.end;
                }
            }
            self.lanes
                .host(filler, number, Interval::new(from, gap.end));
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

    fn loader(&mut self, pass: Pass) -> &mut TorchLoader {
        self.loaders.entry(pass.iterator).or_default()
    }

    fn pass_begins(&mut self, pass: Pass, purpose: Purpose, at: Nanos) {
        let is_within = self.main.validating.is_some();
        let purpose = if is_within {
            Purpose::Validation
        } else {
            purpose
        };
        let settings = self
            .settings
            .get(&pass.iterator)
            .cloned()
            .unwrap_or_default();
        let loader = self.loader(pass);
        loader.passes += 1;
        loader.settings = settings;
        loader.validates = purpose == Purpose::Validation;
        if self.begun.is_none_or(|begun| at < begun) {
            // Before the first training pass nothing is measured.
            self.passes
                .insert(pass, PassState::new(Purpose::Validation, 0, 0, at));
            return;
        }
        self.finish_costs(at);
        let free = self.lanes.free_at(MAIN);
        self.close(at);
        if purpose == Purpose::Training {
            self.trainers.insert(pass.iterator);
            self.main_piece(at);
            self.main.iter = Some((pass, at));
        } else if !is_within {
            self.main.validating = Some(Validating {
                pass,
                since: at.max(free),
                has_batch: false,
            });
        }
        self.main.cursor = at.max(self.main.cursor);
        if !self.lanes.latest(MAIN).is_some() {
            self.main_unit(HostWork::StartWorkers, at, at);
        }
        let over = |state: &PassState| state.purpose == Purpose::Validation || state.over;
        let alone = self.passes.values().all(over);
        let number = self.passes.len() as u32;
        let base = match alone {
            true => self.next_base,
            // Of loaders that are iterated together only the first one's batches are numbered without gaps.
            false => u64::from(number) << 40,
        };
        let numbered = self
            .passes
            .values()
            .filter(|state| state.purpose == Purpose::Training);
        let numbered = numbered.count() as u32;
        self.passes
            .retain(|_, state| !state.over || state.begun + FORGET > at);
        self.batches.retain(|batch, _| {
            self.passes
                .get(&batch.pass)
                .is_some_and(|state| !state.over)
        });
        let mut state = PassState::new(purpose, numbered, base, at);
        let latest = self.lanes.latest(MAIN);
        state.begins = latest.is_some().then_some((latest, free));
        self.passes.insert(pass, state);
        if purpose == Purpose::Training && alone {
            self.main.batch = base;
        }
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

    fn next_begins(&mut self, pass: Pass, at: Nanos) {
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
            true => self.end_step(at),
            false => {
                self.close(at);
                self.main_piece(at);
            }
        }
        self.main.next = Some((pass, at));
    }

    /// The step in progress is over.
    fn end_step(&mut self, at: Nanos) {
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
        self.over |= self.wanted.steps.is_some_and(|wanted| self.steps >= wanted);
        self.main.batch = step.number + 1;
        step.costs.step = Cost {
            wall: (at - step.began).0,
            cpu: step.busy.0,
        };
        step.costs.busy = step.busy.0;
        let iterator = step.batch.pass.iterator;
        if self.replays(iterator) {
            self.replay.batch(&step.costs);
        }
    }

    /// Whether the costs are those of this iterator's loader: of those that train the first, and all that are set as it.
    fn replays(&mut self, iterator: u32) -> bool {
        let first = *self.replayed.get_or_insert(iterator);
        let settings = self.settings.get(&first).cloned().unwrap_or_default();
        let same = first == iterator || self.settings.get(&iterator) == Some(&settings);
        self.replay.loader = settings;
        same
    }

    fn next_ends(&mut self, batch: Batch, samples: u32, at: Nanos) {
        if let Some(validating) = &mut self.main.validating {
            let first = !std::mem::replace(&mut validating.has_batch, true);
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
            busy: Nanos::ZERO,
            samples,
            lineage: one.received.unwrap_or(UnitRef::NONE),
            costs,
        });
        self.open(Within::Step, at);
    }

    fn unknown(&self, batch: Batch) -> InFlight {
        let base = self.passes.get(&batch.pass).map_or(0, |state| state.base);
        InFlight {
            number: base + batch.number,
            ..InFlight::default()
        }
    }

    /// Finished batches that had to wait for earlier ones, until a batch was taken at `at`.
    fn note_held(&mut self, parked: Option<Nanos>, at: Nanos) {
        let others = self.batches.values().filter_map(|one| one.parked).min();
        let since = self.main.held_since.take().or(parked).or(others);
        if let Some(since) = since.filter(|_| parked.is_some() || others.is_some()) {
            let held = Interval::new(since.min(at), at);
            self.lanes.write(MAIN, Record::Held(held));
        }
        self.main.held_since = others.map(|_| at);
    }

    /// A pass gave all its batches.
    fn exhausted(&mut self, pass: Pass, at: Nanos) {
        if self.main.validating.is_some() {
            self.end_validation(pass, at);
        } else if self.training(pass).is_some() {
            let since = self.main.next.take().map_or(at, |(_, since)| since);
            self.main_unit(HostWork::Other, since, at);
            self.over_at(pass, true, at);
            self.goes_on(at);
        }
    }

    fn pass_ends(&mut self, pass: Pass, whole: bool, at: Nanos) {
        self.end_validation(pass, at);
        if self.training(pass).is_none() {
            return;
        }
        if self
            .main
            .step
            .as_ref()
            .is_some_and(|step| step.batch.pass == pass)
        {
            self.end_step(at);
            self.open(Within::Neither, at);
        }
        self.over_at(pass, whole, at);
    }

    fn over_at(&mut self, pass: Pass, whole: bool, at: Nanos) {
        if let Some(state) = self.passes.get_mut(&pass) {
            state.over = true;
            state.costs.whole = whole;
            state.costs.batches = state.taken;
            state.wall_until = at;
            let used = state.dealt.max(state.taken);
            if state.base == self.next_base {
                self.next_base += used;
                self.main.batch = self.next_base;
            }
            self.main.ended = Some((pass, at));
        }
        self.main.held_since = None;
        self.note_live(pass, at);
    }

    /// The costs of the pass before are known once the next begins, at `at`.
    pub(super) fn finish_costs(&mut self, at: Nanos) {
        let Some((pass, ended)) = self.main.ended.take() else {
            return;
        };
        let replays = self.replays(pass.iterator);
        if let Some(state) = self.passes.get_mut(&pass) {
            let costs = PassCosts {
                number: state.number,
                between: Cost::computing((at - ended).0),
                wall: (state.wall_until - state.begun).0,
                ..std::mem::take(&mut state.costs)
            };
            if replays {
                self.replay.pass(costs);
            }
        }
    }

    fn end_validation(&mut self, pass: Pass, at: Nanos) {
        let Some(validating) = self.main.validating.take_if(|own| own.pass == pass) else {
            return;
        };
        self.close(at);
        let number = self.main.batch;
        let rest = Interval::new(self.main.cursor, at.max(self.main.cursor));
        self.lanes.host(HostWork::Validation, number, rest);
        self.main.cursor = rest.end;
        if let Some(state) = self.passes.get_mut(&pass) {
            state.over = true;
        }
        let main = self.table.as_ref().map(|table| table.main);
        if let Some(main) = main.filter(|_| self.main.step.is_none()) {
            self.lanes
                .unit(MAIN, unit(main, number, validating.since, rest.end));
        }
        let within = match self.main.step {
            Some(_) => Within::Step,
            None => Within::Neither,
        };
        self.open(within, at);
    }

    fn dispatch(&mut self, batch: Batch, worker: u32, sampler: Span, put: Nanos) {
        if self.training(batch.pass).is_none() {
            return;
        }
        let begins = Nanos(sampler.start);
        self.starting(begins);
        let drawn = self.main_unit(HostWork::Sampler, begins, put);
        if let Some(state) = self.passes.get_mut(&batch.pass) {
            state.dealt = state.dealt.max(batch.number + 1);
        }
        let one = self.batch(batch);
        one.worker = worker;
        one.dealt = Some(drawn);
        one.costs.sampler = Cost::computing(sampler.end.saturating_sub(sampler.start));
    }

    /// What of `iter()` has no other name, up to `until`.
    fn starting(&mut self, until: Nanos) {
        if let Some((pass, _)) = self.main.iter {
            let part = Interval::new(self.main.cursor, until.max(self.main.cursor));
            if !part.is_empty() {
                if let Some(state) = self.passes.get_mut(&pass) {
                    state.costs.iter.wall += part.length().0;
                    state.costs.iter.cpu += part.length().0;
                }
                self.main_unit(HostWork::StartWorkers, part.start, part.end);
            }
        }
    }

    fn was_ended(&self, event: &Event) -> bool {
        let Event::Receive { batch, worker, .. } = event else {
            return false;
        };
        let state = self.passes.get(&batch.pass);
        state.is_some_and(|state| state.ended.contains(worker))
    }

    fn receive(&mut self, event: &Event) {
        let Event::Receive {
            batch,
            parked,
            work,
            bytes,
            ..
        } = event
        else {
            return;
        };
        let known = self
            .batches
            .get(batch)
            .and_then(|one| one.pinned.or(one.sent));
        let free = self.lanes.free_at(MAIN);
        let number = self.batch(*batch).number;
        let Some(table) = &self.table else { return };
        let ready = known.map_or(Nanos(work.start), |(_, at)| at);
        let waited = ready > free;
        let start = Nanos(work.start)
            .max(free)
            .max(if waited { ready } else { Nanos::ZERO });
        let end = Nanos(work.end).max(start);
        let cause = match known {
            Some((cause, _)) => cause,
            // What sent it was dropped; or else a worker said that it has no more.
            None if waited && !self.was_ended(event) => self.lanes.lost(MAIN),
            None => UnitRef::NONE,
        };
        let received = UnitRecord {
            samples: 1,
            waited: waited && cause.is_some(),
            ready_at: ready.min(start),
            cause,
            lineage: cause,
            bytes_in: *bytes,
            ..unit(table.main, number, start, end)
        };
        self.lanes
            .host(HostWork::Receive, number, Interval::new(start, end));
        self.main.cursor = self.main.cursor.max(end);
        let received = self.lanes.unit(MAIN, received);
        let one = self.batch(*batch);
        one.received = Some(received);
        one.parked = parked.then_some(end);
        one.costs.receive = Cost::computing((end - start).0);
    }

    fn work(&mut self, work: Work, pass: Pass, subject: u32, span: Span) {
        let host = match work {
            Work::StartWorkers | Work::Iter => HostWork::StartWorkers,
            Work::StopWorkers => HostWork::StopWorkers,
            Work::Copy => HostWork::Copy,
            Work::Synchronize => HostWork::Synchronize,
        };
        let part = interval(span);
        if work == Work::Iter {
            if self.main.iter.is_some_and(|(own, _)| own == pass) {
                self.starting(part.end);
                self.main.iter = None;
                self.goes_on(part.end);
            }
            return;
        }
        let costs = |state: &mut PassState| match work {
            Work::StartWorkers => state.costs.process.wall += part.length().0,
            Work::StopWorkers => state.costs.stop.wall += part.length().0,
            _ => {}
        };
        if let Some(state) = self.passes.get_mut(&pass) {
            costs(state);
        }
        if let Some(stretch) = &mut self.main.stretch {
            stretch.named.push((host, part));
        } else if self.main.validating.is_none()
            && (self.main.next.is_some() || self.main.iter.is_some())
        {
            self.starting(part.start);
            let (unit, end) = self.main_unit(host, part.start, part.end);
            if work == Work::StartWorkers
                && let Some(state) = self.passes.get_mut(&pass)
            {
                state.started.push((subject, unit, end));
            }
        }
    }

    /// Without workers: the thread has made a batch itself.
    fn fetched_inline(&mut self, event: &Event) {
        let Event::Fetch {
            batch,
            samples,
            span,
            collate,
            cpu,
            parts,
            ended: false,
            ..
        } = event
        else {
            return;
        };
        let parts = self.rows(self.wanted.main, parts);
        let number = self.batch(*batch).number;
        let Some(table) = &self.table else { return };
        let free = self.lanes.free_at(MAIN).0;
        let made = Made {
            lane: MAIN,
            number,
            samples: *samples,
            span: Span {
                start: span.start.max(free),
                end: span.end.max(free),
            },
            collate: *collate,
            parts: &parts,
        };
        let last = self
            .inline
            .made(&made, Bound::Before, table, &self.usual, &mut self.lanes);
        self.main.cursor = self.main.cursor.max(Nanos(span.end));
        let mut costs = std::mem::take(&mut self.inline.costs);
        fetch_costs(&mut costs, *span, *collate, *cpu, *samples);
        let one = self.batch(*batch);
        costs.sampler = one.costs.sampler;
        one.samples = *samples;
        one.received = Some(last);
        one.costs = costs;
    }

    /// Notes how many of a pass's workers still have something to load, from `at` on.
    pub(super) fn note_live(&mut self, pass: Pass, at: Nanos) {
        let Some(state) = self.passes.get(&pass) else {
            return;
        };
        let all = self
            .settings
            .get(&pass.iterator)
            .map_or(0, |own| own.num_workers);
        let all = all.max(state.active.len());
        let left = match state.over {
            true => all,
            false => all.saturating_sub(state.ended.len()).max(1),
        };
        let record = Record::Live {
            at,
            workers: left as u32,
            of: all.max(1) as u32,
        };
        self.lanes.write(MAIN, record);
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
            self.end_step(at);
        }
        let at = self.main.ended.map_or(Nanos::ZERO, |(_, at)| at);
        self.finish_costs(at);
    }
}

/// Passes that are over are remembered for that long, since events of their workers may be late.
const FORGET: Nanos = Nanos::from_millis(60_000);

fn interval(span: Span) -> Interval {
    Interval::new(Nanos(span.start), Nanos(span.end.max(span.start)))
}

impl PassState {
    fn new(purpose: Purpose, number: u32, base: u64, begun: Nanos) -> PassState {
        PassState {
            purpose,
            number,
            base,
            begun,
            over: false,
            dealt: 0,
            taken: 0,
            started: Vec::new(),
            begins: None,
            active: HashSet::new(),
            ended: HashSet::new(),
            costs: PassCosts::default(),
            wall_until: begun,
        }
    }
}

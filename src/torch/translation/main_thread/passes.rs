//! Where passes over loaders begin and end, those that train and those that validate.

use super::super::lanes::MAIN;
use super::super::lanes::unit;
use super::super::workers::net;
use super::super::{PassState, Purpose, Translation};
use super::{Validating, Within};
use crate::event::{Pass, Span, Used};
use stallscope_core::analysis::predict::torch::{Cost, PassCosts};
use stallscope_core::report::TorchLoader;
use stallscope_core::timeline::{HostWork, Interval, Nanos, Record};
use std::collections::HashSet;

/// Passes that are over are remembered for that long, since events of their workers may be late.
const FORGET: Nanos = Nanos::from_millis(60_000);

impl Translation {
    pub(in crate::translation) fn loader(&mut self, pass: Pass) -> &mut TorchLoader {
        self.loaders.entry(pass.iterator).or_default()
    }

    pub(in crate::translation) fn pass_begins(&mut self, pass: Pass, purpose: Purpose, at: Nanos) {
        if purpose == Purpose::Training {
            self.end_abandoned(at);
        }
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
                batches: 0,
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

    /// A loop may stop asking after the last batch, as Lightning's does: its pass is over once another begins that trains.
    fn end_abandoned(&mut self, at: Nanos) {
        let is_taken = |pass: &Pass, taken: u64| {
            let settings = self.settings.get(&pass.iterator);
            settings.and_then(|own| own.batches) == Some(taken)
        };
        let validated = self.main.validating.as_ref();
        let validated = validated.filter(|own| is_taken(&own.pass, own.batches));
        let trained = self
            .passes
            .iter()
            .filter(|(pass, state)| !state.over && is_taken(pass, state.taken));
        let trained = trained.map(|(pass, _)| *pass);
        let over: Vec<Pass> = validated
            .map(|own| own.pass)
            .into_iter()
            .chain(trained)
            .collect();
        for pass in over {
            self.pass_ends(pass, true, at);
        }
    }

    /// Whether the costs are those of this iterator's loader: of those that train the first, and all that are set as it.
    pub(in crate::translation) fn replays(&mut self, iterator: u32) -> bool {
        let first = *self.replayed.get_or_insert(iterator);
        let settings = self.settings.get(&first).cloned().unwrap_or_default();
        let same = first == iterator || self.settings.get(&iterator) == Some(&settings);
        self.replay.loader = settings;
        same
    }

    /// A pass gave all its batches.
    pub(in crate::translation) fn exhausted(&mut self, pass: Pass, at: Nanos) {
        if self.main.validating.is_some() {
            self.end_validation(pass, at);
        } else if self.training(pass).is_some() {
            let since = self.main.next.take().map_or(at, |(_, since)| since);
            self.main_unit(HostWork::Other, since, at);
            self.over_at(pass, true, at);
            self.goes_on(at);
        }
    }

    pub(in crate::translation) fn pass_ends(&mut self, pass: Pass, whole: bool, at: Nanos) {
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
            self.end_step(at, None);
            self.open(Within::Neither, at);
        }
        self.over_at(pass, whole, at);
    }

    pub(in crate::translation) fn over_at(&mut self, pass: Pass, whole: bool, at: Nanos) {
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
    pub(in crate::translation) fn finish_costs(&mut self, at: Nanos) {
        let Some((pass, ended)) = self.main.ended.take() else {
            return;
        };
        let replays = self.replays(pass.iterator);
        if let Some(state) = self.passes.get_mut(&pass) {
            state.costs.own = state.own_starts();
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

    pub(in crate::translation) fn end_validation(&mut self, pass: Pass, at: Nanos) {
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

    /// Notes how many of a pass's workers still have something to load, from `at` on.
    pub(in crate::translation) fn note_live(&mut self, pass: Pass, at: Nanos) {
        let Some(state) = self.passes.get(&pass) else {
            return;
        };
        let all = self
            .settings
            .get(&pass.iterator)
            .map_or(0, |own| own.num_workers);
        // Without workers the thread that trains loads by itself.
        let all = all.max(state.active.len()).max(1);
        let left = match state.over {
            true => all,
            false => all.saturating_sub(state.ended.len()).max(1),
        };
        let record = Record::Live {
            at,
            workers: left as u32,
            of: all as u32,
        };
        self.lanes.write(MAIN, record);
    }
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
            ready: Vec::new(),
            begins: None,
            active: HashSet::new(),
            ended: HashSet::new(),
            costs: PassCosts::default(),
            wall_until: begun,
        }
    }

    /// What its workers took from the start of their processes until they could work, all together.
    fn own_starts(&self) -> Cost {
        let own = |(number, span, used): &(u32, Span, Used)| {
            let started = self.started.iter().rfind(|(of, ..)| of == number);
            let since = started.map_or(span.start, |(_, _, at)| at.0.min(span.start));
            net(Nanos(span.end.saturating_sub(since)), *used)
        };
        let all = self.ready.iter().map(own);
        all.fold(Cost::default(), Cost::plus)
    }
}

//! What the thread that trains does for its loader: batches dealt and received, workers started, batches of its own.

use super::super::bench::{Bound, Made};
use super::super::lanes::{MAIN, unit};
use super::super::workers::{fetch_costs, net};
use super::super::{InFlight, Reading, Translation};
use super::interval;
use crate::event::{Batch, Event, Main as Work, Pass, Span, Used};
use stallscope_core::analysis::predict::torch::Cost;
use stallscope_core::timeline::{HostWork, Interval, Nanos, Record, UnitRecord, UnitRef};

impl Translation {
    pub(in crate::translation) fn unknown(&self, batch: Batch) -> InFlight {
        let base = self.passes.get(&batch.pass).map_or(0, |state| state.base);
        InFlight {
            number: base + batch.number,
            ..InFlight::default()
        }
    }

    /// Finished batches that had to wait for earlier ones, until a batch was taken at `at`.
    pub(in crate::translation) fn note_held(&mut self, parked: Option<Nanos>, at: Nanos) {
        let others = self.batches.values().filter_map(|one| one.parked).min();
        let since = self.main.held_since.take().or(parked).or(others);
        if let Some(since) = since.filter(|_| parked.is_some() || others.is_some()) {
            let held = Interval::new(since.min(at), at);
            self.lanes.write(MAIN, Record::Held(held));
        }
        self.main.held_since = others.map(|_| at);
    }

    pub(in crate::translation) fn dispatch(
        &mut self,
        batch: Batch,
        worker: u32,
        (sampler, cpu): (Span, u64),
        put: Nanos,
    ) {
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
        one.costs.sampler = Cost {
            wall: sampler.end.saturating_sub(sampler.start),
            cpu,
        };
    }

    /// What of `iter()` has no other name, up to `until`.
    pub(in crate::translation) fn starting(&mut self, until: Nanos) {
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

    pub(in crate::translation) fn was_ended(&self, event: &Event) -> bool {
        let Event::Receive { batch, worker, .. } = event else {
            return false;
        };
        let state = self.passes.get(&batch.pass);
        state.is_some_and(|state| state.ended.contains(worker))
    }

    pub(in crate::translation) fn receive(&mut self, event: &Event) {
        let Event::Receive {
            batch,
            worker,
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
        // While it is read its worker is still sending, and goes on when enough is read: that part is a unit of its own.
        let written = self.batches.get(batch).map_or(start, |one| one.written);
        let read = written.clamp(start, end);
        let received = UnitRecord {
            samples: 1,
            waited: waited && cause.is_some(),
            ready_at: ready.min(start),
            cause,
            lineage: cause,
            bytes_in: *bytes,
            ..unit(table.main, number, start, end)
        };
        let main = table.main;
        self.lanes
            .host(HostWork::Receive, number, Interval::new(start, end));
        self.main.cursor = self.main.cursor.max(end);
        let (received, beside) = match start < read && read < end {
            true => {
                let first = UnitRecord {
                    end: read,
                    pushed: read,
                    ..received
                };
                let first = self.lanes.unit(MAIN, first);
                let second = UnitRecord {
                    lineage: cause,
                    ..unit(main, number, read, end)
                };
                (self.lanes.unit(MAIN, second), Some((first, read)))
            }
            false => (self.lanes.unit(MAIN, received), None),
        };
        let from = (batch.pass.iterator, *worker);
        let batch = *batch;
        self.readings.insert(from, Reading { batch, beside });
        let one = self.batch(batch);
        one.received = Some(received);
        one.parked = parked.then_some(end);
        one.costs.receive = Cost::computing((end - start).0);
    }

    pub(in crate::translation) fn work(
        &mut self,
        work: Work,
        pass: Pass,
        subject: u32,
        (span, used): (Span, Used),
    ) {
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
        let costs = self.passes.get_mut(&pass).map(|state| &mut state.costs);
        let costs = costs.and_then(|costs| match work {
            Work::StartWorkers => Some(&mut costs.process),
            Work::StopWorkers => Some(&mut costs.stop),
            _ => None,
        });
        if let Some(all) = costs {
            *all = all.plus(net(part.length(), used));
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
    pub(in crate::translation) fn fetched_inline(&mut self, event: &Event) {
        let Event::Fetch {
            batch,
            samples,
            span,
            collate,
            used,
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
        let last = self.inline.made(
            &made,
            Bound::Before,
            table,
            &mut self.usual,
            &mut self.lanes,
        );
        self.main.cursor = self.main.cursor.max(Nanos(span.end));
        let mut costs = std::mem::take(&mut self.inline.costs);
        fetch_costs(&mut costs, *span, *collate, *used, *samples);
        let one = self.batch(*batch);
        costs.sampler = one.costs.sampler;
        one.samples = *samples;
        one.received = Some(last);
        one.costs = costs;
    }
}

//! Workers, their feeder threads and the pinning thread.

use super::bench::{Bench, Bound, Made, Sampled};
use super::lanes::Given;
use super::lanes::MAIN_PROCESS;
use super::{InFlight, Source, Translation};
use crate::event::{Batch, Event, Pass, Span, Used};
use stallscope_core::analysis::predict::torch::Cost;
use stallscope_core::timeline::{LaneKind, Nanos, UnitRef};

/// A worker's process.
pub(super) struct Worker {
    pub(super) lanes: [u16; 2],
    number: u32,
    bench: Bench,
    /// When it was ready for its first work.
    ready: Nanos,
    /// The pass that it made something for last.
    latest: Option<Pass>,
    /// The batch that it sent last, when all of it was in the pipe, and how long that took once it was pickled.
    sent: Option<(Batch, Nanos, Nanos)>,
}

/// What takes longer waits for the main process to read.
const LONG_WRITE: Nanos = Nanos::from_millis(1);

impl Translation {
    /// The lanes of worker `number`, and of its feeder: those of one that has ended, or new ones.
    fn desk(&mut self, number: u32, iterator: u32) -> [u16; 2] {
        let ended = |iterator: u32| {
            let mut passes = self.passes.iter();
            !passes.any(|(pass, state)| pass.iterator == iterator && !state.over)
        };
        let free = self
            .desks
            .iter()
            .position(|(own, of, _)| *own == number && (*of == iterator || ended(*of)));
        if let Some(place) = free {
            self.desks[place].1 = iterator;
            return self.desks[place].2;
        }
        let transport = self.table.as_ref().map(|table| table.transport);
        let worker = self
            .lanes
            .add(format!("worker {number}"), LaneKind::BatchWorker);
        let feeder = transport.map_or(LaneKind::BatchWorker, LaneKind::Worker);
        let feeder = self.lanes.add(format!("feeder {number}"), feeder);
        self.desks.push((number, iterator, [worker, feeder]));
        [worker, feeder]
    }

    /// The process `pid` works as `number` in `pass`.
    fn works(&mut self, pid: u32, pass: Pass, number: u32, ready: Nanos, fresh: bool) {
        let lanes = self.desk(number, pass.iterator);
        let name = process_name(number);
        self.lanes.set_thread(lanes[0], pid, pid, &name);
        let bench = Bench::of(fresh);
        self.workers.retain(|_, worker| worker.lanes != lanes);
        self.workers.insert(
            pid,
            Worker {
                lanes,
                number,
                bench,
                ready,
                latest: None,
                sent: None,
            },
        );
    }

    /// What a worker says of `pass`, where that is of interest; `Err` where it is not known yet whether it is.
    fn followed(&self, pass: Pass, event: Event) -> Result<Option<Event>, Event> {
        match self.passes.contains_key(&pass) {
            true => Ok(self.training(pass).map(|_| event)),
            false if self.forced => Ok(None),
            false => Err(event),
        }
    }

    pub(super) fn of_worker(&mut self, pid: u32, event: Event) -> Result<(), Event> {
        let pass = match &event {
            Event::WorkerBegins { pass, .. } | Event::WorkerEnds { pass, .. } => *pass,
            Event::Sample { batch, .. } | Event::Fetch { batch, .. } => batch.pass,
            _ => return Ok(()),
        };
        let Some(event) = self.followed(pass, event)? else {
            return Ok(());
        };
        match event {
            Event::WorkerBegins {
                worker, span, used, ..
            } => {
                let ready = Nanos(span.end);
                self.works(pid, pass, worker, ready, true);
                if let Some(state) = self.passes.get_mut(&pass) {
                    state.costs.started += 1;
                    state.ready.push((worker, span, used));
                }
            }
            Event::Sample { .. } => self.sample(pid, &event),
            Event::Fetch { batch, worker, .. } => {
                let known = self
                    .batches
                    .get(&batch)
                    .is_some_and(|one| one.dealt.is_some());
                if !known && !self.forced {
                    return Err(event);
                }
                if !self.workers.contains_key(&pid) {
                    self.works(pid, pass, worker, Nanos::ZERO, false);
                }
                let more = || {
                    let queue = self.queues.get(&Source::Worker(pid)).into_iter().flatten();
                    queue
                        .filter(|event| matches!(event, Event::Fetch { .. }))
                        .count()
                };
                let knows = self.workers[&pid].bench.knows_usual(&self.usual);
                if !knows && more() == 0 && !self.forced {
                    return Err(event);
                }
                self.fetched(pid, &event);
            }
            _ => {}
        }
        Ok(())
    }

    /// A sample, of a worker or of the main thread.
    pub(super) fn sample(&mut self, pid: u32, event: &Event) {
        let Event::Sample {
            index,
            samples,
            span,
            cpu,
            parts,
            ..
        } = event
        else {
            return;
        };
        let parts = self.rows(pid, parts);
        let bench = match pid == self.wanted.main {
            true => Some(&mut self.inline),
            false => self.workers.get_mut(&pid).map(|worker| &mut worker.bench),
        };
        if let (Some(bench), Some(table)) = (bench, &self.table) {
            let sampled = Sampled {
                span: *span,
                cpu: *cpu,
                samples: *samples,
                index: *index,
                parts: &parts,
            };
            bench.sample(&sampled, table, &mut self.usual);
        }
    }

    /// A worker has made a batch.
    fn fetched(&mut self, pid: u32, event: &Event) {
        let Event::Fetch {
            batch,
            worker: number,
            samples,
            wait,
            span,
            collate,
            used,
            parts,
            ended,
        } = event
        else {
            return;
        };
        let parts = self.rows(pid, parts);
        let known = self.batches.get(batch).and_then(|one| one.dealt);
        let Some(mut worker) = self.workers.remove(&pid) else {
            return;
        };
        let lane = worker.lanes[0];
        if *ended {
            if let Some(state) = self.passes.get_mut(&batch.pass) {
                state.ended.insert(*number);
            }
            self.note_live(batch.pass, Nanos(span.end));
            worker.bench = Bench::default();
            self.workers.insert(pid, worker);
            return;
        }
        let bound = self.bound(&worker, batch.pass, known, *wait);
        let fresh = worker.bench.fresh;
        let first = worker.latest.replace(batch.pass) != Some(batch.pass);
        if let Some(state) = self.passes.get_mut(&batch.pass) {
            state.active.insert(*number);
        }
        let base = self.passes.get(&batch.pass).map_or(0, |state| state.base);
        let made = Made {
            lane,
            number: base + batch.number,
            samples: *samples,
            span: *span,
            collate: *collate,
            parts: &parts,
        };
        self.lanes.lacked_core(lane, *span, used.delay);
        if let Some(table) = &self.table {
            let last = worker
                .bench
                .made(&made, bound, table, &mut self.usual, &mut self.lanes);
            let mut costs = std::mem::take(&mut worker.bench.costs);
            fetch_costs(&mut costs, *span, *collate, *used, *samples);
            if let Some(state) = self.passes.get_mut(&batch.pass)
                && first
                && fresh
            {
                state.costs.firsts.extend(costs.samples.first());
            }
            let one = self.batch(*batch);
            one.made = Some((last, Nanos(span.end)));
            one.worker = *number;
            one.samples = *samples;
            costs.sampler = one.costs.sampler;
            costs.worker = *number;
            one.costs = costs;
        }
        self.workers.insert(pid, worker);
    }

    /// The batch as far as it is known.
    pub(super) fn batch(&mut self, batch: Batch) -> &mut InFlight {
        let base = self.passes.get(&batch.pass).map_or(0, |state| state.base);
        self.batches.entry(batch).or_insert_with(|| InFlight {
            number: base + batch.number,
            ..InFlight::default()
        })
    }

    /// What bound a worker's start on a batch that was dealt as `known`.
    fn bound(
        &self,
        worker: &Worker,
        pass: Pass,
        known: Option<(UnitRef, Nanos)>,
        wait: Span,
    ) -> Bound {
        let state = self.passes.get(&pass);
        let (cause, put) = known.unwrap_or((UnitRef::NONE, Nanos::ZERO));
        if worker.latest != Some(pass) {
            let mut started = state.into_iter().flat_map(|state| &state.started);
            let own = started
                .clone()
                .rfind(|(number, ..)| *number == worker.number);
            let own = own
                .or(started.next_back())
                .map(|(_, unit, at)| (*unit, *at));
            let begins = own.or(state.and_then(|state| state.begins));
            return match begins {
                Some((cause, at)) if worker.ready > put && worker.bench.fresh => {
                    Bound::Started { cause, at }
                }
                _ if cause.is_some() => Bound::Started { cause, at: put },
                _ => Bound::Before,
            };
        }
        match put > Nanos(wait.start) && cause.is_some() {
            true => Bound::Dealt { cause, at: put },
            false => Bound::Before,
        }
    }

    pub(super) fn of_feeder(&mut self, pid: u32, event: Event) -> Result<(), Event> {
        let Event::Transport {
            batch,
            pickle,
            sent,
            bytes,
            shared,
            used,
            worker,
        } = event
        else {
            return Ok(());
        };
        let Some(event) = self.followed(batch.pass, event)? else {
            return Ok(());
        };
        let made = self.batches.get(&batch).and_then(|one| one.made);
        let ended = self.is_ended(pid, batch.pass);
        if made.is_none() && !self.forced && !ended {
            return Err(event);
        }
        let before = self.workers.get(&pid).and_then(|worker| worker.sent);
        let reading = match (before, made) {
            (Some((before, until, took)), Some((_, at)))
                if before.pass == batch.pass && until > at && took > LONG_WRITE =>
            {
                let last = self.readings.get(&(batch.pass.iterator, worker));
                // Numbers begin anew with each epoch of persistent workers.
                let last = last.filter(|last| last.batch.pass == before.pass);
                match last.filter(|last| last.batch.number >= before.number) {
                    Some(last) => last.beside.filter(|_| last.batch == before),
                    None if !self.pins(batch.pass) && !self.forced => return Err(event),
                    None => None,
                }
            }
            _ => None,
        };
        let lanes = self.workers.get(&pid).map(|worker| worker.lanes);
        let (Some([_, lane]), Some(table), Some(made)) = (lanes, &self.table, made) else {
            return Ok(());
        };
        // What was there long before waited until the main process had read the last one.
        let (by, at) = reading.unwrap_or(made);
        let stage = table.transport;
        let length = Nanos(pickle.end) - Nanos(pickle.start);
        let worker_is_new = |worker: &Worker| worker.sent.is_none() && worker.ready > Nanos::ZERO;
        let starting = match self.workers.get(&pid).is_some_and(worker_is_new) {
            true => self.usual.starting(stage, length),
            false => self.usual.add(stage, length),
        };
        let given = Given {
            from: made.0,
            by,
            at,
            starting: starting.map(|longer| (table.fetch, longer)),
        };
        if let Some(tid) = self.feeders.get(&pid) {
            self.lanes
                .set_thread(lane, pid, *tid, &process_name(worker));
        }
        let number = self.batch(batch).number;
        let sending = Span {
            start: pickle.start,
            end: sent,
        };
        self.lanes.lacked_core(lane, sending, used.delay);
        let (sent, length) = self
            .lanes
            .hand_on(lane, &given, stage, number, pickle, bytes);
        let written = Nanos(sending.end);
        if let Some(worker) = self.workers.get_mut(&pid) {
            worker.sent = Some((batch, written, written - sent.1.min(written)));
        }
        let one = self.batch(batch);
        one.sent = Some(sent);
        one.written = written;
        one.costs.bytes = bytes;
        one.costs.shared = shared;
        // Of what the thread lacked until all was sent.
        let delay = Nanos(used.delay).share_of(length, Nanos(sending.end) - Nanos(sending.start));
        one.costs.pickle = net(
            length,
            Used {
                delay: delay.0,
                ..used
            },
        );
        Ok(())
    }

    /// Whether another thread of the main process receives the batches of a pass, and pins them.
    fn pins(&self, pass: Pass) -> bool {
        let settings = self.settings.get(&pass.iterator);
        settings.is_some_and(|settings| settings.pin_memory)
    }

    /// Whether the worker has told that it has nothing more.
    fn is_ended(&self, pid: u32, pass: Pass) -> bool {
        let number = self.workers.get(&pid).map(|worker| worker.number);
        let state = self.passes.get(&pass).zip(number);
        state.is_some_and(|(state, number)| state.ended.contains(&number))
    }

    pub(super) fn of_pin(&mut self, event: Event) -> Result<(), Event> {
        let Event::Pin {
            batch,
            receive,
            pin,
            used,
        } = event
        else {
            return Ok(());
        };
        let Some(event) = self.followed(batch.pass, event)? else {
            return Ok(());
        };
        let sent = self.batches.get(&batch).and_then(|one| one.sent);
        if sent.is_none() && !self.forced {
            return Err(event);
        }
        let (Some(stage), Some((by, at))) = (self.table.as_ref().and_then(|table| table.pin), sent)
        else {
            return Ok(());
        };
        let lane = match self.pin_lane {
            Some(lane) => lane,
            None => {
                let lane = self
                    .lanes
                    .add("pinning".to_owned(), LaneKind::Worker(stage));
                *self.pin_lane.insert(lane)
            }
        };
        if let Some(tid) = self.pin_thread {
            self.lanes
                .set_thread(lane, self.wanted.main, tid, MAIN_PROCESS);
        }
        let number = self.batch(batch).number;
        let span = Span {
            start: receive.start,
            end: pin.end,
        };
        self.lanes.lacked_core(lane, span, used.delay);
        let given = Given {
            from: by,
            by,
            at,
            starting: None,
        };
        let (pinned, _) = self.lanes.hand_on(lane, &given, stage, number, span, 0);
        self.batch(batch).pinned = Some(pinned);
        Ok(())
    }
}

/// What making a batch took, beside its samples.
pub(super) fn fetch_costs(
    costs: &mut stallscope_core::analysis::predict::torch::BatchCost,
    span: Span,
    collate: Span,
    used: Used,
    samples: u32,
) {
    let length = |span: Span| span.end.saturating_sub(span.start);
    let collating = length(collate).min(length(span));
    let of_samples: u64 = costs.samples.iter().map(|sample| sample.cpu).sum();
    if costs.samples.is_empty() {
        costs.fetched(samples, Cost::computing(0));
    }
    let collated = used.cpu.saturating_sub(of_samples).min(collating);
    costs.collate = Cost {
        wall: collating,
        cpu: collated,
    };
    costs.fetch(Cost {
        wall: length(span) - collating,
        cpu: used.cpu - collated,
    });
    costs.without_delay(used.delay);
}

/// What took `length`, without the time in which the thread lacked a core.
pub(super) fn net(length: Nanos, used: Used) -> Cost {
    Cost {
        wall: length
            .0
            .saturating_sub(used.delay)
            .max(used.cpu.min(length.0)),
        cpu: used.cpu,
    }
}

fn process_name(worker: u32) -> String {
    format!("DataLoader worker {worker}")
}

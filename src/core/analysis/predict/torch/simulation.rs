//! The DataLoader in discrete events: who deals, fetches, pickles, receives and steps, and who waits for whom.
//!
//! As torch does it: batches go round-robin to workers (out of order: to who has room), `num_workers * prefetch_factor`
//! are out, and a new one is dealt inside the `next()` that hands one out. Results come through one pipe of 64 KB that all
//! feeder threads share; the main process receives them in order of arrival and keeps those that come early.

use super::super::clock::SimClock;
use super::scenario::{Batch, First, Scenario, Work};
use std::collections::{BTreeSet, VecDeque};

/// Bytes that fit into the pipe.
const PIPE: f64 = 65_536.0;

/// What a simulation came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// When each pass was over, what lies between it and the next included, and when its `next()` returned.
    pub(super) ends: Vec<f64>,
    pub(super) returned: Vec<Vec<f64>>,
    /// Of each `next()`.
    pub(super) waits: Vec<f64>,
    /// While the device was busy.
    pub(super) busy: f64,
    /// Until the first batch.
    pub(super) first: f64,
}

#[derive(Copy, Clone, Debug)]
enum Op {
    Compute(f64),
    Wait(f64),
    Do(Act),
}

#[derive(Copy, Clone, Debug)]
enum Act {
    /// The main process begins a pass; has made a worker's process; hands a batch out; calls `next()`; looks for the batch;
    /// has received one; has the one it wants; has stepped; need not wait for workers any more; has ended the pass.
    Begin,
    Started(usize),
    Deal,
    Next,
    Take,
    Received(usize),
    Got(usize),
    Stepped(usize),
    Leave,
    Over,
    /// A worker has ended; looks for work; has made a batch.
    Left,
    Look,
    Made(usize),
    /// A feeder looks for a batch; has pickled one.
    Feed,
    Send(usize),
}

#[derive(Clone, Debug, Default)]
struct Thread {
    ops: VecDeque<Op>,
    idle_since: Option<f64>,
}

#[derive(Clone, Debug, Default)]
struct Worker {
    inbox: VecDeque<usize>,
    /// Made and not pickled yet.
    made: VecDeque<usize>,
    /// Batches that it has been dealt and that have not been handed out.
    tasks: usize,
    /// It has begun its first batch; its feeder has.
    opened: bool,
    fed: bool,
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    clock: SimClock,
    /// The main one, workers, and their feeders.
    threads: Vec<Thread>,
    workers: Vec<Worker>,
    pass: usize,
    running: bool,
    cycle: usize,
    dealt: usize,
    taken: usize,
    /// The next one in order.
    turn: usize,
    owner: Vec<usize>,
    parked: BTreeSet<usize>,
    gone: BTreeSet<usize>,
    /// Batches in the pipe; their bytes; feeders that want to write, the first one perhaps in the course of it.
    pipe: VecDeque<usize>,
    filled: f64,
    sending: Option<(usize, usize)>,
    writers: VecDeque<(usize, usize)>,
    called: f64,
    since: f64,
    /// Workers that have not ended yet.
    leaving: usize,
    over: bool,
    outcome: Outcome,
}

const MAIN: usize = 0;

/// Simulates `scenario`.
pub(super) fn simulate(scenario: &Scenario) -> Outcome {
    let workers = scenario.loader.num_workers;
    let threads = 1 + 2 * workers;
    let mut simulation = Simulation {
        scenario,
        clock: SimClock::new(scenario.cores, scenario.others, threads, true),
        threads: vec![
            Thread {
                idle_since: Some(0.0),
                ..Thread::default()
            };
            threads
        ],
        workers: vec![Worker::default(); workers],
        pass: 0,
        running: false,
        cycle: 0,
        dealt: 0,
        taken: 0,
        turn: 0,
        owner: Vec::new(),
        parked: BTreeSet::new(),
        gone: BTreeSet::new(),
        pipe: VecDeque::new(),
        filled: 0.0,
        sending: None,
        writers: VecDeque::new(),
        called: 0.0,
        since: 0.0,
        leaving: 0,
        over: false,
        outcome: Outcome::default(),
    };
    simulation.give(MAIN, [Op::Do(Act::Begin)]);
    while !simulation.over
        && let Some(thread) = simulation.clock.next()
    {
        simulation.resume(thread as usize);
    }
    simulation.outcome
}

impl Simulation<'_> {
    fn batch(&self, number: usize) -> &Batch {
        &self.scenario.passes[self.pass][number]
    }

    fn length(&self) -> usize {
        self.scenario.passes[self.pass].len()
    }

    /// `thread` does `ops` after what it has to do already.
    fn give(&mut self, thread: usize, ops: impl IntoIterator<Item = Op>) {
        let state = &mut self.threads[thread];
        state.ops.extend(ops);
        if let Some(since) = state.idle_since.take() {
            let slept = self.clock.now() - since;
            self.clock.wait(thread as u32, 0.0);
            self.clock.has_slept(thread as u32, slept);
        }
    }

    fn works(&mut self, thread: usize, works: impl IntoIterator<Item = Work>) {
        let ops = works.into_iter();
        let ops = ops.flat_map(|work| [Op::Wait(work.wait), Op::Compute(work.cpu)]);
        self.threads[thread].ops.extend(ops);
    }

    fn then(&mut self, thread: usize, act: Act) {
        self.threads[thread].ops.push_back(Op::Do(act));
    }

    fn resume(&mut self, thread: usize) {
        while let Some(op) = self.threads[thread].ops.pop_front() {
            match op {
                Op::Compute(length) if length > 0.0 => {
                    return self.clock.compute(thread as u32, length);
                }
                Op::Wait(length) if length > 0.0 => {
                    return self.clock.wait(thread as u32, length);
                }
                Op::Compute(_) | Op::Wait(_) => {}
                Op::Do(act) => self.act(thread, act),
            }
        }
        self.threads[thread].idle_since = Some(self.clock.now());
    }

    fn act(&mut self, thread: usize, act: Act) {
        match act {
            Act::Begin => self.begin(),
            Act::Started(worker) => {
                self.threads[1 + worker].ops.clear();
                let own = self.scenario.starts.own;
                let ops = [Op::Wait(own.wait), Op::Compute(own.cpu), Op::Do(Act::Look)];
                self.give(1 + worker, ops);
            }
            Act::Deal => self.deal(),
            Act::Next => self.next(),
            Act::Take => self.take(),
            Act::Received(batch) => self.received(batch),
            Act::Got(batch) => self.got(batch),
            Act::Stepped(batch) => self.stepped(batch),
            Act::Left => self.left(),
            Act::Leave => self.leave(),
            Act::Over => self.pass_is_over(),
            Act::Look => self.look(thread - 1),
            Act::Made(batch) => self.made(thread - 1, batch),
            Act::Feed => self.feed(thread - 1 - self.workers.len()),
            Act::Send(batch) => {
                let feeder = thread - 1 - self.workers.len();
                self.writers.push_back((feeder, batch));
                self.write();
            }
        }
    }

    fn begin(&mut self) {
        (self.dealt, self.taken, self.turn, self.cycle) = (0, 0, 0, 0);
        self.parked.clear();
        self.gone.clear();
        self.owner.clear();
        self.outcome.returned.push(Vec::new());
        let starts = self.scenario.starts;
        let count = self.workers.len();
        if count > 0 && !self.running {
            for worker in 0..count {
                self.workers[worker].opened = false;
                self.workers[worker].fed = false;
                self.works(MAIN, [starts.process]);
                self.then(MAIN, Act::Started(worker));
            }
            self.running = true;
        }
        self.works(MAIN, [starts.iter]);
        let ahead = self.scenario.loader.prefetch_factor * count;
        for number in 0..ahead.min(self.length()) {
            let sampler = self.batch(number).sampler;
            self.works(MAIN, [sampler]);
            self.then(MAIN, Act::Deal);
        }
        self.then(MAIN, Act::Next);
    }

    /// Hands the next batch to a worker.
    fn deal(&mut self) {
        let loader = &self.scenario.loader;
        let live = self.scenario.live.max(1);
        let room = loader.num_workers * loader.prefetch_factor / live;
        let mut worker = self.cycle % live;
        if !loader.in_order {
            let turns = (0..live).map(|more| (self.cycle + more) % live);
            let mut with_room = turns.filter(|worker| self.workers[*worker].tasks < room);
            worker = with_room.next().unwrap_or(worker);
        }
        self.cycle = worker + 1;
        let batch = self.dealt;
        self.dealt += 1;
        self.owner.push(worker);
        self.workers[worker].tasks += 1;
        self.workers[worker].inbox.push_back(batch);
        // One that has not started yet looks once it has.
        if self.threads[1 + worker].idle_since.is_some() {
            self.give(1 + worker, [Op::Do(Act::Look)]);
        }
    }

    fn next(&mut self) {
        self.called = self.clock.now();
        if self.taken == self.length() {
            return self.end();
        }
        if !self.workers.is_empty() {
            return self.then(MAIN, Act::Take);
        }
        let scenario = self.scenario;
        let number = self.taken;
        let batch = &scenario.passes[self.pass][number];
        if self.pass == 0 && number == 0 {
            self.works(MAIN, [scenario.starts.first.fetch]);
        }
        self.works(MAIN, [batch.sampler]);
        self.works(MAIN, batch.fetch.iter().copied());
        self.works(MAIN, [batch.collate]);
        self.then(MAIN, Act::Got(number));
    }

    fn end(&mut self) {
        let starts = self.scenario.starts;
        if !self.scenario.loader.persistent_workers {
            self.running = false;
            self.leaving = self.workers.len();
        }
        if self.leaving == 0 {
            return self.leave();
        }
        for worker in 1..=self.leaving {
            let Work { wait, cpu } = starts.exit;
            let ops = [Op::Wait(wait), Op::Compute(cpu), Op::Do(Act::Left)];
            self.give(worker, ops);
        }
        let stops = vec![starts.stop; self.leaving];
        self.works(MAIN, stops);
    }

    /// No worker is left, or all live on.
    fn leave(&mut self) {
        self.works(MAIN, [self.scenario.starts.between]);
        self.then(MAIN, Act::Over);
    }

    /// A worker has ended; the main process waits for the last.
    fn left(&mut self) {
        self.leaving -= 1;
        if self.leaving == 0 {
            self.give(MAIN, [Op::Do(Act::Leave)]);
        }
    }

    fn pass_is_over(&mut self) {
        self.outcome.ends.push(self.clock.now());
        self.pass += 1;
        match self.pass < self.scenario.passes.len() {
            true => self.then(MAIN, Act::Begin),
            false => self.over = true,
        }
    }

    /// Hands out the batch whose turn it is, or receives the next one that there is.
    fn take(&mut self) {
        while self.gone.remove(&self.turn) {
            self.turn += 1;
        }
        if self.parked.remove(&self.turn) {
            return self.hand_out(self.turn);
        }
        // Without one it is idle, until one comes.
        if let Some(batch) = self.pipe.pop_front() {
            let receive = self.batch(batch).receive;
            self.works(MAIN, [receive]);
            self.then(MAIN, Act::Received(batch));
        }
    }

    fn received(&mut self, batch: usize) {
        self.filled -= self.batch(batch).bytes;
        if let Some((feeder, own)) = self.sending
            && (own == batch || self.filled <= PIPE)
        {
            self.sending = None;
            self.give(1 + self.workers.len() + feeder, [Op::Do(Act::Feed)]);
        }
        self.write();
        match self.scenario.loader.in_order && batch != self.turn {
            true => {
                self.parked.insert(batch);
                self.then(MAIN, Act::Take);
            }
            false => self.hand_out(batch),
        }
    }

    fn hand_out(&mut self, batch: usize) {
        match batch == self.turn {
            true => self.turn += 1,
            false => drop(self.gone.insert(batch)),
        }
        self.workers[self.owner[batch]].tasks -= 1;
        if self.dealt < self.length() {
            let sampler = self.batch(self.dealt).sampler;
            self.works(MAIN, [sampler]);
            self.then(MAIN, Act::Deal);
        }
        self.then(MAIN, Act::Got(batch));
    }

    fn got(&mut self, batch: usize) {
        let now = self.clock.now();
        if self.outcome.waits.is_empty() {
            self.outcome.first = now;
        }
        self.outcome.waits.push(now - self.called);
        if let Some(returned) = self.outcome.returned.last_mut() {
            returned.push(now);
        }
        self.taken += 1;
        self.since = now;
        let Batch { step, width, .. } = *self.batch(batch);
        self.clock.widen(MAIN as u32, width);
        self.works(MAIN, [step]);
        self.then(MAIN, Act::Stepped(batch));
    }

    fn stepped(&mut self, number: usize) {
        let length = self.clock.now() - self.since;
        let batch = self.batch(number);
        let busy = batch.busy / batch.step.length().max(1.0) * length;
        self.outcome.busy += busy;
        self.clock.widen(MAIN as u32, 1.0);
        self.then(MAIN, Act::Next);
    }

    fn look(&mut self, number: usize) {
        let scenario = self.scenario;
        let worker = &mut self.workers[number];
        let Some(batch) = worker.inbox.pop_front() else {
            return;
        };
        let is_first = !std::mem::replace(&mut worker.opened, true);
        let costs = &scenario.passes[self.pass][batch];
        let first = if is_first {
            scenario.starts.first
        } else {
            First::default()
        };
        self.works(1 + number, [first.fetch]);
        self.works(1 + number, costs.fetch.iter().copied());
        self.works(1 + number, [first.collate, costs.collate]);
        self.then(1 + number, Act::Made(batch));
    }

    fn made(&mut self, number: usize, batch: usize) {
        let worker = &mut self.workers[number];
        worker.made.push_back(batch);
        let feeder = 1 + self.workers.len() + number;
        let blocked = |writer: &(usize, usize)| writer.0 == number;
        let blocked = self.writers.iter().chain(&self.sending).any(blocked);
        if self.threads[feeder].idle_since.is_some() && !blocked {
            self.give(feeder, [Op::Do(Act::Feed)]);
        }
        self.then(1 + number, Act::Look);
    }

    fn feed(&mut self, number: usize) {
        let Some(batch) = self.workers[number].made.pop_front() else {
            return;
        };
        let fed = std::mem::replace(&mut self.workers[number].fed, true);
        let first = if fed {
            Work::default()
        } else {
            self.scenario.starts.first.pickle
        };
        let feeder = 1 + self.workers.len() + number;
        let pickle = self.batch(batch).pickle;
        self.works(feeder, [first, pickle]);
        self.then(feeder, Act::Send(batch));
    }

    /// Lets feeders write that have room: one at a time, and the next once all of a batch is in the pipe.
    fn write(&mut self) {
        while self.sending.is_none()
            && let Some((feeder, batch)) = self.writers.pop_front()
        {
            self.pipe.push_back(batch);
            self.filled += self.batch(batch).bytes;
            match self.filled <= PIPE {
                true => self.give(1 + self.workers.len() + feeder, [Op::Do(Act::Feed)]),
                false => self.sending = Some((feeder, batch)),
            }
            // The main process may be waiting for it.
            if self.threads[MAIN].idle_since.is_some() {
                self.give(MAIN, [Op::Do(Act::Take)]);
            }
        }
    }
}

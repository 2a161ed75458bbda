//! The loader's threads: what the stages of samples and batch do with claims, and whole-batch workers with batches.

use super::scenario::{BatchSizes, Scenario};
use super::simulation::{Item, Phase, Role, Simulation, TICKETS, batch_cost};
use std::collections::VecDeque;

/// Where samples become batches and batches leave in order.
pub(super) struct Outlet {
    ordered: bool,
    /// Samples that batches from `first` on still lack.
    missing: VecDeque<u32>,
    first: u64,
    /// Batches from `next` on: whether they are finished and wait for those before.
    early: VecDeque<bool>,
    next: u64,
    /// A thread hands batches on for all.
    handing_on: bool,
}

impl Outlet {
    pub(super) fn new(scenario: &Scenario) -> Outlet {
        Outlet {
            ordered: scenario.ordered,
            missing: VecDeque::new(),
            first: 0,
            early: VecDeque::new(),
            next: 0,
            handing_on: false,
        }
    }

    /// Adds the samples of a claim; whether its batch, of a size in `batches`, has all now.
    fn add(&mut self, claim: Item, batches: &BatchSizes) -> bool {
        let place = (claim.batch - self.first) as usize;
        if self.missing.len() <= place {
            self.missing.resize(place + 1, u32::MAX);
        }
        let missing = &mut self.missing[place];
        if *missing == u32::MAX {
            *missing = batches.of(claim.batch) as u32;
        }
        *missing -= claim.samples;
        let complete = *missing == 0;
        while self.missing.front() == Some(&0) {
            self.missing.pop_front();
            self.first += 1;
        }
        complete
    }

    fn finished(&mut self, batch: u64) {
        let place = (batch - self.next) as usize;
        if self.early.len() <= place {
            self.early.resize(place + 1, false);
        }
        self.early[place] = true;
    }

    /// The next batch in order, where it is finished.
    fn take(&mut self) -> Option<u64> {
        self.early.pop_front_if(|finished| *finished)?;
        self.next += 1;
        Some(self.next - 1)
    }
}

impl Simulation<'_> {
    /// Lets `batches` more batches start, thanks to `by`.
    pub(super) fn admit(&mut self, by: u32, batches: u64) {
        let until = self.total.min(self.admitted + batches);
        while self.admitted < until {
            let batch = self.admitted;
            self.admitted += 1;
            let samples = self.scenario.batches.of(batch);
            if self.scenario.layout.num_workers().is_some() {
                let samples = samples as u32;
                self.send(TICKETS, by, Item::new(batch, samples));
                continue;
            }
            let claim = self.scenario.claim.max(1);
            for first in (0..samples).step_by(claim) {
                let samples = claim.min(samples - first) as u32;
                self.send(TICKETS, by, Item::new(batch, samples));
            }
        }
    }

    /// `thread` takes its next input, or waits for it.
    pub(super) fn proceed(&mut self, thread: u32) {
        let queue = match self.threads[thread as usize].role {
            Role::Samples(queue) => queue,
            Role::Batch => return self.gather(thread),
            Role::Pool => TICKETS,
            Role::Copy => self.host_queue(),
            Role::Trainer => return self.next_step(thread),
            Role::Background => return,
        };
        if let Some(item) = self.receive(queue, thread) {
            self.threads[thread as usize].item = item;
            self.begin(thread);
        }
    }

    /// `thread` begins the item it has.
    pub(super) fn begin(&mut self, thread: u32) {
        let item = self.threads[thread as usize].item;
        let samples = item.samples;
        match self.threads[thread as usize].role {
            Role::Samples(stage) if self.waits[stage] => self.wait(thread, stage, samples),
            Role::Samples(stage) => {
                let cost = self.claim_cost(stage, samples);
                self.compute(thread, cost, Phase::Served);
            }
            Role::Batch => match self.outlet.add(item, &self.scenario.batches) {
                true => self.collate(thread),
                false => self.gather(thread),
            },
            Role::Pool => self.assemble(thread),
            Role::Copy => self.copy(thread),
            Role::Trainer => self.taken(thread),
            Role::Background => {}
        }
    }

    /// A batch thread takes claims until it has a batch.
    fn gather(&mut self, thread: u32) {
        while let Some(claim) = self.receive(self.finished_queue(), thread) {
            if self.outlet.add(claim, &self.scenario.batches) {
                self.threads[thread as usize].item = claim;
                return self.collate(thread);
            }
        }
    }

    /// A batch thread joins the samples of the batch whose last claim it has.
    fn collate(&mut self, thread: u32) {
        let item = &mut self.threads[thread as usize].item;
        let samples = self.scenario.batches.of(item.batch);
        item.samples = samples as u32;
        let cost = batch_cost(&self.scenario.costs.batch, &mut self.deals.batch, samples);
        self.compute(thread, cost, Phase::Served);
    }

    /// What a claim of `samples` samples computes at a stage.
    #[inline]
    fn claim_cost(&mut self, stage: usize, samples: u32) -> f64 {
        self.deals.samples[stage].next() * f64::from(samples)
    }

    /// What a claim waits at a stage from now on.
    fn wait_length(&mut self, thread: u32, stage: usize, samples: u32) -> f64 {
        let count = f64::from(samples);
        let now = self.clock.now();
        let shared = { self.shared.as_ref() }.filter(|_| stage == 0);
        let shared = shared.map_or(0.0, |shared| shared.transfer(now, count) - now);
        let Some(storage) = self.scenario.storage.filter(|_| stage == 0) else {
            return shared.max(self.deals.waits[stage].next() * count);
        };
        let requests = storage.requests_per_sample * count;
        if storage.in_flight > 1 {
            // What comes later was asked for before; a request may be for several claims.
            let ahead = (storage.in_flight as f64 / requests.max(1e-9)).max(1.0);
            let (line, ahead) = match self.threads[thread as usize].role {
                Role::Samples(_) => (0, ahead * self.scenario.readers() as f64),
                _ => (thread as usize, ahead),
            };
            while (self.asked[line].len() as f64) < ahead {
                let ready = now + storage.latency * requests.max(1.0);
                let done = self.transferred(ready, storage.taken_per_sample * count);
                self.asked[line].push_back(done);
            }
            let done = self.asked[line].pop_front().unwrap_or(now);
            return (done - now).max(shared);
        }
        let ready = now + storage.latency * requests;
        let done = self.transferred(ready, storage.taken_per_sample * count);
        let own = match storage.is_beside {
            true => 0.0,
            false => self.first_mean * count,
        };
        (done - now - own).max(shared)
    }

    /// When a disk that can begin at `ready` is done with what takes it up for so long.
    fn transferred(&mut self, ready: f64, taken: f64) -> f64 {
        if taken <= 0.0 {
            return ready;
        }
        self.disk_free_at = ready.max(self.disk_free_at) + taken;
        self.disk_free_at
    }

    /// A whole-batch worker, or the trainer's thread in its place, begins a batch.
    pub(super) fn assemble(&mut self, thread: u32) {
        let samples = self.threads[thread as usize].item.samples;
        (
            self.threads[thread as usize].left,
            self.threads[thread as usize].stage,
        ) = (samples, 0);
        if self.waits.contains(&true) {
            return self.load_claim(thread);
        }
        let claim = self.scenario.claim.max(1);
        let samples = samples as usize;
        let claims = samples.div_ceil(claim);
        let mut cost = 0.0;
        for deal in &mut self.deals.samples {
            cost += match claim {
                1 => deal.sum_of(samples),
                _ => {
                    let whole = deal.sum_of(samples / claim) * claim as f64;
                    let rest = samples % claim;
                    let rest = if rest > 0 {
                        deal.next() * rest as f64
                    } else {
                        0.0
                    };
                    whole + rest
                }
            };
        }
        cost += batch_cost(&self.scenario.costs.batch, &mut self.deals.batch, samples);
        self.result.services += (self.stages * claims) as u64;
        self.threads[thread as usize].left = 0;
        self.compute(thread, cost, Phase::Served);
    }

    /// The samples of the claim that a whole-batch worker has begun.
    fn claimed(&self, thread: u32) -> u32 {
        let left = self.threads[thread as usize].left;
        left.min(self.scenario.claim.max(1) as u32)
    }

    /// A whole-batch worker goes on with its claim at the next stage, or begins another claim.
    pub(super) fn load_claim(&mut self, thread: u32) {
        let stage = self.threads[thread as usize].stage;
        match self.waits[stage] {
            true => self.wait(thread, stage, self.claimed(thread)),
            false => self.waited(thread),
        }
    }

    /// `thread` waits at `stage` with a claim of `samples` samples.
    fn wait(&mut self, thread: u32, stage: usize, samples: u32) {
        let wait = self.wait_length(thread, stage, samples);
        if wait <= 0.0 {
            return self.waited(thread);
        }
        match self.scenario.storage {
            Some(_) if stage == 0 => self.sleep(thread, wait, Phase::Waited),
            // Being woken is part of what was measured.
            _ => {
                self.threads[thread as usize].phase = Phase::Waited;
                self.clock.wait(thread, wait);
            }
        }
    }

    /// `thread` has waited at a stage and computes: a whole-batch worker up to the next stage that waits.
    pub(super) fn waited(&mut self, thread: u32) {
        if let Role::Samples(stage) = self.threads[thread as usize].role {
            let samples = self.threads[thread as usize].item.samples;
            let cost = self.claim_cost(stage, samples);
            return self.compute(thread, cost, Phase::Served);
        }
        let all = self.threads[thread as usize].item.samples as usize;
        let (from, samples) = (self.threads[thread as usize].stage, self.claimed(thread));
        let next = (from + 1..self.stages).find(|stage| self.waits[*stage]);
        let to = next.unwrap_or(self.stages);
        let mut cost: f64 = (from..to)
            .map(|stage| self.claim_cost(stage, samples))
            .sum();
        let state = &mut self.threads[thread as usize];
        state.stage = next.unwrap_or(0);
        if next.is_none() {
            state.left -= samples;
        }
        if state.left == 0 {
            cost += batch_cost(&self.scenario.costs.batch, &mut self.deals.batch, all);
        }
        self.result.services += (to - from) as u64;
        self.compute(thread, cost, Phase::Served);
    }

    /// The service of `thread` is over: its result goes on.
    pub(super) fn served(&mut self, thread: u32) {
        self.result.services += 1;
        let item = self.threads[thread as usize].item;
        match self.threads[thread as usize].role {
            Role::Samples(stage) => {
                if self.send(stage + 1, thread, item) {
                    self.proceed(thread);
                }
            }
            _ => self.deliver(thread, item),
        }
    }

    /// A finished batch goes on, in order where that is asked for.
    fn deliver(&mut self, thread: u32, batch: Item) {
        if !self.outlet.ordered {
            if self.send(self.host_queue(), thread, batch) {
                self.proceed(thread);
            }
            return;
        }
        self.outlet.finished(batch.batch);
        match self.outlet.handing_on {
            true => self.proceed(thread),
            false => self.hand_on(thread),
        }
    }

    /// `thread` hands on every batch whose turn it is.
    fn hand_on(&mut self, thread: u32) {
        self.outlet.handing_on = true;
        while let Some(batch) = self.outlet.take() {
            let samples = self.scenario.batches.of(batch) as u32;
            if !self.send(self.host_queue(), thread, Item::new(batch, samples)) {
                return;
            }
        }
        self.outlet.handing_on = false;
        self.proceed(thread);
    }

    /// What `thread` could not hand on has found room.
    pub(super) fn unblocked(&mut self, thread: u32) {
        match self.threads[thread as usize].role {
            Role::Batch | Role::Pool if self.outlet.ordered => self.hand_on(thread),
            _ => self.proceed(thread),
        }
    }
}

//! The loader's threads: what read, decode, preprocess and batch do with claims, and whole-batch workers with
//! batches.

use super::scenario::{BatchSizes, Scenario};
use super::simulation::{FINISHED, HOST, Item, Phase, Role, Simulation, TICKETS, batch_cost};
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
            Role::Copy => HOST,
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
            Role::Samples(0) if self.reads_wait => {
                self.wait_for_disk(thread, samples);
            }
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
        while let Some(claim) = self.receive(FINISHED, thread) {
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

    /// What reading a claim waits from now on.
    fn read_wait(&mut self, samples: u32) -> f64 {
        let count = f64::from(samples);
        let Some(storage) = self.scenario.storage else {
            return self.deals.read_wait.next() * count;
        };
        let ready = self.clock.now() + storage.latency * storage.requests_per_sample * count;
        let taken = storage.taken_per_sample * count;
        let mut done = ready;
        if taken > 0.0 {
            done = ready.max(self.disk_free_at) + taken;
            self.disk_free_at = done;
        }
        // The read itself is part of the disk's time.
        let own = self.read_mean * count;
        (done - self.clock.now() - own).max(0.0)
    }

    /// A whole-batch worker, or the trainer's thread in its place, begins a batch.
    pub(super) fn assemble(&mut self, thread: u32) {
        let samples = self.threads[thread as usize].item.samples;
        self.threads[thread as usize].left = samples;
        if self.reads_wait {
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
        self.result.services += 3 * claims as u64;
        self.threads[thread as usize].left = 0;
        self.compute(thread, cost, Phase::Served);
    }

    /// A whole-batch worker waits for the disk with its next claim.
    pub(super) fn load_claim(&mut self, thread: u32) {
        let left = self.threads[thread as usize].left;
        let samples = left.min(self.scenario.claim.max(1) as u32);
        self.wait_for_disk(thread, samples);
    }

    /// `thread` waits until the disk has a claim of `samples` samples.
    fn wait_for_disk(&mut self, thread: u32, samples: u32) {
        let wait = self.read_wait(samples);
        if wait <= 0.0 {
            return self.read(thread);
        }
        match self.scenario.storage {
            Some(_) => self.sleep(thread, wait, Phase::Read),
            // Being woken is part of what was measured.
            None => {
                self.threads[thread as usize].phase = Phase::Read;
                self.clock.wait(thread, wait);
            }
        }
    }

    /// `thread` has waited for the disk.
    pub(super) fn read(&mut self, thread: u32) {
        if let Role::Samples(stage) = self.threads[thread as usize].role {
            let samples = self.threads[thread as usize].item.samples;
            let cost = self.claim_cost(stage, samples);
            return self.compute(thread, cost, Phase::Served);
        }
        let all = self.threads[thread as usize].item.samples as usize;
        let left = &mut self.threads[thread as usize].left;
        let samples = (*left).min(self.scenario.claim.max(1) as u32);
        *left -= samples;
        let last = *left == 0;
        let mut cost: f64 = (0..3).map(|stage| self.claim_cost(stage, samples)).sum();
        if last {
            cost += batch_cost(&self.scenario.costs.batch, &mut self.deals.batch, all);
        }
        self.result.services += 3;
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
            if self.send(HOST, thread, batch) {
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
            if !self.send(HOST, thread, Item::new(batch, samples)) {
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

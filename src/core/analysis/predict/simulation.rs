//! The discrete-event simulation: threads, queues and the device, one event for each service.
//!
//! It follows the engine's own rules (`pipeline`): claims in the sampler's order, bounded queues that block,
//! batches in order, credits for new batches, copies ahead, steps that run ahead. What nothing can interrupt
//! is one event: a whole-batch worker that only computes has one for each batch.

use super::clock::SimClock;
use super::costs::{Costs, Deal};
use super::scenario::{BatchCosts, Device, SampleCosts, Scenario};
use crate::timeline::Layout;
use std::collections::VecDeque;

/// What the simulated run would have reported; times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Simulated {
    /// From the end of the last warm-up step to that of the last step.
    pub window: f64,
    /// Steps in the window.
    pub steps: u64,
    /// Samples of those steps.
    pub samples: u64,
    /// Time in which the device was busy, in the window.
    pub device_busy: f64,
    /// Of each step in the window, shortest first.
    pub data_waits: Vec<f32>,
    /// Until the trainer's thread has the first batch.
    pub first_batch: f64,
    /// Services simulated, warm-up included.
    pub services: u64,
}

impl Simulated {
    /// Over the window.
    pub fn samples_per_second(&self) -> f64 {
        self.samples as f64 * 1e9 / self.window.max(1.0)
    }

    /// Runs one after another as one; the first batch is theirs on average.
    pub(super) fn joined(runs: Vec<Simulated>) -> Simulated {
        let count = runs.len().max(1) as f64;
        let mut all = Simulated::default();
        for run in runs {
            all.window += run.window;
            all.steps += run.steps;
            all.samples += run.samples;
            all.device_busy += run.device_busy;
            all.data_waits.extend(run.data_waits);
            all.first_batch += run.first_batch / count;
            all.services += run.services;
        }
        all.data_waits.sort_unstable_by(f32::total_cmp);
        all
    }

    /// Device busy / window, 0 to 1.
    pub fn busy_share(&self) -> f64 {
        (self.device_busy / self.window.max(1.0)).clamp(0.0, 1.0)
    }

    /// Window minus device busy.
    pub fn device_idle(&self) -> f64 {
        (self.window - self.device_busy).max(0.0)
    }

    /// The wait for data that a share of `quantile` of the steps does not exceed.
    pub fn data_wait(&self, quantile: f64) -> f64 {
        let last = self.data_waits.len().saturating_sub(1);
        let place = (quantile * last as f64).round() as usize;
        self.data_waits
            .get(place)
            .map_or(0.0, |wait| f64::from(*wait))
    }
}

/// Simulates `scenario`; the same `seed` gives the same costs in the same order.
pub fn simulate(scenario: &Scenario, seed: u64) -> Simulated {
    let mut simulation = Simulation::new(scenario, seed);
    simulation.start();
    while !simulation.over {
        let Some(thread) = simulation.clock.next() else {
            break;
        };
        simulation.resume(thread);
    }
    simulation.result()
}

/// Queues, by the stage that takes from them: behind this one those of the other stages of samples.
pub(super) const TICKETS: usize = 0;

/// A claim, or a batch.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Item {
    pub(super) batch: u64,
    pub(super) samples: u32,
}

impl Item {
    pub(super) fn new(batch: u64, samples: u32) -> Item {
        Item { batch, samples }
    }
}

/// What a thread is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A stage of samples: the number of the queue it takes from.
    Samples(usize),
    Batch,
    /// Assembles whole batches.
    Pool,
    Copy,
    Trainer,
    /// Whatever else the process computes.
    Background,
}

/// What comes next when a thread goes on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing: it waits for somebody.
    Idle,
    /// It begins the item it was given.
    Given,
    /// Its item has found room.
    Unblocked,
    /// It has waited at a stage, for the disk as a rule, and computes now.
    Waited,
    /// The service is over.
    Served,
    /// There is room on the copy engine.
    CopyRoom,
    /// The thread's part of the copy is done, and the whole copy.
    CopySubmitted,
    Copied,
    /// The step is launched; done by the trainer's thread; its own code after it is done.
    Launched,
    Trained,
    HostDone,
    /// A step on the device has ended that was waited for.
    RoomOnDevice,
    /// All ranks have ended the step that this thread has trained.
    AllTrained,
}

pub(super) struct Thread {
    pub(super) role: Role,
    pub(super) phase: Phase,
    pub(super) item: Item,
    /// Samples of the item that are still to be loaded, by a whole-batch worker, and the stage that comes next for the
    /// claim that it has begun.
    pub(super) left: u32,
    pub(super) stage: usize,
    /// Since when it waits for somebody.
    waits_since: f64,
    /// What it computed for others and has yet to pay: waking them, and being woken.
    pub(super) debt: f64,
}

/// A bounded queue and who waits at its ends.
#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    capacity: usize,
    idle: VecDeque<u32>,
    blocked: VecDeque<u32>,
}

/// Costs that are dealt out.
pub(super) struct Deals {
    /// Of the stages of samples, computed and waited.
    pub(super) samples: Vec<Deal>,
    pub(super) waits: Vec<Deal>,
    pub(super) batch: Deal,
    pub(super) copy: Deal,
    pub(super) launch: Deal,
    pub(super) host: Deal,
    pub(super) step: Deal,
    pub(super) transfer: Deal,
}

/// The cost of a batch of `samples` samples, its factor dealt by `factors`.
#[inline]
pub(super) fn batch_cost(costs: &BatchCosts, factors: &mut Deal, samples: usize) -> f64 {
    costs.mean(samples as f64) * factors.next()
}

pub(super) struct Simulation<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) clock: SimClock,
    pub(super) threads: Vec<Thread>,
    queues: Vec<Queue>,
    /// Stages of samples.
    pub(super) stages: usize,
    pub(super) deals: Deals,
    /// Batches in all, and admitted so far.
    pub(super) total: u64,
    pub(super) admitted: u64,
    /// Which of these wait at all.
    pub(super) waits: Vec<bool>,
    waking_is_free: bool,
    /// Mean nanoseconds that a sample computes at the first.
    pub(super) first_mean: f64,
    pub(super) disk_free_at: f64,
    /// When what was asked for ahead is there, in the order of claims: the first for threads that share it.
    pub(super) asked: Vec<VecDeque<f64>>,
    /// What it shares with other ranks, where it is one of several.
    pub(super) shared: Option<super::together::Shared>,
    /// When the process's other threads were done last.
    rested_since: f64,
    pub(super) outlet: super::loader::Outlet,
    pub(super) device: super::trainer::DeviceState,
    pub(super) result: Simulated,
    pub(super) over: bool,
}

impl<'a> Simulation<'a> {
    /// The queue of claims whose samples are finished.
    pub(super) fn finished_queue(&self) -> usize {
        self.stages
    }

    /// That of batches in host memory.
    pub(super) fn host_queue(&self) -> usize {
        self.stages + 1
    }

    /// That of batches on the device.
    pub(super) fn device_queue(&self) -> usize {
        self.stages + 2
    }

    pub(super) fn new(scenario: &'a Scenario, seed: u64) -> Simulation<'a> {
        let threads = threads(scenario);
        let costs = &scenario.costs;
        let (step, transfer) = match &scenario.device {
            Device::None => Default::default(),
            Device::OnHost { step, .. } => (step.factors.clone(), Default::default()),
            Device::Beside { step, transfer, .. } => {
                (step.factors.clone(), transfer.factors.clone())
            }
        };
        // Of an epoch, or of all that is simulated: that has the measured mean, too.
        let all = (scenario.warmup + scenario.steps) as usize * scenario.batches.size;
        let epoch = scenario.batches.samples().min(all) / scenario.claim.max(1);
        let stages = scenario.pipeline.samples().count();
        // The streams of one seed; of another all are others.
        let streams = (2 * stages as u64 + 7).max(31);
        let seed = |which: u64| seed.wrapping_mul(streams).wrapping_add(which);
        let each = |of: &dyn Fn(&SampleCosts) -> Costs, which: &dyn Fn(u64) -> u64| {
            let deal = |place: usize| {
                let costs = costs.samples.get(place).map(of).unwrap_or_default();
                costs.deal(seed(which(place as u64)), epoch)
            };
            (0..stages).map(deal).collect()
        };
        let first_wait = stages as u64;
        let ends = first_wait + 1;
        let wait = |place| match place {
            0 => first_wait,
            later => ends + 5 + later,
        };
        let deals = Deals {
            samples: each(&|own| own.computed.clone(), &|place| place),
            waits: each(&|own| own.waited.clone(), &wait),
            batch: costs.batch.factors.deal_factors(seed(ends)),
            copy: costs.copy.factors.deal_factors(seed(ends + 1)),
            launch: costs.launch.factors.deal_factors(seed(ends + 2)),
            host: costs.host.deal(seed(ends + 3), 1),
            step: step.deal_factors(seed(ends + 4)),
            transfer: transfer.deal_factors(seed(ends + 5)),
        };
        let clock = SimClock::new(
            scenario.cores,
            scenario.others,
            threads.len(),
            !scenario.waking.is_free(),
        );
        Simulation {
            clock,
            queues: queues(scenario),
            deals,
            total: (scenario.warmup + scenario.steps).saturating_add(scenario.later),
            admitted: 0,
            waits: (0..stages)
                .map(|place| {
                    let own = costs.samples.get(place);
                    place == 0 && scenario.storage.is_some()
                        || own.is_some_and(|own| !own.waited.is_free())
                })
                .collect(),
            stages,
            waking_is_free: scenario.waking.is_free(),
            first_mean: costs.samples.first().map_or(0.0, |own| own.computed.mean()),
            disk_free_at: 0.0,
            asked: vec![VecDeque::new(); threads.len()],
            shared: None,
            rested_since: 0.0,
            outlet: super::loader::Outlet::new(scenario),
            device: super::trainer::DeviceState::default(),
            result: Simulated::default(),
            over: false,
            threads,
            scenario,
        }
    }

    /// It is one of several ranks, which share what its data comes through and end their steps together.
    pub(super) fn share(&mut self, shared: super::together::Shared) {
        if shared.holds_back()
            && let Some(first) = self.waits.first_mut()
        {
            *first = true;
        }
        self.shared = Some(shared);
    }

    pub(super) fn start(&mut self) {
        let background = self.threads.len() as u32 - 1;
        self.admit(background, self.scenario.outstanding as u64);
        self.threads[background as usize].debt = 0.0;
        for thread in 0..background {
            if self.threads[thread as usize].phase == Phase::Idle {
                self.proceed(thread);
            }
        }
    }

    /// `thread` goes on where it was.
    pub(super) fn resume(&mut self, thread: u32) {
        let (role, phase) = {
            let thread = &mut self.threads[thread as usize];
            (
                thread.role,
                std::mem::replace(&mut thread.phase, Phase::Idle),
            )
        };
        match (phase, role) {
            (Phase::Idle, _) => {}
            (Phase::Given, _) => self.begin(thread),
            (Phase::Unblocked, _) => self.unblocked(thread),
            (Phase::Waited, _) => self.waited(thread),
            (Phase::Served, _) if self.threads[thread as usize].left > 0 => self.load_claim(thread),
            (Phase::Served, Role::Trainer) => self.assembled_inline(thread),
            (Phase::Served, Role::Background) => self.rested_since = self.clock.now(),
            (Phase::Served, _) => self.served(thread),
            (Phase::CopyRoom, _) => self.submit_copy(thread),
            (Phase::CopySubmitted, _) => self.copy_submitted(thread),
            (Phase::Copied, _) => self.copied(thread),
            (Phase::Launched, _) => self.launched(thread),
            (Phase::Trained, _) => self.trained(thread),
            (Phase::AllTrained, _) => self.host_code(thread),
            (Phase::HostDone | Phase::RoomOnDevice, _) => self.make_room(thread),
        }
    }

    /// `thread` computes for `length`, and for what it owes; then `phase` comes.
    #[inline]
    pub(super) fn compute(&mut self, thread: u32, length: f64, phase: Phase) {
        let state = &mut self.threads[thread as usize];
        state.phase = phase;
        let debt = std::mem::take(&mut state.debt);
        self.clock.compute(thread, length + debt);
    }

    /// The process's other threads have one more step to do, and begin if it is their turn.
    pub(super) fn compute_in_background(&mut self) {
        let background = &self.scenario.costs.background;
        let thread = self.threads.len() as u32 - 1;
        let state = &mut self.threads[thread as usize];
        state.debt += background.per_step;
        if state.phase != Phase::Idle || state.debt <= 0.0 {
            return;
        }
        let rested = self.clock.now() - self.rested_since;
        let much = state.debt >= background.per_step * background.steps;
        if rested >= background.longest_rest || much && rested >= background.shortest_rest {
            self.clock.has_slept(thread, rested);
            self.compute(thread, 0.0, Phase::Served);
        }
    }

    /// `thread` sleeps for `length`; then `phase` comes.
    #[inline]
    pub(super) fn sleep(&mut self, thread: u32, length: f64, phase: Phase) {
        let state = &mut self.threads[thread as usize];
        state.phase = phase;
        state.debt += self.scenario.waking.switching;
        self.clock.wait(thread, length);
    }

    /// Puts `item` into a queue for `thread`; false where there was no room and the thread now waits for it.
    pub(super) fn send(&mut self, queue: usize, thread: u32, item: Item) -> bool {
        let ends = &mut self.queues[queue];
        if let Some(consumer) = ends.idle.pop_front() {
            let given = &mut self.threads[consumer as usize];
            (given.item, given.phase) = (item, Phase::Given);
            self.wake(consumer, thread);
            return true;
        }
        if ends.items.len() < ends.capacity {
            ends.items.push_back(item);
            return true;
        }
        ends.blocked.push_back(thread);
        let state = &mut self.threads[thread as usize];
        (state.item, state.waits_since) = (item, self.clock.now());
        false
    }

    /// The oldest item of a queue; where there is none `thread` now waits for one.
    pub(super) fn receive(&mut self, queue: usize, thread: u32) -> Option<Item> {
        let ends = &mut self.queues[queue];
        let Some(item) = ends.items.pop_front() else {
            ends.idle.push_back(thread);
            self.threads[thread as usize].waits_since = self.clock.now();
            return None;
        };
        if let Some(producer) = ends.blocked.pop_front() {
            ends.items.push_back(self.threads[producer as usize].item);
            self.threads[producer as usize].phase = Phase::Unblocked;
            self.wake(producer, thread);
        }
        Some(item)
    }

    /// Has a thread that was waiting go on, thanks to `by`.
    fn wake(&mut self, thread: u32, by: u32) {
        let waking = &self.scenario.waking;
        if self.waking_is_free {
            return self.resume(thread);
        }
        let waited = self.clock.now() - self.threads[thread as usize].waits_since;
        let (cost, latency) = waking.cost_and_latency(waited);
        self.threads[by as usize].debt += cost;
        // Where no core is idle, getting one is what it waits for.
        let latency = match self.clock.has_idle_core() {
            true => latency,
            false => 0.0,
        };
        self.threads[thread as usize].debt += waking.switching;
        // What it computes to come back is part of the latency.
        let left = (latency - waking.switching).max(0.0);
        self.clock.wait(thread, left);
        self.clock.has_slept(thread, waited);
    }

    pub(super) fn result(mut self) -> Simulated {
        self.result.data_waits.sort_unstable_by(f32::total_cmp);
        self.result
    }
}

/// The threads of a pipeline, and last one for whatever else the process computes.
fn threads(scenario: &Scenario) -> Vec<Thread> {
    let mut threads = Vec::new();
    let mut spawn = |role, count| {
        threads.extend((0..count).map(|_| Thread {
            role,
            phase: Phase::Idle,
            item: Item::default(),
            left: 0,
            stage: 0,
            waits_since: 0.0,
            debt: 0.0,
        }));
    };
    match &scenario.layout {
        Layout::PerStage { samples, batch } => {
            for (stage, knobs) in samples.iter().enumerate() {
                spawn(Role::Samples(stage), knobs.workers.max(1));
            }
            spawn(Role::Batch, batch.workers.max(1));
        }
        Layout::WholeBatch { num_workers, .. } => spawn(Role::Pool, *num_workers),
    }
    if scenario.copy_ahead.is_some() && !scenario.is_inline() {
        spawn(Role::Copy, 1);
    }
    spawn(Role::Trainer, 1);
    spawn(Role::Background, 1);
    threads
}

fn queues(scenario: &Scenario) -> Vec<Queue> {
    let stages = scenario.pipeline.samples().count();
    let (samples, host): (Vec<usize>, usize) = match &scenario.layout {
        Layout::PerStage { samples, batch } => (
            samples.iter().map(|knobs| knobs.prefetch).collect(),
            batch.prefetch,
        ),
        Layout::WholeBatch { .. } => (vec![0; stages], scenario.outstanding),
    };
    let device = scenario.copy_ahead.unwrap_or(1);
    let capacities = [usize::MAX].into_iter().chain(samples);
    let queues = capacities.chain([host, device]).map(|capacity| Queue {
        capacity: capacity.max(1),
        ..Queue::default()
    });
    queues.collect()
}

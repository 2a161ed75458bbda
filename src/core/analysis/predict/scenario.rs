//! What is simulated: a pipeline, its costs, and the machine and device that it runs on.

use super::costs::Costs;
use crate::analysis::waking::Place;
use crate::timeline::{Layout, Pipeline};

/// Samples of each batch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BatchSizes {
    /// Samples of every batch but an epoch's last.
    pub size: usize,
    /// Batches in an epoch, and the samples of the last one.
    pub per_epoch: u64,
    /// Samples of an epoch's last batch.
    pub last: usize,
}

impl BatchSizes {
    /// All batches have `size` samples.
    pub fn all(size: usize) -> BatchSizes {
        BatchSizes {
            size,
            per_epoch: u64::MAX,
            last: size,
        }
    }

    /// Samples of batch `number`, from zero.
    pub(super) fn of(&self, number: u64) -> usize {
        match (number + 1).is_multiple_of(self.per_epoch.max(1)) {
            true => self.last,
            false => self.size,
        }
    }

    /// Samples of an epoch.
    pub(super) fn samples(&self) -> usize {
        let full = self.per_epoch.saturating_sub(1) as usize;
        full.saturating_mul(self.size).saturating_add(self.last)
    }

    /// Mean samples of a batch.
    pub fn mean(&self) -> f64 {
        let missing = (self.size - self.last.min(self.size)) as f64;
        self.size as f64 - missing / self.per_epoch.max(1) as f64
    }
}

/// What one batch costs, by its samples, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchCosts {
    /// Whatever the number of samples.
    pub base: f64,
    /// For each of its samples.
    pub per_sample: f64,
    /// What a cost is multiplied with, of mean 1; none is always 1.
    pub factors: Costs,
}

impl BatchCosts {
    /// Always `base` and `per_sample` for each sample.
    pub fn fixed(base: f64, per_sample: f64) -> BatchCosts {
        BatchCosts {
            base,
            per_sample,
            factors: Costs::fixed(1.0),
        }
    }

    /// The mean for a batch of `samples` samples.
    pub fn mean(&self, samples: f64) -> f64 {
        self.base + self.per_sample * samples
    }

    /// Each `factor` times as long.
    pub fn scaled(&self, factor: f64) -> BatchCosts {
        BatchCosts {
            base: self.base * factor,
            per_sample: self.per_sample * factor,
            factors: self.factors.clone(),
        }
    }
}

/// What a stage costs for a sample, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleCosts {
    /// Of a core.
    pub computed: Costs,
    /// Without one: what it waits for, a disk as a rule.
    pub waited: Costs,
}

impl SampleCosts {
    /// What computes for `computed` and waits for nothing.
    pub fn computing(computed: Costs) -> SampleCosts {
        SampleCosts {
            computed,
            ..SampleCosts::default()
        }
    }

    /// Each so many times as long.
    pub fn scaled(&self, computed: f64, waited: f64) -> SampleCosts {
        SampleCosts {
            computed: self.computed.scaled(computed),
            waited: self.waited.scaled(waited),
        }
    }
}

/// What services cost, in nanoseconds of a core unless something else is said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceCosts {
    /// Of each stage of samples, in their order.
    pub samples: Vec<SampleCosts>,
    /// Of the batch stage.
    pub batch: BatchCosts,
    /// Of the thread that copies.
    pub copy: BatchCosts,
    /// Of the trainer's thread before a step is on the device, and after it.
    pub launch: BatchCosts,
    /// Of the trainer's thread after a step.
    pub host: Costs,
    /// Of other threads of the process.
    pub background: Background,
}

impl ServiceCosts {
    /// The same with what the loader computes `factor` times as long; what it waits for it waits all the same.
    pub fn corrected(mut self, factor: f64) -> ServiceCosts {
        for own in &mut self.samples {
            *own = own.scaled(factor, 1.0);
        }
        self.batch = self.batch.scaled(factor);
        self
    }
}

/// Other threads of the process, such as the collector: nothing waits for them, they only need cores. They do what has
/// come together every now and then. Times are nanoseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Background {
    /// CPU time for each step.
    pub per_step: f64,
    /// They begin when there is as much to do as of so many steps, and not before they have rested so long; or when
    /// they have rested for the longest time.
    pub steps: f64,
    /// They do not begin before they have rested so long.
    pub shortest_rest: f64,
    /// They begin once they have rested so long.
    pub longest_rest: f64,
}

/// A disk or store for which the first stage waits.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Storage {
    /// Nanoseconds of each request, side by side.
    pub latency: f64,
    /// Requests for each sample, one after another.
    pub requests_per_sample: f64,
    /// Nanoseconds that the disk is taken up by each sample, one at a time.
    pub taken_per_sample: f64,
    /// Requests that a thread has under way for samples to come; 1 where it waits for each.
    pub in_flight: usize,
    /// The first stage's own costs come beside it, and are no part of it.
    pub is_beside: bool,
}

impl Storage {
    /// Nanoseconds that a thread waits for each sample, where nobody else is in the way; `computed` of its own it does.
    pub fn wait(&self, computed: f64) -> f64 {
        let latency = self.latency * self.requests_per_sample / self.in_flight.max(1) as f64;
        let own = if self.is_beside { 0.0 } else { computed };
        (latency + self.taken_per_sample - own).max(0.0)
    }
}

/// What executes steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Device {
    /// Nothing: the loader runs alone.
    None,
    /// The trainer's thread, on so many cores.
    OnHost {
        /// Of one step, as long as it has its cores.
        step: BatchCosts,
        /// CPU cores that a step uses.
        width: f64,
    },
    /// A device beside it.
    Beside {
        /// Of one step on the device.
        step: BatchCosts,
        /// Time that launching a step takes without computing.
        launch_wait: f64,
        /// Unfinished steps that the trainer's thread leaves behind it.
        run_ahead: usize,
        /// Of the copy engine, one after another.
        transfer: BatchCosts,
        /// Copies that may be under way before the thread that copies waits; with 0 for each.
        copies_ahead: usize,
    },
}

impl Device {
    /// The same with steps `factor` times as long.
    pub fn with_step(mut self, factor: f64) -> Device {
        match &mut self {
            Device::None => {}
            Device::OnHost { step, .. } | Device::Beside { step, .. } => {
                *step = step.scaled(factor);
            }
        }
        self
    }
}

/// What it takes to wake a thread, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waking {
    /// How long is waited for another thread, shortest first; what that one computes to hand an item on, and how long it
    /// takes from then until the thread that waited runs, where a core is idle.
    pub waited: Vec<f64>,
    /// To wake a thread that has waited so long, indexed as `waited`: time of the thread that hands on.
    pub costs: Vec<f64>,
    /// From then until that thread runs, indexed as `waited`.
    pub latencies: Vec<f64>,
    /// CPU time of the thread that is woken.
    pub switching: f64,
}

impl Waking {
    /// Of a thread that has waited for `length`: what it takes to wake it, and how long it is until it runs where a core
    /// is idle.
    #[inline]
    pub(super) fn cost_and_latency(&self, length: f64) -> (f64, f64) {
        let place = Place::of(length, &self.waited);
        (place.on(&self.costs), place.on(&self.latencies))
    }

    /// Whether waking takes no time at all.
    pub(super) fn is_free(&self) -> bool {
        self.latencies.iter().all(|latency| *latency == 0.0)
    }
}

/// Everything that is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Names the stages.
    pub pipeline: &'static Pipeline,
    /// With queues that hold so many claims, and behind batch so many batches.
    pub layout: Layout,
    /// Batches that a thread copies ahead; `None` copies in the trainer's thread.
    pub copy_ahead: Option<usize>,
    /// Samples of the batches.
    pub batches: BatchSizes,
    /// Samples that a worker takes at a time.
    pub claim: usize,
    /// Batches are delivered in order.
    pub ordered: bool,
    /// Batches admitted and not given back: taken by the trainer's end for whole-batch workers, else copied.
    pub outstanding: usize,
    /// Steps before the window, and in it.
    pub warmup: u64,
    /// Steps in the window.
    pub steps: u64,
    /// Batches that are loaded for steps after the window, while it lasts.
    pub later: u64,
    /// CPU cores that the process may use.
    pub cores: f64,
    /// Of these, what other programs use.
    pub others: f64,
    /// The disk; `None` where the costs of the first stage have it.
    pub storage: Option<Storage>,
    /// What each service costs.
    pub costs: ServiceCosts,
    /// What executes steps.
    pub device: Device,
    /// What waking a thread takes.
    pub waking: Waking,
}

impl Scenario {
    /// Threads of the first stage.
    pub(super) fn readers(&self) -> usize {
        match &self.layout {
            Layout::PerStage { samples, .. } => samples.first().map_or(1, |stage| stage.workers),
            Layout::WholeBatch { .. } => 1,
        }
    }

    /// Whether the trainer's thread loads for itself.
    pub(super) fn is_inline(&self) -> bool {
        self.layout.is_inline()
    }

    /// Whether another batch may start once one is taken to be copied, and not once it is copied.
    pub(super) fn credits_on_take(&self) -> bool {
        self.layout.num_workers().is_some_and(|workers| workers > 0)
    }

    /// Mean nanoseconds that a sample waits at the stage at `place` without computing, and nobody else is in the way.
    pub(in crate::analysis) fn mean_wait(&self, place: usize) -> f64 {
        let own = self.costs.samples.get(place);
        let mean = |of: fn(&SampleCosts) -> &Costs| own.map_or(0.0, |own| of(own).mean());
        match self.storage.filter(|_| place == 0) {
            None => mean(|own| &own.waited),
            Some(storage) => storage.wait(mean(|own| &own.computed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waking_takes_longer_after_a_long_wait() {
        let waking = Waking {
            waited: vec![10.0, 100.0, 1_000.0],
            latencies: vec![1.0, 4.0, 13.0],
            costs: vec![2.0, 4.0, 5.0],
            ..Waking::default()
        };
        let lengths = [0.0, 10.0, 40.0, 100.0, 400.0, 5_000.0];
        let (costs, latencies): (Vec<f64>, Vec<f64>) = lengths
            .map(|length| waking.cost_and_latency(length))
            .into_iter()
            .unzip();
        assert_eq!(latencies, [1.0, 1.0, 2.0, 4.0, 7.0, 13.0]);
        assert_eq!(costs[..4], [2.0, 2.0, 2.0 + 2.0 / 3.0, 4.0]);
        assert_eq!(Waking::default().cost_and_latency(50.0), (0.0, 0.0));
    }
}

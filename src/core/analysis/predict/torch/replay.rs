//! What loading the data of a PyTorch training cost, in order.
//!
//! Filled while the training runs: [`Replay::pass`] when an iteration is over, [`Replay::batch`] when a batch's step is.
//! Bounded: of a long training the last batches stay, [`MOST_SAMPLES`] samples in all, and the start of every pass up to
//! [`MOST_PASSES`]. Times are nanoseconds here and tenths of a microsecond in JSON.

use super::table::{Named, Table};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Samples that are kept.
const MOST_SAMPLES: usize = 20_000;
/// Passes that are kept: half of them the first ones, the others the last.
const MOST_PASSES: usize = 32;
/// Nanoseconds of the unit in which costs are kept.
const UNIT: u64 = 100;

/// How long something took, and how much CPU time its thread used meanwhile, in nanoseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Until it was done.
    pub wall: u64,
    /// Of a core; more than `wall` where it computes on several.
    pub cpu: u64,
}

impl Cost {
    /// What computes and waits for nothing.
    pub const fn computing(length: u64) -> Cost {
        Cost {
            wall: length,
            cpu: length,
        }
    }

    /// What waits and computes nothing.
    pub const fn waiting(length: u64) -> Cost {
        Cost {
            wall: length,
            cpu: 0,
        }
    }

    /// Both, one after the other.
    #[must_use]
    pub const fn plus(self, other: Cost) -> Cost {
        Cost {
            wall: self.wall + other.wall,
            cpu: self.cpu + other.cpu,
        }
    }

    fn units(self) -> [u32; 2] {
        [self.wall, self.cpu].map(units)
    }
}

fn units(length: u64) -> u32 {
    u32::try_from((length + UNIT / 2) / UNIT).unwrap_or(u32::MAX)
}

fn nanos(units: u32) -> u64 {
    u64::from(units) * UNIT
}

fn cost(wall: u32, cpu: u32) -> Cost {
    Cost {
        wall: nanos(wall),
        cpu: nanos(cpu),
    }
}

/// Settings of a DataLoader, called as torch calls them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoaderSettings {
    /// 0: samples are loaded in the training's own thread.
    pub num_workers: usize,
    /// Batches that are out for each worker.
    pub prefetch_factor: usize,
    /// Workers live on between passes.
    pub persistent_workers: bool,
    /// Samples of a batch; `None` where a batch sampler or the data set decides.
    pub batch_size: Option<usize>,
    /// A last batch that is not full is left out.
    pub drop_last: bool,
    /// Batches come in the order of the sampler.
    pub in_order: bool,
    /// The data set is iterable: each worker has its own part of it.
    pub iterable: bool,
    /// `fork`, `spawn` or `forkserver`.
    pub multiprocessing_context: String,
    /// Batches are copied to pinned memory.
    pub pin_memory: bool,
    /// Batches of a whole pass, where that is known.
    pub batches: Option<u64>,
    /// Samples of a whole pass, where that is known.
    pub samples: Option<u64>,
}

impl Default for LoaderSettings {
    /// Those of `DataLoader(dataset)`.
    fn default() -> LoaderSettings {
        LoaderSettings {
            num_workers: 0,
            prefetch_factor: 2,
            persistent_workers: false,
            batch_size: Some(1),
            drop_last: false,
            in_order: true,
            iterable: false,
            multiprocessing_context: "fork".to_owned(),
            pin_memory: false,
            batches: None,
            samples: None,
        }
    }
}

/// A pass over the data: what it cost beside its batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PassCosts {
    /// From zero; [`BatchCost::pass`] names it.
    pub number: u32,
    /// Batches that it gave.
    pub batches: u64,
    /// It went to its end, and no batch was left.
    pub whole: bool,
    /// Workers that were started for it.
    pub started: u32,
    /// In the main process: starting them, all together.
    pub process: Cost,
    /// In the workers: from the start of their process until they could work, all together.
    pub own: Cost,
    /// The rest of `iter()`.
    pub iter: Cost,
    /// Stopping the workers.
    pub stop: Cost,
    /// From the end of this pass to the next `iter()`: validation, saving and whatever else the script does between.
    pub between: Cost,
    /// From the call of `iter()` to the end of the last `next()`.
    pub wall: u64,
    /// The first sample that each of its workers made, where they were started for it; [`Replay`] knows them.
    pub firsts: Vec<Cost>,
}

/// A batch, from its indices to its step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchCost {
    /// [`PassCosts::number`] of its pass.
    pub pass: u32,
    /// Who made it.
    pub worker: u32,
    /// Its samples in order.
    pub samples: Vec<Cost>,
    /// Putting them together.
    pub collate: Cost,
    /// In the worker's feeder thread: pickling, with moving tensors to shared memory, without waiting for the pipe.
    pub pickle: Cost,
    /// Bytes that go through the pipe.
    pub bytes: u64,
    /// Bytes of tensors that were put together in shared memory.
    pub shared: u64,
    /// In the main process: from the first byte being there to all being unpickled.
    pub receive: Cost,
    /// In the main process: drawing its indices and handing them out.
    pub sampler: Cost,
    /// The `next()` that returned it.
    pub next: u64,
    /// From then until `next()` was called again.
    pub step: Cost,
    /// Of that, while the thread had no core.
    pub delay: u64,
    /// Of the step, while the device was busy.
    pub busy: u64,
}

/// A batch of which more samples are told is none.
const LARGEST_BATCH: usize = 1 << 22;

impl BatchCost {
    /// `count` samples that one call made in `cost`.
    pub fn fetched(&mut self, count: u32, cost: Cost) {
        let each = |all: u64| all / u64::from(count.max(1));
        let one = Cost {
            wall: each(cost.wall),
            cpu: each(cost.cpu),
        };
        let room = LARGEST_BATCH.saturating_sub(self.samples.len());
        let count = room.min(count as usize);
        self.samples.extend(std::iter::repeat_n(one, count));
    }

    /// What fetching took in all: what is more than its samples took is spread over them.
    pub fn fetch(&mut self, all: Cost) {
        let count = self.samples.len().max(1) as u64;
        let sum = |of: fn(&Cost) -> u64| self.samples.iter().map(of).sum::<u64>();
        let wall = all.wall.saturating_sub(sum(|one| one.wall)) / count;
        let cpu = all.cpu.saturating_sub(sum(|one| one.cpu)) / count;
        for sample in &mut self.samples {
            sample.wall += wall;
            sample.cpu += cpu.min(wall);
        }
    }

    /// Of what its worker did without computing, `delay` was lacking a core, which is no cost of the batch's.
    pub fn without_delay(&mut self, delay: u64) {
        let waits = |cost: &Cost| cost.wall.saturating_sub(cost.cpu);
        let all: u64 = self.samples.iter().chain([&self.collate]).map(waits).sum();
        let share = delay.min(all) as f64 / all.max(1) as f64;
        for cost in self.samples.iter_mut().chain([&mut self.collate]) {
            cost.wall -= (waits(cost) as f64 * share) as u64;
        }
    }
}

/// What a page of new shared memory costs, in nanoseconds of CPU time: batches without workers do not need any.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageCosts {
    /// Who writes it first.
    pub made: f64,
    /// Who maps it, reads it and lets go of it.
    pub taken: f64,
}

#[derive(Clone, Debug, PartialEq)]
struct Batches;

impl Named<18> for Batches {
    const NAMES: [&'static str; 18] = [
        "pass",
        "worker",
        "samples",
        "bytes",
        "collate",
        "collate_cpu",
        "pickle",
        "pickle_cpu",
        "receive",
        "receive_cpu",
        "sampler",
        "sampler_cpu",
        "next",
        "step",
        "step_cpu",
        "busy",
        "delay",
        "shared",
    ];
}

#[derive(Clone, Debug, PartialEq)]
struct Samples;

impl Named<2> for Samples {
    const NAMES: [&'static str; 2] = ["wall", "cpu"];
}

/// What was measured of a loader and the training that takes from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Replay {
    /// How the loader was set.
    pub loader: LoaderSettings,
    /// That the process may use.
    pub cores: f64,
    /// Of those, as many as other programs used.
    pub others: f64,
    /// What new pages of shared memory cost here.
    pub pages: PageCosts,
    /// Passes over the data, the first ones and the last.
    pub passes: Vec<PassCosts>,
    batches: Table<Batches, 18>,
    samples: Table<Samples, 2>,
    /// First samples of the pass that is under way, by worker.
    #[serde(skip)]
    firsts: BTreeMap<u32, Cost>,
}

impl Replay {
    /// Nothing measured yet, of a loader set as `loader` says, on so many cores.
    pub fn new(loader: LoaderSettings, cores: f64) -> Replay {
        Replay {
            loader,
            cores,
            ..Replay::default()
        }
    }

    /// A pass is over, or the training is.
    pub fn pass(&mut self, mut pass: PassCosts) {
        let firsts = std::mem::take(&mut self.firsts);
        if pass.started > 0 && pass.firsts.is_empty() {
            pass.firsts = firsts.into_values().collect();
        }
        if self.passes.len() >= MOST_PASSES {
            self.passes.remove(MOST_PASSES / 2);
        }
        self.passes.push(pass);
    }

    /// The step of a batch is over; the batches come in the order in which they were taken.
    pub fn batch(&mut self, batch: &BatchCost) {
        let [pass, worker, bytes] = [
            batch.pass,
            batch.worker,
            u32::try_from(batch.bytes).unwrap_or(u32::MAX),
        ];
        let [collate, pickle, receive, sampler, step] = [
            batch.collate,
            batch.pickle,
            batch.receive,
            batch.sampler,
            batch.step,
        ]
        .map(Cost::units);
        self.batches.rows.push_back([
            pass,
            worker,
            batch.samples.len() as u32,
            bytes,
            collate[0],
            collate[1],
            pickle[0],
            pickle[1],
            receive[0],
            receive[1],
            sampler[0],
            sampler[1],
            units(batch.next),
            step[0],
            step[1],
            units(batch.busy),
            units(batch.delay),
            u32::try_from(batch.shared).unwrap_or(u32::MAX),
        ]);
        if let Some(first) = batch.samples.first() {
            self.firsts.entry(batch.worker).or_insert(*first);
        }
        let samples = batch.samples.iter().map(|sample| sample.units());
        self.samples.rows.extend(samples);
        while self.samples.rows.len() > MOST_SAMPLES && self.batches.rows.len() > 1 {
            self.forget();
        }
    }

    /// The device was busy for so long in the step of the batch before which `later` others came last.
    pub fn device_was_busy(&mut self, later: usize, busy: u64) {
        let rows = &mut self.batches.rows;
        let place = rows.len().checked_sub(later + 1);
        if let Some(row) = place.and_then(|place| rows.get_mut(place)) {
            row[15] = units(busy);
        }
    }

    /// Forgets all but the last so many steps.
    pub fn keep_last(&mut self, steps: u64) {
        while self.batches.rows.len() as u64 > steps {
            self.forget();
        }
    }

    /// The last steps without `waits`, which is what each of them, in order, spent waiting for other processes.
    pub fn without_waits(&mut self, waits: &[u64]) {
        for (row, wait) in self.batches.rows.iter_mut().rev().zip(waits.iter().rev()) {
            let before = row[13];
            row[13] = before.saturating_sub(units(*wait));
            // Who waits may compute meanwhile, in a loop, on no more than a core.
            if row[14] <= before {
                row[14] = row[14].min(row[13]);
            }
            row[15] = row[15].min(row[13]);
        }
    }

    fn forget(&mut self) {
        if let Some(oldest) = self.batches.rows.pop_front() {
            let samples = (oldest[2] as usize).min(self.samples.rows.len());
            self.samples.rows.drain(..samples);
        }
    }

    /// Bytes that a batch has in shared memory, on average.
    pub fn shared(&self) -> u64 {
        let rows = &self.batches.rows;
        let all: u64 = rows.iter().map(|row| u64::from(row[17])).sum();
        all / rows.len().max(1) as u64
    }

    /// The batches that are kept, in order.
    pub fn batches(&self) -> Vec<BatchCost> {
        let mut samples = self.samples.rows.iter().map(|row| cost(row[0], row[1]));
        let batch = |row: &[u32; 18]| BatchCost {
            pass: row[0],
            worker: row[1],
            samples: samples.by_ref().take(row[2] as usize).collect(),
            bytes: u64::from(row[3]),
            collate: cost(row[4], row[5]),
            pickle: cost(row[6], row[7]),
            receive: cost(row[8], row[9]),
            sampler: cost(row[10], row[11]),
            next: nanos(row[12]),
            step: cost(row[13], row[14]),
            busy: nanos(row[15]),
            delay: nanos(row[16]),
            shared: u64::from(row[17]),
        };
        let rows: &VecDeque<[u32; 18]> = &self.batches.rows;
        rows.iter().map(batch).collect()
    }
}

#[cfg(test)]
mod tests;

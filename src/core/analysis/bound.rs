//! The bound: what each resource takes of a step at least, so that no change to another makes it shorter.
//!
//! Operational analysis (Denning and Buzen, "The Operational Analysis of Queueing Network Models", ACM
//! Computing Surveys 10(3), 1978): the throughput is at most the reciprocal of the largest service demand of
//! any resource, each divided by how many there are of it. Plumber bounds input pipelines the same way
//! (Kuchnik et al., "Plumber: Diagnosing and Removing Performance Bottlenecks in Machine Learning Data
//! Pipelines", MLSys 2022).

use super::predict::{Device, Scenario};
use super::summary::Summary;
use super::tally::StageSummary;
use crate::timeline::{Layout, Nanos, Place, Stage, StageKnobs};

/// What the verdict must know of the pipeline beside its records.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LoaderShape {
    pub layout: Layout,
    /// Without workers the trainer's thread copies. With `num_workers = 0` it does so in any case.
    pub copy: StageKnobs,
    /// A device executes steps; without one the loader runs alone.
    pub has_device: bool,
    /// Where batches stay, and nothing is loaded.
    pub resident: Option<Place>,
    /// It does so beside the trainer's thread, whose waits it need not notice.
    pub device_beside: bool,
    /// The disk, where it is known what it does.
    pub disk: Option<Disk>,
    /// What a copy to the device takes whatever its bytes, where it is known.
    pub copy_latency: Nanos,
    /// Bytes of a value as preprocess hands it on: of a float, unless the device makes floats of bytes.
    pub value_bytes: usize,
    /// CPU cores that the process may use; a quota may leave it a fraction of one.
    pub cores: f64,
}

/// What a disk does for one worker at a time, however many there are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// On average, in the order in which samples are visited.
    pub seek_per_sample: Nanos,
    /// `None` takes no time.
    pub bytes_per_second: Option<u64>,
}

/// The stages that assemble a batch in host memory.
pub(super) const ASSEMBLY: [Stage; 4] =
    [Stage::Read, Stage::Decode, Stage::Preprocess, Stage::Batch];

/// A resource that limits a pipeline.
#[derive(
    Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Read,
    Decode,
    Preprocess,
    Batch,
    /// All whole-batch workers together.
    Workers,
    Copy,
    Trainer,
    Device,
    Cores,
    Disk,
}

impl Limit {
    const OF_ASSEMBLY: [Limit; 4] = [Limit::Read, Limit::Decode, Limit::Preprocess, Limit::Batch];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Read => "read workers",
            Limit::Decode => "decode workers",
            Limit::Preprocess => "preprocess workers",
            Limit::Batch => "batch workers",
            Limit::Workers => "num_workers",
            Limit::Copy => "copy",
            Limit::Trainer => "the trainer's thread",
            Limit::Device => "the device",
            Limit::Cores => "the cores",
            Limit::Disk => "the disk",
        }
    }

    /// Workers that serve nothing but `stage`.
    pub(super) fn workers_of(stage: Stage) -> Option<Limit> {
        Limit::OF_ASSEMBLY.get(stage as usize).copied()
    }

    /// The stage whose own workers these are.
    pub(super) fn stage(self) -> Option<Stage> {
        let place = Limit::OF_ASSEMBLY.iter().position(|limit| *limit == self)?;
        ASSEMBLY.get(place).copied()
    }
}

/// What a step takes of each resource. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Mean samples of a step.
    samples: f64,
    /// What the trainer's thread does itself, loading and copying left out.
    trainer: f64,
    /// What one worker of each stage would take, without the time it waits for a core.
    work: [f64; 4],
    workers: [usize; 4],
    /// Workers that assemble whole batches, where that is how they are spent.
    num_workers: Option<usize>,
    /// What the thread takes that copies.
    copy: f64,
    copy_ahead: bool,
    /// The device's own time, and its copy engine's.
    device: f64,
    transfer: f64,
    copy_latency: f64,
    /// The disk's own time, for seeks and for bytes.
    seeks: f64,
    disk_bytes: f64,
    /// CPU time of the process.
    computed: f64,
    cores: f64,
}

impl Bound {
    /// Of a run as it was measured.
    pub(super) fn measured(summary: &Summary, shape: &LoaderShape) -> Bound {
        let steps = summary.steps.max(1);
        let cpu = summary.process_cpu.map_or(0.0, |cpu| cpu.0 as f64);
        let transfers = summary
            .stage(Stage::Transfer)
            .map_or(Nanos::ZERO, |row| row.busy);
        let delay = summary.step_run_delay.0 / steps;
        // Items of a stage that a step takes: batches ahead may have been served before the window, or be served in
        // it for steps after it.
        let served = |stage: Stage, row: &StageSummary| {
            let taken = match stage {
                Stage::Read | Stage::Decode | Stage::Preprocess => summary.samples as f64,
                _ => summary.steps as f64,
            };
            taken / steps as f64 / row.items.max(1) as f64
        };
        let work = |stage| {
            summary.stage(stage).map_or(0.0, |row| {
                let service = row.service.mean.0 as f64 * row.items as f64;
                (service - row.run_delay.0 as f64).max(0.0) * served(stage, row)
            })
        };
        let workers = |stage| summary.stage(stage).map_or(1, |row| row.workers.max(1));
        let (read, disk) = (summary.stage(Stage::Read), shape.disk);
        let seeks = |disk: Disk| Some(disk.seek_per_sample.times(read?.items));
        let transfer =
            |disk: Disk| Some(Nanos::of_transfer(read?.bytes_out, disk.bytes_per_second));
        let of_reads = read.map_or(0.0, |row| served(Stage::Read, row));
        let a_step = |time: Option<Nanos>| time.map_or(0.0, |time| time.0 as f64 * of_reads);
        Bound {
            samples: summary.samples as f64 / steps as f64,
            trainer: summary.step.mean.0.saturating_sub(delay) as f64,
            work: ASSEMBLY.map(work),
            workers: ASSEMBLY.map(workers),
            num_workers: shape.layout.num_workers(),
            copy: work(Stage::Copy),
            copy_ahead: shape.copy.workers > 0,
            // What is no device beside is in the trainer's own time, where waits for a core are left out.
            device: match shape.device_beside {
                true => summary.device_busy.0 as f64 / steps as f64,
                false => 0.0,
            },
            transfer: transfers.0 as f64 / steps as f64,
            copy_latency: shape.copy_latency.0 as f64,
            seeks: a_step(disk.and_then(seeks)),
            disk_bytes: a_step(disk.and_then(transfer)),
            computed: cpu / steps as f64,
            cores: shape.cores.max(f64::MIN_POSITIVE),
        }
    }

    /// Of what is simulated.
    pub fn of(scenario: &Scenario) -> Bound {
        let (samples, costs) = (scenario.batches.mean(), &scenario.costs);
        let decode = samples * costs.decode.mean();
        let preprocess = samples * costs.preprocess.mean();
        let (read, batch) = (samples * costs.read.mean(), costs.batch.mean(samples));
        let (wait, copy) = (
            samples * scenario.mean_read_wait(),
            costs.copy.mean(samples),
        );
        let mut bound = Bound {
            samples,
            trainer: costs.host.mean(),
            work: [read + wait, decode, preprocess, batch],
            workers: [1; 4],
            num_workers: scenario.layout.num_workers(),
            copy,
            copy_ahead: scenario.copy_ahead.is_some(),
            device: 0.0,
            transfer: 0.0,
            copy_latency: 0.0,
            seeks: 0.0,
            disk_bytes: samples * scenario.storage.map_or(0.0, |disk| disk.taken_per_sample),
            // The background is not among it: nothing waits for that.
            computed: read + decode + preprocess + batch + copy + costs.host.mean(),
            cores: scenario.cores.max(1e-3),
        };
        if let Layout::PerStage {
            read,
            decode,
            preprocess,
            batch,
        } = scenario.layout
        {
            bound.workers = [read, decode, preprocess, batch].map(|knobs| knobs.workers.max(1));
        }
        bound.with_device(scenario, samples)
    }

    fn with_device(mut self, scenario: &Scenario, samples: f64) -> Bound {
        match &scenario.device {
            Device::None => {}
            Device::OnHost { step, width } => {
                self.trainer += step.mean(samples);
                self.computed += step.mean(samples) * width;
            }
            Device::Beside {
                step,
                launch_wait,
                run_ahead,
                transfer,
                ..
            } => {
                self.device = step.mean(samples);
                self.transfer = transfer.mean(samples);
                let launch = scenario.costs.launch.mean(samples);
                self.computed += launch;
                self.trainer += launch + launch_wait;
                if *run_ahead == 0 {
                    self.trainer += self.device;
                }
            }
        }
        self
    }

    /// What each resource takes of a step, longest first.
    pub fn demands(&self) -> Vec<(Limit, f64)> {
        let inline = self.num_workers == Some(0);
        let assembly: f64 = self.work.iter().sum();
        let mut trainer = self.trainer;
        let mut demands = Vec::with_capacity(9);
        match self.num_workers {
            Some(0) => trainer += assembly,
            Some(workers) => demands.push((Limit::Workers, assembly / workers as f64)),
            None => {
                let each = self.work.iter().zip(self.workers);
                let each = each.map(|(work, workers)| work / workers as f64);
                demands.extend(Limit::OF_ASSEMBLY.into_iter().zip(each));
            }
        }
        let copy = match self.copy_ahead && !inline {
            true => self.copy.max(self.transfer),
            false => {
                trainer += self.copy;
                self.transfer
            }
        };
        demands.extend([
            (Limit::Copy, copy),
            (Limit::Trainer, trainer),
            (Limit::Device, self.device),
            (Limit::Cores, self.computed / self.cores),
            (Limit::Disk, self.seeks + self.disk_bytes),
        ]);
        demands.sort_by(|a, b| b.1.total_cmp(&a.1));
        demands
    }

    /// The least time per step.
    pub(super) fn least(&self) -> f64 {
        self.demands().first().map_or(0.0, |(_, demand)| *demand)
    }

    /// What limits it.
    pub fn limit(&self) -> Limit {
        self.demands()
            .first()
            .map_or(Limit::Device, |(limit, _)| *limit)
    }

    /// Samples per second at most.
    pub fn samples_per_second(&self) -> f64 {
        self.samples * 1e9 / self.least().max(1.0)
    }

    pub(super) fn work(&self, stage: Stage) -> f64 {
        self.work.get(stage as usize).copied().unwrap_or(0.0)
    }

    pub(super) fn workers(&self, stage: Stage) -> usize {
        self.workers.get(stage as usize).copied().unwrap_or(1)
    }

    /// How much of the cores' time is in use where a step takes `period`, 0 to 1.
    pub(super) fn core_share(&self, period: Nanos) -> f64 {
        self.computed / self.cores / period.0.max(1) as f64
    }

    /// With so many threads for `limit`; for the trainer's these take over what it copies.
    pub(super) fn with_threads(mut self, limit: Limit, threads: usize) -> Bound {
        let own = limit.stage().map(|stage| stage as usize);
        match (limit, own.and_then(|stage| self.workers.get_mut(stage))) {
            (Limit::Workers, _) => self.num_workers = Some(threads),
            (Limit::Trainer, _) => self.copy_ahead = threads > 0,
            (_, Some(own)) => *own = threads,
            (_, None) => {}
        }
        self
    }

    /// With so many cores for the process.
    pub(super) fn on_cores(self, cores: f64) -> Bound {
        Bound {
            cores: cores.max(f64::MIN_POSITIVE),
            ..self
        }
    }

    /// With samples read in the order in which they lie on the disk.
    pub(super) fn without_seeks(mut self) -> Bound {
        // Most of what a read takes is waiting for the disk, and for other workers' turns on it.
        let seeking = self.seeks / (self.seeks + self.disk_bytes).max(1.0);
        self.work[Stage::Read as usize] *= 1.0 - seeking;
        self.seeks = 0.0;
        self
    }

    /// With `left` of the work at each of `stages`, 0 to 1.
    pub(super) fn with_less_work(mut self, stages: &[Stage], left: f64) -> Bound {
        if stages.contains(&Stage::Read) {
            self.disk_bytes *= left;
        }
        for stage in stages {
            let Some(work) = self.work.get_mut(*stage as usize) else {
                continue;
            };
            self.computed = (self.computed - *work * (1.0 - left)).max(0.0);
            *work *= left;
        }
        if stages.contains(&Stage::Copy) {
            // Beside a copy engine the copy's thread waits and does not compute.
            if self.transfer == 0.0 {
                self.computed = (self.computed - self.copy * (1.0 - left)).max(0.0);
            }
            self.copy *= left;
            let latency = self.copy_latency.min(self.transfer);
            self.transfer = latency + (self.transfer - latency) * left;
        }
        self
    }
}

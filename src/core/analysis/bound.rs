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
use crate::timeline::{Layout, Nanos, Pipeline, Place, Stage, StageKind, StageKnobs};
use std::fmt;

/// What the verdict must know of the pipeline beside its records.
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderShape {
    /// Names the stages.
    pub pipeline: &'static Pipeline,
    /// How workers are spent, with the room of their queues.
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

/// A resource that limits a pipeline.
#[derive(
    Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// All whole-batch workers together.
    Workers,
    /// The thread that copies, or the copy engine.
    Copy,
    /// The trainer's own thread.
    Trainer,
    /// The device that executes steps.
    Device,
    /// The CPU cores that the process may use.
    Cores,
    /// The disk that the first stage reads from.
    Disk,
    /// Workers that serve nothing but one stage.
    #[serde(untagged)]
    Stage(Stage),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Stage(stage) => return write!(f, "{stage} workers"),
            Limit::Workers => "num_workers",
            Limit::Copy => "copy",
            Limit::Trainer => "the trainer's thread",
            Limit::Device => "the device",
            Limit::Cores => "the cores",
            Limit::Disk => "the disk",
        })
    }
}

impl Limit {
    /// Workers that serve nothing but `stage`.
    pub(super) fn workers_of(stage: Stage) -> Option<Limit> {
        (stage.kind() <= StageKind::Batch).then_some(Limit::Stage(stage.owner()))
    }

    /// The stage whose own workers these are.
    pub(super) fn stage(self) -> Option<Stage> {
        match self {
            Limit::Stage(stage) => Some(stage),
            _ => None,
        }
    }
}

/// What a step takes of a stage's workers, in nanoseconds of one, and how many there are.
#[derive(Clone, Debug, PartialEq)]
struct StageDemand {
    stage: Stage,
    work: f64,
    workers: usize,
}

/// What a step takes of each resource. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Mean samples of a step.
    samples: f64,
    /// What the trainer's thread does itself, loading and copying left out.
    trainer: f64,
    /// What makes batches in host memory, parts each of their own: what one worker would take, without the time it waits
    /// for a core.
    assembly: Vec<StageDemand>,
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
            .stage(shape.pipeline.the(StageKind::Transfer))
            .map_or(Nanos::ZERO, |row| row.busy);
        let delay = summary.step_run_delay.0 / steps;
        let main = shape
            .pipeline
            .all()
            .find(|stage| stage.kind() == StageKind::Main);
        let main = main.and_then(|stage| summary.stage(stage));
        let main = main.map_or(0, |row| (row.busy - row.run_delay).0 / steps);
        // Items of a stage that a step takes: batches ahead may have been served before the window, or be served in
        // it for steps after it.
        let served = |stage: Stage, row: &StageSummary| {
            let taken = match stage.per_batch() {
                false => summary.samples as f64,
                true => summary.steps as f64,
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
        let first = shape.pipeline.the(StageKind::Sample);
        let (read, disk) = (summary.stage(first), shape.disk);
        let seeks = |disk: Disk| Some(disk.seek_per_sample.times(read?.items));
        let transfer =
            |disk: Disk| Some(Nanos::of_transfer(read?.bytes_out, disk.bytes_per_second));
        let of_reads = read.map_or(0.0, |row| served(first, row));
        let a_step = |time: Option<Nanos>| time.map_or(0.0, |time| time.0 as f64 * of_reads);
        Bound {
            samples: summary.samples as f64 / steps as f64,
            trainer: (summary.step.mean.0.saturating_sub(delay) + main) as f64,
            assembly: shape
                .pipeline
                .all()
                .filter(|stage| stage.kind() <= StageKind::Batch)
                .map(|stage| StageDemand {
                    stage,
                    work: work(stage),
                    workers: workers(stage),
                })
                .collect(),
            num_workers: shape.layout.num_workers(),
            copy: work(shape.pipeline.the(StageKind::Copy)),
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
        let own = |place| costs.samples.get(place);
        let computed = (0..scenario.pipeline.samples().count())
            .map(|place| own(place).map_or(0.0, |own| samples * own.computed.mean()));
        let computed: Vec<f64> = computed.collect();
        let (batch, copy) = (costs.batch.mean(samples), costs.copy.mean(samples));
        let waited = (0..computed.len()).map(|place| samples * scenario.mean_wait(place));
        let works = computed.iter().zip(waited).map(|(own, wait)| own + wait);
        let workers = match &scenario.layout {
            Layout::PerStage { samples, batch } => samples.iter().chain([batch]).copied().collect(),
            Layout::WholeBatch { .. } => Vec::new(),
        };
        let stages = scenario.pipeline.assembly().zip(works.chain([batch]));
        let stages = stages
            .enumerate()
            .map(|(place, (stage, work))| StageDemand {
                stage,
                work,
                workers: workers
                    .get(place)
                    .map_or(1, |knobs: &StageKnobs| knobs.workers.max(1)),
            });
        let bound = Bound {
            samples,
            trainer: costs.host.mean(),
            assembly: stages.collect(),
            num_workers: scenario.layout.num_workers(),
            copy,
            copy_ahead: scenario.copy_ahead.is_some(),
            device: 0.0,
            transfer: 0.0,
            copy_latency: 0.0,
            seeks: 0.0,
            disk_bytes: samples * scenario.storage.map_or(0.0, |disk| disk.taken_per_sample),
            // The background is not among it: nothing waits for that.
            computed: computed.iter().sum::<f64>() + batch + copy + costs.host.mean(),
            cores: scenario.cores.max(1e-3),
        };
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
        let assembly = self.all_work();
        let mut trainer = self.trainer;
        let mut demands = Vec::with_capacity(9);
        match self.num_workers {
            Some(0) => trainer += assembly,
            Some(workers) => demands.push((Limit::Workers, assembly / workers as f64)),
            None => {
                let owners = self.assembly.iter().filter(|own| !own.stage.is_part());
                demands.extend(owners.map(|own| {
                    let work = self.work(own.stage);
                    (Limit::Stage(own.stage), work / own.workers as f64)
                }));
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

    fn of_stage(&self, stage: Stage) -> Option<&StageDemand> {
        self.assembly.iter().find(|own| own.stage == stage)
    }

    /// That at `stage`, with its parts.
    pub(super) fn work(&self, stage: Stage) -> f64 {
        let rows = self.assembly.iter();
        let rows = rows.filter(|own| own.stage.is_within(stage));
        rows.map(|own| own.work).sum()
    }

    /// The work at all stages that make batches.
    pub(super) fn all_work(&self) -> f64 {
        self.assembly.iter().map(|own| own.work).sum()
    }

    pub(super) fn workers(&self, stage: Stage) -> usize {
        self.of_stage(stage).map_or(1, |own| own.workers)
    }

    /// How much of the cores' time is in use where a step takes `period`, 0 to 1.
    pub(super) fn core_share(&self, period: Nanos) -> f64 {
        self.computed / self.cores / period.0.max(1) as f64
    }

    /// With so many threads for `limit`; for the trainer's these take over what it copies.
    pub(super) fn with_threads(mut self, limit: Limit, threads: usize) -> Bound {
        let own = self
            .assembly
            .iter_mut()
            .find(|own| limit.stage() == Some(own.stage));
        match (limit, own) {
            (Limit::Workers, _) => self.num_workers = Some(threads),
            (Limit::Trainer, _) => self.copy_ahead = threads > 0,
            (_, Some(own)) => own.workers = threads,
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
        if let Some(first) = self.assembly.first_mut() {
            first.work *= 1.0 - seeking;
        }
        self.seeks = 0.0;
        self
    }

    /// With `left` of the work at each of `stages`, 0 to 1.
    pub(super) fn with_less_work(mut self, stages: &[Stage], left: f64) -> Bound {
        if stages.iter().any(|stage| stage.is_first()) {
            self.disk_bytes *= left;
        }
        for own in &mut self.assembly {
            if stages.iter().any(|stage| own.stage.is_within(*stage)) {
                self.computed = (self.computed - own.work * (1.0 - left)).max(0.0);
                own.work *= left;
            }
        }
        if stages.iter().any(|stage| stage.kind() == StageKind::Copy) {
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

//! The floors of the time per step, which bound what a change can buy: the trainer's own time, each stage's
//! work divided by its workers, and all CPU work divided by the cores.

use super::summary::Summary;
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

/// What a step takes at least, whatever else is changed. Times are nanoseconds per step.
#[derive(Clone, Debug)]
pub(super) struct Floors {
    /// The trainer's own time.
    step: f64,
    /// Net service time of each loader stage, without the time it waited for a core.
    work: [f64; 5],
    workers: [usize; 5],
    /// Workers that assemble whole batches, where that is how they are spent.
    num_workers: Option<usize>,
    copy_in_trainer: bool,
    /// The device's own time, and its copy engine's.
    device: f64,
    transfer: f64,
    copy_latency: f64,
    /// The disk's own time, for seeks and for bytes.
    seeks: f64,
    disk_bytes: f64,
    /// CPU time of the process over the cores.
    core_time: f64,
    cores: f64,
}

impl Floors {
    pub(super) fn of(summary: &Summary, shape: &LoaderShape) -> Floors {
        let steps = summary.steps.max(1);
        let cores = shape.cores.max(f64::MIN_POSITIVE);
        let cpu = summary.process_cpu.map_or(0.0, |cpu| cpu.0 as f64);
        let transfers = summary
            .stage(Stage::Transfer)
            .map_or(Nanos::ZERO, |row| row.busy);
        let delay = summary.step_run_delay.0 / steps;
        let work = Stage::LOADER.map(|stage| {
            summary.stage(stage).map_or(0.0, |row| {
                let service = row.service.mean.0 as f64 * row.items as f64;
                (service - row.run_delay.0 as f64).max(0.0) / steps as f64
            })
        });
        let (read, disk) = (summary.stage(Stage::Read), shape.disk);
        let seeks = |disk: Disk| Some(disk.seek_per_sample.times(read?.items));
        let transfer =
            |disk: Disk| Some(Nanos::of_transfer(read?.bytes_out, disk.bytes_per_second));
        let a_step = |time: Option<Nanos>| time.map_or(0.0, |time| time.0 as f64 / steps as f64);
        Floors {
            seeks: a_step(disk.and_then(seeks)),
            disk_bytes: a_step(disk.and_then(transfer)),
            step: summary.step.mean.0.saturating_sub(delay) as f64,
            work,
            workers: Stage::LOADER
                .map(|stage| summary.stage(stage).map_or(1, |row| row.workers.max(1))),
            num_workers: shape.layout.num_workers(),
            copy_in_trainer: shape.copy.workers == 0,
            // What is no device beside is in the trainer's own time, where waits for a core are left out.
            device: match shape.device_beside {
                true => summary.device_busy.0 as f64 / steps as f64,
                false => 0.0,
            },
            transfer: transfers.0 as f64 / steps as f64,
            copy_latency: shape.copy_latency.0 as f64,
            core_time: cpu / steps as f64 / cores,
            cores,
        }
    }

    pub(super) fn work(&self, stage: Stage) -> f64 {
        self.work.get(stage as usize).copied().unwrap_or(0.0)
    }

    pub(super) fn workers(&self, stage: Stage) -> usize {
        self.workers.get(stage as usize).copied().unwrap_or(1)
    }

    /// With `workers` for `stage`; in all, where workers assemble whole batches.
    pub(super) fn with_workers(mut self, stage: Stage, workers: usize) -> Floors {
        match (&mut self.num_workers, self.workers.get_mut(stage as usize)) {
            (Some(num_workers), _) => *num_workers = workers,
            (None, Some(own)) => *own = workers,
            (None, None) => {}
        }
        self
    }

    /// With so many cores for the process.
    pub(super) fn on_cores(self, cores: f64) -> Floors {
        let cores = cores.max(f64::MIN_POSITIVE);
        Floors {
            core_time: self.core_time * self.cores / cores,
            cores,
            ..self
        }
    }

    /// How much of the cores' time is in use where a step takes `period`, 0 to 1.
    pub(super) fn core_share(&self, period: Nanos) -> f64 {
        self.core_time / period.0.max(1) as f64
    }

    /// With a thread that copies.
    pub(super) fn copying_ahead(self) -> Floors {
        Floors {
            copy_in_trainer: false,
            ..self
        }
    }

    /// With samples read in the order in which they lie on the disk.
    pub(super) fn without_seeks(mut self) -> Floors {
        // Most of what a read takes is waiting for the disk, and for other workers' turns on it.
        let left = self.disk_bytes / (self.seeks + self.disk_bytes).max(1.0);
        self.work[Stage::Read as usize] *= left;
        self.seeks = 0.0;
        self
    }

    /// With `left` of the work at each of `stages`, 0 to 1.
    pub(super) fn with_less_work(mut self, stages: &[Stage], left: f64) -> Floors {
        if stages.contains(&Stage::Copy) {
            let latency = self.copy_latency.min(self.transfer);
            self.transfer = latency + (self.transfer - latency) * left;
        }
        if stages.contains(&Stage::Read) {
            self.disk_bytes *= left;
        }
        for stage in stages {
            if let Some(work) = self.work.get_mut(*stage as usize) {
                let gone = *work * (1.0 - left);
                // Beside a copy engine the copy's thread waits and does not compute.
                let computed = if *stage == Stage::Copy && self.transfer > 0.0 {
                    0.0
                } else {
                    gone
                };
                self.core_time = (self.core_time - computed / self.cores).max(0.0);
                *work -= gone;
            }
        }
        self
    }

    /// The least time per step.
    pub(super) fn least(&self) -> f64 {
        let copy = self.work(Stage::Copy);
        let inline = self.num_workers == Some(0);
        let (mut trainer, copy) = if self.copy_in_trainer || inline {
            (self.step + copy, 0.0)
        } else {
            (self.step, copy)
        };
        let assembly = ASSEMBLY.map(|stage| self.work(stage));
        let stages = match self.num_workers {
            Some(0) => {
                trainer += assembly.iter().sum::<f64>();
                0.0
            }
            Some(workers) => assembly.iter().sum::<f64>() / workers as f64,
            None => ASSEMBLY
                .map(|stage| self.work(stage) / self.workers(stage) as f64)
                .into_iter()
                .fold(0.0, f64::max),
        };
        let disk = self.seeks + self.disk_bytes;
        let floors = [
            stages,
            disk,
            copy,
            self.transfer,
            self.device,
            self.core_time,
        ];
        floors.into_iter().fold(trainer, f64::max)
    }
}

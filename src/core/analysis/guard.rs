//! The guard against too many workers: loader threads that keep the trainer's own thread from a core.
//!
//! On the CPU a step that waits for a core only gets longer: nothing is idle, and no cause of idle time tells of
//! it. A device beside the trainer's thread stands idle where its launches come late for that reason. What counts
//! is who computed meanwhile: workers that wait for a disk keep nobody from a core, however many there are, and
//! what other programs took is not the loader's. Pure; may use `timeline` only.

use super::bound::{Bound, Limit, LoaderShape};
use super::cause::Cause;
use super::suggestion::{Change, Setting, Suggestion};
use super::summary::Summary;
use super::tally::{WorkerSummary, share};
use super::verdict::{SATURATED, WORTH_TRYING, plural};
use crate::timeline::{HostWork, LaneKind, Nanos, Stage};
use std::borrow::Cow;

/// Waiting for a core below this share is left alone: without it the run would be 5 % faster at most, which is
/// what the verdict takes to be worth a run, and measured steps vary as much with one worker a stage.
const WAITED: f64 = 0.05;
/// A stage with a smaller part in the loader's demand for cores is not what crowds them.
const CROWDS: f64 = 0.25;
/// How busy the workers that are left may be at most, so that an uneven one does not starve the device.
const BUSY_AT_MOST: f64 = 0.9;

/// Loader threads cost more than they bring.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Guard {
    /// What was found: `too_many_workers`.
    pub check: Cow<'static, str>,
    /// The stage; `None` where workers assemble whole batches (`num_workers`).
    pub stage: Option<Stage>,
    /// Threads of the stage in this run.
    pub workers: usize,
    /// So many do the same work without starving the device.
    pub enough: usize,
    /// CPU cores that the process may use; a quota may leave it a fraction of one.
    pub cores: f64,
    /// How many threads were running or ready to run on average, the trainer's among them.
    pub runnable_threads: f64,
    /// Time lost to waiting for a core while the loader's threads had them, in nanoseconds.
    #[serde(rename = "lost_ns")]
    pub lost: Nanos,
    /// That over the time of the steps on the CPU, over the window beside a device; 0 to 1.
    pub lost_share: f64,
    /// The same for the time lost in all, to other programs and threads, too; 0 to 1.
    pub waited_share: f64,
    /// What was found, with its figures, as the user reads it.
    pub message: String,
    /// The number of workers to try.
    pub suggestion: Suggestion,
}

impl Guard {
    /// What the guard has to say of `summary`; `None` where it has no objection.
    pub fn of(summary: &Summary, shape: &LoaderShape) -> Option<Guard> {
        let watched = shape.has_device && shape.resident.is_none() && !shape.layout.is_inline();
        let watch = watched.then(|| Watch::of(summary, shape))?;
        watch.guard()
    }

    /// Check, message and the change to try, in one line.
    pub fn line(&self) -> String {
        format!("{}; {}", self.message, self.suggestion.text())
    }
}

/// What threads asked of the cores.
#[derive(Copy, Clone, Debug, Default)]
struct Demand {
    cpu: Nanos,
    /// With the time they were ready to run.
    runnable: Nanos,
}

impl Demand {
    fn of<'a>(threads: impl Iterator<Item = &'a WorkerSummary>) -> Demand {
        threads.fold(Demand::default(), |sum, thread| {
            let cpu = thread.usage.user + thread.usage.system;
            Demand {
                cpu: sum.cpu + cpu,
                runnable: sum.runnable + cpu + thread.usage.run_delay,
            }
        })
    }
}

/// Time lost to waiting for a core, and the time it is a part of.
struct Waited {
    length: Nanos,
    of: Nanos,
}

/// Workers that could be fewer.
struct Crowd {
    stage: Option<Stage>,
    workers: usize,
    enough: usize,
    /// What the workers above `enough` ask of the cores.
    excess: f64,
}

struct Watch<'a> {
    summary: &'a Summary,
    shape: &'a LoaderShape,
    window: Nanos,
    trainer: Demand,
    loader: Demand,
    /// CPU time of other programs on these cores, where it is known.
    others: Option<Nanos>,
    bound: Bound,
}

impl Watch<'_> {
    fn of<'a>(summary: &'a Summary, shape: &'a LoaderShape) -> Watch<'a> {
        let window = summary.time();
        let threads = summary.workers.iter();
        let (trainer, loader): (Vec<_>, Vec<_>) =
            threads.partition(|thread| thread.kind == LaneKind::Trainer);
        // What other programs compute on is not there for this one, however few its workers are.
        let taken = summary.others_cpu.map_or(0.0, |cpu| share(cpu, window));
        let cores = shape.cores - taken.clamp(0.0, 0.9 * shape.cores);
        Watch {
            summary,
            shape,
            window,
            trainer: Demand::of(trainer.into_iter()),
            loader: Demand::of(loader.into_iter()),
            others: summary.others_cpu,
            bound: Bound::measured(summary, shape).on_cores(cores),
        }
    }

    fn guard(&self) -> Option<Guard> {
        // Fewer workers would do no less work on cores that have no time left.
        if self.bound.core_share(self.summary.period()) >= SATURATED {
            return None;
        }
        let waited = self.waited();
        let lost = self.of_loader(waited.length);
        let lost_share = share(lost, waited.of);
        let crowd = self.crowd().filter(|_| lost_share > WAITED)?;
        let at_most = self.at_most(lost, &crowd);
        if at_most < WORTH_TRYING {
            return None;
        }
        let waited_share = share(waited.length, waited.of);
        Some(Guard {
            check: "too_many_workers".into(),
            stage: crowd.stage,
            workers: crowd.workers,
            enough: crowd.enough,
            cores: self.shape.cores,
            runnable_threads: self.runnable_threads(),
            lost,
            lost_share,
            waited_share,
            message: self.message(&crowd, lost_share, waited_share),
            suggestion: suggestion(&crowd, at_most),
        })
    }

    /// On the CPU the trainer's thread is the device, so that all it waits for a core makes its steps longer. A
    /// device beside it has lost only what it stood idle for.
    fn waited(&self) -> Waited {
        let (summary, step) = (self.summary, self.summary.step_run_delay);
        if !self.shape.device_beside {
            let of = summary.step.mean.times(summary.step.count);
            return Waited { length: step, of };
        }
        let contention = summary.cause(Cause::CpuContention);
        // In the course of a step a late launch is the host's; as long as its thread had no core, it is the cores'.
        let late = summary.cause(Cause::Host(HostWork::Launch));
        let length = contention + late.min(step - contention.min(step));
        Waited {
            length,
            of: self.window,
        }
    }

    /// The loader's part in a wait of `length`: that of its threads in what computed beside the trainer's. Who
    /// waits for a core does so only while every core has other work, so it is no more than the loader's CPU time
    /// spread over the cores.
    fn of_loader(&self, length: Nanos) -> Nanos {
        let own = self.trainer.cpu + self.loader.cpu;
        let process = self.summary.process_cpu.unwrap_or(own).max(own);
        let available = Nanos((self.window.0 as f64 * self.shape.cores) as u64);
        // Where it is not known what other programs used, it is taken to be all that this one did not.
        let others = self
            .others
            .unwrap_or(Nanos(available.0.saturating_sub(process.0)));
        let beside = process - self.trainer.cpu + others;
        let part = length.share_of(self.loader.cpu.min(beside), beside.max(Nanos(1)));
        part.min(Nanos(
            (self.loader.cpu.0 as f64 / self.shape.cores.max(1.0)) as u64,
        ))
    }

    fn runnable_threads(&self) -> f64 {
        share(self.trainer.runnable + self.loader.runnable, self.window)
    }

    /// The workers that ask most of the cores without being needed.
    fn crowd(&self) -> Option<Crowd> {
        let crowds = match self.shape.layout.num_workers() {
            Some(num_workers) => vec![self.spare(None, num_workers)],
            None => {
                let stages = self.shape.pipeline.assembly();
                stages
                    .map(|stage| self.spare(Some(stage), self.bound.workers(stage)))
                    .collect()
            }
        };
        let crowds = crowds.into_iter().flatten();
        crowds.max_by(|a, b| a.excess.total_cmp(&b.excess))
    }

    /// What could be spared of these workers, where they crowd the cores: all threads together, or they and the
    /// trainer's alone.
    fn spare(&self, stage: Option<Stage>, workers: usize) -> Option<Crowd> {
        let threads = self.summary.workers.iter();
        let own = threads.filter(|thread| match stage {
            Some(stage) => thread.kind == LaneKind::Worker(stage),
            None => thread.kind == LaneKind::BatchWorker,
        });
        let demand = Demand::of(own).runnable;
        let crowds =
            self.runnable_threads() > self.shape.cores || (workers + 1) as f64 > self.shape.cores;
        if !crowds || share(demand, self.loader.runnable) < CROWDS {
            return None;
        }
        let enough = self.enough(stage, workers)?;
        Some(Crowd {
            stage,
            workers,
            enough,
            excess: demand.0 as f64 * (1.0 - enough as f64 / workers as f64),
        })
    }

    /// The fewest workers that are done with a step's work in the time that it takes for other reasons; `None`
    /// where that takes as many as there are.
    fn enough(&self, stage: Option<Stage>, workers: usize) -> Option<usize> {
        let work: f64 = match stage {
            Some(stage) => self.bound.work(stage),
            None => self.bound.all_work(),
        };
        let time = BUSY_AT_MOST * self.bound.least();
        (1..workers).find(|fewer| work <= time * *fewer as f64)
    }

    /// The most that fewer workers can gain: the lost time, as far as the bound allows.
    fn at_most(&self, lost: Nanos, crowd: &Crowd) -> f64 {
        let limit = crowd.stage.map_or(Some(Limit::Workers), Limit::workers_of);
        let fewer = |limit| self.bound.clone().with_threads(limit, crowd.enough);
        let least = limit.map_or(0.0, |limit| fewer(limit).least());
        let period = self.summary.period().0 as f64;
        let without = 1.0 / (1.0 - share(lost, self.window)).max(1e-3);
        without.min(period / least.max(1.0))
    }

    fn message(&self, crowd: &Crowd, lost: f64, waited: f64) -> String {
        let percent = 100.0 * lost;
        let loss = if self.shape.device_beside {
            format!(
                "{percent:.0} % of the time the device was idle since the thread it waited for had no core"
            )
        } else {
            format!("the trainer's own thread waited for a core {percent:.0} % of its step time")
        };
        let noun = match crowd.stage {
            Some(stage) => format!("{stage} worker"),
            None => "worker".to_owned(),
        };
        let cores = self.shape.cores;
        let s = if cores == 1.0 { "" } else { "s" };
        let is = if crowd.enough == 1 { "is" } else { "are" };
        let workers = plural(crowd.workers, &noun);
        let enough = crowd.enough;
        let rest = 100.0 * (waited - lost);
        let rest = match rest > 100.0 * WAITED && self.others.is_some() {
            true => format!(" (and {rest:.0} % for other programs or threads)"),
            false => String::new(),
        };
        format!("{loss}{rest}: {workers} are too many for {cores} core{s}, {enough} {is} enough")
    }
}

fn suggestion(crowd: &Crowd, at_most: f64) -> Suggestion {
    let Crowd {
        workers, enough, ..
    } = crowd;
    let key = match crowd.stage {
        Some(stage) => format!("{stage}.workers"),
        None => "num_workers".to_owned(),
    };
    let fewer = Setting::count(key, *enough, *workers);
    Suggestion::new(Change::Set(vec![fewer]), at_most)
}

#[cfg(test)]
mod tests;

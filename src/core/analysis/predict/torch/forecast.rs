//! From simulations to a forecast: figures with intervals, corrected by the run that the costs are from.

use super::super::correction::corrected;
use super::super::forecast::{CORES, Estimate, LEAST_MACHINE};
use super::replay::{LoaderSettings, Replay};
use super::scenario::{Batch, Scenario, Starts, passes_of};
use super::simulation::{Outcome, simulate};
use serde::Serialize;

/// What a training would measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoaderForecast {
    /// Over whole passes, their starts, ends and what lies between them included.
    pub samples_per_second: Estimate,
    /// 0 to 1, of the same time.
    pub device_busy: Estimate,
    /// Of one `next()`.
    pub data_wait_p50_ns: Estimate,
    /// Of one `next()`.
    pub data_wait_p99_ns: Estimate,
    /// From `iter()` to the first batch, where workers start.
    pub first_batch_ns: Estimate,
    /// A pass, without what lies behind it.
    pub pass_ns: Estimate,
}

/// Figures of a simulation.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) rate: f64,
    busy: f64,
    waits: [f64; 2],
    first: f64,
    pass: f64,
}

/// Predicts from the costs of one training.
#[derive(Clone, Debug)]
pub struct Predictor {
    replay: Replay,
    /// What the work of workers is multiplied with: what no clock of theirs has seen, such as the thread that hands tensors
    /// over, and what they take from each other.
    factor: f64,
    bias: f64,
    own: f64,
}

/// The simulation is off by as much at least.
const MODEL: f64 = 0.02;
/// Standard deviations on either side that hold about 95 %.
const REACH: f64 = 2.0;

impl Predictor {
    /// `None` where too few batches were measured.
    pub fn new(replay: &Replay) -> Option<Predictor> {
        if replay.batches().len() < 2 {
            return None;
        }
        let mut predictor = Predictor {
            replay: replay.clone(),
            factor: 1.0,
            bias: 1.0,
            own: 0.0,
        };
        predictor.correct();
        predictor.own = predictor.figures(&replay.loader, [1.0; 2]).rate;
        Some(predictor)
    }

    /// Corrects the work of workers so that the simulation comes to the steady time between batches that was measured.
    fn correct(&mut self) {
        let kept = self.replay.batches();
        if kept.iter().all(|batch| batch.next == 0) {
            return;
        }
        let passes = passes_of(&self.replay, &kept);
        let loader = self.replay.loader.clone();
        let ahead = loader.num_workers * loader.prefetch_factor;
        let parts = passes.iter().map(|pass| {
            // Whole rounds of the workers.
            let last = pass.len() - 1;
            let from = ahead.min(last / 3);
            (from, last - (last - from) % loader.num_workers.max(1))
        });
        let parts: Vec<(usize, usize)> = parts.collect();
        let steady = passes.iter().zip(&parts).map(|(pass, (from, last))| {
            let steps = pass[*from..*last].iter().map(|batch| batch.step.wall);
            let nexts = pass[from + 1..=*last].iter().map(|batch| batch.next);
            steps.chain(nexts).sum::<u64>() as f64
        });
        let measured: f64 = steady.sum();
        let simulated = |factor| {
            let run = simulate(&self.scenario(&loader).with_work(factor));
            let each = run
                .returned
                .iter()
                .zip(&parts)
                .map(|(returned, (from, last))| {
                    let last = (*last).min(returned.len().saturating_sub(1));
                    returned[last] - returned[(*from).min(last)]
                });
            let all: f64 = each.sum();
            Ok::<_, std::convert::Infallible>((measured / all.max(1.0), ()))
        };
        if let Ok((factor, (bias, ()))) = corrected(1.0, simulated)
            && measured > 0.0
        {
            (self.factor, self.bias) = (factor, bias);
        }
    }

    fn scenario(&self, loader: &LoaderSettings) -> Scenario {
        // What workers add, a run without them does not have.
        let factor = match (loader.num_workers, self.replay.loader.num_workers) {
            (0, 1..) => 1.0,
            _ => self.factor,
        };
        Scenario::new(&self.replay, loader).with_work(factor)
    }

    /// The same on a machine with so many cores.
    pub fn on(&self, cores: f64) -> Predictor {
        let mut other = self.clone();
        other.replay.cores = cores;
        other
    }

    /// The same if the steps, the last of them `waits.len()` in number, had not waited for other processes for so long, in
    /// nanoseconds.
    pub fn without_waits(&self, waits: &[u64]) -> Predictor {
        let mut other = self.clone();
        other.replay.without_waits(waits);
        other
    }

    /// What a prediction for `loader` takes for granted, since the run did not measure it.
    pub fn assumptions(&self, loader: &LoaderSettings) -> Vec<&'static str> {
        let own = &self.replay.loader;
        let mut assumptions = Vec::new();
        if loader.num_workers > 0 && own.num_workers == 0 {
            assumptions.push(
                "starting workers and sending batches to the main process take no time: a run without workers does not measure them",
            );
        }
        if loader.batch_size != own.batch_size {
            assumptions.push(
                "collating, sending and steps take time in proportion to the samples of a batch",
            );
        }
        if loader.iterable && loader.num_workers != own.num_workers {
            assumptions.push("the data set gives its workers equal parts, whatever their number");
        }
        assumptions
    }

    /// What the simulation makes of the measured run: its samples/s over those that were measured, without starts.
    pub fn bias(&self) -> f64 {
        self.bias
    }

    /// Samples per second of the measured run itself over whole passes, as the simulation sees it.
    pub fn own(&self) -> f64 {
        self.own
    }

    /// How the measured run's loader was set.
    pub fn loader(&self) -> &LoaderSettings {
        &self.replay.loader
    }

    /// Samples per second with `loader`.
    pub fn rate(&self, loader: &LoaderSettings) -> f64 {
        self.figures(loader, [1.0; 2]).rate
    }

    /// The same if loading took nothing, and only steps and what lies between passes were left.
    pub(super) fn unhindered(&self) -> f64 {
        let mut scenario = self.scenario(&self.replay.loader);
        scenario.starts = Starts {
            between: scenario.starts.between,
            ..Starts::default()
        };
        scenario.others = 0.0;
        for batch in scenario.passes.iter_mut().flatten() {
            let Batch {
                samples,
                step,
                width,
                busy,
                ..
            } = *batch;
            *batch = Batch {
                samples,
                step,
                width,
                busy,
                ..Batch::default()
            };
        }
        Figures::of(&scenario, &simulate(&scenario)).rate
    }

    fn figures(&self, loader: &LoaderSettings, slower: [f64; 2]) -> Figures {
        let scenario = self.scenario(loader).slower(slower);
        Figures::of(&scenario, &simulate(&scenario))
    }

    /// What a training with `loader` would measure.
    pub fn predict(&self, loader: &LoaderSettings) -> LoaderForecast {
        let typical = self.figures(loader, [1.0; 2]);
        // Another run finds the machine faster or slower: the waits, and what computes.
        let unknown = (self.factor - 1.0) / 2.0;
        let machine = [LEAST_MACHINE, LEAST_MACHINE.hypot(CORES)].map(|each| each.hypot(unknown));
        let ends = [REACH, -REACH].map(|reach| {
            let slower = machine.map(|each| (reach * each).exp());
            self.figures(loader, slower)
        });
        let model = REACH * MODEL.max((self.bias - 1.0).abs() / REACH);
        let estimate = |of: &dyn Fn(&Figures) -> f64| {
            let value = of(&typical);
            let [one, other] = ends.each_ref().map(of);
            let model = model * value;
            Estimate {
                value,
                low: (value - model.hypot(value - one.min(other).min(value))).max(0.0),
                high: value + model.hypot(one.max(other).max(value) - value),
            }
        };
        LoaderForecast {
            samples_per_second: estimate(&|run| run.rate),
            device_busy: estimate(&|run| run.busy).at_most(1.0),
            data_wait_p50_ns: estimate(&|run| run.waits[0]),
            data_wait_p99_ns: estimate(&|run| run.waits[1]),
            first_batch_ns: estimate(&|run| run.first),
            pass_ns: estimate(&|run| run.pass),
        }
    }
}

impl Figures {
    /// Of a training of `scenario.count` passes, the later ones like those that were simulated.
    fn of(scenario: &Scenario, run: &Outcome) -> Figures {
        let ahead = scenario.loader.num_workers * scenario.loader.prefetch_factor;
        let between = scenario.starts.between.length();
        let mut lengths = Vec::new();
        let mut begun = 0.0;
        for (returned, end) in run.returned.iter().zip(&run.ends) {
            // Longer ones go on as in the middle.
            let last = returned.len().saturating_sub(1);
            let (from, to) = match ahead < last / 3 {
                true => (ahead, last - ahead),
                false => (last / 3, last),
            };
            // Whole rounds of the workers.
            let to = to - (to - from) % scenario.live.max(1);
            let more = scenario.batches.saturating_sub(returned.len() as u64) as f64;
            let period = match to > from {
                true => (returned[to] - returned[from]) / (to - from) as f64,
                false => 0.0,
            };
            lengths.push(end - begun + more * period);
            begun = *end;
        }
        let later = &lengths[1.min(lengths.len())..];
        let count = scenario.count.max(1) as f64;
        let mean = later.iter().sum::<f64>() / later.len().max(1) as f64;
        let first = lengths.first().copied().unwrap_or_default();
        let all = first + (count - 1.0) * mean;
        let batches = scenario.passes.iter().flatten();
        let samples: f64 = batches.map(|batch| batch.samples).sum();
        let simulated = run.waits.len().max(1) as f64;
        let in_all = match scenario.batches as usize > scenario.passes.first().map_or(0, Vec::len) {
            true => scenario.batches as f64 * count,
            false => simulated / lengths.len().max(1) as f64 * count,
        };
        let mut waits = run.waits.clone();
        waits.sort_unstable_by(f64::total_cmp);
        let wait = |share: f64| {
            let place = (waits.len().saturating_sub(1) as f64 * share) as usize;
            waits.get(place).copied().unwrap_or_default()
        };
        Figures {
            rate: samples / simulated * in_all * 1e9 / all.max(1.0),
            busy: run.busy / simulated * in_all / all.max(1.0),
            waits: [wait(0.5), wait(0.99)],
            first: run.first,
            pass: all / count - between,
        }
    }
}

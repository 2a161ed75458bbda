//! From simulations to a forecast: figures with intervals, what would bind next, and the bound beside them.

use super::scenario::{Device, Scenario};
use super::simulation::{Simulated, simulate};
use super::{Bound, Limit};
use crate::timeline::{Layout, Stage};
use serde::{Deserialize, Serialize};

/// A figure and the interval that it lies in with about 95 %.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The likeliest.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// A figure that is taken to be certain.
    pub fn exactly(value: f64) -> Estimate {
        Estimate {
            value,
            low: value,
            high: value,
        }
    }

    /// `factor` times as much.
    pub fn scaled(self, factor: f64) -> Estimate {
        Estimate {
            value: self.value * factor,
            low: self.low * factor,
            high: self.high * factor,
        }
    }

    /// `length` more.
    pub fn later_by(self, length: f64) -> Estimate {
        Estimate {
            value: self.value + length,
            low: self.low + length,
            high: self.high + length,
        }
    }

    /// The same, as far as it is at most `most`.
    pub fn at_most(self, most: f64) -> Estimate {
        Estimate {
            value: self.value.min(most),
            low: self.low.min(most),
            high: self.high.min(most),
        }
    }
}

/// How much faster or slower a machine is in another run of the same, at least: a standard deviation, as a share.
pub const LEAST_MACHINE: f64 = 0.02;

/// The same of what it computes: whoever shares caches, memory and the clock of its cores is seen by nobody in the run, and
/// runs of the same on a quiet virtual machine differed by 3 to 6 %.
pub const CORES: f64 = 0.05;

/// How well what goes into a simulation is known: standard deviations over the mean.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Doubts {
    /// Of the stages of samples, in their order.
    pub samples: Vec<f64>,
    /// Of the batch stage.
    pub batch: f64,
    /// Of a step.
    pub step: f64,
    /// Of everything that computes, together: another run finds the machine faster or slower.
    pub machine: f64,
    /// Of what waking threads takes.
    pub waking: f64,
    /// Of the result, whatever limits it.
    pub model: f64,
}

/// What doubling a resource would gain.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Relief {
    /// What there would be twice as much of.
    pub resource: Resource,
    /// Samples/s as a factor, from twice as much of it.
    pub gain: f64,
}

/// What may hold a pipeline up.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum Resource {
    /// What operational analysis bounds throughput by.
    Limit(Limit),
    /// Room of the queues.
    #[serde(serialize_with = "prefetch")]
    Prefetch,
}

fn prefetch<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("prefetch")
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Resource::Limit(limit) => limit.fmt(f),
            Resource::Prefetch => f.write_str("prefetch"),
        }
    }
}

/// What a run would measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// Over the window.
    pub samples_per_second: Estimate,
    /// 0 to 1; none without a device.
    pub device_busy: Option<Estimate>,
    /// Of the trainer's thread.
    pub data_wait_p50_ns: Estimate,
    /// Of the trainer's thread.
    pub data_wait_p99_ns: Estimate,
    /// Until the trainer's thread has the first batch.
    pub first_batch_ns: Estimate,
    /// The most that operational analysis allows, and what allows no more.
    pub bound_samples_per_second: f64,
    /// What allows no more.
    pub bound_by: Limit,
    /// What would gain most if there were twice as much of it; none where nothing gains 1 %.
    pub next_bottleneck: Option<Relief>,
}

/// Simulations with different orders of the costs, for the value and for each end of the interval.
const ORDERS: u64 = 4;
/// Standard deviations on either side that hold about 95 %.
const REACH: f64 = 2.0;
/// Less than that is not worth naming.
const WORTH_NAMING: f64 = 1.01;

/// Samples per second and the share of device time, over a few orders of the costs.
pub fn expected(scenario: &Scenario) -> (f64, f64) {
    let run = simulated(scenario);
    (run.samples_per_second(), run.busy_share())
}

/// Runs with different orders of the costs, as one.
fn simulated(scenario: &Scenario) -> Simulated {
    let runs = (0..ORDERS).map(|order| simulate(scenario, order));
    Simulated::joined(runs.collect())
}

/// The forecast of `scenario`, whose costs are as uncertain as `doubts` says.
pub fn forecast(scenario: &Scenario, doubts: &Doubts) -> Forecast {
    let typical = simulated(scenario);
    // Threads that share a core take turns in an order that is the kernel's.
    let model = doubts.model * threads_a_core(scenario).max(1.0).sqrt();
    let ends = [REACH, -REACH].map(|reach| simulated(&costlier(scenario, doubts, reach)));
    let estimate = |of: &dyn Fn(&Simulated) -> f64| {
        let value = of(&typical);
        let [one, other] = ends.each_ref().map(of);
        let model = REACH * model * value;
        Estimate {
            value,
            low: (value - model.hypot(value - one.min(other).min(value))).max(0.0),
            high: value + model.hypot(one.max(other).max(value) - value),
        }
    };
    let rate = estimate(&Simulated::samples_per_second);
    let bound = Bound::of(scenario);
    let has_device = scenario.device != Device::None;
    Forecast {
        samples_per_second: rate,
        device_busy: has_device.then(|| estimate(&Simulated::busy_share).at_most(1.0)),
        data_wait_p50_ns: estimate(&|run| run.data_wait(0.5)),
        data_wait_p99_ns: estimate(&|run| run.data_wait(0.99)),
        first_batch_ns: estimate(&|run| run.first_batch),
        bound_samples_per_second: bound.samples_per_second(),
        bound_by: bound.limit(),
        next_bottleneck: next_bottleneck(scenario, &bound, rate.value),
    }
}

/// `scenario` with all costs `reach` of their standard deviations longer.
fn costlier(scenario: &Scenario, doubts: &Doubts, reach: f64) -> Scenario {
    let factor = |own: f64| (reach * own.hypot(doubts.machine)).exp();
    let mut other = scenario.clone();
    let costs = &mut other.costs;
    let doubts_of = doubts.samples.iter().copied().chain(std::iter::repeat(0.0));
    for (own, doubt) in costs.samples.iter_mut().zip(doubts_of) {
        *own = own.scaled(factor(doubt), (reach * doubt).exp());
    }
    costs.batch = costs.batch.scaled(factor(doubts.batch));
    costs.copy = costs.copy.scaled(factor(0.0));
    costs.launch = costs.launch.scaled(factor(0.0));
    costs.host = costs.host.scaled(factor(0.0));
    for waking in [&mut other.waking.costs, &mut other.waking.latencies] {
        waking
            .iter_mut()
            .for_each(|cost| *cost *= factor(doubts.waking));
    }
    other.device = other.device.with_step((reach * doubts.step).exp());
    other
}

/// The loader's threads for each core.
fn threads_a_core(scenario: &Scenario) -> f64 {
    let threads = match &scenario.layout {
        Layout::WholeBatch { num_workers, .. } => *num_workers,
        Layout::PerStage { samples, batch } => {
            samples.iter().map(|stage| stage.workers).sum::<usize>() + batch.workers
        }
    };
    threads as f64 / scenario.cores.max(1.0)
}

/// What would gain most if there were twice as much of it.
fn next_bottleneck(scenario: &Scenario, bound: &Bound, now: f64) -> Option<Relief> {
    let limits = bound.demands().into_iter();
    let limits = limits.map(|(limit, _)| Resource::Limit(limit));
    let reliefs = limits.chain([Resource::Prefetch]).filter_map(|resource| {
        let (rate, _) = expected(&doubled(scenario, resource)?);
        let gain = rate / now.max(1e-9);
        (gain >= WORTH_NAMING).then_some(Relief { resource, gain })
    });
    reliefs.max_by(|a, b| a.gain.total_cmp(&b.gain))
}

/// `scenario` with twice as much of `resource`; `None` where there is nothing to double.
fn doubled(scenario: &Scenario, resource: Resource) -> Option<Scenario> {
    let mut other = scenario.clone();
    match resource {
        Resource::Prefetch => deepen(&mut other)?,
        Resource::Limit(Limit::Cores) => other.cores *= 2.0,
        Resource::Limit(Limit::Disk) => other.storage.as_mut()?.taken_per_sample /= 2.0,
        Resource::Limit(Limit::Device) => {
            other.device = match other.device {
                Device::Beside { .. } | Device::OnHost { .. } => other.device.with_step(0.5),
                Device::None => return None,
            }
        }
        Resource::Limit(Limit::Copy) => {
            other.costs.copy = other.costs.copy.scaled(0.5);
            if let Device::Beside { transfer, .. } = &mut other.device {
                *transfer = transfer.scaled(0.5);
            }
        }
        Resource::Limit(Limit::Trainer) => other = faster_trainer(other),
        Resource::Limit(limit) => more_workers(&mut other, limit)?,
    }
    // What takes no time at all is not simulated again.
    (other != *scenario).then_some(other)
}

/// The trainer's own code twice as fast, what it loads itself left out.
fn faster_trainer(mut scenario: Scenario) -> Scenario {
    scenario.costs.host = scenario.costs.host.scaled(0.5);
    scenario.costs.launch = scenario.costs.launch.scaled(0.5);
    if let Device::Beside { launch_wait, .. } = &mut scenario.device {
        *launch_wait /= 2.0;
    }
    scenario
}

fn more_workers(scenario: &mut Scenario, limit: Limit) -> Option<()> {
    let mut stages = scenario.pipeline.samples();
    let is_serial = stages.next().is_some_and(Stage::is_serial);
    let workers = match (&mut scenario.layout, limit) {
        (_, Limit::Workers) if is_serial => return None,
        (_, Limit::Stage(stage)) if stage.is_serial() => return None,
        (Layout::WholeBatch { num_workers, .. }, Limit::Workers) => {
            *num_workers *= 2;
            scenario.outstanding *= 2;
            return Some(());
        }
        (Layout::PerStage { samples, batch }, Limit::Stage(stage)) => {
            let place = scenario.pipeline.samples().position(|own| own == stage);
            let own = place
                .and_then(|place| samples.get_mut(place))
                .unwrap_or(batch);
            &mut own.workers
        }
        _ => return None,
    };
    *workers *= 2;
    scenario.outstanding += 1;
    Some(())
}

/// Twice the room in every queue of batches.
fn deepen(scenario: &mut Scenario) -> Option<()> {
    if scenario.is_inline() {
        return None;
    }
    scenario.outstanding *= 2;
    scenario.copy_ahead = scenario.copy_ahead.map(|prefetch| 2 * prefetch);
    if let Layout::PerStage { batch, .. } = &mut scenario.layout {
        batch.prefetch *= 2;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::predict::tests::workers;
    use crate::analysis::predict::{Costs, SampleCosts};

    /// Whole-batch workers that decode for 1 ms, and a device.
    fn scenario(num_workers: usize, step: f64) -> Scenario {
        let mut scenario = Scenario {
            warmup: 20,
            steps: 400,
            ..workers(num_workers, 2.0, 0.0)
        };
        scenario.costs.samples = vec![SampleCosts::computing(Costs::fixed(1e6))];
        scenario.device = scenario.device.with_step(step);
        scenario
    }

    /// The ends of the interval over the value.
    fn ends(scenario: &Scenario, doubts: &Doubts) -> (f64, f64) {
        let rate = forecast(scenario, doubts).samples_per_second;
        (rate.low / rate.value, rate.high / rate.value)
    }

    #[test]
    fn what_costs_may_be_matters_only_where_it_limits() {
        let decode = Doubts {
            samples: vec![0.05],
            ..Doubts::default()
        };
        let (low, high) = ends(&scenario(1, 1e6), &decode);
        assert!((low - (-0.1f64).exp()).abs() < 0.01 && (high - 0.1f64.exp()).abs() < 0.01);
        let (low, high) = ends(&scenario(1, 40e6), &decode);
        assert!(low > 0.999 && high < 1.001, "{low} {high}");
        // At the knee it can only get slower.
        let (low, high) = ends(&scenario(1, 8e6), &decode);
        assert!(low < 0.92 && high < 1.01, "{low} {high}");
    }

    #[test]
    fn where_nothing_is_known_nothing_is_confident() {
        let unknown = Doubts {
            samples: vec![1.0],
            ..Doubts::default()
        };
        let (low, high) = ends(&scenario(1, 1e6), &unknown);
        assert!(low < 0.2 && high > 2.0, "{low} {high}");
    }
}

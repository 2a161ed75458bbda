//! From simulations to a forecast: figures with intervals, what would bind next, and the bound beside them.

use super::costs::Random;
use super::scenario::{Device, Scenario};
use super::simulation::{Simulated, simulate};
use super::{Bound, Limit};
use crate::timeline::Layout;
use serde::Serialize;

/// A figure and the interval that it lies in with about 95 %.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    /// A figure that is taken to be certain.
    pub fn exactly(value: f64) -> Estimate {
        Estimate::around(value, 0.0)
    }

    /// `value`, give or take two standard deviations.
    fn around(value: f64, deviation: f64) -> Estimate {
        Estimate {
            value,
            low: (value - 2.0 * deviation).max(0.0),
            high: value + 2.0 * deviation,
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

/// How well what goes into a simulation is known, as standard deviations over the mean.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Doubts {
    pub read: f64,
    pub decode: f64,
    pub preprocess: f64,
    pub batch: f64,
    pub step: f64,
    /// Of the simulation itself: how far it is off on the run that it was made from.
    pub model: f64,
}

/// What doubling a resource would gain.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Relief {
    pub resource: Resource,
    /// Samples/s as a factor, from twice as much of it.
    pub gain: f64,
}

/// What may hold a pipeline up.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum Resource {
    Limit(Limit),
    #[serde(serialize_with = "prefetch")]
    Prefetch,
}

fn prefetch<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("prefetch")
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Resource::Limit(limit) => limit.name(),
            Resource::Prefetch => "prefetch",
        })
    }
}

/// What a run would measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    pub samples_per_second: Estimate,
    /// 0 to 1; none without a device.
    pub device_busy: Option<Estimate>,
    /// Of the trainer's thread.
    pub data_wait_p50_ns: Estimate,
    pub data_wait_p99_ns: Estimate,
    pub first_batch_ns: Estimate,
    /// The most that operational analysis allows, and what allows no more.
    pub bound_samples_per_second: f64,
    pub bound_by: Limit,
    /// What would gain most if there were twice as much of it; none where nothing gains 1 %.
    pub next_bottleneck: Option<Relief>,
}

/// Simulations for the value, with different orders of the costs, and for the interval, with costs as they may
/// be as well.
const ORDERS: u64 = 4;
const DRAWS: u64 = 8;
/// Less than that is not worth naming.
const WORTH_NAMING: f64 = 1.01;

/// Samples per second and the share of device time, over a few orders of the costs.
pub fn expected(scenario: &Scenario) -> (f64, f64) {
    let run = simulated(scenario);
    (run.samples_per_second(), run.busy_share())
}

/// Runs in as many parts of the drift, each with another order of the costs, as one.
fn simulated(scenario: &Scenario) -> Simulated {
    let parts = (0..ORDERS).map(|part| {
        let scenario = scenario.in_part(part as usize, ORDERS as usize);
        simulate(&scenario, part)
    });
    Simulated::joined(parts.collect())
}

/// The forecast of `scenario`, whose costs are as uncertain as `doubts` says.
pub fn forecast(scenario: &Scenario, doubts: &Doubts) -> Forecast {
    let typical = simulated(scenario);
    let draws = (0..DRAWS).map(|draw| simulate(&drawn(scenario, doubts, draw), ORDERS + draw));
    let draws: Vec<Simulated> = draws.collect();
    let estimate = |of: &dyn Fn(&Simulated) -> f64| {
        let value = of(&typical);
        let around = mean(draws.iter().map(of));
        let squares = mean(draws.iter().map(|run| (of(run) - around).powi(2)));
        let own = value * doubts.model;
        Estimate::around(value, (squares + own * own).sqrt())
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

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// `scenario` with costs as they may be as well.
fn drawn(scenario: &Scenario, doubts: &Doubts, draw: u64) -> Scenario {
    let mut random = Random(draw.wrapping_mul(0x5851_F42D_4C95_7F2D));
    // Nearly normal: the sum of twelve uniform numbers has variance 1.
    let mut factor = |doubt: f64| {
        let normal: f64 = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        (doubt * normal).exp()
    };
    let mut other = scenario.clone();
    let costs = &mut other.costs;
    let read = factor(doubts.read);
    costs.read = costs.read.scaled(read);
    costs.read_wait = costs.read_wait.scaled(read);
    costs.decode = costs.decode.scaled(factor(doubts.decode));
    costs.preprocess = costs.preprocess.scaled(factor(doubts.preprocess));
    costs.batch = costs.batch.scaled(factor(doubts.batch));
    other.device = with_step(&other.device, factor(doubts.step));
    other
}

fn with_step(device: &Device, factor: f64) -> Device {
    let mut device = device.clone();
    match &mut device {
        Device::None => {}
        Device::OnHost { step, .. } | Device::Beside { step, .. } => *step = step.scaled(factor),
    }
    device
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
                Device::Beside { .. } | Device::OnHost { .. } => with_step(&other.device, 0.5),
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
    let workers = match (&mut scenario.layout, limit) {
        (Layout::WholeBatch { num_workers, .. }, Limit::Workers) => {
            *num_workers *= 2;
            scenario.outstanding *= 2;
            return Some(());
        }
        (Layout::PerStage { read, .. }, Limit::Read) => &mut read.workers,
        (Layout::PerStage { decode, .. }, Limit::Decode) => &mut decode.workers,
        (Layout::PerStage { preprocess, .. }, Limit::Preprocess) => &mut preprocess.workers,
        (Layout::PerStage { batch, .. }, Limit::Batch) => &mut batch.workers,
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

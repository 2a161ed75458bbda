//! A training loop of which only its own thread and its device are known, as from a profiler's trace: what its steps take without
//! waiting for data, and with a faster device.

use serde::{Deserialize, Serialize};

/// What one step took, in nanoseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCosts {
    /// The loop waited for its batch.
    pub wait: u64,
    /// Its thread worked. Where that is the device itself, without what the device computed.
    pub host: u64,
    /// It waited for the device.
    pub synchronized: u64,
    /// The device worked.
    pub device: u64,
}

/// Steps, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopCosts {
    /// The device works beside the loop's thread.
    pub device_beside: bool,
    /// All of them, in nanoseconds.
    pub took: u64,
    /// Each.
    pub steps: Vec<StepCosts>,
}

/// What is different.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LoopChange {
    /// The loop waits for its batches.
    pub waits: bool,
    /// How many times as fast the device is.
    pub device_speedup: f64,
}

impl LoopChange {
    /// As it was.
    pub const NOTHING: LoopChange = LoopChange {
        waits: true,
        device_speedup: 1.0,
    };
}

/// What comes of it.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct LoopForecast {
    /// Steps in a second.
    pub steps_per_second: f64,
    /// Device busy / time, 0 to 1.
    pub device_busy: f64,
}

impl LoopCosts {
    /// How long the steps take by simulation, in nanoseconds.
    fn simulate(&self, change: LoopChange) -> f64 {
        let (mut host, mut device) = (0.0_f64, 0.0_f64);
        for step in &self.steps {
            let computes = step.device as f64 / change.device_speedup;
            host += if change.waits { step.wait as f64 } else { 0.0 };
            if !self.device_beside {
                host += (step.host + step.synchronized) as f64 + computes;
                continue;
            }
            let begins = device.max(host);
            host += step.host as f64;
            // The device cannot end before all is launched.
            device = (begins + computes).max(host);
            if step.synchronized > 0 {
                host = host.max(device);
            }
        }
        host.max(device)
    }

    /// What the simulation makes of the measured steps: its rate over theirs; `None` without steps.
    pub fn bias(&self) -> Option<f64> {
        let simulated = self.simulate(LoopChange::NOTHING);
        (self.took > 0 && simulated > 0.0).then(|| self.took as f64 / simulated)
    }

    /// What is expected with `change`: the measured time by the ratio of two simulations.
    pub fn forecast(&self, change: LoopChange) -> Option<LoopForecast> {
        let took = self.simulate(change) * self.bias()?;
        let busy: u64 = self.steps.iter().map(|step| step.device).sum();
        (took > 0.0).then(|| LoopForecast {
            steps_per_second: self.steps.len() as f64 / took * 1e9,
            device_busy: (busy as f64 / change.device_speedup / took).min(1.0),
        })
    }

    /// How many times as fast the steps are without waits; 1 without steps.
    pub fn gain_without_waits(&self) -> f64 {
        let without = self.simulate(LoopChange {
            waits: false,
            ..LoopChange::NOTHING
        });
        match without > 0.0 {
            true => self.simulate(LoopChange::NOTHING) / without,
            false => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHOUT: LoopChange = LoopChange {
        waits: false,
        ..LoopChange::NOTHING
    };

    fn costs(device_beside: bool, took: u64, step: [u64; 4]) -> LoopCosts {
        let [wait, host, synchronized, device] = step;
        let step = StepCosts {
            wait,
            host,
            synchronized,
            device,
        };
        LoopCosts {
            device_beside,
            took,
            steps: vec![step; 1000],
        }
    }

    fn gain(costs: &LoopCosts, change: LoopChange) -> f64 {
        let rate = |change| costs.forecast(change).unwrap().steps_per_second;
        rate(change) / rate(LoopChange::NOTHING)
    }

    fn twice(change: LoopChange) -> LoopChange {
        LoopChange {
            device_speedup: 2.0,
            ..change
        }
    }

    #[test]
    fn on_the_cpu_times_add_up() {
        let costs = costs(false, 1_000 * 100, [40, 10, 0, 50]);
        assert_eq!(costs.bias(), Some(1.0));
        let forecast = costs.forecast(LoopChange::NOTHING).unwrap();
        assert!(
            (forecast.steps_per_second - 1e7).abs() < 1.0,
            "{forecast:?}"
        );
        assert!((forecast.device_busy - 0.5).abs() < 1e-9);
        assert!((gain(&costs, WITHOUT) - 100.0 / 60.0).abs() < 1e-9);
        assert!((gain(&costs, twice(WITHOUT)) - 100.0 / 35.0).abs() < 1e-9);
    }

    #[test]
    fn a_device_beside_hides_what_its_host_does() {
        // Each step waits for 60, launches in 10, and computes for 50 while the next batch is waited for.
        let starved = costs(true, 1_000 * 70, [60, 10, 0, 50]);
        assert!((starved.bias().unwrap() - 1.0).abs() < 0.001);
        assert!((gain(&starved, WITHOUT) - 70.0 / 50.0).abs() < 0.001);
        // Then launching is what is left.
        let fast = LoopChange {
            device_speedup: 100.0,
            ..WITHOUT
        };
        assert!((gain(&starved, fast) - 7.0).abs() < 0.01);
        // A faster device alone changes nothing.
        assert!((gain(&starved, twice(LoopChange::NOTHING)) - 1.0).abs() < 0.001);
    }

    #[test]
    fn who_waits_for_the_device_hides_nothing() {
        let costs = costs(true, 1_000 * 110, [60, 10, 40, 50]);
        assert!((costs.bias().unwrap() - 1.0).abs() < 0.001);
        assert!((gain(&costs, WITHOUT) - 110.0 / 50.0).abs() < 0.001);
        assert!((gain(&costs, twice(LoopChange::NOTHING)) - 110.0 / 85.0).abs() < 0.001);
    }

    #[test]
    fn of_no_steps_nothing_is_said() {
        assert_eq!(LoopCosts::default().forecast(LoopChange::NOTHING), None);
    }
}

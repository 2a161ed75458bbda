//! A GPU's counters over the window: mean and maximum of each.
//!
//! Invariants: a reading stands for the time since the counter's reading before, as far as that lies in the
//! window; readings outside the window count nothing. A counter without a reading in the window has no
//! figures. Readings that a longer window cannot change are folded, so that memory is bounded.

use crate::timeline::{GpuSample, Interval, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A counter over the window.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Weighted by time.
    pub mean: f64,
    /// The largest reading in the window.
    pub max: f64,
}

/// What a GPU's counters said over the window. Shares are from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSummary {
    /// Readings in the window.
    pub samples: u64,
    /// GPU-Util as nvidia-smi prints it; not device busy.
    pub gpu_util: Option<Level>,
    /// Time in which the GPU's memory was read or written.
    pub memory_util: Option<Level>,
    /// Of the streaming multiprocessors.
    pub sm_clock_mhz: Option<Level>,
    /// Of the GPU's memory.
    pub memory_clock_mhz: Option<Level>,
    /// Of all processes.
    pub memory_used_bytes: Option<Level>,
    /// Drawn by the whole card.
    pub power_watts: Option<Level>,
    /// Of the GPU chip.
    pub temperature_celsius: Option<Level>,
    /// From the host to the GPU.
    pub pcie_rx_bytes_per_second: Option<Level>,
    /// From the GPU to the host.
    pub pcie_tx_bytes_per_second: Option<Level>,
}

/// Takes a run's readings as they come.
#[derive(Clone, Debug, Default)]
pub struct GpuTally {
    /// Not yet known whether they lie in the window.
    pending: VecDeque<GpuSample>,
    meters: [Meter; COUNTERS],
    samples: u64,
}

const COUNTERS: usize = 9;

/// The counters in the order of [`GpuTally::meters`], in the units of [`GpuSummary`].
fn counters(sample: &GpuSample) -> [Option<f64>; COUNTERS] {
    let share = |percent: Option<u32>| percent.map(|percent| f64::from(percent) / 100.0);
    let plain = |value: Option<u32>| value.map(f64::from);
    let large = |value: Option<u64>| value.map(|value| value as f64);
    [
        share(sample.gpu_util_percent),
        share(sample.memory_util_percent),
        plain(sample.sm_clock_mhz),
        plain(sample.memory_clock_mhz),
        large(sample.memory_used_bytes),
        sample.power_milliwatts.map(|power| f64::from(power) / 1e3),
        plain(sample.temperature_celsius),
        large(sample.pcie_rx_bytes_per_second),
        large(sample.pcie_tx_bytes_per_second),
    ]
}

impl GpuTally {
    /// Takes readings, in order.
    pub fn absorb(&mut self, samples: &[GpuSample]) {
        self.pending.extend(samples);
    }

    /// The counters over `window`, which from one call to the next may grow at its end but not begin
    /// elsewhere. `None` where no reading lies in it.
    pub fn summary(&mut self, window: Interval) -> Option<GpuSummary> {
        while let Some(sample) = self.pending.pop_front_if(|next| next.at <= window.end) {
            self.samples += u64::from(sample.at >= window.start);
            for (meter, value) in self.meters.iter_mut().zip(counters(&sample)) {
                if let Some(value) = value {
                    meter.read(value, sample.at, window.start);
                }
            }
        }
        let [
            gpu_util,
            memory_util,
            sm_clock_mhz,
            memory_clock_mhz,
            memory_used_bytes,
            power_watts,
            temperature_celsius,
            pcie_rx_bytes_per_second,
            pcie_tx_bytes_per_second,
        ] = self.meters.map(|meter| meter.level());
        (self.samples > 0).then_some(GpuSummary {
            samples: self.samples,
            gpu_util,
            memory_util,
            sm_clock_mhz,
            memory_clock_mhz,
            memory_used_bytes,
            power_watts,
            temperature_celsius,
            pcie_rx_bytes_per_second,
            pcie_tx_bytes_per_second,
        })
    }
}

/// One counter, folded.
#[derive(Copy, Clone, Debug, Default)]
struct Meter {
    /// When it was last read.
    since: Option<Nanos>,
    /// Value times nanoseconds, and those nanoseconds.
    weighted: f64,
    nanos: f64,
    readings: u64,
    last: f64,
    max: f64,
}

impl Meter {
    fn read(&mut self, value: f64, at: Nanos, window_start: Nanos) {
        let since = self.since.replace(at);
        if at < window_start {
            return;
        }
        let length = at - since.unwrap_or(window_start).max(window_start);
        self.weighted += value * length.0 as f64;
        self.nanos += length.0 as f64;
        self.max = match self.readings {
            0 => value,
            _ => self.max.max(value),
        };
        self.readings += 1;
        self.last = value;
    }

    fn level(&self) -> Option<Level> {
        // Only a reading at the very start of the window stands for no time.
        let mean = if self.nanos > 0.0 {
            self.weighted / self.nanos
        } else {
            self.last
        };
        let max = self.max;
        (self.readings > 0).then_some(Level { mean, max })
    }
}

#[cfg(test)]
mod tests;

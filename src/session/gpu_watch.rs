//! NVML beside a run on `cuda:N`: its readings on their way to the report and to the trace.
//!
//! Invariant: whatever NVML lacks, the run goes on; the report says why there are no readings.

use crate::analysis::{BusyBy, GpuTally, UtilComparison};
use crate::config::{DeviceConfig, Mode, Resolved};
use crate::device::nvml::{self, GpuCounters, GpuSampler};
use crate::device::probe::{self, Missing};
use crate::report::{DeviceReport, NvmlReport, TimelineSource};
use crate::timeline::{Clock, GpuSample, Interval, Nanos};
use crate::trace::{Number, TraceWriter};
use crate::tracing_feed::TracingFeed;
use std::collections::VecDeque;
use std::sync::Arc;

/// Reads a GPU's counters beside a run.
pub(super) struct GpuWatch {
    state: State,
    tally: GpuTally,
    /// Readings of which it is not known yet whether they lie in the traced part of the run.
    untraced: VecDeque<GpuSample>,
}

enum State {
    /// The device is no NVIDIA GPU, or nothing is recorded.
    Off,
    /// Why there is nothing to read.
    Missing(String),
    Sampling {
        sampler: GpuSampler,
        found: Found,
        period: Nanos,
    },
}

/// The GPU that was found, but for its counters.
struct Found {
    pci_bus_id: String,
    memory_total_bytes: Option<u64>,
}

impl GpuWatch {
    /// Begins to read where the device is `cuda:N` and NVML answers.
    pub(super) fn start(config: &Resolved, clock: &Arc<dyn Clock>) -> GpuWatch {
        match (config.device, config.gpu) {
            (DeviceConfig::Cuda(ordinal), Some(gpu))
                if config.mode != Mode::LoaderOnly && config.recorder =>
            {
                let period = Nanos(gpu.sample_period_ns);
                GpuWatch::of(period, clock, || find(ordinal))
            }
            _ => GpuWatch::new(State::Off),
        }
    }

    fn new(state: State) -> GpuWatch {
        GpuWatch {
            state,
            tally: GpuTally::default(),
            untraced: VecDeque::new(),
        }
    }

    /// Begins to read what `find` finds.
    fn of(
        period: Nanos,
        clock: &Arc<dyn Clock>,
        find: impl FnOnce() -> Result<(String, Box<dyn GpuCounters>), Missing>,
    ) -> GpuWatch {
        if period == Nanos::ZERO {
            let reason = "gpu.sample_period = \"0ms\" asks for no readings";
            return GpuWatch::new(State::Missing(reason.to_owned()));
        }
        let (pci_bus_id, gpu) = match find() {
            Ok(found) => found,
            Err(missing) => return GpuWatch::new(State::Missing(missing.in_one_line())),
        };
        let found = Found {
            pci_bus_id,
            memory_total_bytes: gpu.memory_total_bytes(),
        };
        GpuWatch::new(match GpuSampler::start(gpu, clock.clone(), period) {
            Ok(sampler) => State::Sampling {
                sampler,
                found,
                period,
            },
            Err(error) => {
                let reason = format!(
                    "the thread that reads NVML could not be started: {error}; try: `ulimit -u`"
                );
                State::Missing(reason)
            }
        })
    }

    /// Takes the readings since the last call. `feed` writes those in the traced part of the run.
    pub(super) fn drain(&mut self, feed: Option<&TracingFeed>) {
        let State::Sampling { sampler, .. } = &self.state else {
            return;
        };
        let samples = sampler.take();
        self.tally.absorb(&samples);
        if let Some(feed) = feed {
            self.untraced.extend(samples);
            self.trace(feed);
        }
    }

    /// Writes the readings that lie in the traced part of the run, and forgets those outside.
    fn trace(&mut self, feed: &TracingFeed) {
        let traced = feed.traced_part();
        let known = |sample: &GpuSample| traced.whole || sample.at < traced.interval.end;
        while let Some(sample) = self.untraced.pop_front_if(|sample| known(sample)) {
            let within = sample.at >= traced.interval.start && sample.at < traced.interval.end;
            if within {
                feed.with_trace(|trace, pid| write_counters(trace, pid, &sample));
            }
        }
    }

    /// Adds what was read in `window` to `device`, which was busy for `mean_busy_interval` at a time.
    pub(super) fn report(
        &mut self,
        device: DeviceReport,
        window: Interval,
        mean_busy_interval: Option<Nanos>,
    ) -> DeviceReport {
        let read = match &self.state {
            State::Off => return device,
            State::Missing(reason) => Err(reason.clone()),
            State::Sampling {
                sampler,
                found,
                period,
            } => match self.tally.summary(window) {
                Some(figures) => {
                    let comparison = figures.gpu_util.map(|level| UtilComparison {
                        gpu_util: level.mean,
                        device_busy: device.busy_share,
                        window: window.length(),
                        mean_busy_interval,
                        busy_by: busy_by(&device),
                        loader_works: device
                            .timeline
                            .as_ref()
                            .is_some_and(|timeline| timeline.loader_kernels > 0),
                    });
                    Ok(NvmlReport {
                        pci_bus_id: found.pci_bus_id.clone(),
                        period_ns: *period,
                        memory_total_bytes: found.memory_total_bytes,
                        difference: comparison.and_then(|both| both.explanation()),
                        figures,
                        cpu_ns: sampler.cpu_time(),
                    })
                }
                None => Err(format!(
                    "no reading of NVML lies in the window of {}; try: more steps, or a gpu.sample_period below \
                     {period}",
                    window.length()
                )),
            },
        };
        let (nvml, nvml_missing) = match read {
            Ok(report) => (Some(report), None),
            Err(reason) => (None, Some(reason)),
        };
        DeviceReport {
            nvml,
            nvml_missing,
            ..device
        }
    }

    /// Ends the readings; those made may still be taken.
    pub(super) fn stop(&mut self) {
        if let State::Sampling { sampler, .. } = &mut self.state {
            sampler.stop();
        }
    }
}

/// What the busy time of `device` is made of.
fn busy_by(device: &DeviceReport) -> BusyBy {
    let timeline = device.timeline.as_ref();
    match timeline.map_or(TimelineSource::Host, |timeline| timeline.source) {
        TimelineSource::Cupti | TimelineSource::Trace => BusyBy::Kernels,
        TimelineSource::Events => BusyBy::Steps,
        TimelineSource::Host => BusyBy::Host,
    }
}

/// The GPU that CUDA calls `ordinal`, as NVML shows it.
fn find(ordinal: usize) -> Result<(String, Box<dyn GpuCounters>), Missing> {
    let gpu = probe::gpu(ordinal)?;
    let pci_bus_id = gpu.pci_bus_id.ok_or_else(|| Missing {
        piece: "PCI bus id",
        detail: format!("CUDA's driver does not report the PCI address of cuda:{ordinal}, so it cannot be found among NVML's GPUs"),
        remedy: "update the NVIDIA driver".to_owned(),
    })?;
    let counters = nvml::open(&pci_bus_id)?;
    Ok((pci_bus_id, counters))
}

/// One value for each counter that the card has.
fn write_counters(trace: &mut TraceWriter, pid: u32, sample: &GpuSample) {
    let whole = |value: Option<u32>| value.map(|value| Number::UInt(u64::from(value)));
    let scaled =
        |value: Option<u64>, size: f64| value.map(|value| Number::Float(value as f64 / size));
    let power = sample.power_milliwatts.map(u64::from);
    let counters = [
        ("GPU-Util", "%", whole(sample.gpu_util_percent)),
        ("SM clock", "MHz", whole(sample.sm_clock_mhz)),
        ("memory clock", "MHz", whole(sample.memory_clock_mhz)),
        (
            "GPU memory used",
            "MiB",
            scaled(sample.memory_used_bytes, (1 << 20) as f64),
        ),
        ("GPU power", "W", scaled(power, 1e3)),
        (
            "PCIe rx",
            "MB/s",
            scaled(sample.pcie_rx_bytes_per_second, 1e6),
        ),
        (
            "PCIe tx",
            "MB/s",
            scaled(sample.pcie_tx_bytes_per_second, 1e6),
        ),
    ];
    for (name, unit, value) in counters {
        if let Some(value) = value {
            trace.counter(pid, name, unit, sample.at, value);
        }
    }
}

#[cfg(test)]
mod tests;

//! NVML: what nvidia-smi shows of a GPU, read beside a run.
//!
//! Invariants: NVML is loaded at run time and stays loaded; where it does not answer there is a [`Missing`],
//! and a counter that the card lacks is `None`. A GPU is found by its PCI bus id, since CUDA renumbers its
//! devices (`CUDA_VISIBLE_DEVICES`, `CUDA_DEVICE_ORDER`) and NVML does not.
//!
//! May use: `timeline`, `probe`.

mod sampler;

use super::probe::Missing;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
pub use sampler::GpuSampler;
use stallscope_core::timeline::{GpuSample, Nanos};
use std::sync::OnceLock;

/// Which way bytes go over PCIe, as the GPU sees it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PcieDirection {
    /// From the host to the GPU.
    Receive,
    /// From the GPU to the host.
    Transmit,
}

/// A GPU whose counters can be read.
pub trait GpuCounters: Send {
    /// Size of its memory.
    fn memory_total_bytes(&self) -> Option<u64>;

    /// Reads all counters but PCIe's; they are stamped `at`.
    fn read(&mut self, at: Nanos) -> GpuSample;

    /// Bytes per second over the next 20 ms or so, for which it blocks.
    fn pcie_bytes_per_second(&mut self, direction: PcieDirection) -> Option<u64>;
}

const PIECE: &str = "NVML (libnvidia-ml.so.1)";

/// NVML, loaded and initialised at the first call, for as long as the process lives.
fn library() -> Result<&'static Nvml, Missing> {
    static LIBRARY: OnceLock<Result<Nvml, String>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| Nvml::init().map_err(|error| describe(&error)));
    library.as_ref().map_err(|detail| Missing {
        piece: PIECE,
        detail: detail.clone(),
        remedy: "check that `nvidia-smi` runs here: NVML comes with the NVIDIA driver (in a container, with \
                 NVIDIA_DRIVER_CAPABILITIES=utility,compute)"
            .to_owned(),
    })
}

fn describe(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(error) => format!("the loader cannot open it: {error}"),
        other => format!("it does not start: {other}"),
    }
}

/// The GPU at `pci_bus_id`, which is what CUDA's driver calls it.
///
/// # Errors
/// NVML cannot be loaded, or does not show that GPU.
pub fn open(pci_bus_id: &str) -> Result<Box<dyn GpuCounters>, Missing> {
    let found = library()?.device_by_pci_bus_id(pci_bus_id);
    match found {
        Ok(device) => Ok(Box::new(NvmlGpu { device })),
        Err(error) => Err(Missing {
            piece: PIECE,
            detail: format!("it does not show the GPU at {pci_bus_id}: {error}"),
            remedy: "compare with `nvidia-smi --query-gpu=index,pci.bus_id --format=csv`"
                .to_owned(),
        }),
    }
}

struct NvmlGpu {
    device: Device<'static>,
}

impl GpuCounters for NvmlGpu {
    fn memory_total_bytes(&self) -> Option<u64> {
        self.device.memory_info().ok().map(|memory| memory.total)
    }

    fn read(&mut self, at: Nanos) -> GpuSample {
        let device = &self.device;
        let utilization = device.utilization_rates().ok();
        GpuSample {
            at,
            gpu_util_percent: utilization.as_ref().map(|rates| rates.gpu),
            memory_util_percent: utilization.as_ref().map(|rates| rates.memory),
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
            memory_used_bytes: device.memory_info().ok().map(|memory| memory.used),
            power_milliwatts: device.power_usage().ok(),
            temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            ..GpuSample::default()
        }
    }

    fn pcie_bytes_per_second(&mut self, direction: PcieDirection) -> Option<u64> {
        let counter = match direction {
            PcieDirection::Receive => PcieUtilCounter::Receive,
            PcieDirection::Transmit => PcieUtilCounter::Send,
        };
        let kilobytes = self.device.pcie_throughput(counter).ok()?;
        // NVML says "KB/s" and nowhere that it means 1024.
        Some(u64::from(kilobytes) * 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_nvml_does_not_show_is_named_with_what_to_try() {
        // No machine has a PCI domain of this number; without a driver NVML itself is what is missing.
        let missing = open("FFFF:FF:1F.7").err().unwrap();
        let text = missing.to_string();
        assert!(text.starts_with("NVML (libnvidia-ml.so.1): "), "{text}");
        assert!(text.contains("nvidia-smi"), "{text}");
    }
}

//! What a GPU's counters said at one moment, as nvidia-smi shows them.
//!
//! Invariant: a counter that the card or its driver lacks is `None`, never zero.

use super::Nanos;

/// One reading of a GPU's counters.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuSample {
    /// On the run's clock, when it was read.
    pub at: Nanos,
    /// Share of the driver's own last sample period (1/6 s to 1 s, by card) in which at least one kernel
    /// ran, of any process.
    pub gpu_util_percent: Option<u32>,
    /// The same for reads and writes of the GPU's memory.
    pub memory_util_percent: Option<u32>,
    /// Of the streaming multiprocessors, now.
    pub sm_clock_mhz: Option<u32>,
    /// Of the GPU's memory, now.
    pub memory_clock_mhz: Option<u32>,
    /// Of all processes.
    pub memory_used_bytes: Option<u64>,
    /// Drawn by the whole card.
    pub power_milliwatts: Option<u32>,
    /// Of the GPU chip.
    pub temperature_celsius: Option<u32>,
    /// From the host to the GPU, over some 20 ms. Read less often than the others.
    pub pcie_rx_bytes_per_second: Option<u64>,
    /// From the GPU to the host, likewise.
    pub pcie_tx_bytes_per_second: Option<u64>,
}

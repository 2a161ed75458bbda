//! The thread that reads a GPU's counters at a fixed period.
//!
//! Invariants: it never holds up the run: its readings wait in a list until they are taken, and a driver that
//! hangs is left behind at the end. A reading that took too long makes the next one late, not two at once.
//!
//! May use: `timeline`.

use super::{GpuCounters, PcieDirection};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use stallscope_core::timeline::{Clock, GpuSample, Nanos, join_within};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Each direction of PCIe is read once in twice this time: a reading blocks for some 20 ms.
const PCIE_EVERY: Nanos = Nanos::from_millis(500);
/// The thread looks this often whether it is to stop.
const NAP: Nanos = Nanos::from_millis(20);
/// How long to wait for a reading that is under way when the run ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the thread and its owner share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    samples: Mutex<Vec<GpuSample>>,
    /// CPU time of the thread so far.
    cpu_ns: AtomicU64,
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The list is whole after every push, whoever panicked.
    fn samples(&self) -> MutexGuard<'_, Vec<GpuSample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running sampler; dropping it stops it.
pub struct GpuSampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl GpuSampler {
    /// Reads `gpu` at once and then every `period` of `clock`.
    ///
    /// # Errors
    /// What the operating system says when it has no thread to give.
    pub fn start(
        gpu: Box<dyn GpuCounters>,
        clock: Arc<dyn Clock>,
        period: Nanos,
    ) -> io::Result<GpuSampler> {
        let shared = Arc::new(Shared::default());
        let body = Body {
            gpu,
            clock,
            period,
            shared: shared.clone(),
            pcie_due: Nanos::ZERO,
            direction: PcieDirection::Receive,
        };
        let thread = std::thread::Builder::new()
            .name("nvml".to_owned())
            .spawn(move || body.run())?;
        Ok(GpuSampler {
            shared,
            thread: Some(thread),
        })
    }

    /// The readings since the last call, in order.
    pub fn take(&self) -> Vec<GpuSample> {
        std::mem::take(&mut self.shared.samples())
    }

    /// CPU time that reading has cost so far.
    pub fn cpu_time(&self) -> Nanos {
        Nanos(self.shared.cpu_ns.load(Ordering::Relaxed))
    }

    /// Ends the thread. One that hangs in the driver is left to itself after a second.
    pub fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            join_within(thread, PATIENCE);
        }
    }
}

impl Drop for GpuSampler {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the thread works on.
struct Body {
    gpu: Box<dyn GpuCounters>,
    clock: Arc<dyn Clock>,
    period: Nanos,
    shared: Arc<Shared>,
    pcie_due: Nanos,
    direction: PcieDirection,
}

impl Body {
    fn run(mut self) {
        let mut due = self.clock.now();
        while !self.shared.is_stopped() {
            let sample = self.sample();
            self.shared.samples().push(sample);
            self.shared.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
            due = (due + self.period).max(self.clock.now());
            self.wait_until(due);
        }
    }

    /// One reading. PCIe comes first: like every other counter it tells of the time before.
    fn sample(&mut self) -> GpuSample {
        let (mut received, mut transmitted) = (None, None);
        let now = self.clock.now();
        if now >= self.pcie_due {
            self.pcie_due = now + PCIE_EVERY;
            let rate = self.gpu.pcie_bytes_per_second(self.direction);
            (self.direction, received, transmitted) = match self.direction {
                PcieDirection::Receive => (PcieDirection::Transmit, rate, None),
                PcieDirection::Transmit => (PcieDirection::Receive, None, rate),
            };
        }
        GpuSample {
            pcie_rx_bytes_per_second: received,
            pcie_tx_bytes_per_second: transmitted,
            ..self.gpu.read(self.clock.now())
        }
    }

    fn wait_until(&self, due: Nanos) {
        loop {
            let now = self.clock.now();
            if now >= due || self.shared.is_stopped() {
                return;
            }
            self.clock.sleep_until(due.min(now + NAP));
        }
    }
}

/// CPU time of the calling thread.
fn thread_cpu_ns() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD);
    let micros = usage.map_or(0, |usage| {
        usage.user_time().num_microseconds() + usage.system_time().num_microseconds()
    });
    u64::try_from(micros).unwrap_or(0) * 1_000
}

#[cfg(test)]
mod tests;

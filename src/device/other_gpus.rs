//! What other GPUs of this process do beside the one that trains: counted, and shown as lanes.
//!
//! Invariant: work that waits until it is known whether it lies in the traced part is bounded; what finds no room is
//! counted all the same. May use: `cupti`'s types, `gpu_lanes`; the core.

use crate::cupti::DeviceWork;
use crate::gpu_lanes::Lanes;
use stallscope_core::report::OtherGpu;
use stallscope_core::timeline::Interval;
use stallscope_core::tracing_feed::TracingFeed;

/// Pieces of work that may wait.
const MOST_UNTRACED: usize = 1 << 16;

/// The other GPUs that have worked so far.
#[derive(Default)]
pub(crate) struct OtherGpus {
    gpus: Vec<OtherGpu>,
    untraced: Vec<DeviceWork>,
}

impl OtherGpus {
    pub(crate) fn take(&mut self, work: DeviceWork) {
        let place = self.gpus.iter().position(|gpu| gpu.device == work.device);
        let place = place.unwrap_or_else(|| {
            self.gpus.push(OtherGpu {
                device: work.device,
                ..OtherGpu::default()
            });
            self.gpus.len() - 1
        });
        let gpu = &mut self.gpus[place];
        let (count, time) = match work.kind.is_kernel() {
            true => (&mut gpu.kernels, &mut gpu.kernel_ns),
            false => (&mut gpu.copies, &mut gpu.copy_ns),
        };
        *count += 1;
        *time += work.interval.length();
        if self.untraced.len() < MOST_UNTRACED {
            self.untraced.push(work);
        }
    }

    /// All of them, by their numbers.
    pub(crate) fn report(&self) -> Vec<OtherGpu> {
        let mut gpus = self.gpus.clone();
        gpus.sort_by_key(|gpu| gpu.device);
        gpus
    }

    /// Writes the work in the traced part of the run on `lanes`, and forgets that outside.
    pub(crate) fn trace(&mut self, feed: Option<&TracingFeed>, lanes: &mut Lanes) {
        let Some(feed) = feed else {
            self.untraced.clear();
            return;
        };
        let traced = feed.traced_part();
        let Interval { start, end } = traced.interval;
        let (mut known, untraced): (Vec<_>, _) = std::mem::take(&mut self.untraced)
            .into_iter()
            .partition(|work| traced.whole || work.interval.start < end);
        self.untraced = untraced;
        known.retain(|work| (start..end).contains(&work.interval.start));
        known.sort_by_key(|work| work.interval.start);
        lanes.write_others(feed, &known);
    }
}

//! An emulated accelerator: it takes the time it is told to, and its intervals are arithmetic.
//!
//! Work begins at the latest of what it needs and ends its length later, on the same clock as everything
//! else. No thread stands for the device, so that one that wakes late can neither lengthen nor shorten what
//! the device does. Copies run on an engine of their own, beside the steps.

use stallscope_core::timeline::{Interval, Nanos};

/// How fast the accelerator is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatedSpec {
    /// A step takes this, and `step_per_sample` for each of its samples.
    pub step_base: Nanos,
    pub step_per_sample: Nanos,
    /// Preprocessing on the device, before the step.
    pub preprocess_per_sample: Nanos,
    /// A copy takes this, and its bytes over the bandwidth.
    pub copy_latency: Nanos,
    /// `None` takes no time.
    pub copy_bytes_per_second: Option<u64>,
    /// What launching a step takes the host's thread.
    pub launch: Nanos,
    /// Unfinished steps that the host's thread may leave behind it; 0 waits for the end of each.
    pub run_ahead: usize,
    pub memory: EmulatedMemory,
}

/// The accelerator's memory, in bytes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct EmulatedMemory {
    /// `None` is unlimited.
    pub total: Option<u64>,
    /// A step needs this, and `per_sample` for each of its samples.
    pub base: u64,
    pub per_sample: u64,
}

impl EmulatedMemory {
    /// Bytes that a step of `samples` samples needs.
    pub fn needed(&self, samples: u64) -> u64 {
        self.base
            .saturating_add(self.per_sample.saturating_mul(samples))
    }

    /// Whether a step of `samples` samples has room.
    pub fn holds(&self, samples: u64) -> bool {
        self.total.is_none_or(|total| self.needed(samples) <= total)
    }
}

/// The copy engine: one copy at a time, in order.
#[derive(Clone, Debug)]
pub struct CopyEngine {
    latency: Nanos,
    bytes_per_second: Option<u64>,
    free_at: Nanos,
}

impl CopyEngine {
    /// An engine that is free from the start.
    pub fn new(spec: &EmulatedSpec) -> CopyEngine {
        CopyEngine {
            latency: spec.copy_latency,
            bytes_per_second: spec.copy_bytes_per_second,
            free_at: Nanos::ZERO,
        }
    }

    /// When `bytes`, submitted at `submitted`, are copied.
    pub fn copy(&mut self, submitted: Nanos, bytes: u64) -> Interval {
        let start = submitted.max(self.free_at);
        self.free_at = start + self.latency + Nanos::of_transfer(bytes, self.bytes_per_second);
        Interval::new(start, self.free_at)
    }
}

/// One step on the device.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EmulatedStep {
    pub start: Nanos,
    /// When preprocessing on the device ended and the step proper began.
    pub preprocessed: Nanos,
    pub end: Nanos,
}

/// The compute queue: one step at a time, in order.
#[derive(Clone, Debug)]
pub struct ComputeQueue {
    spec: EmulatedSpec,
    free_at: Nanos,
}

impl ComputeQueue {
    /// A device that is free from the start.
    pub fn new(spec: EmulatedSpec) -> ComputeQueue {
        ComputeQueue {
            spec,
            free_at: Nanos::ZERO,
        }
    }

    /// How fast it is.
    pub fn spec(&self) -> &EmulatedSpec {
        &self.spec
    }

    /// When a step of `samples` samples runs that was launched at `launched` and whose batch is on the
    /// device from `copied` on.
    pub fn step(&mut self, launched: Nanos, copied: Nanos, samples: u64) -> EmulatedStep {
        let start = launched.max(copied).max(self.free_at);
        let preprocessed = start + self.spec.preprocess_per_sample.times(samples);
        let end = preprocessed + self.spec.step_base + self.spec.step_per_sample.times(samples);
        self.free_at = end;
        EmulatedStep {
            start,
            preprocessed,
            end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> EmulatedSpec {
        EmulatedSpec {
            step_base: Nanos(100),
            step_per_sample: Nanos(10),
            preprocess_per_sample: Nanos(1),
            copy_latency: Nanos(5),
            copy_bytes_per_second: Some(1_000_000_000),
            launch: Nanos::ZERO,
            run_ahead: 2,
            memory: EmulatedMemory::default(),
        }
    }

    #[test]
    fn memory_is_full_to_the_last_byte() {
        let memory = EmulatedMemory {
            total: Some(1_000),
            base: 100,
            per_sample: 30,
        };
        assert_eq!(memory.needed(30), 1_000);
        assert!(memory.holds(30) && !memory.holds(31));
        let endless = EmulatedMemory {
            total: None,
            ..memory
        };
        assert!(endless.holds(u64::MAX));
    }

    #[test]
    fn a_step_starts_with_the_last_of_what_it_needs() {
        let mut queue = ComputeQueue::new(spec());
        let mut step = |launched, copied| {
            let step = queue.step(Nanos(launched), Nanos(copied), 4);
            (step.start.0, step.preprocessed.0, step.end.0)
        };
        assert_eq!(step(50, 20), (50, 54, 194));
        assert_eq!(step(60, 70), (194, 198, 338));
        assert_eq!(step(340, 400), (400, 404, 544));
    }

    #[test]
    fn copies_follow_each_other() {
        let mut engine = CopyEngine::new(&spec());
        assert_eq!(
            engine.copy(Nanos(10), 30),
            Interval::new(Nanos(10), Nanos(45))
        );
        assert_eq!(
            engine.copy(Nanos(20), 1),
            Interval::new(Nanos(45), Nanos(51))
        );
        assert_eq!(
            engine.copy(Nanos(90), 0),
            Interval::new(Nanos(90), Nanos(95))
        );
    }
}

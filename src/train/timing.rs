//! How long a device takes for a model's passes and for matrix products: no data is loaded, nothing is learned.
//!
//! Invariant: what is missing, and what burn panics with, is an error. May use `device`.

use super::burning::{ModelSpec, guarded, require_size};
use super::memory::TimedWork;
use super::panics::FIRST_PANIC;
use super::step::TrainError;
use crate::device::probe;
pub use stallscope_trainer::{Kernels, PassTimes, TimedDevice, Times};
use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// What was measured, in the order in which it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed<T> {
    pub measured: Vec<T>,
    /// Threads of this process that computed, the warm-up included; `None` where the kernel does not tell.
    pub threads: Option<usize>,
}

/// Times the passes of `batch` images, which lie on `device`, through the model of `spec`.
///
/// # Errors
/// What is missing on this machine, images that the model cannot take, or why the device refused them.
pub fn time_passes(
    device: TimedDevice,
    spec: &ModelSpec,
    batch: usize,
    times: Times,
) -> Result<Timed<PassTimes>, TrainError> {
    require_size(spec)?;
    timed(device, TimedWork::Passes, batch, || {
        stallscope_trainer::time_model(device, spec, batch, times)
    })
}

/// Times products of two `side` x `side` matrices of f32 on `device`, in nanoseconds.
///
/// # Errors
/// What is missing on this machine, or why the device refused them.
pub fn time_products(
    device: TimedDevice,
    side: usize,
    times: Times,
) -> Result<Timed<u64>, TrainError> {
    timed(device, TimedWork::Product(side), 1, || {
        stallscope_trainer::time_products(device, side, times)
    })
}

fn timed<T>(
    device: TimedDevice,
    work: TimedWork,
    batch: usize,
    body: impl FnOnce() -> Result<Vec<T>, String>,
) -> Result<Timed<T>, TrainError> {
    let (name, memory_bytes) = match device {
        TimedDevice::Cpu => {
            TrainError::require_built("cpu")?;
            ("cpu".to_owned(), None)
        }
        TimedDevice::Cuda { ordinal, .. } => {
            let name = format!("cuda:{ordinal}");
            TrainError::require_built(&name)?;
            // burn panics deep inside where a part of CUDA is missing, so each is looked for first.
            let probe = probe::cuda();
            let gpu = probe.require(ordinal);
            let gpu = gpu.map_err(|missing| TrainError::device_missing(name.clone(), &missing))?;
            (name, Some(gpu.memory_bytes))
        }
    };
    let (before, began) = (thread_nanos(), Instant::now());
    let measured = guarded(body).map_err(|reason| {
        let failed = TrainError::Timing { work, reason };
        failed.recognised(&name, memory_bytes, batch)
    })?;
    // What CubeCL tries while it tunes may fail.
    FIRST_PANIC.take();
    let elapsed = began.elapsed();
    let threads = before.zip(thread_nanos());
    let threads = threads.map(|(before, after)| computing(&before, &after, elapsed));
    Ok(Timed { measured, threads })
}

/// Nanoseconds on a core so far, by thread of this process.
fn thread_nanos() -> Option<HashMap<String, u64>> {
    let nanos = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let ran = text.split_whitespace().next()?.parse().ok()?;
        Some((thread.file_name().to_string_lossy().into_owned(), ran))
    };
    let threads = fs::read_dir("/proc/self/task").ok()?.flatten();
    let found: HashMap<String, u64> = threads.filter_map(nanos).collect();
    (!found.is_empty()).then_some(found)
}

/// How many threads were on a core for a twentieth of `elapsed` at least.
fn computing(
    before: &HashMap<String, u64>,
    after: &HashMap<String, u64>,
    elapsed: Duration,
) -> usize {
    let share = elapsed / 20;
    let ran = |(thread, nanos): (&String, &u64)| {
        let earlier = before.get(thread).copied().unwrap_or(0);
        Duration::from_nanos(nanos.saturating_sub(earlier))
    };
    after.iter().map(ran).filter(|ran| *ran >= share).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn threads_that_compute_are_counted_and_others_not() {
        let threads = |nanos: &[(&str, u64)]| {
            let named = nanos
                .iter()
                .map(|(name, nanos)| ((*name).to_owned(), *nanos));
            named.collect::<HashMap<_, _>>()
        };
        let before = threads(&[("1", 7_000_000_000), ("2", 90), ("3", 0)]);
        // The first waits, the second computes, the third looks on, and the fourth is new.
        let after = threads(&[("1", 7_000_000_000), ("2", 950), ("3", 20), ("4", 100)]);
        assert_eq!(computing(&before, &after, Duration::from_nanos(1000)), 2);
    }

    #[test]
    fn the_thread_that_computes_here_is_counted() {
        let timed = timed(TimedDevice::Cpu, TimedWork::Passes, 1, || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(50) {
                black_box(began);
            }
            Ok(vec![()])
        });
        assert!(timed.unwrap().threads.unwrap() >= 1);
    }

    #[test]
    fn a_device_that_panics_for_want_of_memory_is_recognised() {
        let refused = timed::<u64>(TimedDevice::Cpu, TimedWork::Product(64), 1, || {
            panic!("can't allocate buffer of size: 9")
        });
        let error = refused.unwrap_err();
        let TrainError::OutOfMemory(found) = &error else {
            panic!("{error}");
        };
        assert_eq!(found.device, "cpu");
        let said = timed::<u64>(TimedDevice::Cpu, TimedWork::Product(64), 1, || {
            Err("no such kernel".to_owned())
        });
        assert_eq!(
            said.unwrap_err().to_string(),
            "the product of two 64x64 matrices could not be timed: no such kernel"
        );
    }
}

//! CPU time and run delay of the threads that CubeCL serves a GPU with. They have no lanes: they spin while they wait
//! for work, which looks like work to the kernel, and takes a core from the loader.
//!
//! Read by the collector now and then; between two readings a thread is taken to use its core evenly. Invariants: what
//! the kernel does not tell is left out; memory does not grow with the run.
//!
//! May use: `config`, `report`, `timeline`, `train`.

use crate::config::{DeviceConfig, Resolved};
use crate::report::ServiceThread;
use crate::timeline::{Interval, Nanos, ThreadFiles, ThreadUsage};
use crate::train::serves_device;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const TASKS: &str = "/proc/self/task";

/// The threads that were seen, by number.
#[derive(Default)]
pub(super) struct ServiceThreads {
    on: bool,
    threads: BTreeMap<u32, Thread>,
}

struct Thread {
    name: String,
    files: Option<ThreadFiles>,
    /// In order; what lies between the ends of the window is forgotten.
    readings: Vec<ThreadUsage>,
}

impl ServiceThreads {
    /// Those of a run of `config`; none where the device is no GPU.
    pub(super) fn of(config: &Resolved) -> ServiceThreads {
        ServiceThreads {
            on: config.recorder
                && matches!(config.device, DeviceConfig::Cuda(_))
                && Path::new("/proc/self/schedstat").exists(),
            threads: BTreeMap::new(),
        }
    }

    /// Reads what they have used until `now`.
    pub(super) fn read(&mut self, now: Nanos) {
        let tasks = self.on.then(|| fs::read_dir(TASKS).ok()).flatten();
        for task in tasks.into_iter().flatten().flatten() {
            let path = task.path();
            let Some(number) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let text = |file: &str| fs::read_to_string(path.join(file)).ok();
            let Some(name) = text("comm").filter(|name| serves_device(name)) else {
                continue;
            };
            let thread = self.threads.entry(number).or_insert_with(|| Thread {
                name: name.trim().to_owned(),
                files: None,
                readings: Vec::new(),
            });
            let readings = thread.readings.len() as u64 + 1;
            let files = thread.files.take().or_else(|| ThreadFiles::open(&path));
            if let Some(mut files) = files
                && let Some(usage) = files.read(now)
            {
                thread.readings.push(ThreadUsage { readings, ..usage });
                thread.files = Some(files);
            }
        }
    }

    /// What each used in `window`.
    pub(super) fn report(&mut self, window: Interval) -> Vec<ServiceThread> {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let mut reported = Vec::new();
        for thread in self.threads.values_mut() {
            let usage = used_in(&thread.readings, window);
            forget_between(&mut thread.readings, window);
            let Some(usage) = usage else { continue };
            let count = seen.entry(&thread.name).or_default();
            *count += 1;
            let name = match count {
                1 => format!("CubeCL {}", thread.name),
                several => format!("CubeCL {} ({several})", thread.name),
            };
            reported.push(ServiceThread { name, usage });
        }
        reported
    }
}

/// What was used in `window`; `None` where there are no two readings.
fn used_in(readings: &[ThreadUsage], window: Interval) -> Option<ThreadUsage> {
    let (start, end) = (at(readings, window.start)?, at(readings, window.end)?);
    (end.at > start.at).then(|| end.since(&start))
}

/// All figures as of `time`, or of the reading nearest to it.
fn at(readings: &[ThreadUsage], time: Nanos) -> Option<ThreadUsage> {
    let after = readings.partition_point(|reading| reading.at <= time);
    let Some(before) = after.checked_sub(1).map(|n| readings[n]) else {
        return readings.first().copied();
    };
    let Some(next) = readings.get(after) else {
        return Some(before);
    };
    let (part, whole) = (time - before.at, next.at - before.at);
    let between = |from: Nanos, to: Nanos| from + (to - from).share_of(part, whole);
    Some(ThreadUsage {
        at: time,
        user: between(before.user, next.user),
        system: between(before.system, next.system),
        run_delay: between(before.run_delay, next.run_delay),
        ..before
    })
}

/// Leaves the readings around both ends of `window`, whose end may yet move on.
fn forget_between(readings: &mut Vec<ThreadUsage>, window: Interval) {
    let first = readings.partition_point(|reading| reading.at <= window.start);
    let last = readings.partition_point(|reading| reading.at <= window.end);
    // One after the start, and one before the end.
    if last > first + 2 {
        readings.drain(first + 1..last - 1);
    }
    readings.drain(..first.saturating_sub(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    fn reading(at: u64, user: u64, run_delay: u64) -> ThreadUsage {
        ThreadUsage {
            at: Nanos(at),
            user: Nanos(user),
            run_delay: Nanos(run_delay),
            ..ThreadUsage::default()
        }
    }

    #[test]
    fn the_window_lies_between_readings_and_what_is_within_is_forgotten() {
        let mut readings: Vec<ThreadUsage> =
            (0..10).map(|n| reading(100 * n, 50 * n, 10 * n)).collect();
        let window = Interval::new(Nanos(150), Nanos(820));
        for _ in 0..2 {
            let used = used_in(&readings, window).unwrap();
            assert_eq!((used.user, used.run_delay), (Nanos(335), Nanos(67)));
            forget_between(&mut readings, window);
            let times: Vec<u64> = readings.iter().map(|reading| reading.at.0).collect();
            assert_eq!(times, [100, 200, 800, 900]);
        }
        // The window goes on.
        let window = Interval::new(Nanos(150), Nanos(900));
        assert_eq!(used_in(&readings, window).unwrap().user, Nanos(375));
        assert_eq!(used_in(&readings[..1], window), None);
        assert_eq!(used_in(&[], window), None);
    }

    #[test]
    fn a_spinning_service_thread_has_a_row_and_others_have_none() {
        let mut threads = ServiceThreads {
            on: true,
            threads: BTreeMap::new(),
        };
        let (stop, began) = (AtomicBool::new(false), Instant::now());
        let now = || Nanos(began.elapsed().as_nanos() as u64);
        let spin = || {
            while !stop.load(Ordering::Relaxed) {
                black_box(0);
            }
        };
        let found = std::thread::scope(|scope| {
            for name in ["DSD-7-0", "decode 0"] {
                let named = std::thread::Builder::new().name(name.to_owned());
                named.spawn_scoped(scope, spin).unwrap();
            }
            std::thread::sleep(Duration::from_millis(20));
            threads.read(now());
            std::thread::sleep(Duration::from_millis(200));
            threads.read(now());
            stop.store(true, Ordering::Relaxed);
            threads.report(Interval::new(Nanos::ZERO, now()))
        });
        let [row] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(row.name, "CubeCL DSD-7-0");
        let cpu = row.usage.user + row.usage.system;
        assert!(
            cpu > Nanos::from_millis(5) && cpu < Nanos::from_millis(400),
            "{row:?}"
        );
    }
}

//! CPU time and run delay of the threads that CubeCL serves a GPU with. They have no lanes: they spin while they wait
//! for work, which looks like work to the kernel, and takes a core from the loader.
//!
//! Read by the collector now and then; between two readings a thread is taken to use its core evenly. Invariants: what
//! the kernel does not tell is left out; memory does not grow with the run.
//!
//! May use: `config`, `report`, `timeline`.

use crate::config::{DeviceConfig, Resolved};
use crate::report::ServiceThread;
use crate::timeline::{Interval, Nanos, ThreadUsage};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// How CubeCL 0.10 names them: `DSU-0-0` for a device's upper stage (fusion), `DSD-0-0` for its server. A thread that one
/// of them starts has its name too.
const NAMES: [&str; 2] = ["DSU-", "DSD-"];
const TASKS: &str = "/proc/self/task";

/// The threads that were seen, by number.
#[derive(Default)]
pub(super) struct ServiceThreads {
    on: bool,
    threads: BTreeMap<u32, Thread>,
}

struct Thread {
    name: String,
    /// In order; what lies between the ends of the window is forgotten.
    readings: Vec<ThreadUsage>,
}

impl ServiceThreads {
    /// Those of a run of `config`; none where the device is no GPU.
    pub(super) fn of(config: &Resolved) -> ServiceThreads {
        ServiceThreads {
            on: config.recorder && matches!(config.device, DeviceConfig::Cuda(_)),
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
            let Some(name) = text("comm").filter(|name| is_one(name)) else {
                continue;
            };
            let thread = self.threads.entry(number).or_insert_with(|| Thread {
                name: name.trim().to_owned(),
                readings: Vec::new(),
            });
            let readings = thread.readings.len() as u64 + 1;
            if let Some(usage) = usage_of(&path) {
                thread.readings.push(ThreadUsage {
                    at: now,
                    readings,
                    ..usage
                });
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

fn is_one(name: &str) -> bool {
    NAMES.iter().any(|start| name.starts_with(start))
}

/// What the kernel charges to the thread whose folder is `task`.
fn usage_of(task: &Path) -> Option<ThreadUsage> {
    let text = |file: &str| fs::read_to_string(task.join(file)).ok();
    let schedstat = text("schedstat")?;
    let mut fields = schedstat.split_whitespace().map(str::parse::<u64>);
    let (ran, run_delay) = (fields.next()?.ok()?, fields.next()?.ok()?);
    let stat = text("stat")?;
    // The name before may hold anything.
    let (_, stat) = stat.rsplit_once(") ")?;
    let stat: Vec<u64> = stat
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let (user, system) = (*stat.get(11)?, *stat.get(12)?);
    let status = text("status")?;
    let switches = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|count| count.trim().parse().ok())
            .unwrap_or(0)
    };
    // Ticks of 10 ms say in which proportion, schedstat says how much.
    let system = Nanos(ran).share_of(Nanos(system), Nanos((user + system).max(1)));
    Some(ThreadUsage {
        at: Nanos::ZERO,
        user: Nanos(ran) - system,
        system,
        run_delay: Nanos(run_delay),
        voluntary_switches: switches("voluntary_ctxt_switches:"),
        involuntary_switches: switches("nonvoluntary_ctxt_switches:"),
        major_faults: *stat.get(9)?,
        minor_faults: *stat.get(7)?,
        readings: 0,
    })
}

/// What was used in `window`; `None` where there are no two readings.
fn used_in(readings: &[ThreadUsage], window: Interval) -> Option<ThreadUsage> {
    let (start, end) = (at(readings, window.start)?, at(readings, window.end)?);
    (end.at > start.at).then(|| ThreadUsage {
        at: end.at,
        user: end.user - start.user,
        system: end.system - start.system,
        run_delay: end.run_delay - start.run_delay,
        voluntary_switches: end.voluntary_switches - start.voluntary_switches,
        involuntary_switches: end.involuntary_switches - start.involuntary_switches,
        major_faults: end.major_faults - start.major_faults,
        minor_faults: end.minor_faults - start.minor_faults,
        readings: end.readings - start.readings,
    })
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

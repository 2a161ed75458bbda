//! CPU time that other programs use on the cores that this process may use: what the kernel counts for those
//! cores (`/proc/stat`), less this process's own.
//!
//! Not known where a quota leaves the process less than these cores: it then waits for its quota and not for
//! others. May use `analysis`, `machine` and `timeline`.

use crate::analysis::CpuReading;
use crate::machine::{allowed_cores, usable_cores, usable_threads};
use crate::timeline::Nanos;
use std::fs::File;
use std::io::Read;

/// Between two readings: of a machine with many cores the kernel has much to write.
const EVERY: Nanos = Nanos::from_millis(250);
/// The kernel counts in ticks of a hundredth of a second, whatever its own are.
const TICK: Nanos = Nanos::from_millis(10);

/// Reads what others use.
#[derive(Debug, Default)]
pub struct OtherPrograms {
    /// The cores that the process may use; none where others' time on them says nothing.
    cores: Vec<usize>,
    read_at: Option<Nanos>,
    /// Their time at the first reading.
    before: Option<Nanos>,
    /// Since then. It never falls, though ticks are coarser than what this process knows of itself.
    used: Nanos,
}

impl OtherPrograms {
    /// For the calling process.
    pub fn new() -> OtherPrograms {
        let cores = allowed_cores();
        let whole = cores.len() == usable_threads() && usable_cores() == cores.len() as f64;
        OtherPrograms {
            cores: if whole { cores } else { Vec::new() },
            ..OtherPrograms::default()
        }
    }

    /// What others have used since the first reading, at `now`, when this process has used `own`; `None` where it
    /// is not known, or was asked a moment ago. `last` asks in any case.
    pub fn read(&mut self, now: Nanos, own: Nanos, last: bool) -> Option<CpuReading> {
        let due = last || self.read_at.is_none_or(|at| now - at >= EVERY);
        if !due || self.cores.is_empty() {
            return None;
        }
        let mut text = String::new();
        let read = File::open("/proc/stat").and_then(|mut file| file.read_to_string(&mut text));
        let busy = read.ok().and_then(|_| busy_time(&text, &self.cores))?;
        self.read_at = Some(now);
        Some(self.reading(now, busy - own))
    }

    fn reading(&mut self, at: Nanos, others: Nanos) -> CpuReading {
        let before = *self.before.get_or_insert(others);
        self.used = self.used.max(others - before);
        CpuReading {
            at,
            used: self.used,
        }
    }
}

/// How long `cores` have worked so far, what the hypervisor took for others among it; `None` where one of them is
/// not listed.
fn busy_time(stat: &str, cores: &[usize]) -> Option<Nanos> {
    let busy = cores.iter().map(|core| {
        let name = format!("cpu{core} ");
        let times = stat.lines().find_map(|line| line.strip_prefix(&name))?;
        let ticks: Vec<u64> = times
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        // user nice system idle iowait irq softirq steal; guests are in user.
        let working = [0, 1, 2, 5, 6, 7].map(|field| ticks.get(field).copied().unwrap_or(0));
        Some(TICK.times(working.iter().sum()))
    });
    busy.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  900 0 0 0 0 0 0 0 0 0\n\
                        cpu0 100 10 20 5000 30 1 2 4 0 0\n\
                        cpu1 7 0 0 5000 0 0 0 0 0 0\n\
                        cpu12 1 0 0 5000 0 0 0 0 0 0\nintr 8 9\n";

    #[test]
    fn only_the_processs_own_cores_count() {
        let busy = busy_time(STAT, &[0, 1, 12]);
        assert_eq!(busy, Some(TICK.times(137 + 7 + 1)));
        assert_eq!(busy_time(STAT, &[1]), Some(TICK.times(7)));
        assert_eq!(busy_time(STAT, &[2]), None, "it went offline");
    }

    #[test]
    fn the_time_of_others_never_falls() {
        let mut others = OtherPrograms::default();
        let used = |others: &mut OtherPrograms, time| others.reading(Nanos(1), Nanos(time)).used;
        assert_eq!(used(&mut others, 500), Nanos::ZERO);
        assert_eq!(used(&mut others, 700), Nanos(200));
        assert_eq!(used(&mut others, 650), Nanos(200));
        assert_eq!(used(&mut others, 750), Nanos(250));
        assert_eq!(others.read(Nanos(9), Nanos::ZERO, true), None, "no cores");
    }
}

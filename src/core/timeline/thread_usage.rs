//! What the kernel charges to threads.

use super::Nanos;
use std::fs::read_to_string;
use std::path::Path;

/// What the kernel has charged to a thread so far (`getrusage(RUSAGE_THREAD)`, schedstat).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ThreadUsage {
    /// When the kernel was asked, on the run's clock.
    pub at: Nanos,
    /// CPU time in the program's own code.
    pub user: Nanos,
    /// CPU time in the kernel on the thread's behalf.
    pub system: Nanos,
    /// Time runnable but not running.
    pub run_delay: Nanos,
    /// Context switches since the thread waited for something.
    pub voluntary_switches: u64,
    /// Context switches since the thread's core was given to another.
    pub involuntary_switches: u64,
    /// Page faults that had to read from a disk.
    pub major_faults: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// How often the thread asked the kernel, which is what recording costs it beside its records.
    pub readings: u64,
}

impl ThreadUsage {
    /// With what another thread used after this one.
    pub fn plus(&self, later: &ThreadUsage) -> ThreadUsage {
        ThreadUsage {
            at: later.at,
            user: self.user + later.user,
            system: self.system + later.system,
            run_delay: self.run_delay + later.run_delay,
            voluntary_switches: self.voluntary_switches + later.voluntary_switches,
            involuntary_switches: self.involuntary_switches + later.involuntary_switches,
            major_faults: self.major_faults + later.major_faults,
            minor_faults: self.minor_faults + later.minor_faults,
            readings: self.readings + later.readings,
        }
    }

    /// What was used since `earlier`; as of this one's time.
    pub fn since(&self, earlier: &ThreadUsage) -> ThreadUsage {
        ThreadUsage {
            at: self.at,
            user: self.user - earlier.user,
            system: self.system - earlier.system,
            run_delay: self.run_delay - earlier.run_delay,
            voluntary_switches: self.voluntary_switches - earlier.voluntary_switches,
            involuntary_switches: self.involuntary_switches - earlier.involuntary_switches,
            major_faults: self.major_faults - earlier.major_faults,
            minor_faults: self.minor_faults - earlier.minor_faults,
            readings: self.readings - earlier.readings,
        }
    }

    /// What the thread whose folder in `/proc` is `task` has used since it began, read from outside at `at`. `None`
    /// where the kernel has no such thread. Without schedstat there is no run delay.
    pub fn of_task(task: &Path, at: Nanos) -> Option<ThreadUsage> {
        let stat = stat_numbers(&task.join("stat"))?;
        let number = |place: usize| stat.get(place - 4).copied().unwrap_or(0);
        let (ran, run_delay) = scheduled(task).unwrap_or_default();
        let (user, system) = (TICK.times(number(14)), TICK.times(number(15)));
        // More precise than ticks, but not split.
        let ran = match ran > Nanos::ZERO {
            true => ran,
            false => user + system,
        };
        let own = match user + system > Nanos::ZERO {
            true => ran.share_of(user, user + system),
            false => ran,
        };
        let status = read_to_string(task.join("status")).unwrap_or_default();
        let switches = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
        };
        Some(ThreadUsage {
            at,
            user: own,
            system: ran - own,
            run_delay,
            voluntary_switches: switches("voluntary_ctxt_switches:"),
            involuntary_switches: switches("nonvoluntary_ctxt_switches:"),
            major_faults: number(12),
            minor_faults: number(10),
            readings: 0,
        })
    }
}

/// The kernel counts in ticks of a hundredth of a second.
pub const TICK: Nanos = Nanos::from_millis(10);

/// The numbers of a `stat` file in `/proc` from the process's parent on, which is the fourth of all.
pub fn stat_numbers(path: &Path) -> Option<Vec<u64>> {
    let text = read_to_string(path).ok()?;
    // The name in brackets may have anything in it.
    let (_, rest) = text.rsplit_once(')')?;
    let words = rest.split_whitespace().skip(1);
    Some(words.map(|word| word.parse().unwrap_or(0)).collect())
}

/// How long a thread has run, and how long it has lacked a core.
fn scheduled(task: &Path) -> Option<(Nanos, Nanos)> {
    let text = read_to_string(task.join("schedstat")).ok()?;
    let mut times = text.split_whitespace().map(|word| word.parse().map(Nanos));
    Some((times.next()?.ok()?, times.next()?.ok()?))
}

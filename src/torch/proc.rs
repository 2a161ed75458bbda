//! What the kernel says of processes and threads of a training, read from outside.

use stallscope_core::timeline::{Nanos, ThreadUsage};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// The kernel counts in ticks of a hundredth of a second.
const TICK: Nanos = Nanos::from_millis(10);

/// The numbers of a `stat` file from the process's parent on, which is the fourth of all.
fn numbers(path: &Path) -> Option<Vec<u64>> {
    let text = read_to_string(path).ok()?;
    // The name in brackets may have anything in it.
    let (_, rest) = text.rsplit_once(')')?;
    let words = rest.split_whitespace().skip(1);
    Some(words.map(|word| word.parse().unwrap_or(0)).collect())
}

fn task(pid: u32, tid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/task/{tid}"))
}

/// How long a thread has run, and how long it has lacked a core.
fn scheduled(task: &Path) -> Option<(Nanos, Nanos)> {
    let text = read_to_string(task.join("schedstat")).ok()?;
    let mut times = text.split_whitespace().map(|word| word.parse().map(Nanos));
    Some((times.next()?.ok()?, times.next()?.ok()?))
}

/// What a thread has used since it began.
pub(crate) fn thread(pid: u32, tid: u32, at: Nanos) -> Option<ThreadUsage> {
    let folder = task(pid, tid);
    let stat = numbers(&folder.join("stat"))?;
    let number = |place: usize| stat.get(place - 4).copied().unwrap_or(0);
    let (ran, run_delay) = scheduled(&folder).unwrap_or_default();
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
    let status = read_to_string(folder.join("status")).unwrap_or_default();
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

/// CPU time of a process, and of its children that have ended.
pub(crate) fn cpu(pid: u32) -> Option<Nanos> {
    let stat = numbers(&Path::new("/proc").join(pid.to_string()).join("stat"))?;
    let ticks = (14..=17).map(|place| stat.get(place - 4).copied().unwrap_or(0));
    Some(TICK.times(ticks.sum()))
}

/// Whether the process has the rings in its memory: nobody else may have got its number since.
pub(crate) fn has_rings(pid: u32) -> bool {
    let maps = read_to_string(format!("/proc/{pid}/maps"));
    maps.is_ok_and(|maps| maps.contains("memfd:stallscope"))
}

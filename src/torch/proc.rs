//! What the kernel says of processes and threads of a training, read from outside.

use stallscope_core::timeline::{Nanos, TICK, ThreadUsage, stat_numbers};
use std::fs::read_to_string;
use std::path::Path;

/// What a thread has used since it began.
pub(crate) fn thread(pid: u32, tid: u32, at: Nanos) -> Option<ThreadUsage> {
    ThreadUsage::of_task(Path::new(&format!("/proc/{pid}/task/{tid}")), at)
}

/// CPU time of a process, and of its children that have ended.
pub(crate) fn cpu(pid: u32) -> Option<Nanos> {
    let stat = stat_numbers(&Path::new("/proc").join(pid.to_string()).join("stat"))?;
    let ticks = (14..=17).map(|place| stat.get(place - 4).copied().unwrap_or(0));
    Some(TICK.times(ticks.sum()))
}

/// Whether the process has the rings in its memory: nobody else may have got its number since.
pub(crate) fn has_rings(pid: u32) -> bool {
    let maps = read_to_string(format!("/proc/{pid}/maps"));
    maps.is_ok_and(|maps| maps.contains("memfd:stallscope"))
}

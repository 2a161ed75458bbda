//! What the kernel says of processes and threads of a training, read from outside.

use stallscope_core::timeline::{Nanos, StatFile, ThreadFiles, ThreadUsage};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::read_to_string;
use std::hash::Hash;
use std::path::Path;

/// The kernel's files on processes that were asked for.
#[derive(Default)]
pub(crate) struct Processes(HashMap<u32, StatFile>);

impl Processes {
    /// CPU time of a process, and of its children that have ended.
    pub(crate) fn cpu(&mut self, pid: u32) -> Option<Nanos> {
        let open = || StatFile::of_process(pid);
        ask(&mut self.0, pid, open, StatFile::cpu)
    }

    /// Whether a process runs; one that has ended and that nobody has waited for does not. Where that cannot be told it
    /// is taken to run.
    pub(crate) fn is_alive(&mut self, pid: u32) -> bool {
        let open = || StatFile::of_process(pid);
        let known = ask(&mut self.0, pid, open, StatFile::is_alive);
        known.unwrap_or_else(|| Path::new("/proc").join(pid.to_string()).exists())
    }
}

/// The kernel's files on threads, by process and thread.
#[derive(Default)]
pub(crate) struct Threads(HashMap<(u32, u32), ThreadFiles>);

impl Threads {
    /// What each of these has used since it began, and of no others.
    pub(crate) fn read(
        &mut self,
        threads: &[(u32, u32)],
        at: Nanos,
    ) -> Vec<(u32, u32, ThreadUsage)> {
        self.0.retain(|known, _| threads.contains(known));
        let read = |&(pid, tid): &(u32, u32)| {
            let open = || ThreadFiles::open(Path::new(&format!("/proc/{pid}/task/{tid}")));
            let usage = ask(&mut self.0, (pid, tid), open, |files| files.read(at))?;
            Some((pid, tid, usage))
        };
        threads.iter().filter_map(read).collect()
    }
}

/// What the files of `key` say; those that say nothing any more are closed.
fn ask<K: Copy + Eq + Hash, F, T>(
    files: &mut HashMap<K, F>,
    key: K,
    open: impl FnOnce() -> Option<F>,
    read: impl FnOnce(&mut F) -> Option<T>,
) -> Option<T> {
    let own = match files.entry(key) {
        Entry::Occupied(own) => own.into_mut(),
        Entry::Vacant(place) => place.insert(open()?),
    };
    let told = read(own);
    if told.is_none() {
        files.remove(&key);
    }
    told
}

/// Whether the process has the rings in its memory: nobody else may have got its number since.
pub(crate) fn has_rings(pid: u32) -> bool {
    let maps = read_to_string(format!("/proc/{pid}/maps"));
    maps.is_ok_and(|maps| maps.contains("memfd:stallscope"))
}

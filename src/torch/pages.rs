//! What a batch in shared memory costs here beyond one in a process's own: workers make its pages as they first write it,
//! and the process that trains maps them, reads what another core has written, and has the kernel take them back. The
//! only file with `unsafe` for it.

use crate::clock::thread_cpu;
use crate::ring::memory_file;
use memmap2::{Mmap, MmapMut};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use stallscope_core::analysis::predict::torch::PageCosts;
use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

const PAGE: usize = 4096;
/// Pages of a batch that is imitated: with a few, what a call costs would be taken for theirs; many take long.
const FEWEST: usize = 16;
const MOST: usize = 16_384;
/// What is read of a page: one byte of each cache line.
const LINE: usize = 64;
const TIMES: usize = 5;

/// The median of a few batches of so many bytes; zeros where there is no such memory, or none is used.
pub(crate) fn page_costs(bytes: u64) -> PageCosts {
    if bytes == 0 {
        return PageCosts::default();
    }
    let pages = usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(PAGE);
    let pages = pages.clamp(FEWEST, MOST);
    let [made, taken] = measured(pages).unwrap_or_default();
    let each = |mut all: Vec<f64>| {
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default().max(0.0) / pages as f64
    };
    PageCosts {
        made: each(made),
        taken: each(taken),
    }
}

/// CPU time that each of two threads spent on a batch more than on one in own memory, in nanoseconds.
fn measured(pages: usize) -> io::Result<[Vec<f64>; 2]> {
    let (give, given) = channel();
    let (mapped, is_mapped) = channel();
    let (gone, is_gone) = channel();
    std::thread::scope(|scope| {
        let thread = || std::thread::Builder::new().name("pages".to_owned());
        let maker = thread().spawn_scoped(scope, move || {
            run_on(0);
            make(pages, &give, &is_mapped, &gone)
        })?;
        let taker = thread().spawn_scoped(scope, move || {
            run_on(1);
            take(&given, &mapped, &is_gone)
        })?;
        let made = maker.join().unwrap_or_else(|_| Ok(Vec::new()));
        let taken = taker.join().unwrap_or_else(|_| Ok(Vec::new()));
        Ok([made?, taken?])
    })
}

/// Keeps the calling thread on the core of that number, of those that it may use: what one has in its caches, the other has
/// to fetch.
fn run_on(number: usize) {
    let this = Pid::from_raw(0);
    let Ok(usable) = sched_getaffinity(this) else {
        return;
    };
    let mut cores = (0..CpuSet::count()).filter(|core| usable.is_set(*core).unwrap_or(false));
    let mut own = CpuSet::new();
    if let Some(core) = cores.nth(number)
        && own.set(core).is_ok()
    {
        sched_setaffinity(this, &own).ok();
    }
}

/// As a worker does: writes a batch into new shared memory, and lets go of it once the other has it.
fn make(
    pages: usize,
    give: &Sender<File>,
    mapped: &Receiver<()>,
    gone: &Sender<()>,
) -> io::Result<Vec<f64>> {
    let samples = vec![1_u8; pages * PAGE];
    let mut more = Vec::new();
    for _ in 0..TIMES {
        let begun = thread_cpu();
        std::hint::black_box(samples.clone());
        let own = thread_cpu() - begun;
        let begun = thread_cpu();
        let file = memory_file(c"stallscope-pages", samples.len())?;
        // SAFETY: the other thread maps the file to read it, and does so after this was written.
        let mut memory = unsafe { MmapMut::map_mut(&file)? };
        memory.copy_from_slice(&samples);
        let made = thread_cpu() - begun;
        if give.send(file).is_err() || mapped.recv().is_err() {
            break;
        }
        let begun = thread_cpu();
        drop(memory);
        let let_go = thread_cpu() - begun;
        if gone.send(()).is_err() {
            break;
        }
        more.push((made + let_go) as f64 - own as f64);
    }
    Ok(more)
}

/// As the process that trains does: maps each batch, reads it, and lets go of it last.
fn take(given: &Receiver<File>, mapped: &Sender<()>, gone: &Receiver<()>) -> io::Result<Vec<f64>> {
    let read = |bytes: &[u8]| -> u64 {
        let lines = bytes.iter().step_by(LINE);
        lines.map(|byte| u64::from(*byte)).sum()
    };
    let mut more = Vec::new();
    for file in given {
        let begun = thread_cpu();
        // SAFETY: the other thread has written it, and writes no more.
        let memory = unsafe { Mmap::map(&file)? };
        drop(file);
        let took = thread_cpu() - begun;
        if mapped.send(()).is_err() || gone.recv().is_err() {
            break;
        }
        let begun = thread_cpu();
        std::hint::black_box(read(&memory));
        let first = thread_cpu();
        std::hint::black_box(read(&memory));
        let again = thread_cpu();
        drop(memory);
        let let_go = thread_cpu() - again;
        more.push((took + (first - begun) + let_go) as f64 - (again - first) as f64);
    }
    Ok(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_pages_cost_something() {
        for bytes in [1000, 768_000, 8 << 20] {
            let costs = page_costs(bytes);
            assert!(costs.made > 0.0 && costs.taken > 0.0, "{bytes}: {costs:?}");
        }
        assert_eq!(page_costs(0), PageCosts::default());
    }
}

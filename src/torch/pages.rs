//! What new shared memory costs here: workers put batches into it, and each page of it is made when it is first written
//! and mapped where it is first read. The only file with `unsafe` for it.

use crate::clock::thread_cpu;
use crate::ring::memory_file;
use memmap2::{Mmap, MmapMut};
use stallscope_core::analysis::predict::torch::PageCosts;
use std::io;

const PAGE: usize = 4096;
/// In all as long as a few milliseconds.
const PAGES: usize = 512;
const TIMES: usize = 5;

/// The median of a few times; zeros where there is no such memory.
pub(crate) fn page_costs() -> PageCosts {
    let mut all: Vec<PageCosts> = (0..TIMES).filter_map(|_| measured().ok()).collect();
    let mut middle = |of: fn(&PageCosts) -> f64| {
        all.sort_unstable_by(|one, other| of(one).total_cmp(&of(other)));
        all.get(all.len() / 2).map_or(0.0, of)
    };
    PageCosts {
        made: middle(|costs| costs.made),
        taken: middle(|costs| costs.taken),
    }
}

fn measured() -> io::Result<PageCosts> {
    let file = memory_file(c"stallscope-pages", PAGES * PAGE)?;
    let begun = thread_cpu();
    // SAFETY: nobody else has the file.
    let mut memory = unsafe { MmapMut::map_mut(&file)? };
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    let made = thread_cpu();
    // SAFETY: it is only read while both maps live, and nobody writes any more.
    let other = unsafe { Mmap::map(&file)? };
    let sum: u64 = other
        .iter()
        .step_by(PAGE)
        .map(|byte| u64::from(*byte))
        .sum();
    drop(other);
    let taken = thread_cpu();
    let each = |length: u64| length as f64 / PAGES as f64;
    Ok(PageCosts {
        made: each(made - begun),
        taken: each((taken - made) * sum / PAGES as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_pages_cost_something() {
        let costs = page_costs();
        assert!(costs.made > 0.0 && costs.taken > 0.0, "{costs:?}");
    }
}

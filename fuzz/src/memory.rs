//! What a parser may allocate.
//!
//! Invariants: counted is what the calling thread asks of the global allocator between the beginning and the end of a
//! call, which must not free what was allocated before it.
//!
//! May use: nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What one call allocated.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The largest single allocation.
    pub largest: usize,
    /// The most that was allocated at one time.
    pub peak: usize,
    /// What of it is still allocated.
    live: usize,
}

thread_local! {
    static USE: Cell<Option<Use>> = const { Cell::new(None) };
}

/// Calls `parse` and tells what it allocated, what it returns included.
pub fn measure<T>(parse: impl FnOnce() -> T) -> (T, Use) {
    USE.set(Some(Use::default()));
    let parsed = parse();
    (parsed, USE.take().unwrap_or_default())
}

impl Use {
    /// Single allocations must not have exceeded `largest` bytes, nor all at one time `peak`.
    ///
    /// # Panics
    /// They did.
    pub fn check(self, largest: usize, peak: usize) {
        assert!(
            self.largest <= largest && self.peak <= peak,
            "{self:?}, but at most {largest} in one allocation and {peak} in all are allowed"
        );
    }
}

fn count(allocated: usize, freed: usize) {
    // A thread that ends frees after its variables are gone.
    let _ = USE.try_with(|cell| {
        if let Some(mut used) = cell.get() {
            used.largest = used.largest.max(allocated);
            // Growing moves: for that moment there are both.
            used.live = used.live.saturating_add(allocated);
            used.peak = used.peak.max(used.live);
            used.live = used.live.saturating_sub(freed);
            cell.set(Some(used));
        }
    });
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to `System` as it came; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: what the caller promises is what `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, allocation: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(allocation, layout) }
    }

    unsafe fn realloc(&self, allocation: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(allocation, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn what_is_allocated_is_counted() {
        let (kept, used) = measure(|| {
            drop(black_box(vec![1u8; 700]));
            let mut kept: Vec<u8> = black_box(Vec::with_capacity(100));
            kept.reserve_exact(300);
            kept
        });
        assert_eq!(kept.capacity(), 300);
        assert_eq!((used.largest, used.peak, used.live), (700, 700, 300));
        let (_, used) = measure(|| (black_box(vec![0u8; 300]), black_box(vec![0u8; 500])));
        assert_eq!((used.largest, used.peak), (500, 800));
    }

    #[test]
    #[should_panic(expected = "Use { largest: 1001")]
    fn too_much_panics() {
        let (_, used) = measure(|| black_box(vec![0u8; 1001]));
        used.check(1000, 2000);
    }
}

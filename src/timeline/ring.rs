//! A bounded single-producer single-consumer ring of records, without locks and without `unsafe`.
//!
//! Slots are plain atomic words: on the machines we run on a relaxed store is an ordinary store. A full
//! ring drops the record and counts it, and the next one that finds room says so; the producer never waits.

use super::record::WORDS;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// In a record's first word: those before it were dropped.
const AFTER_DROPPED: u64 = 1 << 63;

/// Keeps the producer's and the consumer's positions on cache lines of their own.
#[repr(align(128))]
struct Padded<T>(T);

pub(super) struct Ring {
    words: Box<[AtomicU64]>,
    mask: u64,
    /// Records written so far; only the producer stores it.
    head: Padded<AtomicU64>,
    /// Records taken so far; only the consumer stores it.
    tail: Padded<AtomicU64>,
    dropped: Padded<AtomicU64>,
    /// Whether the last record was.
    dropping: AtomicBool,
}

/// A record taken out, and whether some before it were dropped.
pub(super) type Taken = ([u64; WORDS], bool);

impl Ring {
    /// A ring of at least `records` records; the memory is touched now, so that it never grows later.
    pub(super) fn new(records: usize) -> Ring {
        let slots = records.max(2).next_power_of_two();
        Ring {
            words: (0..slots * WORDS).map(|_| AtomicU64::new(0)).collect(),
            mask: slots as u64 - 1,
            head: Padded(AtomicU64::new(0)),
            tail: Padded(AtomicU64::new(0)),
            dropped: Padded(AtomicU64::new(0)),
            dropping: AtomicBool::new(false),
        }
    }

    /// Appends a record; `tail_seen` is the producer's memory of how far the consumer has come.
    #[inline]
    pub(super) fn push(&self, words: &[u64; WORDS], tail_seen: &mut u64) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        if head - *tail_seen > self.mask {
            *tail_seen = self.tail.0.load(Ordering::Acquire);
            if head - *tail_seen > self.mask {
                self.dropped.0.fetch_add(1, Ordering::Relaxed);
                self.dropping.store(true, Ordering::Relaxed);
                return false;
            }
        }
        let base = (head & self.mask) as usize * WORDS;
        for (slot, word) in self.words[base..base + WORDS].iter().zip(words) {
            slot.store(*word, Ordering::Relaxed);
        }
        if self.dropping.load(Ordering::Relaxed) {
            self.dropping.store(false, Ordering::Relaxed);
            self.words[base].store(words[0] | AFTER_DROPPED, Ordering::Relaxed);
        }
        self.head.0.store(head + 1, Ordering::Release);
        true
    }

    /// Takes the oldest record.
    pub(super) fn pop(&self) -> Option<Taken> {
        let tail = self.tail.0.load(Ordering::Relaxed);
        if tail == self.head.0.load(Ordering::Acquire) {
            return None;
        }
        let base = (tail & self.mask) as usize * WORDS;
        let mut words = [0; WORDS];
        for (word, slot) in words.iter_mut().zip(&self.words[base..base + WORDS]) {
            *word = slot.load(Ordering::Relaxed);
        }
        self.tail.0.store(tail + 1, Ordering::Release);
        let after_dropped = words[0] & AFTER_DROPPED != 0;
        words[0] &= !AFTER_DROPPED;
        Some((words, after_dropped))
    }

    /// Whether the last record was dropped.
    pub(super) fn is_dropping(&self) -> bool {
        self.dropping.load(Ordering::Relaxed)
    }

    /// Records dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_drops_and_counts() {
        let ring = Ring::new(4);
        let mut seen = 0;
        let kept = (0..7)
            .filter(|n| ring.push(&[*n; WORDS], &mut seen))
            .count();
        assert_eq!((kept, ring.dropped()), (4, 3));
        assert_eq!(ring.pop(), Some(([0; WORDS], false)));
        assert!(ring.is_dropping());
        assert!(ring.push(&[9; WORDS], &mut seen));
        assert!(!ring.is_dropping());
        let rest: Vec<_> = std::iter::from_fn(|| ring.pop()).collect();
        let told = rest.iter().map(|(words, after)| (words[1], *after));
        assert!(told.eq([(1, false), (2, false), (3, false), (9, true)]));
    }

    #[test]
    fn nothing_is_lost_or_torn_between_threads() {
        let ring = Ring::new(64);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut seen = 0;
                for n in 0..100_000u64 {
                    while !ring.push(&[n; WORDS], &mut seen) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < 100_000 {
                match ring.pop() {
                    // Those that found no room were written again.
                    Some((words, _)) => {
                        assert_eq!(words, [expected; WORDS]);
                        expected += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
    }
}

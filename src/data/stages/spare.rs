//! Buffers that are used again, and how large they may stay.
//!
//! Invariants: what is lent again and again has the room that it needs, so that a steady state allocates nothing. What
//! holds several times as much as any of the last samples needed gives the rest back, so that one huge picture does not
//! take memory for the rest of a run. May use: nothing else of this crate.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Uses that are looked back on: at least so many, at most twice as many. Making a buffer anew costs a few percent of
/// decoding into it, and so comes at most once in so many pictures.
const WINDOW: u32 = 64;
/// A buffer gives room back where it has more than this times what was needed. A picture of 16 bits with alpha takes
/// 8/3 of what is left of it.
const FAR_MORE: usize = 3;
/// Less room than this is never given back.
const SMALL: usize = 1 << 20;

/// What was needed at most by the last uses of a buffer.
#[derive(Debug, Default)]
struct Lately {
    uses: u32,
    window: usize,
    window_before: usize,
}

impl Lately {
    /// Notes a use that needed `bytes`.
    fn note(&mut self, bytes: usize) {
        self.window = self.window.max(bytes);
        self.uses += 1;
        if self.uses == WINDOW {
            (self.uses, self.window_before) = (0, self.window);
            self.window = 0;
        }
    }

    /// Takes away what is far more than was needed.
    fn shrink(&self, buffer: &mut Vec<u8>) {
        let most = self.window.max(self.window_before);
        if buffer.capacity() > SMALL && buffer.capacity() / FAR_MORE > most {
            buffer.truncate(most);
            buffer.shrink_to(most);
        }
    }
}

/// A buffer of one worker's own.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) bytes: Vec<u8>,
    lately: Lately,
}

impl Scratch {
    /// The buffer, with whatever it held last, for a use that needs `bytes`.
    pub(super) fn for_use(&mut self, bytes: usize) -> &mut Vec<u8> {
        self.lately.note(bytes);
        self.lately.shrink(&mut self.bytes);
        &mut self.bytes
    }
}

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub struct Spare(Mutex<Pool>);

#[derive(Debug, Default)]
struct Pool {
    buffers: Vec<Vec<u8>>,
    lately: Lately,
    /// Buffers to make once the size of a sample is known.
    to_make: usize,
}

impl Spare {
    /// None yet; with the first that is given back, others are made until there are `ready`. They keep a short wait of
    /// a thread from costing page faults.
    pub fn with(ready: usize) -> Spare {
        Spare(Mutex::new(Pool {
            to_make: ready,
            ..Pool::default()
        }))
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The buffer that came back last, or an empty one.
    pub fn take(&self) -> Vec<u8> {
        self.pool().buffers.pop().unwrap_or_default()
    }

    /// Bytes that the buffers have room for.
    pub fn held(&self) -> usize {
        self.pool().buffers.iter().map(Vec::capacity).sum()
    }

    /// Takes a buffer back, of which `used` bytes were needed.
    pub fn give_back(&self, mut buffer: Vec<u8>, used: usize) {
        let mut pool = self.pool();
        let pool = &mut *pool;
        pool.lately.note(used);
        pool.lately.shrink(&mut buffer);
        if pool.lately.uses == 0 {
            // Those that nobody has used meanwhile.
            let unused = pool.buffers.iter_mut();
            unused.for_each(|buffer| pool.lately.shrink(buffer));
        }
        let more = std::mem::take(&mut pool.to_make).saturating_sub(1);
        let ready = &buffer[..buffer.len().min(SMALL)];
        pool.buffers
            .extend(std::iter::repeat_n(ready, more).map(<[u8]>::to_vec));
        pool.buffers.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: usize = 100 << 20;

    /// Uses a buffer of `spare` for a sample of `bytes`; returns the room it has then.
    fn use_for(spare: &Spare, bytes: usize) -> usize {
        let mut buffer = spare.take();
        buffer.resize(bytes, 0);
        let room = buffer.capacity();
        spare.give_back(buffer, bytes);
        room
    }

    #[test]
    fn what_held_a_huge_picture_gives_its_room_back() {
        let spare = Spare::default();
        let lent: Vec<_> = (0..3).map(|_| vec![0; HUGE]).collect();
        lent.into_iter()
            .for_each(|buffer| spare.give_back(buffer, HUGE));
        assert!(spare.held() >= 3 * HUGE);
        // One is used again and again, two lie unused.
        for _ in 0..2 * WINDOW {
            use_for(&spare, 2 << 20);
        }
        assert!(spare.held() <= 3 * FAR_MORE * (2 << 20), "{}", spare.held());
        assert_eq!(spare.pool().buffers.len(), 3);
    }

    #[test]
    fn sizes_that_vary_as_photos_do_never_make_a_buffer_anew() {
        let spare = Spare::default();
        use_for(&spare, 40 << 20);
        for turn in 0..1000 {
            // From a twelfth of the largest to all of it, which comes every 50th time.
            let bytes = match turn % 50 {
                0 => 40 << 20,
                _ => (4 << 20) + (turn * 7919 % 16) * (1 << 20),
            };
            let before = spare.pool().buffers[0].as_ptr();
            use_for(&spare, bytes);
            assert_eq!(spare.pool().buffers[0].as_ptr(), before, "{turn}");
        }
        assert!(spare.held() >= 40 << 20);
    }

    #[test]
    fn small_buffers_stay_and_a_few_are_ready_from_the_start() {
        let spare = Spare::with(3);
        use_for(&spare, SMALL);
        assert_eq!(spare.held(), 3 * SMALL);
        for _ in 0..3 * WINDOW {
            use_for(&spare, 10);
        }
        assert_eq!(spare.held(), 3 * SMALL);
        let spare = Spare::with(3);
        use_for(&spare, HUGE);
        assert!(
            spare.held() <= HUGE + 2 * SMALL,
            "no three of the first's size"
        );
    }
}

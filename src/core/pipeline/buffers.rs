//! Host buffers of one batch each, cut into the parts that claims are written into.
//!
//! A batch has a buffer from when the work on it begins, or where threads share it from when its first claim is
//! written, until it is copied. A few that came back last are used in turns, and those that the loader never needs are
//! never made: caches that cores share still hold the few. Where a core's own cache holds the buffer that it writes, each
//! line is read from there, written back and read again: MNIST's samples took 1.1 to 1.3 times as long on a Zen 4.

use crate::machine::{HUGE_PAGE_BYTES, ask_for_huge_pages, page_bytes};
use bytes::BytesMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

#[derive(Debug)]
pub(super) struct Buffers {
    pool: Mutex<Pool>,
    bytes: usize,
    /// Bytes of a whole claim.
    part_bytes: usize,
    /// Buffers that are used in turns.
    in_turns: usize,
}

#[derive(Debug, Default)]
struct Pool {
    /// The one that came back last is last.
    free: Vec<BytesMut>,
    /// That the loader has in use, and the most that it ever had.
    taken: usize,
    most: usize,
}

/// Buffers that are used in turns have so many bytes together, more than a core's own cache and less than those that
/// cores share; smaller ones than this are not, since a batch costs more than writing it does.
const IN_TURNS: usize = 4 << 20;
const LEAST_IN_TURNS: usize = 128 << 10;

/// Buffers of `bytes` bytes that are used in turns.
pub(super) fn buffers_in_turns(bytes: usize) -> usize {
    match bytes < LEAST_IN_TURNS {
        true => 1,
        false => (IN_TURNS / bytes).max(1),
    }
}

/// A buffer of zeros. From [`LEAST_IN_TURNS`] on it shares no page with anything else, so that its pages can be locked; what
/// fills a huge page is in one where the kernel has it: normalising photos took twice as long in pages of 4 KiB
/// (`benches/results/2026-11-29-huge-pages.txt`).
fn made(bytes: usize) -> BytesMut {
    if bytes < LEAST_IN_TURNS {
        return BytesMut::zeroed(bytes);
    }
    let page = page_bytes();
    let begin = if bytes < HUGE_PAGE_BYTES {
        page
    } else {
        HUGE_PAGE_BYTES
    };
    let mut buffer = BytesMut::zeroed(bytes.next_multiple_of(page) + begin);
    let before = buffer.as_ptr().align_offset(begin);
    drop(buffer.split_to(before));
    buffer.truncate(bytes);
    ask_for_huge_pages(&mut buffer);
    buffer
}

impl Buffers {
    /// Buffers of `bytes` bytes, none of which is made yet, to be cut into parts of `part_bytes`.
    pub(super) fn new(bytes: usize, part_bytes: usize) -> Buffers {
        Buffers {
            pool: Mutex::default(),
            bytes,
            part_bytes,
            in_turns: buffers_in_turns(bytes),
        }
    }

    /// A buffer in `parts` parts. The last one is all that is left, even where the claim is shorter.
    pub(super) fn take(&self, parts: usize) -> impl Iterator<Item = BytesMut> {
        let mut rest = self.one().unwrap_or_else(|| made(self.bytes));
        (1..=parts).map(move |part| match part == parts {
            true => std::mem::take(&mut rest),
            false => rest.split_to(self.part_bytes),
        })
    }

    /// The one whose turn it is; `None` where it has yet to be made.
    fn one(&self) -> Option<BytesMut> {
        let mut pool = self.pool();
        let resting = self.in_turns.saturating_sub(pool.taken).max(1);
        pool.taken += 1;
        pool.most = pool.most.max(pool.taken);
        let place = pool.free.len().checked_sub(resting)?;
        Some(pool.free.remove(place))
    }

    /// Takes a buffer back; one of another size was kept by somebody, and is made anew when needed.
    pub(super) fn give_back(&self, buffer: BytesMut) {
        let mut pool = self.pool();
        pool.taken = pool.taken.saturating_sub(1);
        if buffer.len() == self.bytes {
            pool.free.push(buffer);
        }
    }

    /// Takes a buffer back that somebody kept, unless there are enough.
    fn come_back(&self, buffer: BytesMut) {
        let mut pool = self.pool();
        if buffer.len() == self.bytes && pool.free.len() < pool.most.max(self.in_turns) {
            pool.free.push(buffer);
        }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the memory of a batch's buffer where it is, while the loader goes on using it.
#[derive(Debug)]
pub struct HeldBuffer {
    _end: BytesMut,
}

impl HeldBuffer {
    pub(super) fn of(data: &mut BytesMut) -> HeldBuffer {
        // The room behind its bytes, which is as much an owner of the memory as they are.
        let end = data.split_off(data.len());
        HeldBuffer { _end: end }
    }
}

/// A batch's buffer that the loader does without. Dropped, it serves another batch.
#[derive(Debug)]
pub struct KeptBuffer {
    data: BytesMut,
    home: Weak<Buffers>,
}

impl KeptBuffer {
    pub(super) fn new(data: BytesMut, home: Weak<Buffers>) -> KeptBuffer {
        KeptBuffer { data, home }
    }

    /// Its bytes, which nobody else writes to.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.data
    }
}

impl Drop for KeptBuffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.come_back(std::mem::take(&mut self.data));
        }
    }
}

/// The buffer of one batch, whose claims are written by several threads: taken by the first of them.
pub(super) struct SharedBuffer {
    buffers: Arc<Buffers>,
    claims: usize,
    parts: Mutex<Vec<BytesMut>>,
}

impl SharedBuffer {
    pub(super) fn new(buffers: Arc<Buffers>, claims: usize) -> SharedBuffer {
        SharedBuffer {
            buffers,
            claims,
            parts: Mutex::default(),
        }
    }

    fn part(&self, claim: usize) -> BytesMut {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.is_empty() {
            parts.extend(self.buffers.take(self.claims));
        }
        std::mem::take(&mut parts[claim])
    }
}

/// Where one claim of a batch is written.
pub(super) struct Slot {
    /// The claim's number in a batch whose buffer may not have been taken yet.
    shared: Option<(Arc<SharedBuffer>, usize)>,
    own: BytesMut,
}

impl Slot {
    /// Claim number `claim` of the batch that `buffer` is for.
    pub(super) fn of(buffer: &Arc<SharedBuffer>, claim: usize) -> Slot {
        Slot {
            shared: Some((buffer.clone(), claim)),
            own: BytesMut::new(),
        }
    }

    /// The bytes to write into; at least as many as the claim's samples have.
    pub(super) fn bytes(&mut self) -> &mut BytesMut {
        if let Some((buffer, claim)) = self.shared.take() {
            self.own = buffer.part(claim);
        }
        &mut self.own
    }
}

impl From<BytesMut> for Slot {
    fn from(own: BytesMut) -> Slot {
        Slot { shared: None, own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(parts: impl Iterator<Item = BytesMut>) -> BytesMut {
        parts.fold(BytesMut::new(), |mut all, part| {
            all.unsplit(part);
            all
        })
    }

    fn place(buffer: &BytesMut) -> *const u8 {
        buffer.as_ptr()
    }

    #[test]
    fn the_buffer_that_came_back_last_is_taken_first() {
        let buffers = Buffers::new(24, 8);
        let made = [(); 3].map(|()| joined(buffers.take(3)));
        let places = made.each_ref().map(place);
        made.into_iter()
            .for_each(|buffer| buffers.give_back(buffer));
        let again = [(); 3].map(|()| joined(buffers.take(3)));
        let [first, second, third] = places;
        assert_eq!(again.each_ref().map(place), [third, second, first]);
    }

    #[test]
    fn a_few_are_used_in_turns() {
        assert_eq!(
            [1, 100 << 10, 128 << 10, 3 << 20, 8 << 20].map(buffers_in_turns),
            [1, 1, 32, 1, 1]
        );
        let four = Buffers::new(1 << 20, 1 << 20);
        let one = || joined(four.take(1));
        let mut places = Vec::new();
        for _ in 0..8 {
            let buffer = one();
            places.push(place(&buffer));
            four.give_back(buffer);
        }
        assert_eq!(places[..4], places[4..]);
        places.truncate(4);
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 4, "each in its turn");
        // With six at a time two more are made, and none after that; those in use count as well.
        let taken = [(); 6].map(|()| one());
        let all = taken.each_ref().map(place);
        assert!(places.iter().all(|place| all.contains(place)));
        let mut taken = Vec::from(taken);
        for round in 0..12 {
            four.give_back(taken.remove(round % taken.len()));
            taken.push(one());
            assert!(all.contains(&place(&taken[5])));
        }
    }

    #[test]
    fn a_large_buffer_has_pages_of_its_own() {
        let page = page_bytes();
        for bytes in [LEAST_IN_TURNS, LEAST_IN_TURNS + 1, 3 * LEAST_IN_TURNS - 1] {
            let buffers = Buffers::new(bytes, bytes / 3);
            let made = [(); 3].map(|()| joined(buffers.take(4)));
            for buffer in &made {
                assert_eq!(buffer.len(), bytes);
                assert_eq!(place(buffer).addr() % page, 0);
            }
        }
        let huge = made(2 * HUGE_PAGE_BYTES + 5);
        assert_eq!(
            (place(&huge).addr() % HUGE_PAGE_BYTES, huge.len()),
            (0, 2 * HUGE_PAGE_BYTES + 5)
        );
        assert!(huge.iter().all(|byte| *byte == 0));
        // Of the mapping that it lies in, and those after, as far as the kernel says: `hg` where huge pages are asked for.
        let Ok(said) = std::fs::read_to_string("/proc/self/smaps") else {
            return;
        };
        let first = place(&huge).addr();
        let mut inside = false;
        let flags = said.lines().find_map(|line| {
            let bounds = line
                .split_once(' ')
                .and_then(|(range, _)| range.split_once('-'));
            let bounds =
                bounds.map(|(start, end)| [start, end].map(|at| usize::from_str_radix(at, 16)));
            if let Some([Ok(start), Ok(end)]) = bounds {
                inside = (start..end).contains(&first);
            }
            line.strip_prefix("VmFlags:").filter(|_| inside)
        });
        let supported = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        assert!(
            !supported || flags.is_some_and(|flags| flags.contains(" hg")),
            "{flags:?}"
        );
    }

    /// Who has locked a buffer's pages needs them where they are, whatever becomes of the loader.
    #[test]
    fn a_held_buffer_is_used_again_and_outlives_the_loader() {
        let buffers = Buffers::new(24, 8);
        let mut buffer = joined(buffers.take(3));
        let held = HeldBuffer::of(&mut buffer);
        let first = place(&buffer);
        buffers.give_back(buffer);
        let again = joined(buffers.take(3));
        assert_eq!((place(&again), again.len()), (first, 24));
        drop((again, buffers));
        assert_eq!(held._end.as_ptr().addr(), first.addr() + 24);
    }

    #[test]
    fn a_short_batch_leaves_the_buffer_whole() {
        let buffers = Buffers::new(24, 8);
        let parts: Vec<_> = buffers.take(2).collect();
        let lengths: Vec<_> = parts.iter().map(BytesMut::len).collect();
        assert_eq!(lengths, [8, 16]);
        let buffer = joined(parts.into_iter());
        let first = place(&buffer);
        buffers.give_back(buffer);
        assert_eq!(place(&joined(buffers.take(3))), first);
    }

    #[test]
    fn a_kept_buffer_is_replaced() {
        let buffers = Buffers::new(24, 8);
        let kept = joined(buffers.take(3));
        buffers.give_back(BytesMut::new());
        let other = joined(buffers.take(3));
        assert_eq!(other.len(), 24);
        assert_ne!(place(&other), place(&kept));
    }

    /// Somebody may keep any number of batches, and give them back when the loader is gone.
    #[test]
    fn kept_buffers_come_back_unless_there_are_enough() {
        let buffers = Arc::new(Buffers::new(24, 8));
        let mut kept: Vec<KeptBuffer> = (0..9)
            .map(|_| {
                let data = joined(buffers.take(3));
                buffers.give_back(BytesMut::new());
                KeptBuffer::new(data, Arc::downgrade(&buffers))
            })
            .collect();
        let last = kept.pop();
        let own = last.as_ref().map(|kept| place(&kept.data));
        drop(last);
        assert_eq!(Some(place(&joined(buffers.take(3)))), own);
        buffers.give_back(BytesMut::new());
        drop(kept.split_off(4));
        assert_eq!(
            buffers.pool().free.len(),
            1,
            "as many as were ever in use at once"
        );
        drop(buffers);
        assert_eq!(kept[0].bytes().len(), 24);
    }

    #[test]
    fn claims_of_a_shared_buffer_lie_one_after_another_whoever_comes_first() {
        let buffers = Arc::new(Buffers::new(24, 8));
        let shared = Arc::new(SharedBuffer::new(buffers.clone(), 3));
        let mut slots: Vec<Slot> = (0..3).map(|claim| Slot::of(&shared, claim)).collect();
        assert!(
            buffers.pool().free.is_empty(),
            "none is made before it is needed"
        );
        for claim in [2, 0, 1] {
            slots[claim].bytes().fill(claim as u8);
        }
        let parts = slots.iter_mut().map(|slot| std::mem::take(slot.bytes()));
        let expected = [[0; 8], [1; 8], [2; 8]].concat();
        assert_eq!(joined(parts), expected[..]);
    }
}

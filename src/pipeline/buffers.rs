//! Host buffers of one batch each, cut into the parts that claims are written into.
//!
//! A batch has a buffer from when the work on it begins, or where threads share it from when its first claim is
//! written, until it is copied. The buffer that came back last is taken first: caches may still hold it, and those
//! that the loader never needs are never made.

use bytes::BytesMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) struct Buffers {
    free: Mutex<Vec<BytesMut>>,
    bytes: usize,
    /// Bytes of a whole claim.
    part_bytes: usize,
}

impl Buffers {
    /// Buffers of `bytes` bytes, none of which is made yet, to be cut into parts of `part_bytes`.
    pub(super) fn new(bytes: usize, part_bytes: usize) -> Buffers {
        Buffers {
            free: Mutex::default(),
            bytes,
            part_bytes,
        }
    }

    /// A buffer in `parts` parts. The last one is all that is left, even where the claim is shorter.
    pub(super) fn take(&self, parts: usize) -> impl Iterator<Item = BytesMut> {
        let last_back = self.free().pop();
        let mut rest = last_back.unwrap_or_else(|| BytesMut::zeroed(self.bytes));
        (1..=parts).map(move |part| match part == parts {
            true => std::mem::take(&mut rest),
            false => rest.split_to(self.part_bytes),
        })
    }

    /// Takes a buffer back; one of another size was kept by somebody, and is made anew when needed.
    pub(super) fn give_back(&self, buffer: BytesMut) {
        if buffer.len() == self.bytes {
            self.free().push(buffer);
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<BytesMut>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn claims_of_a_shared_buffer_lie_one_after_another_whoever_comes_first() {
        let buffers = Arc::new(Buffers::new(24, 8));
        let shared = Arc::new(SharedBuffer::new(buffers.clone(), 3));
        let mut slots: Vec<Slot> = (0..3).map(|claim| Slot::of(&shared, claim)).collect();
        assert!(
            buffers.free().is_empty(),
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

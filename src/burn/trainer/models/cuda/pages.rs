//! Buffers of the host whose pages are locked, so that the device copies batches from where they lie.
//!
//! `unsafe`, as it calls CUDA's driver interface. Invariant: the memory of a buffer is kept until its pages are given back.

use super::driver::{current, said};
use cudarc::driver::sys;
use std::any::Any;
use std::collections::BTreeMap;

/// The pages of smaller buffers are not locked: they share pages with others, and copying them costs little.
const LEAST: usize = 128 << 10;

/// Locked buffers by address.
pub(super) struct LockedPages {
    /// The device whose context knows them.
    ordinal: usize,
    buffers: BTreeMap<usize, Locked>,
    /// The driver has refused one.
    is_refused: bool,
}

struct Locked {
    bytes: usize,
    _keeper: Box<dyn Any + Send>,
}

impl LockedPages {
    /// None yet, for copies to the device `ordinal`.
    pub(super) fn new(ordinal: usize) -> LockedPages {
        LockedPages {
            ordinal,
            buffers: BTreeMap::new(),
            is_refused: false,
        }
    }

    /// Whether all pages of `bytes` are locked.
    pub(super) fn hold(&self, bytes: &[u8]) -> bool {
        let from = bytes.as_ptr().addr();
        let before = self.buffers.range(..=from).next_back();
        before.is_some_and(|(start, locked)| from + bytes.len() <= start + locked.bytes)
    }

    /// Whether the pages of `buffer` are yet to be locked.
    pub(super) fn want(&self, buffer: &[u8]) -> bool {
        buffer.len() >= LEAST && !self.is_refused && !self.hold(buffer)
    }

    /// Locks the pages of `buffer`, whose memory `keeper` keeps. Where the driver refuses, they stay as they are.
    pub(super) fn lock(&mut self, buffer: &[u8], keeper: Box<dyn Any + Send>) {
        if !self.want(buffer) {
            return;
        }
        let address = buffer.as_ptr().cast_mut().cast();
        // SAFETY: `keeper` keeps the memory until it is unregistered, below. The driver reads it while a copy from it is
        // under way, and never writes to it.
        let locked = current(self.ordinal).and_then(|_| {
            unsafe { sys::cuMemHostRegister_v2(address, buffer.len(), 0) }
                .result()
                .map_err(said("cuMemHostRegister"))
        });
        self.is_refused = locked.is_err();
        if locked.is_ok() {
            let bytes = buffer.len();
            let locked = Locked {
                bytes,
                _keeper: keeper,
            };
            self.buffers.insert(address.addr(), locked);
        }
    }
}

impl Drop for LockedPages {
    fn drop(&mut self) {
        let is_current = current(self.ordinal).is_ok();
        for (address, locked) in std::mem::take(&mut self.buffers) {
            let address = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: registered in `lock`, and no copy from it is under way: `CudaCopying` waits for each.
            let given_back = is_current
                && unsafe { sys::cuMemHostUnregister(address) }
                    .result()
                    .is_ok();
            if !given_back {
                // The driver may still use this memory, so it is never freed.
                std::mem::forget(locked);
            }
        }
    }
}

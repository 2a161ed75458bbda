//! Little-endian numbers one after the other, out of bytes whose number the caller has checked.
//!
//! Invariants: reading past the end gives zeros, never a panic.
//!
//! May use: `shard::layout`.

use super::Section;

pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    fn take<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        match self.rest.split_first_chunk() {
            Some((word, rest)) => {
                self.rest = rest;
                *word
            }
            None => [0; BYTES],
        }
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    pub(super) fn u128(&mut self) -> u128 {
        u128::from_le_bytes(self.take())
    }

    /// Offset and size of a section, whose CRC comes later.
    pub(super) fn place(&mut self) -> Section {
        Section {
            offset: self.u64(),
            bytes: self.u64(),
            crc: 0,
        }
    }
}

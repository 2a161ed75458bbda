//! The stallscope shard, version 1, byte by byte; its header and its index in memory.
//!
//! A set of images is packed into one or more files `PREFIX-00003-of-00010.shard`. All numbers are little-endian and
//! unsigned, every CRC is CRC-32 (IEEE 802.3, as zlib's). A file holds, in this order and nothing else:
//!
//! 1. the header, 192 bytes;
//! 2. the records, each at the first multiple of 64 after what precedes it;
//! 3. the index, 32 bytes a record, at the first multiple of 64 after the last record;
//! 4. the names of the records, a string table, at the next multiple of 64;
//! 5. the names of the classes, a string table, at the next multiple of 64; the file ends with its last byte.
//!
//! Bytes between these, at most 63 in a row, are zero. So where each part lies follows from the sizes alone, records
//! cannot overlap, and every byte is covered by a CRC or known to be zero.
//!
//! | header at | bytes | holds |
//! |---:|---:|---|
//! | 0 | 8 | `89 53 54 53 48 44 0D 0A`: `\x89STSHD\r\n` |
//! | 8 | 4 | version: 1 |
//! | 12 | 4 | bytes of the header: 192 |
//! | 16 | 4 | kind of the records: 0 = bytes of an encoded image file (JPEG, PNG); 1 = RGB, 8 bits each, interleaved, rows from top to bottom without gaps |
//! | 20 | 4 | flags: bit 0 = samples were shuffled before they were packed; the others are zero |
//! | 24 | 8 | seed of that shuffle, otherwise zero |
//! | 32 | 16 | fingerprint of the options and of the list of samples, the same in all shards of a set |
//! | 48 | 4 | number of this shard, from zero |
//! | 52 | 4 | shards of the set: samples of the set / samples of a shard, rounded up |
//! | 56 | 8 | samples of the set, at most 2^32 - 1, those left out as unreadable included |
//! | 64 | 8 | samples of each shard but the last, at most 2^22, those left out included |
//! | 72 | 8 | records in this shard |
//! | 80 | 8 | bytes of this file |
//! | 88 | 8 | where the index begins |
//! | 96 | 8 | bytes of the index |
//! | 104 | 8 | where the names begin |
//! | 112 | 8 | bytes of the names |
//! | 120 | 8 | where the class names begin |
//! | 128 | 8 | bytes of the class names |
//! | 136 | 4 | CRC of the index |
//! | 140 | 4 | CRC of the names |
//! | 144 | 4 | CRC of the class names |
//! | 148 | 4 | classes of the set |
//! | 152 | 4 | bytes of this shard's largest record, zero without records |
//! | 156 | 4 | this shard's largest width in pixels |
//! | 160 | 4 | this shard's largest height in pixels |
//! | 164 | 24 | zero |
//! | 188 | 4 | CRC of bytes 0 to 187 |
//!
//! | index entry at | bytes | holds |
//! |---:|---:|---|
//! | 0 | 8 | where the record begins, from the beginning of the file |
//! | 8 | 4 | its bytes, not zero; for RGB width x height x 3 |
//! | 12 | 4 | its CRC |
//! | 16 | 4 | its label, below the number of classes |
//! | 20 | 4 | its width in pixels, not zero |
//! | 24 | 4 | its height in pixels, not zero |
//! | 28 | 4 | its number in the list of samples it was packed from |
//!
//! A string table of `n` strings is `n` numbers of 4 bytes, where each string ends, then the strings one after the
//! other in UTF-8, at most 256 MiB. Names of records are paths relative to the packed folder.
//!
//! Invariants: what these types hold after parsing keeps all of the rules above; parsing allocates no more than it was
//! given bytes for.
//!
//! May use: nothing.

use std::fmt;
use std::ops::Range;

mod header;
mod index;
mod strings;

pub use header::Header;
pub use index::IndexEntry;
pub(super) use index::parse_index;
pub(super) use strings::{MOST_TEXT_BYTES, StringTable};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 192;
/// Records begin at multiples of this: a cache line.
pub const RECORD_ALIGNMENT: u64 = 64;
pub(super) const ENTRY_BYTES: usize = 32;
/// An index of this many is 128 MiB; more in one file would only slow its opening.
pub(super) const MOST_SAMPLES_PER_SHARD: u64 = 1 << 22;
pub(super) const VERSION: u32 = 1;

/// What the bytes of a record are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// The bytes of an image file: JPEG, PNG or WebP.
    Encoded,
    /// Interleaved 8-bit RGB, rows from top to bottom.
    Rgb,
}

impl RecordKind {
    pub(super) fn code(self) -> u32 {
        match self {
            RecordKind::Encoded => 0,
            RecordKind::Rgb => 1,
        }
    }

    /// As messages name it.
    pub fn name(self) -> &'static str {
        match self {
            RecordKind::Encoded => "encoded images",
            RecordKind::Rgb => "RGB pixels",
        }
    }
}

/// A part of a shard that can be damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The set as a whole: a shard is missing, doubled or of another set.
    Set,
    /// The file is shorter or longer than its header says.
    Length,
    Header,
    /// The header is of this other version, so nothing else of it is read.
    Version(u32),
    Index,
    Names,
    Classes,
    /// Zeros between the others.
    Padding,
    /// The record with this number, counted from zero in its file.
    Record(usize),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Set => write!(f, "the set"),
            Part::Length => write!(f, "the length"),
            Part::Header | Part::Version(_) => write!(f, "the header"),
            Part::Index => write!(f, "the index"),
            Part::Names => write!(f, "the table of names"),
            Part::Classes => write!(f, "the table of class names"),
            Part::Padding => write!(f, "padding"),
            Part::Record(number) => write!(f, "record {number}"),
        }
    }
}

/// Where a shard breaks the rules, and which.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Fault {
    pub part: Part,
    /// The bytes of the file this is about.
    pub bytes: Range<u64>,
    pub what: String,
}

/// A run of bytes with a CRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    pub offset: u64,
    pub bytes: u64,
    pub crc: u32,
}

impl Section {
    /// Its bytes; only of a checked header, where the end fits.
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

/// The first multiple of [`RECORD_ALIGNMENT`] that is not below `offset`.
pub(super) fn aligned(offset: u64) -> Option<u64> {
    offset.checked_next_multiple_of(RECORD_ALIGNMENT)
}

pub(super) fn check_crc(section: &Section, bytes: &[u8]) -> Result<(), String> {
    let (found, wanted) = (crc32fast::hash(bytes), section.crc);
    if found == wanted {
        return Ok(());
    }
    Err(format!(
        "its CRC-32 is {found:08x}, its header says {wanted:08x}"
    ))
}

#[cfg(test)]
mod tests;

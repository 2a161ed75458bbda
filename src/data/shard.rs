//! Packed shards: many images in few large files, so that storage reads runs instead of seeking to each of a million
//! small files. [`pack`] writes a set of shards, [`ShardSet`] opens one, [`verify`] finds every damaged byte in it.
//!
//! Invariants: a file under a `.shard` name is complete; an unfinished one is called `.shard.part`. Every byte of a
//! shard is either covered by a CRC-32 or padding that must be zero. Nothing a file says is believed before it is
//! checked against the file's length. `layout` describes the bytes.
//!
//! May use: `data::{error, sampler}`.

mod layout;
mod reader;
mod verify;
mod writer;

#[cfg(test)]
mod fixture;

pub use layout::{
    Fault, HEADER_BYTES, Header, IndexEntry, Part, RECORD_ALIGNMENT, RecordKind, Section,
};
pub use reader::{Record, RecordFault, Shard, ShardFile, ShardSet, check_record};
pub use verify::{Damage, VerifySummary, verify};
pub use writer::{
    Container, PackOptions, PackOutcome, PackSummary, RecordSize, RecordSource, SkippedSample, pack,
};

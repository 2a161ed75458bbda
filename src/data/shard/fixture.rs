//! Samples made up for tests, and what is done to the shards they become.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::DataError;

/// `len` samples in three classes whose bytes follow from their numbers.
pub(super) struct Planted {
    pub(super) len: usize,
    pub(super) kind: RecordKind,
    pub(super) bad: Vec<usize>,
    pub(super) made: AtomicUsize,
}

impl Planted {
    pub(super) fn new(len: usize, kind: RecordKind) -> Planted {
        let (bad, made) = (Vec::new(), AtomicUsize::new(0));
        Planted {
            len,
            kind,
            bad,
            made,
        }
    }

    pub(super) fn size(&self, sample: usize) -> RecordSize {
        RecordSize {
            width: 1 + sample as u32 % 7,
            height: 1 + sample as u32 % 5,
        }
    }

    pub(super) fn bytes(&self, sample: usize) -> Vec<u8> {
        let RecordSize { width, height } = self.size(sample);
        let bytes = match self.kind {
            RecordKind::Encoded => 1 + sample * 37 % 150,
            RecordKind::Rgb => (width * height * 3) as usize,
        };
        (0..bytes).map(|i| (i * 11 + sample * 3) as u8).collect()
    }
}

impl RecordSource for Planted {
    type Scratch = u64;

    fn len(&self) -> usize {
        self.len
    }

    fn class_names(&self) -> Vec<String> {
        ["cat", "dog", "über"].map(str::to_owned).to_vec()
    }

    fn label(&self, sample: usize) -> u32 {
        sample as u32 % 3
    }

    fn name(&self, sample: usize) -> String {
        format!("class_{}/img_{sample}.jpg", sample % 3)
    }

    fn scratch(&self) -> u64 {
        0
    }

    fn record(
        &self,
        sample: usize,
        scratch: &mut u64,
        out: &mut Vec<u8>,
    ) -> Result<RecordSize, Box<dyn Error + Send + Sync>> {
        *scratch += 1;
        self.made.fetch_add(1, Ordering::Relaxed);
        assert!(out.is_empty());
        // Every fourth takes longer, so that threads overtake each other.
        if sample.is_multiple_of(4) {
            std::thread::yield_now();
        }
        if self.bad.contains(&sample) {
            return Err("no end of image".into());
        }
        out.extend(self.bytes(sample));
        Ok(self.size(sample))
    }
}

pub(super) fn options(kind: RecordKind, samples_per_shard: usize) -> PackOptions {
    PackOptions {
        samples_per_shard,
        jobs: 3,
        ..PackOptions::new(kind)
    }
}

pub(super) fn pack_all(
    source: &Planted,
    target: &Path,
    options: &PackOptions,
) -> Result<PackSummary, DataError> {
    pack(source, target, options, &|_, _| {}, &|| false)
}

/// Bytes of the only shard with `len` samples.
pub(super) fn one_shard(len: usize, kind: RecordKind) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    pack_all(
        &Planted::new(len, kind),
        folder.path(),
        &options(kind, 1000),
    )
    .unwrap();
    fs::read(folder.path().join("data-00000-of-00001.shard")).unwrap()
}

/// Writes `bytes` as a lone shard.
pub(super) fn written(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join("lone.shard");
    fs::write(&path, bytes).unwrap();
    path
}

pub(super) fn verify_all(path: &Path) -> VerifySummary {
    verify(path, 2, &|_, _| {}, &|| false).unwrap()
}

/// The shard with another header, which gets the CRC it needs.
pub(super) fn with_header(bytes: &[u8], change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut header = Header::parse(bytes).unwrap();
    change(&mut header);
    [&header.encode()[..], &bytes[HEADER_BYTES..]].concat()
}

/// The shard with another entry of its index, whose CRCs are made to fit.
pub(super) fn with_entry(
    bytes: &[u8],
    number: usize,
    change: impl FnOnce(&mut IndexEntry),
) -> Vec<u8> {
    let shard = Shard::parse(bytes).unwrap();
    let mut entry = shard.entries()[number];
    change(&mut entry);
    let index = shard.header().index.range();
    let index = index.start as usize..index.end as usize;
    let mut bytes = bytes.to_vec();
    bytes[index.clone()][number * 32..][..32].copy_from_slice(&entry.encode());
    let crc = crc32fast::hash(&bytes[index]);
    with_header(&bytes, |header| header.index.crc = crc)
}

impl VerifySummary {
    /// Whether everything was read and is as it was packed.
    pub(super) fn is_sound(&self) -> bool {
        self.damages.is_empty() && !self.is_stopped
    }
}

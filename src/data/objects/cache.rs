//! Samples from object storage that are kept on a disk: what one epoch has fetched, the next ones read here.
//!
//! A data set has a folder with two files: `bytes`, one sample behind the other, and `index`, which says where each is.
//! Nothing is replaced once the limit is reached: an epoch takes every sample once, so that whatever would make room would
//! be wanted as soon as what it gives way to.
//!
//! Invariants: a sample is given out only if its checksum is the one it was kept with, so that files cut short or damaged
//! cost a request and nothing else; one process at a time adds, others read what was there when they began. A sample
//! belongs to a version of its object: of another version it is not found.
//!
//! May use: nothing of the data's.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

/// Bytes of an entry of the index: object, offset, place, length, checksum.
const ENTRY: usize = 32;

/// Samples of a data set that are kept.
#[derive(Debug)]
pub struct SampleCache {
    bytes: File,
    index: File,
    /// Where the next sample goes.
    end: AtomicU64,
    limit: u64,
    /// Another process adds, or the disk is full.
    is_closed: AtomicBool,
    entries: Mutex<HashMap<Key, Entry>>,
}

/// Of a sample: its object, and where in that it begins.
type Key = (u64, u64);

#[derive(Copy, Clone, Debug)]
struct Entry {
    place: u64,
    bytes: u32,
    sum: u32,
}

impl SampleCache {
    /// The cache of the data set at `url` below `folder`, which grows to `limit` bytes.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn open(folder: &Path, url: &Path, limit: u64) -> io::Result<SampleCache> {
        let name = Sha256::digest(url.as_os_str().as_bytes());
        let name: String = name[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let folder = folder.join(name);
        fs::create_dir_all(&folder)?;
        let open = |name| {
            let mut options = File::options();
            options.read(true).append(true).create(true);
            options.open(folder.join(name))
        };
        let (bytes, mut index) = (
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(folder.join("bytes"))?,
            open("index")?,
        );
        let is_closed = match index.try_lock() {
            Ok(()) => false,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        let mut text = Vec::new();
        index.read_to_end(&mut text)?;
        let whole = text.len() / ENTRY * ENTRY;
        if whole < text.len() && !is_closed {
            index.set_len(whole as u64)?;
        }
        Ok(SampleCache {
            end: AtomicU64::new(bytes.metadata()?.len()),
            entries: Mutex::new(text.as_chunks::<ENTRY>().0.iter().map(entry).collect()),
            is_closed: AtomicBool::new(is_closed),
            bytes,
            index,
            limit,
        })
    }

    /// Whether the sample is perhaps here.
    pub(crate) fn has(&self, key: Key) -> bool {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.contains_key(&key)
    }

    /// The sample of so many `bytes`, where it is here as it was.
    pub(crate) fn get(&self, key: Key, bytes: u64) -> Option<Vec<u8>> {
        let entries = || self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = *entries().get(&key)?;
        let mut sample = vec![0; entry.bytes as usize];
        let read = self.bytes.read_exact_at(&mut sample, entry.place).is_ok();
        if read && u64::from(entry.bytes) == bytes && crc32c::crc32c(&sample) == entry.sum {
            return Some(sample);
        }
        // What is damaged is fetched, and kept anew.
        entries().remove(&key);
        None
    }

    /// Keeps a sample, if there is room.
    pub(crate) fn put(&self, key: Key, sample: &[u8]) {
        let length = sample.len() as u64;
        let Ok(bytes) = u32::try_from(length) else {
            return;
        };
        let room = |end: u64| {
            let after = end.checked_add(length)?;
            (after <= self.limit).then_some(after)
        };
        if self.is_closed.load(Ordering::Relaxed) || self.has(key) {
            return;
        }
        let ordering = Ordering::Relaxed;
        let Ok(place) = self.end.fetch_update(ordering, ordering, room) else {
            return;
        };
        let sum = crc32c::crc32c(sample);
        let entry = Entry { place, bytes, sum };
        let mut line = [0; ENTRY];
        line[..8].copy_from_slice(&key.0.to_le_bytes());
        line[8..16].copy_from_slice(&key.1.to_le_bytes());
        line[16..24].copy_from_slice(&place.to_le_bytes());
        line[24..28].copy_from_slice(&bytes.to_le_bytes());
        line[28..].copy_from_slice(&sum.to_le_bytes());
        let written = self.bytes.write_all_at(sample, place);
        // Appended as a whole.
        match written.and_then(|()| (&self.index).write_all(&line)) {
            Ok(()) => {
                let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
                entries.insert(key, entry);
            }
            Err(_) => self.is_closed.store(true, Ordering::Relaxed),
        }
    }
}

fn entry(line: &[u8; ENTRY]) -> (Key, Entry) {
    let (words, _) = line.as_chunks::<8>();
    let word = |at: usize| u64::from_le_bytes(words[at]);
    let entry = Entry {
        place: word(2),
        bytes: word(3) as u32,
        sum: (word(3) >> 32) as u32,
    };
    ((word(0), word(1)), entry)
}

/// What stands for an object of this version in a key.
pub(crate) fn object_key(url: &Path, version: &str) -> u64 {
    let digest = Sha256::new()
        .chain_update(url.as_os_str().as_bytes())
        .chain_update([0])
        .chain_update(version)
        .finalize();
    digest[..8]
        .iter()
        .fold(0, |key, byte| key << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "s3://bucket/data";

    fn open(folder: &Path, limit: u64) -> SampleCache {
        SampleCache::open(folder, Path::new(URL), limit).unwrap()
    }

    #[test]
    fn what_was_kept_is_there_for_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let cache = open(folder.path(), 100);
        assert_eq!(cache.get((1, 2), 3), None);
        cache.put((1, 2), b"abc");
        cache.put((1, 9), b"defg");
        assert_eq!(cache.get((1, 2), 3).unwrap(), b"abc");
        let reader = open(folder.path(), 100);
        reader.put((5, 5), b"x");
        assert!(!reader.has((5, 5)), "another process adds");
        assert_eq!(reader.get((1, 9), 4).unwrap(), b"defg");
        drop((cache, reader));
        let cache = open(folder.path(), 100);
        assert_eq!(cache.get((1, 9), 4).unwrap(), b"defg");
        cache.put((1, 10), &[7; 92]);
        assert_eq!(cache.get((1, 10), 92).unwrap(), [7; 92]);
        cache.put((1, 11), &[7; 2]);
        assert!(!cache.has((1, 11)), "the limit is 100");
        let other = SampleCache::open(folder.path(), Path::new("s3://bucket/other"), 9).unwrap();
        assert!(!other.has((1, 2)));
    }

    #[test]
    fn what_is_damaged_is_not_given_out() {
        let folder = tempfile::tempdir().unwrap();
        let cache = open(folder.path(), 1 << 20);
        (0..100u64).for_each(|at| cache.put((0, at), &[at as u8; 50]));
        drop(cache);
        let place = fs::read_dir(folder.path())
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        let (bytes, index) = (place.join("bytes"), place.join("index"));
        let mut damaged = fs::read(&bytes).unwrap();
        damaged[50 * 7 + 3] ^= 1;
        damaged.truncate(50 * 90 + 1);
        fs::write(&bytes, damaged).unwrap();
        let mut torn = fs::read(&index).unwrap();
        torn[ENTRY * 20 + 17] ^= 0xff;
        torn.truncate(ENTRY * 95 + 11);
        fs::write(&index, torn).unwrap();
        let cache = open(folder.path(), 1 << 20);
        let there = |at| {
            cache
                .get((0, at), 50)
                .is_some_and(|sample| sample == [at as u8; 50])
        };
        let lost: Vec<u64> = (0..100).filter(|at| !there(*at)).collect();
        assert_eq!(
            lost,
            [7, 20].into_iter().chain(90..100).collect::<Vec<u64>>()
        );
        cache.put((0, 7), &[7; 50]);
        assert!(there(7));
        drop(cache);
        assert!(open(folder.path(), 1 << 20).get((0, 7), 50).is_some());
    }

    #[test]
    fn objects_and_their_versions_have_keys_of_their_own() {
        let key = |url, version| object_key(Path::new(url), version);
        let keys = [
            key("a", "1"),
            key("a", "2"),
            key("b", "1"),
            key("a\x001", ""),
        ];
        let all: std::collections::BTreeSet<u64> = keys.into_iter().collect();
        assert_eq!(all.len(), 4);
        assert_eq!(key("a", "1"), keys[0]);
    }
}

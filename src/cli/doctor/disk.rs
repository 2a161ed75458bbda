//! How fast a file system reads, measured on a file of its own.
//!
//! Invariants: at most [`MOST_BYTES`] and about a second; the file has no name while it is used,
//! so that not even a killed process leaves it behind; its content does not compress.
//!
//! May use: `data::page_cache`.

use memmap2::MmapMut;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::data::page_cache;

const MOST_BYTES: u64 = 256 << 20;
const MOST_WRITING: Duration = Duration::from_millis(500);
const MOST_READING: Duration = Duration::from_millis(500);
const CHUNK_BYTES: usize = 4 << 20;

/// One measurement, and how it was made.
#[derive(Debug, Clone, Copy)]
pub struct ReadSpeed {
    pub bytes: u64,
    pub time: Duration,
    pub method: Method,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// O_DIRECT: past the page cache.
    Direct,
    /// After the file was put out of the page cache.
    CacheDropped,
}

impl ReadSpeed {
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

/// Writes a file into `folder`, reads it back, and leaves nothing.
pub fn measure(folder: &Path) -> io::Result<ReadSpeed> {
    let mut files = Files::create(folder)?;
    // O_DIRECT wants whole pages.
    let mut buffer = MmapMut::map_anon(CHUNK_BYTES)?;
    let bytes = files.fill(&mut buffer)?;
    page_cache::drop_cached(&files.writer)?;
    if let Some(direct) = &files.direct
        && let Ok(speed) = read(direct, bytes, &mut buffer, Method::Direct)
    {
        return Ok(speed);
    }
    // Some file systems take O_DIRECT when opening and refuse it when reading.
    read(&files.writer, bytes, &mut buffer, Method::CacheDropped)
}

/// Handles of one nameless file.
struct Files {
    writer: File,
    direct: Option<File>,
}

impl Files {
    fn create(folder: &Path) -> io::Result<Files> {
        let mut named = tempfile::Builder::new();
        let named = named.prefix(".stallscope-doctor-").tempfile_in(folder)?;
        let mut options = OpenOptions::new();
        let direct = options.read(true).custom_flags(libc::O_DIRECT);
        let direct = direct.open(named.path()).ok();
        let (writer, path) = named.into_parts();
        path.close()?;
        Ok(Files { writer, direct })
    }

    /// Writes through to the device until the size or the time is used up.
    fn fill(&mut self, chunk: &mut [u8]) -> io::Result<u64> {
        let (start, mut bytes) = (Instant::now(), 0);
        let mut noise = Xoshiro256PlusPlus::seed_from_u64(0);
        // Synced in groups, each twice the one before while that is quick: a slow disk is not left
        // with all of it at the end, and a fast one is not made to wait for every chunk.
        let mut chunks_a_sync = 1;
        while bytes < MOST_BYTES && (bytes == 0 || start.elapsed() < MOST_WRITING) {
            let group = Instant::now();
            for _ in 0..chunks_a_sync {
                if bytes < MOST_BYTES {
                    noise.fill_bytes(chunk);
                    self.writer.write_all(chunk)?;
                    bytes += chunk.len() as u64;
                }
            }
            self.writer.sync_data()?;
            if group.elapsed() < MOST_WRITING / 8 {
                chunks_a_sync *= 2;
            }
        }
        Ok(bytes)
    }
}

fn read(file: &File, most: u64, chunk: &mut [u8], method: Method) -> io::Result<ReadSpeed> {
    let (start, mut bytes) = (Instant::now(), 0);
    while bytes < most && (bytes == 0 || start.elapsed() < MOST_READING) {
        match file.read_at(chunk, bytes)? {
            0 => break,
            count => bytes += count as u64,
        }
    }
    Ok(ReadSpeed {
        bytes,
        time: start.elapsed(),
        method,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn measures_within_its_bounds_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let speed = measure(folder.path()).unwrap();
        assert!(speed.bytes > 0 && speed.bytes <= MOST_BYTES);
        assert!(speed.bytes_per_second() > 0.0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(measure(&folder.path().join("absent")).is_err());
    }
}

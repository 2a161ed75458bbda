//! The kernel's page cache: how much of a file is in it, and putting a file out of it.
//!
//! The one file of `data` that is `unsafe`: `mincore` and `posix_fadvise` have no safe form in the
//! standard library. Linux since 5.2 tells residency only to those who own a file or may write it;
//! asked about another's file it answers "all resident", so such files are refused here.
//!
//! May use: nothing of this crate; the core for the size of a page.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use memmap2::{Mmap, MmapOptions};
use stallscope_core::machine::page_bytes;

/// How much of a file is in memory, in bytes, counted in whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Residency {
    pub resident_bytes: u64,
    pub total_bytes: u64,
}

/// Parts of a file that stand for all of it.
const PARTS: usize = 64;

/// Asks which pages of `path` are in the page cache; reads none of them. Of more than `most_pages` it asks about some,
/// in parts that are evenly spread.
pub fn residency(path: &Path, most_pages: usize) -> io::Result<Residency> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !may_ask(path, &metadata) {
        let text = "the kernel reports this only to the file's owner";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let total_bytes = metadata.len();
    let length = usize::try_from(total_bytes).map_err(io::Error::other)?;
    if length == 0 {
        return Ok(Residency::default());
    }
    let page = page_bytes();
    let pages = length.div_ceil(page);
    let (parts, each) = match pages <= most_pages {
        true => (1, pages),
        false => (PARTS, (most_pages / PARTS).max(1)),
    };
    // SAFETY: it is never read through, so that a file cut short meanwhile cannot fault.
    let mapping = unsafe { MmapOptions::new().len(length).map(&file) }?;
    let mut found = vec![0_u8; each];
    let mut resident = 0;
    for part in 0..parts {
        let first = (pages - each) * part / (parts - 1).max(1);
        ask(&mapping, first * page, &mut found)?;
        // Only the lowest bit is defined.
        resident += found.iter().filter(|byte| **byte & 1 == 1).count();
    }
    let share = resident as f64 / (parts * each) as f64;
    Ok(Residency {
        resident_bytes: (share * total_bytes as f64).round() as u64,
        total_bytes,
    })
}

/// Asks the kernel to put a file out of the page cache. Pages not yet written stay.
pub fn drop_cached(file: &File) -> io::Result<()> {
    advise(file, 0, 0, libc::POSIX_FADV_DONTNEED)
}

/// Asks the kernel to read a part of a file into the page cache, and does not wait for it; 0 `bytes` are all to the end.
pub fn read_ahead(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    advise(file, offset, bytes, libc::POSIX_FADV_WILLNEED)
}

fn advise(file: &File, offset: u64, bytes: u64, advice: libc::c_int) -> io::Result<()> {
    let [offset, bytes] = [offset, bytes].map(|count| count as libc::off_t);
    // SAFETY: the descriptor is open for as long as `file` is borrowed; length 0 is "to the end".
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, bytes, advice) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Whether `mincore` will tell the truth about this file.
fn may_ask(path: &Path, metadata: &fs::Metadata) -> bool {
    // The owner of /proc/self is this process's effective user.
    let user = fs::metadata("/proc/self").map(|own| own.uid());
    let owns = user.is_ok_and(|user| user == 0 || user == metadata.uid());
    owns || OpenOptions::new().write(true).open(path).is_ok()
}

/// Asks for a byte for each page of the part of `mapping` that begins at `offset`, a multiple of the page's size.
fn ask(mapping: &Mmap, offset: usize, pages: &mut [u8]) -> io::Result<()> {
    let length = (mapping.len() - offset).min(pages.len() * page_bytes());
    // SAFETY: the part lies in a live mapping, and `pages` has one byte for each page of it.
    let status = unsafe {
        let start = mapping.as_ptr().add(offset).cast_mut().cast();
        libc::mincore(start, length, pages.as_mut_ptr().cast())
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    const ALL: usize = 1 << 20;

    #[test]
    fn a_file_just_written_is_resident_until_it_is_dropped() {
        // Not in /tmp, which may be a tmpfs, where there is nothing to drop to.
        let beside = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(beside.parent().unwrap()).unwrap();
        let path = folder.path().join("x");
        fs::write(&path, vec![7; 100_000]).unwrap();
        let full = Residency {
            resident_bytes: 100_000,
            total_bytes: 100_000,
        };
        assert_eq!(residency(&path, ALL).unwrap(), full);
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        drop_cached(&file).unwrap();
        assert_eq!(residency(&path, ALL).unwrap().resident_bytes, 0);
        read_ahead(&file, 0, 0).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while residency(&path, ALL).unwrap() != full {
            assert!(Instant::now() < until, "it is not read");
            sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn empty_and_absent_files_are_no_trouble() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty");
        fs::write(&path, "").unwrap();
        assert_eq!(residency(&path, ALL).unwrap(), Residency::default());
        assert!(residency(&folder.path().join("absent"), ALL).is_err());
    }
    #[test]
    fn of_a_large_file_parts_stand_for_all() {
        let beside = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(beside.parent().unwrap()).unwrap();
        let path = folder.path().join("x");
        let bytes = 1000 * page_bytes() + 5;
        fs::write(&path, vec![7; bytes]).unwrap();
        let asked = |most| residency(&path, most).unwrap();
        assert_eq!(asked(100).resident_bytes, bytes as u64);
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        drop_cached(&file).unwrap();
        assert_eq!(asked(100), asked(ALL));
        assert_eq!(asked(100).total_bytes, bytes as u64);
        // A byte for each of its pages would be a gigabyte.
        let sparse = folder.path().join("sparse");
        File::create(&sparse).unwrap().set_len(1 << 42).unwrap();
        assert_eq!(residency(&sparse, 100).unwrap().resident_bytes, 0);
    }
}

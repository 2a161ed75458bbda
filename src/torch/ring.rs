//! The shared memory that events go through: one ring of words for each process that records. The only file with
//! `unsafe` for it.
//!
//! A memory file without a name (nothing can be left behind) has a header and [`SLOTS`] slots. A process claims a slot
//! with its pid, and is its ring's only writer; the collector is the only reader. A full ring drops what comes, and
//! counts it. Words that were never written take no memory.
//!
//! All words are atomic, so that no process, whatever it does, can make another one's accesses undefined. An event
//! is published by the count of words behind it, and the reader checks the length that each event claims to have.

use crate::clock::now;
use crate::event::{MOST_WORDS, parse_head};
use memmap2::{MmapOptions, MmapRaw};
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Processes that can record at the same time.
pub const SLOTS: usize = 256;
/// Words of a ring: 2 MiB.
pub const RING_WORDS: u64 = 1 << 18;

const MAGIC: u64 = u64::from_le_bytes(*b"stallrng");
pub(crate) const VERSION: u64 = 4;
/// Words before the first slot, and of a slot before its ring: a page.
const PAGE_WORDS: usize = 512;
const SLOT_WORDS: usize = PAGE_WORDS + RING_WORDS as usize;
const ALL_BYTES: usize = (PAGE_WORDS + SLOTS * SLOT_WORDS) * 8;

// The header's words.
const FINISH: usize = 2;
const MADE_AT: usize = 3;
const MADE_BY: usize = 4;
const CLAIMED: usize = 5;
const ENOUGH: usize = 6;
/// Who has each slot: together, because the collector looks at all of them often.
const OWNERS: usize = 64;
const _: () = assert!(OWNERS + SLOTS <= PAGE_WORDS);

// A slot's words, those of writer and reader on cache lines of their own.
const WRITTEN: usize = 8;
const DROPPED: usize = 9;
const TAKEN: usize = 16;

/// The mapped memory file.
#[derive(Clone)]
pub struct Rings(Arc<Mapped>);

struct Mapped {
    map: MmapRaw,
    file: File,
}

/// A slot that a process has claimed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub number: usize,
    /// Which process.
    pub pid: u32,
    /// The how-manieth claim it was, from one: it tells apart who had the slot one after another.
    pub claim: u32,
}

/// One process's end of a ring. After a fork the child must claim a slot of its own.
pub struct RingWriter {
    rings: Rings,
    slot: usize,
    pid: u32,
}

/// The collector's end of all rings.
pub struct RingReader {
    rings: Rings,
    event: Vec<u64>,
}

/// A file of so many zeros in memory, which has no path and ends with its last user.
pub(crate) fn memory_file(name: &CStr, bytes: usize) -> io::Result<File> {
    // SAFETY: the name ends with a zero byte.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor has just been made, and is nobody else's.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(bytes as u64)?;
    Ok(file)
}

impl Rings {
    /// New memory, of this process.
    ///
    /// # Errors
    /// A system that gives none.
    pub fn create() -> io::Result<Rings> {
        let rings = Rings::map(memory_file(c"stallscope", ALL_BYTES)?)?;
        rings.word(1).store(VERSION, Ordering::Relaxed);
        rings.word(MADE_AT).store(now(), Ordering::Relaxed);
        let pid = std::process::id().into();
        rings.word(MADE_BY).store(pid, Ordering::Relaxed);
        rings.word(0).store(MAGIC, Ordering::Release);
        Ok(rings)
    }

    /// That of another process: `/proc/PID/fd/N`, or `/proc/self/fd/N` for a descriptor that was inherited.
    ///
    /// # Errors
    /// No such file, or one of another kind or version.
    pub fn open(path: &Path) -> io::Result<Rings> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() != ALL_BYTES as u64 {
            return Err(wrong("has another size"));
        }
        let rings = Rings::map(file)?;
        if rings.word(0).load(Ordering::Acquire) != MAGIC {
            return Err(wrong("is something else"));
        }
        if rings.word(1).load(Ordering::Relaxed) != VERSION {
            return Err(wrong("is another version's"));
        }
        Ok(rings)
    }

    fn map(file: File) -> io::Result<Rings> {
        let map = MmapOptions::new().len(ALL_BYTES).map_raw(&file)?;
        Ok(Rings(Arc::new(Mapped { map, file })))
    }

    fn word(&self, place: usize) -> &AtomicU64 {
        assert!(place < ALL_BYTES / 8, "a word outside of the rings");
        // SAFETY: the place lies in the mapping, which lives as long as `self`, is aligned to pages, and is used by
        // nobody but as atomic words. The file is as long as the mapping, and nobody shortens it.
        unsafe { &*self.0.map.as_mut_ptr().cast::<AtomicU64>().add(place) }
    }

    fn slot_word(&self, slot: usize, place: usize) -> &AtomicU64 {
        self.word(PAGE_WORDS + slot * SLOT_WORDS + place)
    }

    fn ring_word(&self, slot: usize, count: u64) -> &AtomicU64 {
        self.slot_word(slot, PAGE_WORDS + (count % RING_WORDS) as usize)
    }

    /// The descriptor of the memory file; a child that gets it can open it.
    pub fn fd(&self) -> RawFd {
        self.0.file.as_raw_fd()
    }

    /// The process that made them.
    pub fn made_by(&self) -> u32 {
        self.word(MADE_BY).load(Ordering::Relaxed) as u32
    }

    /// When they were made, in nanoseconds of CLOCK_MONOTONIC.
    pub fn made_at(&self) -> u64 {
        self.word(MADE_AT).load(Ordering::Relaxed)
    }

    /// Tells the collector that the main process has said all.
    pub fn finish(&self) {
        self.word(FINISH).store(1, Ordering::Release);
    }

    /// Whether the main process has said all.
    pub fn is_finished(&self) -> bool {
        self.word(FINISH).load(Ordering::Acquire) != 0
    }

    /// Tells the main process that no more of what its GPU does is wanted.
    pub fn have_enough(&self) {
        self.word(ENOUGH).store(1, Ordering::Release);
    }

    /// Whether no more of that is wanted.
    pub fn is_enough(&self) -> bool {
        self.word(ENOUGH).load(Ordering::Acquire) != 0
    }

    /// A ring for this process; `None` where all are taken.
    pub fn claim(&self) -> Option<RingWriter> {
        let claim = self.word(CLAIMED).fetch_add(1, Ordering::Relaxed) + 1;
        let pid = std::process::id();
        let owner = u64::from(pid) | claim << 32;
        let slot = (0..SLOTS).find(|slot| {
            let word = self.word(OWNERS + slot);
            let swapped = word.compare_exchange(0, owner, Ordering::AcqRel, Ordering::Relaxed);
            swapped.is_ok()
        })?;
        Some(RingWriter {
            rings: self.clone(),
            slot,
            pid,
        })
    }

    /// The collector's end. There may be one at a time.
    pub fn reader(&self) -> RingReader {
        RingReader {
            rings: self.clone(),
            event: Vec::with_capacity(MOST_WORDS),
        }
    }
}

fn wrong(how: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the memory file of the hooks {how}"),
    )
}

impl RingWriter {
    /// The process that claimed it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the collector has enough.
    pub fn is_enough(&self) -> bool {
        self.rings.is_enough()
    }

    /// Whether an event of so many words has room.
    pub fn has_room(&self, words: usize) -> bool {
        let word = |place| self.rings.slot_word(self.slot, place);
        let written = word(WRITTEN).load(Ordering::Relaxed);
        let used = written.wrapping_sub(word(TAKEN).load(Ordering::Acquire));
        used + words as u64 <= RING_WORDS
    }

    /// Appends one event, as said by the thread `tid`; one that has no room is counted and dropped.
    pub fn write(&mut self, tid: u32, event: &[u64]) {
        let word = |place| self.rings.slot_word(self.slot, place);
        let written = word(WRITTEN).load(Ordering::Relaxed);
        let taken = word(TAKEN).load(Ordering::Acquire);
        let used = written.wrapping_sub(taken);
        let Some((head, rest)) = event.split_first() else {
            return;
        };
        if used + event.len() as u64 > RING_WORDS || event.len() > MOST_WORDS {
            word(DROPPED).fetch_add(1, Ordering::Relaxed);
            return;
        }
        let head = head & 0xffff_ffff | u64::from(tid) << 32;
        for (count, word) in (written..).zip([head].iter().chain(rest)) {
            let place = self.rings.ring_word(self.slot, count);
            place.store(*word, Ordering::Relaxed);
        }
        let end = written.wrapping_add(event.len() as u64);
        word(WRITTEN).store(end, Ordering::Release);
    }
}

impl RingReader {
    /// Gives every event that is there: the slot, its process, the thread, and the event's words. Returns how many.
    pub fn drain(&mut self, mut each: impl FnMut(usize, u32, u32, &[u64])) -> usize {
        let mut events = 0;
        for slot in self.slots() {
            events += self.drain_slot(slot, &mut each);
        }
        events
    }

    fn drain_slot(&mut self, slot: Slot, each: &mut impl FnMut(usize, u32, u32, &[u64])) -> usize {
        let mut events = 0;
        let word = |place| self.rings.slot_word(slot.number, place);
        let written = word(WRITTEN).load(Ordering::Acquire);
        let mut taken = word(TAKEN).load(Ordering::Relaxed);
        while taken != written {
            let at = |count| {
                let place = self.rings.ring_word(slot.number, count);
                place.load(Ordering::Relaxed)
            };
            let head = at(taken);
            let (_, _, length) = parse_head(head);
            if length == 0 || length > MOST_WORDS || length as u64 > written.wrapping_sub(taken) {
                // Somebody wrote what is no event: where the next one begins cannot be told.
                word(DROPPED).fetch_add(1, Ordering::Relaxed);
                taken = written;
                break;
            }
            self.event.clear();
            self.event.extend((taken..).take(length).map(at));
            each(slot.number, slot.pid, (head >> 32) as u32, &self.event);
            taken = taken.wrapping_add(length as u64);
            word(TAKEN).store(taken, Ordering::Release);
            events += 1;
        }
        word(TAKEN).store(taken, Ordering::Release);
        events
    }

    /// Words that wait in the ring where most do.
    pub fn most_words(&self) -> u64 {
        let waiting = |slot: Slot| {
            let word = |place| self.rings.slot_word(slot.number, place);
            let written = word(WRITTEN).load(Ordering::Acquire);
            written.wrapping_sub(word(TAKEN).load(Ordering::Relaxed))
        };
        self.slots().into_iter().map(waiting).max().unwrap_or(0)
    }

    /// The slots that are taken, and by whom.
    pub fn slots(&self) -> Vec<Slot> {
        let slot = |number| {
            let owner = self.rings.word(OWNERS + number).load(Ordering::Acquire);
            (owner != 0).then_some(Slot {
                number,
                pid: owner as u32,
                claim: (owner >> 32) as u32,
            })
        };
        (0..SLOTS).filter_map(slot).collect()
    }

    /// Events that were dropped in a slot, whoever had it.
    pub fn dropped(&self, slot: usize) -> u64 {
        let word = self.rings.slot_word(slot, DROPPED);
        word.load(Ordering::Relaxed)
    }

    /// How often a slot was asked for, got or not.
    pub fn claims(&self) -> u64 {
        self.rings.word(CLAIMED).load(Ordering::Relaxed)
    }

    /// Gives back the slots of processes that are not alive and whose events were all drained; returns them.
    pub fn free_ended(&self, mut is_alive: impl FnMut(u32) -> bool) -> Vec<Slot> {
        let mut freed = Vec::new();
        for slot in self.slots() {
            // Asked before its ring is looked at: a process that has ended writes no more.
            if is_alive(slot.pid) {
                continue;
            }
            let word = |place| self.rings.slot_word(slot.number, place);
            if word(WRITTEN).load(Ordering::Acquire) == word(TAKEN).load(Ordering::Relaxed) {
                let owner = self.rings.word(OWNERS + slot.number);
                owner.store(0, Ordering::Release);
                freed.push(slot);
            }
        }
        freed
    }

    /// The rings it reads.
    pub fn rings(&self) -> &Rings {
        &self.rings
    }
}

#[cfg(test)]
mod tests;

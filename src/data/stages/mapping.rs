//! Files mapped into memory, and what happens when a page of one cannot be read. The only file with `unsafe` for this
//! concern.
//!
//! A read that the disk fails, or past the end of a file that was truncated after it was mapped, raises SIGBUS, which
//! would kill a training run for one bad sample. A handler installed with the first mapping marks the page as lost and
//! puts an anonymous zero page under the faulting address, so the reader sees zeros and asks [`MappedFile::faulted`]
//! afterwards. A SIGBUS that is not ours goes to whoever handled it before.
//!
//! Invariants: every live mapping is in the registry before its bytes can be read and leaves it before it is
//! unmapped. The handler uses atomics, `mmap` and `sigaction` only: no locks, no allocation. Registering costs O(1).
//! When the registry is full a file is read into memory instead, which is slower and still correct.
//!
//! May use: `stages::reading` for the order of access. Linux only.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::reading::{Access, Extent};
use memmap2::{Advice, Mmap, MmapOptions};
use stallscope_core::machine::page_bytes;

/// Live mappings that can be guarded at once.
const SLOTS: usize = 4096;
/// The smallest page any supported machine has; touching one byte in each is enough for larger pages too.
const TOUCH_STRIDE_BYTES: usize = 4096;

/// A file that cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error("cannot {action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{path} ends before byte {end}; leave the data set alone during a run")]
    Short { path: PathBuf, end: u64 },
    #[error("{path} is empty; remove it from the data set or fetch it again")]
    Empty { path: PathBuf },
    #[error("{path} is not a regular file; only files can be samples")]
    NotAFile { path: PathBuf },
}

/// The read-only bytes of one file, or of a part of it.
#[derive(Debug)]
pub struct MappedFile {
    backing: Backing,
    /// Where in the file the bytes begin.
    offset: u64,
}

#[derive(Debug)]
enum Backing {
    Guarded {
        map: Mmap,
        slot: u32,
        /// A bit for each page, set where it was lost. Empty where only the whole matters.
        lost: Box<[AtomicU64]>,
    },
    Read(Vec<u8>),
}

impl MappedFile {
    /// Maps the sample `path` as it is now. Nothing is read yet; see [`MappedFile::touch_part`].
    pub fn open(path: &Path) -> Result<MappedFile, MapError> {
        MappedFile::map(path, None, false)
    }

    /// Maps a file in which many samples lie: what is lost of one concerns no other.
    pub fn open_shared(path: &Path) -> Result<MappedFile, MapError> {
        MappedFile::map(path, None, true)
    }

    /// Maps the part of `path` that is one sample.
    pub fn open_part(path: &Path, part: Extent) -> Result<MappedFile, MapError> {
        MappedFile::map(path, Some(part), false)
    }

    fn map(path: &Path, part: Option<Extent>, is_shared: bool) -> Result<MappedFile, MapError> {
        let io = |action| {
            move |source| MapError::Io {
                action,
                path: path.to_path_buf(),
                source,
            }
        };
        let file = File::open(path).map_err(io("open"))?;
        let metadata = file.metadata().map_err(io("stat"))?;
        if !metadata.is_file() {
            let path = path.to_path_buf();
            return Err(MapError::NotAFile { path });
        }
        if metadata.len() == 0 {
            let path = path.to_path_buf();
            return Err(MapError::Empty { path });
        }
        let extent = part.unwrap_or(Extent {
            offset: 0,
            bytes: metadata.len(),
        });
        if extent.end() > metadata.len() {
            let (path, end) = (path.to_path_buf(), extent.end());
            return Err(MapError::Short { path, end });
        }
        install_handler_once().map_err(io("install the SIGBUS handler for"))?;
        let backing = match REGISTRY.take_slot() {
            Some(slot) => map_guarded(&file, slot, extent, is_shared).map_err(io("map"))?,
            None => read_part(&file, extent).map_err(io("read"))?,
        };
        let offset = extent.offset;
        Ok(MappedFile { backing, offset })
    }

    /// The file's bytes. Zeros stand where they could not be read.
    pub fn bytes(&self) -> &[u8] {
        match &self.backing {
            Backing::Guarded { map, .. } => map,
            Backing::Read(bytes) => bytes,
        }
    }

    /// Tells the kernel in which order parts of the file will be asked for.
    pub fn advise(&self, access: Access) {
        if let Backing::Guarded { map, .. } = &self.backing {
            // Only a hint: a kernel that does not take it reads ahead as it always does.
            map.advise(match access {
                Access::Sequential => Advice::Sequential,
                Access::Random => Advice::Random,
            })
            .ok();
        }
    }

    /// Asks the kernel to read a part of the file, and does not wait for it.
    pub fn read_ahead(&self, part: Range<usize>) {
        if let Backing::Guarded { map, .. } = &self.backing
            && part.end <= map.len()
        {
            map.advise_range(Advice::WillNeed, part.start, part.len())
                .ok();
        }
    }

    /// Faults the pages of a part in, which lies inside the file, so that the caller's stage pays for the disk and not
    /// whoever reads the bytes next.
    pub fn touch_part(&self, part: Range<usize>, access: Access) {
        let Backing::Guarded { map, .. } = &self.backing else {
            return;
        };
        if access == Access::Random {
            // Where the kernel does not read ahead, it would fetch page by page.
            map.advise_range(Advice::WillNeed, part.start, part.len())
                .ok();
        }
        // One system call where the kernel has MADV_POPULATE_READ (Linux 5.14) and the file has not shrunk.
        let populated = map.advise_range(Advice::PopulateRead, part.start, part.len());
        if populated.is_ok() {
            return;
        }
        // A part of a file need not begin with a page, so its last byte may lie in one more.
        let end = part.end.min(map.len());
        let last = end.checked_sub(1).filter(|last| *last > part.start);
        let strides = (part.start..end).step_by(TOUCH_STRIDE_BYTES);
        for offset in strides.chain(last) {
            // SAFETY: `offset` is below the mapping's length. Volatile, so that the read is not optimised away.
            unsafe { std::ptr::read_volatile(map.as_ptr().add(offset)) };
        }
    }

    /// Whether any of `bytes()[part]` could not be read. Check it after decoding: what was decoded then is partly
    /// zeros. Of a sample that is mapped alone any byte counts.
    pub fn faulted(&self, part: Range<usize>) -> bool {
        let Backing::Guarded { map, slot, lost } = &self.backing else {
            return false;
        };
        if !REGISTRY.slots[*slot as usize]
            .has_lost
            .load(Ordering::Acquire)
        {
            return false;
        }
        let page_bytes = PAGE_BYTES.load(Ordering::Acquire);
        let start = map.as_ptr() as usize % page_bytes;
        let mut pages = (start + part.start) / page_bytes..(start + part.end).div_ceil(page_bytes);
        let is_lost = |page: usize| {
            let word = lost.get(page / 64).map(|word| word.load(Ordering::Acquire));
            word.is_none_or(|word| word >> (page % 64) & 1 == 1)
        };
        pages.any(is_lost)
    }

    /// Where in the file `bytes()[part]` ends.
    pub fn end_of(&self, part: &Range<usize>) -> u64 {
        self.offset + part.end as u64
    }

    /// False when the registry was full and the file was read instead.
    pub fn is_mapped(&self) -> bool {
        matches!(self.backing, Backing::Guarded { .. })
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // Before the field `map` unmaps: afterwards the addresses may belong to someone else.
        if let Backing::Guarded { slot, .. } = &self.backing {
            REGISTRY.release(*slot);
        }
    }
}

/// Maps `extent` of `file` and has `slot` guard it; gives the slot back when that fails.
fn map_guarded(file: &File, slot: u32, extent: Extent, is_shared: bool) -> io::Result<Backing> {
    let mut options = MmapOptions::new();
    options.offset(extent.offset).len(extent.bytes as usize);
    // SAFETY: the mapping is read-only, owned by the returned value, and outlives every slice of it. Another process
    // may still write or truncate the file: decoders treat the bytes as untrusted input, and the signal handler turns
    // a truncation into zeros.
    match unsafe { options.map(file) } {
        Ok(map) => {
            let pages = map.len() / PAGE_BYTES.load(Ordering::Acquire) + 1;
            let words = if is_shared { pages.div_ceil(64) } else { 0 };
            let lost: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
            REGISTRY.publish(slot, map.as_ptr() as usize, map.len(), &lost);
            Ok(Backing::Guarded { map, slot, lost })
        }
        Err(error) => {
            REGISTRY.release(slot);
            Err(error)
        }
    }
}

fn read_part(file: &File, extent: Extent) -> io::Result<Backing> {
    let mut bytes = vec![0; extent.bytes as usize];
    file.read_exact_at(&mut bytes, extent.offset)?;
    Ok(Backing::Read(bytes))
}

static REGISTRY: Registry = Registry::new();

/// Fixed table of live mappings. Free slots form a stack whose head carries a counter against ABA.
struct Registry {
    slots: [Slot; SLOTS],
    /// High 32 bits: a counter that changes with every update. Low 32 bits: first free slot, or `END`.
    free_head: AtomicU64,
}

struct Slot {
    start: AtomicUsize,
    /// Zero while the slot guards nothing.
    len_bytes: AtomicUsize,
    /// Whether a page could not be read.
    has_lost: AtomicBool,
    /// A bit for each page, null where nobody asks which: see [`Backing`], which owns them.
    lost: AtomicPtr<AtomicU64>,
    next_free: AtomicU32,
}

const END: u32 = u32::MAX;

impl Registry {
    const fn new() -> Registry {
        let mut slots = [const {
            Slot {
                start: AtomicUsize::new(0),
                len_bytes: AtomicUsize::new(0),
                has_lost: AtomicBool::new(false),
                lost: AtomicPtr::new(std::ptr::null_mut()),
                next_free: AtomicU32::new(END),
            }
        }; SLOTS];
        let mut i = 0;
        while i + 1 < SLOTS {
            slots[i].next_free = AtomicU32::new(i as u32 + 1);
            i += 1;
        }
        Registry {
            slots,
            free_head: AtomicU64::new(0),
        }
    }

    fn take_slot(&self) -> Option<u32> {
        let mut head = self.free_head.load(Ordering::Acquire);
        loop {
            let slot = head as u32;
            if slot == END {
                return None;
            }
            let next = self.slots[slot as usize].next_free.load(Ordering::Relaxed);
            match self.swap_head(head, next) {
                Ok(()) => return Some(slot),
                Err(current) => head = current,
            }
        }
    }

    /// Makes the handler guard `start..start + len_bytes`, and note in `lost`, unless that is empty, which pages are.
    fn publish(&self, slot: u32, start: usize, len_bytes: usize, lost: &[AtomicU64]) {
        let slot = &self.slots[slot as usize];
        let bits = match lost.is_empty() {
            true => std::ptr::null_mut(),
            false => lost.as_ptr().cast_mut(),
        };
        slot.has_lost.store(false, Ordering::Relaxed);
        slot.lost.store(bits, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        slot.len_bytes.store(len_bytes, Ordering::Release);
    }

    fn release(&self, slot: u32) {
        let entry = &self.slots[slot as usize];
        entry.len_bytes.store(0, Ordering::Release);
        let mut head = self.free_head.load(Ordering::Acquire);
        loop {
            entry.next_free.store(head as u32, Ordering::Relaxed);
            match self.swap_head(head, slot) {
                Ok(()) => return,
                Err(current) => head = current,
            }
        }
    }

    fn swap_head(&self, head: u64, first: u32) -> Result<(), u64> {
        let counter = (head >> 32).wrapping_add(1) << 32;
        let next = counter | u64::from(first);
        self.free_head
            .compare_exchange_weak(head, next, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }

    /// The slot that guards `address`. Called from the signal handler: atomics only. The length is read on both sides
    /// of the start, so a slot that changes hands meanwhile is never matched with one's start and the other's length.
    /// The mapping that faults cannot change: the faulting thread holds a reference to it.
    fn find(&self, address: usize) -> Option<&Slot> {
        self.slots.iter().find(|slot| {
            let len_bytes = slot.len_bytes.load(Ordering::Acquire);
            let start = slot.start.load(Ordering::Acquire);
            address.wrapping_sub(start) < len_bytes
                && slot.len_bytes.load(Ordering::Acquire) == len_bytes
        })
    }
}

static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);
/// The action in force before ours, as a pointer that is written once and never freed.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());
static INSTALL: Once = Once::new();
static INSTALL_ERRNO: AtomicU32 = AtomicU32::new(0);

fn install_handler_once() -> io::Result<()> {
    INSTALL.call_once(|| {
        if let Err(error) = install_handler() {
            INSTALL_ERRNO.store(
                error.raw_os_error().unwrap_or(libc::EIO) as u32,
                Ordering::Relaxed,
            );
        }
    });
    match INSTALL_ERRNO.load(Ordering::Relaxed) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno as i32)),
    }
}

fn install_handler() -> io::Result<()> {
    PAGE_BYTES.store(page_bytes(), Ordering::Release);
    // SAFETY: sigaction is given zeroed structures of its own type, and the previous
    // action is published before ours can run.
    unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut previous) != 0 {
            return Err(io::Error::last_os_error());
        }
        PREVIOUS.store(Box::into_raw(Box::new(previous)), Ordering::Release);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Runs on the thread that faulted, in the middle of whatever it was doing.
extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo. Everything called here is async-signal-safe. errno
    // belongs to the interrupted code and is put back.
    unsafe {
        let errno = libc::__errno_location();
        let saved_errno = *errno;
        // Codes above zero come from the kernel and carry an address; others were sent with kill().
        let is_fault = (*info).si_code > 0;
        if !(is_fault && replace_page((*info).si_addr() as usize)) {
            hand_over(signal, is_fault);
        }
        *errno = saved_errno;
    }
}

/// Puts a zero page under `address` if it lies in one of our mappings.
fn replace_page(address: usize) -> bool {
    let Some(slot) = REGISTRY.find(address) else {
        return false;
    };
    let page_bytes = PAGE_BYTES.load(Ordering::Acquire);
    let page = address & !(page_bytes - 1);
    let first = slot.start.load(Ordering::Acquire) & !(page_bytes - 1);
    let (lost, number) = (
        slot.lost.load(Ordering::Acquire),
        (page - first) / page_bytes,
    );
    // Marked before others can see the zeros.
    if !lost.is_null() {
        // SAFETY: the mapping that faults has a bit for each of its pages, and lives as long as they do.
        unsafe { &*lost.add(number / 64) }.fetch_or(1 << (number % 64), Ordering::AcqRel);
    }
    slot.has_lost.store(true, Ordering::Release);
    // SAFETY: the page lies inside a mapping that the faulting thread is reading, so it stays ours until this
    // returns; only pages that cannot be read fault, so no bytes are lost. The later munmap covers the new page too.
    let mapped = unsafe {
        let flags = libc::MAP_FIXED | libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
        libc::mmap(
            page as *mut libc::c_void,
            page_bytes,
            libc::PROT_READ,
            flags,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}

/// Restores the action in force before ours. A fault repeats by itself on return; a sent signal has to be sent again.
fn hand_over(signal: libc::c_int, is_fault: bool) {
    let previous = PREVIOUS.load(Ordering::Acquire);
    // SAFETY: `previous` was published before the handler was installed and is never freed; sigaction, signal and
    // raise are async-signal-safe.
    unsafe {
        if previous.is_null() || libc::sigaction(signal, previous, std::ptr::null_mut()) != 0 {
            libc::signal(signal, libc::SIG_DFL);
        }
        if !is_fault {
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
mod tests;

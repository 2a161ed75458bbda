//! Device memory: host memory at addresses of its own, which are not used twice as long as there are others; and the
//! page-locked memory of the host.

use crate::order::Accesses;
use std::collections::BTreeMap;

/// Addresses there are for each byte of memory.
const SPACE: u64 = 8;
/// What device memory is aligned to.
const ALIGNMENT: u64 = 512;
/// What freed memory holds.
pub const POISON: u8 = 0xdb;
/// As much of it is filled; the rest of a large allocation is given back to the system.
const POISONED: u64 = 1 << 20;

/// An allocation.
#[derive(Debug, Default)]
pub struct Allocation {
    pub bytes: u64,
    pub accesses: Accesses,
}

/// The memory of a device.
#[derive(Debug)]
pub struct Memory {
    base: u64,
    end: u64,
    next: u64,
    total: u64,
    used: u64,
    pub most: u64,
    allocations: BTreeMap<u64, Allocation>,
    /// Length of what was freed, by address.
    freed: BTreeMap<u64, u64>,
}

/// Where an address lies.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// In the allocation that begins there.
    In(u64),
    /// In memory that was freed.
    Freed,
    /// On no device.
    Nowhere,
}

impl Memory {
    pub fn new(total: u64) -> Memory {
        let space = total * SPACE;
        // SAFETY: asks for addresses; pages come when they are written to.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                space as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert!(base != libc::MAP_FAILED, "no addresses for {space} bytes");
        let base = base as u64;
        Memory {
            base,
            end: base + space,
            next: base,
            total,
            used: 0,
            most: 0,
            allocations: BTreeMap::new(),
            freed: BTreeMap::new(),
        }
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn used(&self) -> u64 {
        self.used
    }

    pub fn count(&self) -> usize {
        self.allocations.len()
    }

    /// Takes `bytes`; `None` where so many are not left.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let length = bytes.max(1).next_multiple_of(ALIGNMENT);
        if self.used + length > self.total {
            return None;
        }
        if self.next + length > self.end {
            self.next = self.base;
            self.freed.clear();
        }
        // After the addresses have been through once, what is taken still is in the way.
        while let Some((start, other)) = self.allocations.range(..self.next + length).next_back() {
            let past = (start + other.bytes).next_multiple_of(ALIGNMENT);
            if past <= self.next {
                break;
            }
            self.next = past;
            if self.next + length > self.end {
                return None;
            }
        }
        let address = self.next;
        self.next += length;
        let covered: Vec<u64> = self
            .freed
            .range(address..address + length)
            .map(|(start, _)| *start)
            .collect();
        for start in covered {
            self.freed.remove(&start);
        }
        self.used += length;
        self.most = self.most.max(self.used);
        self.allocations.insert(
            address,
            Allocation {
                bytes,
                ..Allocation::default()
            },
        );
        Some(address)
    }

    /// Frees what begins at `address`; `None` where nothing does.
    pub fn free(&mut self, address: u64) -> Option<u64> {
        let allocation = self.allocations.remove(&address)?;
        let length = allocation.bytes.max(1).next_multiple_of(ALIGNMENT);
        self.used -= length;
        self.freed.insert(address, length);
        let poisoned = length.min(POISONED);
        // SAFETY: the bytes lie in this device's own memory, which nobody else writes to.
        unsafe {
            std::ptr::write_bytes(address as *mut u8, POISON, poisoned as usize);
            let (rest, bytes) = (
                (address + poisoned).next_multiple_of(4096),
                length - poisoned,
            );
            if bytes > 8192 {
                libc::madvise(
                    rest as *mut libc::c_void,
                    (bytes - 4096) as usize,
                    libc::MADV_DONTNEED,
                );
            }
        }
        Some(allocation.bytes)
    }

    pub fn place(&self, address: u64) -> Place {
        if let Some((start, allocation)) = self.allocations.range(..=address).next_back()
            && address < start + allocation.bytes.max(1)
        {
            return Place::In(*start);
        }
        if let Some((start, length)) = self.freed.range(..=address).next_back()
            && address < start + length
        {
            return Place::Freed;
        }
        Place::Nowhere
    }

    pub fn get(&mut self, start: u64) -> Option<&mut Allocation> {
        self.allocations.get_mut(&start)
    }

    /// Whether the address is one of this device's.
    pub fn has(&self, address: u64) -> bool {
        (self.base..self.end).contains(&address)
    }
}

/// Page-locked memory of the host: length by address.
#[derive(Debug, Default)]
pub struct Pinned {
    /// What the driver has allocated.
    pub allocated: BTreeMap<usize, usize>,
    /// What was the program's own.
    pub registered: BTreeMap<usize, usize>,
}

impl Pinned {
    /// Whether all of the range is page-locked.
    pub fn has(&self, start: usize, bytes: usize) -> bool {
        [&self.allocated, &self.registered]
            .into_iter()
            .any(|ranges| {
                let found = ranges.range(..=start).next_back();
                found.is_some_and(|(from, length)| start + bytes <= from + length)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_memory_is_known_poisoned_and_not_used_again() {
        let mut memory = Memory::new(1 << 20);
        let first = memory.take(1000).unwrap();
        assert_eq!(memory.place(first + 999), Place::In(first));
        assert_eq!(memory.free(first), Some(1000));
        assert_eq!(memory.free(first), None);
        assert_eq!(memory.place(first), Place::Freed);
        // SAFETY: the memory's own bytes.
        assert_eq!(unsafe { *(first as *const u8) }, POISON);
        assert_ne!(memory.take(1000), Some(first));
        assert_eq!(memory.place(1), Place::Nowhere);
    }

    #[test]
    fn there_is_as_much_as_there_is() {
        let mut memory = Memory::new(1 << 20);
        let all: Vec<u64> = std::iter::from_fn(|| memory.take(1 << 18)).collect();
        assert_eq!(all.len(), 4);
        memory.free(all[1]);
        assert!(memory.take(1 << 18).is_some());
        assert!(memory.take(1).is_none());
        assert_eq!(memory.most, 1 << 20);
    }

    #[test]
    fn addresses_come_round_past_what_is_still_taken() {
        let mut memory = Memory::new(1 << 20);
        let kept = memory.take(1 << 19).unwrap();
        for _ in 0..100 {
            let address = memory.take(1 << 18).unwrap();
            assert!(address >= kept + (1 << 19) || address + (1 << 18) <= kept);
            memory.free(address);
        }
    }
}

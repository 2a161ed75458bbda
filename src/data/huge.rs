//! Bytes that are read in random order, in huge pages where the system gives them.
//!
//! Each image of a data set in memory lies in another page of 4 KiB, and finding the page takes as long as reading the
//! image: <https://docs.kernel.org/admin-guide/mm/transhuge.html>. In pages of 2 MiB a table that the core keeps does.
//!
//! May use: `machine`.

use memmap2::MmapMut;
use stallscope_core::machine::{HUGE_PAGE_BYTES as HUGE_PAGE, ask_for_huge_pages};
use std::ops::Deref;
use std::sync::Arc;

/// Bytes that do not change. A clone names the same memory.
#[derive(Clone, Debug)]
pub(super) struct HugeBytes {
    pages: Arc<Pages>,
    length: usize,
}

#[derive(Debug)]
enum Pages {
    Huge(MmapMut),
    Plain(Vec<u8>),
}

impl From<Vec<u8>> for HugeBytes {
    /// Copies `bytes` where they fill a huge page and the kernel takes the wish for some, and keeps them as they are
    /// elsewhere.
    fn from(bytes: Vec<u8>) -> HugeBytes {
        let length = bytes.len();
        let pages = in_huge_pages(&bytes).map_or_else(|| Pages::Plain(bytes), Pages::Huge);
        HugeBytes {
            pages: Arc::new(pages),
            length,
        }
    }
}

impl Deref for HugeBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &*self.pages {
            Pages::Huge(pages) => &pages[..self.length],
            Pages::Plain(bytes) => bytes,
        }
    }
}

/// A copy of `bytes` for which huge pages are wished for, as many as its place allows: kernels since 6.7 let it begin
/// with one.
fn in_huge_pages(bytes: &[u8]) -> Option<MmapMut> {
    let length = bytes.len();
    let mut pages = (length >= HUGE_PAGE)
        .then(|| MmapMut::map_anon(length.next_multiple_of(HUGE_PAGE)).ok())??;
    let taken = ask_for_huge_pages(&mut pages);
    taken.then(|| {
        pages[..length].copy_from_slice(bytes);
        pages
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    impl HugeBytes {
        /// Bytes of memory that are taken.
        pub(crate) fn taken(&self) -> usize {
            match &*self.pages {
                Pages::Huge(pages) => pages.len(),
                Pages::Plain(bytes) => bytes.capacity(),
            }
        }
    }

    #[test]
    fn many_bytes_and_few_are_what_they_were() {
        for length in [0, 5, HUGE_PAGE - 1, HUGE_PAGE, 2 * HUGE_PAGE + 5] {
            let bytes: Vec<u8> = (0..length).map(|n| (n / 7) as u8).collect();
            let huge = HugeBytes::from(bytes.clone());
            assert!(*huge == bytes, "{length} bytes");
            assert!(*huge.clone() == bytes);
            assert!(huge.taken() < length.max(1) + HUGE_PAGE);
        }
    }
}

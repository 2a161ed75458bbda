//! Huge pages of memory. The only file with `unsafe` for this concern.
//!
//! May use: nothing of this crate.

/// Bytes of a huge page, the smallest on x86-64 and on arm64 with pages of 4 KiB.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Asks the kernel for huge pages, as many as fit in `bytes` whole, before anything is written there; returns whether it
/// takes the wish. It may give others all the same: <https://docs.kernel.org/admin-guide/mm/transhuge.html>.
pub fn ask_for_huge_pages(bytes: &mut [u8]) -> bool {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::mman::{MmapAdvise, madvise};
        use std::ptr::NonNull;

        let before = bytes.as_ptr().align_offset(HUGE_PAGE_BYTES);
        let Some((_, rest)) = bytes.split_at_mut_checked(before) else {
            return false;
        };
        let whole = rest.len() / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        let first = NonNull::from(rest).cast();
        // SAFETY: those are whole pages of one live slice, whose content this advice does not change.
        whole > 0 && unsafe { madvise(first, whole, MmapAdvise::MADV_HUGEPAGE) }.is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = bytes;
        false
    }
}

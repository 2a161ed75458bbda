//! Asks for bytes that are needed soon, so that they are in the cache by then. The only file with `unsafe` for this
//! concern.

/// Bytes that come from memory at once.
const CACHE_LINE: usize = 64;

/// Has the processor fetch `bytes` into its cache, and does not wait for them; nothing on processors other than
/// x86-64.
#[inline]
pub fn fetch_ahead(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    // The last byte may lie one line further than whole lines from the first one reach.
    for byte in bytes.iter().step_by(CACHE_LINE).chain(bytes.last()) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program sees, and every x86-64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, CACHE_LINE);
}

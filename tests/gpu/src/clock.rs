//! Times are nanoseconds of CLOCK_MONOTONIC.

use std::time::Duration;

pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call stores one time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until `then`; returns at once where that has passed.
pub fn sleep_until(then: u64) {
    loop {
        let now = now();
        if now >= then {
            return;
        }
        std::thread::sleep(Duration::from_nanos(then - now));
    }
}

//! What the kernel charges to a worker thread: CPU time, switches, faults, and time spent runnable but
//! not running.
//!
//! Reading it costs some microseconds, so it is read at most once in 2 ms (run delay) and once in 50 ms
//! (the rest). Where the kernel does not tell, everything is zero.

use crate::timeline::{Nanos, ThreadUsage};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;

const RUN_DELAY_EVERY: Nanos = Nanos::from_millis(2);
const USAGE_EVERY: Nanos = Nanos::from_millis(50);

/// Reads one thread's figures; made in that thread.
pub struct UsageMeter {
    schedstat: Option<File>,
    on: bool,
    run_delay: u64,
    run_delay_read: Nanos,
    usage_read: Nanos,
    readings: u64,
}

impl UsageMeter {
    /// A meter for the calling thread. One that is not `on` reads nothing.
    pub fn new(on: bool) -> UsageMeter {
        let schedstat = on
            .then(|| File::open("/proc/thread-self/schedstat").ok())
            .flatten();
        let mut meter = UsageMeter {
            schedstat,
            on,
            run_delay: 0,
            run_delay_read: Nanos::ZERO,
            usage_read: Nanos::ZERO,
            readings: 0,
        };
        meter.run_delay = meter.read_run_delay();
        meter
    }

    pub(super) fn read_run_delay(&self) -> u64 {
        let mut text = [0u8; 80];
        let Some(length) = self
            .schedstat
            .as_ref()
            .and_then(|f| f.read_at(&mut text, 0).ok())
        else {
            return 0;
        };
        // "on-cpu-ns run-delay-ns timeslices"
        let mut fields = text[..length].split(|byte| *byte == b' ');
        fields
            .nth(1)
            .and_then(|field| std::str::from_utf8(field).ok()?.parse().ok())
            .unwrap_or(0)
    }

    /// Time runnable but not running since the last call, if 2 ms have passed since then.
    #[inline]
    pub fn run_delay(&mut self, now: Nanos) -> u32 {
        if self.schedstat.is_none() || now - self.run_delay_read < RUN_DELAY_EVERY {
            return 0;
        }
        self.run_delay_read = now;
        self.readings += 1;
        let total = self.read_run_delay();
        let delta = total.saturating_sub(self.run_delay);
        self.run_delay = total;
        delta.min(u64::from(u32::MAX)) as u32
    }

    /// All figures so far, if 50 ms have passed since the last call.
    #[inline]
    pub fn usage(&mut self, now: Nanos) -> Option<ThreadUsage> {
        (self.on && now - self.usage_read >= USAGE_EVERY).then(|| self.usage_now(now))
    }

    /// All figures so far.
    pub fn usage_now(&mut self, now: Nanos) -> ThreadUsage {
        self.usage_read = now;
        self.readings += 1;
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok();
        let time = |of: fn(&Usage) -> TimeVal| {
            usage.as_ref().map_or(Nanos::ZERO, |usage| {
                let value = of(usage);
                Nanos(value.tv_sec() as u64 * 1_000_000_000 + value.tv_usec() as u64 * 1_000)
            })
        };
        let count = |of: fn(&Usage) -> std::ffi::c_long| {
            usage.as_ref().map_or(0, |usage| of(usage).max(0) as u64)
        };
        ThreadUsage {
            at: now,
            user: time(Usage::user_time),
            system: time(Usage::system_time),
            run_delay: Nanos(self.read_run_delay()),
            voluntary_switches: count(Usage::voluntary_context_switches),
            involuntary_switches: count(Usage::involuntary_context_switches),
            major_faults: count(Usage::major_page_faults),
            minor_faults: count(Usage::minor_page_faults),
            readings: self.readings,
        }
    }

    /// CPU time of the calling thread so far, by a clock that is read in a fraction of the time of the other figures;
    /// nothing where the meter is off.
    pub(super) fn cpu_now(&self) -> Nanos {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok();
        time.filter(|_| self.on).map_or(Nanos::ZERO, |time| {
            Nanos(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        })
    }

    /// Whether the meter reads anything.
    pub fn is_on(&self) -> bool {
        self.on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_this_threads_cpu_time() {
        let mut meter = UsageMeter::new(true);
        let before = meter.usage_now(Nanos(1));
        let mut sum = 0u64;
        while meter.usage_now(Nanos(2)).user + meter.usage_now(Nanos(2)).system
            < before.user + before.system + Nanos::from_millis(8)
        {
            sum = (0..100_000u64).fold(sum, |a, b| a.wrapping_mul(31).wrapping_add(b));
        }
        assert!(sum != 1);
        assert_eq!(UsageMeter::new(false).run_delay(Nanos::from_millis(50)), 0);
    }
}

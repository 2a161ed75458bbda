//! What a thread asks of itself: the time, and what it has used.

use crate::event::Used;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970.
pub(crate) fn unix_now() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

/// CPU time of this thread, in nanoseconds.
pub fn thread_cpu() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process, in nanoseconds.
pub fn process_cpu() -> u64 {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// This thread's number in the system.
pub fn thread_id() -> u32 {
    // SAFETY: it has no preconditions.
    (unsafe { libc::gettid() }) as u32
}

#[inline]
fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes to the local that is given; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How long a thread has lacked a core: the kernel's file on it, kept open.
#[derive(Debug)]
pub struct RunDelay {
    file: Option<File>,
}

impl RunDelay {
    /// Of this thread.
    pub fn of_this_thread() -> RunDelay {
        RunDelay {
            file: File::open("/proc/thread-self/schedstat").ok(),
        }
    }

    /// Of another thread, where it is there and the kernel says.
    pub(crate) fn of(pid: u32, tid: u32) -> Option<RunDelay> {
        let file = File::open(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        Some(RunDelay { file: Some(file) })
    }

    /// Since the thread began, in nanoseconds; 0 where the kernel does not say.
    pub fn read(&self) -> u64 {
        let mut text = [0; 64];
        let read = self.file.as_ref().map(|file| file.read_at(&mut text, 0));
        let length = read.and_then(Result::ok).unwrap_or(0);
        let mut numbers = text[..length].split(|byte| *byte == b' ');
        let digits = numbers.nth(1).unwrap_or_default();
        let number = |sum: u64, digit: &u8| sum * 10 + u64::from(digit - b'0');
        let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, number)
    }

    /// What this thread has used.
    pub fn used(&self) -> Used {
        Used {
            cpu: thread_cpu(),
            delay: self.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_on() {
        let (wall, cpu, process) = (now(), thread_cpu(), process_cpu());
        let mut number = 0_u64;
        while thread_cpu() == cpu {
            number = std::hint::black_box(number + 1);
        }
        assert!(now() > wall && process_cpu() > process);
        assert_ne!(thread_id(), 0);
    }

    #[test]
    fn who_lacks_a_core_knows_it() {
        let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let delays: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let work = || {
                let delay = RunDelay::of_this_thread();
                let (begun, before) = (now(), delay.used());
                while thread_cpu() - before.cpu < 50_000_000 {}
                let (length, used) = (now() - begun, delay.used().since(before));
                (length - used.cpu.min(length), used.delay)
            };
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        // Who computes and waits for nothing else lacked a core for the rest.
        let (rest, delay) = delays
            .iter()
            .fold((0, 0), |(rest, delay), one| (rest + one.0, delay + one.1));
        assert!(rest > 10_000_000 && delay > rest / 2, "{delays:?}");
    }
}

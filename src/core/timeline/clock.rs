//! The clock that queues, workers and the trainer take, and the threads that run on it.
//!
//! With [`MonotonicClock`] waiting is the operating system's. A clock with a [`Scheduler`]
//! (the virtual clock) decides itself which thread runs: every wait of the engine goes through it, so
//! the same queues and workers run under it, instantly and repeatably.

use super::Nanos;
use nix::sys::prctl::set_timerslack;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Identifies what a thread waits for under a [`Scheduler`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitKey(u64);

impl WaitKey {
    /// A key that nothing else in this process has.
    pub fn unique() -> WaitKey {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        WaitKey(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A monotonic clock and the way to let its time pass.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Nanos;

    /// Blocks the calling thread until `deadline`.
    fn sleep_until(&self, deadline: Nanos);

    /// The scheduler that runs the threads of this clock, where it has one.
    fn scheduler(&self) -> Option<&dyn Scheduler> {
        None
    }

    /// Blocks the calling thread for `length`.
    fn sleep(&self, length: Nanos) {
        if length > Nanos::ZERO {
            self.sleep_until(self.now() + length);
        }
    }
}

/// Decides which thread of a virtual clock runs. Exactly one runs at a time.
pub trait Scheduler: Send + Sync {
    /// Announces a thread about to be spawned; returns its ticket.
    fn admit(&self) -> u64;
    /// The spawned thread's first call: blocks until it is its turn.
    fn enter(&self, ticket: u64);
    /// The thread's last call: it will not run again.
    fn leave(&self);
    /// Blocks the caller until somebody wakes `key`. Spurious returns are allowed.
    fn wait(&self, key: WaitKey);
    /// Makes every thread that waits for `key` runnable; the caller keeps running.
    fn wake(&self, key: WaitKey);
    /// The same for the one that has waited longest.
    fn wake_one(&self, key: WaitKey);
    /// Time that the caller has computed so far; `None` where that is not counted.
    fn cpu_time(&self) -> Option<Nanos> {
        None
    }
    /// Time that the caller was ready to compute and had no core, so far.
    fn run_delay(&self) -> Nanos {
        Nanos::ZERO
    }
}

/// The real clock: `CLOCK_MONOTONIC` counted from the clock's creation.
#[derive(Clone, Debug)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// A clock that starts at zero now.
    pub fn new() -> MonotonicClock {
        MonotonicClock {
            origin: Instant::now(),
        }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        // A run would have to last 584 years to overflow.
        Nanos(self.origin.elapsed().as_nanos() as u64)
    }

    fn sleep_until(&self, deadline: Nanos) {
        let left = deadline - self.now();
        if left > Nanos::ZERO {
            wake_on_time();
            std::thread::sleep(Duration::from_nanos(left.0));
        }
    }
}

/// Has Linux wake the calling thread when it asked to be. By default a sleep may last 50 us longer, so that
/// wake-ups can be gathered; an emulated NVMe disk answers within 70.
fn wake_on_time() {
    thread_local! {
        static ASKED: Cell<bool> = const { Cell::new(false) };
    }
    if !ASKED.replace(true) {
        // One nanosecond is the least, as zero means the default. Refused, sleeps last a little longer.
        set_timerslack(1).ok();
    }
}

/// A thread that takes part in a [`Clock`]: joining it lets a virtual clock run the others.
pub struct ClockThread<T> {
    handle: JoinHandle<T>,
    clock: Arc<dyn Clock>,
    finished: Arc<AtomicBool>,
    key: WaitKey,
}

/// Joins `thread` if it ends within `patience`; one that hangs is left to itself.
pub fn join_within(thread: JoinHandle<()>, patience: Duration) {
    let since = Instant::now();
    while !thread.is_finished() && since.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    if thread.is_finished() {
        thread.join().ok();
    }
}

/// Spawns a named thread that takes part in `clock`.
///
/// # Errors
/// What the operating system says when it has no thread to give.
pub fn spawn_on<T: Send + 'static>(
    clock: &Arc<dyn Clock>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<ClockThread<T>> {
    let finished = Arc::new(AtomicBool::new(false));
    let key = WaitKey::unique();
    let ticket = clock.scheduler().map(|s| s.admit());
    let member = Member {
        clock: clock.clone(),
        finished: finished.clone(),
        key,
        ticket,
    };
    // Linux keeps 15 bytes of a thread's name.
    let short: String = name.chars().take(15).collect();
    let handle = std::thread::Builder::new().name(short).spawn(move || {
        member.enter();
        let result = body();
        drop(member);
        result
    })?;
    Ok(ClockThread {
        handle,
        clock: clock.clone(),
        finished,
        key,
    })
}

/// Leaves the clock's scheduler when dropped, so that a panicking thread leaves it too.
struct Member {
    clock: Arc<dyn Clock>,
    finished: Arc<AtomicBool>,
    key: WaitKey,
    ticket: Option<u64>,
}

impl Member {
    fn enter(&self) {
        if let (Some(scheduler), Some(ticket)) = (self.clock.scheduler(), self.ticket) {
            scheduler.enter(ticket);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.finished.store(true, Ordering::Release);
        if let Some(scheduler) = self.clock.scheduler() {
            scheduler.wake(self.key);
            scheduler.leave();
        }
    }
}

impl<T> ClockThread<T> {
    /// Waits for the thread to end and returns what it returned, or its panic.
    ///
    /// # Errors
    /// The panic's payload where the thread panicked.
    pub fn join(self) -> std::thread::Result<T> {
        if let Some(scheduler) = self.clock.scheduler() {
            while !self.finished.load(Ordering::Acquire) {
                scheduler.wait(self.key);
            }
        }
        self.handle.join()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::VirtualClock;
    use std::sync::Mutex;

    #[test]
    fn sleepers_wake_in_order_and_take_no_real_time() {
        let clock = VirtualClock::new();
        let shared: Arc<dyn Clock> = clock.clone();
        let log = Arc::new(Mutex::new(Vec::new()));
        clock.run(|| {
            let threads: Vec<_> = [30u64, 10, 20]
                .into_iter()
                .map(|seconds| {
                    let (clock, log) = (shared.clone(), log.clone());
                    spawn_on(&shared, "sleeper", move || {
                        clock.sleep(Nanos(seconds * 1_000_000_000));
                        log.lock().unwrap().push((seconds, clock.now()));
                    })
                    .unwrap()
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
        });
        let seconds: Vec<u64> = log.lock().unwrap().iter().map(|entry| entry.0).collect();
        assert_eq!(seconds, [10, 20, 30]);
        assert_eq!(clock.now(), Nanos(30_000_000_000));
    }

    #[test]
    fn threads_that_compute_share_the_cores() {
        let clock = VirtualClock::with_cores(2);
        let shared: Arc<dyn Clock> = clock.clone();
        clock.run(|| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let clock = clock.clone();
                    let body = move || {
                        clock.compute(Nanos::from_millis(10));
                        assert_eq!(Scheduler::cpu_time(&*clock), Some(Nanos::from_millis(10)));
                        clock.run_delay()
                    };
                    spawn_on(&shared, "computer", body).unwrap()
                })
                .collect();
            for thread in threads {
                let delay = thread.join().unwrap();
                assert!((9..=10).contains(&(delay.0 / 1_000_000)), "{delay}");
            }
        });
        assert_eq!(clock.now(), Nanos::from_millis(20));
        assert_eq!(clock.cpu_time(), Nanos::from_millis(40));
    }

    #[test]
    #[should_panic(expected = "every thread waits")]
    fn a_deadlock_panics() {
        let clock = VirtualClock::new();
        clock.run(|| clock.wait(WaitKey::unique()));
    }
}

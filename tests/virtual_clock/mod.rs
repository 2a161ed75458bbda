//! A clock whose time passes only when every thread waits, for repeatable tests of the real engine.
//!
//! One thread runs at a time and hands its turn on when it sleeps or waits. When nobody can run, time
//! jumps to the earliest sleeper. Ties run in the order in which they became runnable, so a run is
//! repeatable to the nanosecond. When nobody can ever run again the clock panics: the engine has a
//! deadlock.
//!
//! A clock with cores lets threads compute as well as wait: they take turns on the cores, a slice at a time,
//! and what they wait for one is their run delay.

// No test needs all of it.
#![allow(dead_code)]

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use stallscope::timeline::{Clock, Nanos, Scheduler, WaitKey};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;

thread_local! {
    static TICKET: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A virtual clock; see the module's description.
#[derive(Default)]
pub struct VirtualClock {
    now: AtomicU64,
    state: Mutex<State>,
    deadlocked: AtomicBool,
}

/// Where a thread waits for its turn: without the state's lock, which the one that hands it on may hold.
#[derive(Default)]
struct Seat {
    /// `None` until it has come.
    thread: Option<Thread>,
    is_next: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    next_ticket: u64,
    order: u64,
    running: Option<u64>,
    ready: VecDeque<u64>,
    sleepers: BinaryHeap<Reverse<(u64, u64, u64)>>,
    waiting: HashMap<WaitKey, VecDeque<u64>>,
    seats: HashMap<u64, Seat>,
    cores: Cores,
}

/// The cores that threads compute on.
#[derive(Default)]
struct Cores {
    /// `None`: as many as there are threads.
    count: Option<usize>,
    taken: usize,
    waiting: VecDeque<u64>,
    /// How long each thread has waited for one.
    run_delay: HashMap<u64, Nanos>,
    used: Nanos,
    used_by: HashMap<u64, Nanos>,
}

/// How long a thread computes before it makes room for another.
const SLICE: Nanos = Nanos::from_millis(1);

impl VirtualClock {
    /// A clock at time zero with nobody on it.
    pub fn new() -> Arc<VirtualClock> {
        Arc::new(VirtualClock::default())
    }

    /// A clock whose threads share `cores` cores when they compute.
    pub fn with_cores(cores: usize) -> Arc<VirtualClock> {
        let clock = VirtualClock::new();
        clock.lock().cores.count = Some(cores);
        clock
    }

    /// Computes for `length` on the cores, in turns with the other threads.
    pub fn compute(&self, length: Nanos) {
        let mut left = length;
        while left > Nanos::ZERO {
            let slice = left.min(SLICE);
            self.take_core();
            self.sleep(slice);
            self.free_core(slice);
            left = left - slice;
        }
    }

    /// CPU time that all threads have used so far.
    pub fn cpu_time(&self) -> Nanos {
        self.lock().cores.used
    }

    fn take_core(&self) {
        let (ticket, since) = (self.current(), self.now());
        let mut state = self.lock();
        let cores = &mut state.cores;
        if cores.count.is_none_or(|count| cores.taken < count) {
            cores.taken += 1;
            return;
        }
        cores.waiting.push_back(ticket);
        self.hand_on(state, ticket);
        let waited = self.now() - since;
        *self.lock().cores.run_delay.entry(ticket).or_default() += waited;
    }

    /// Gives the core to whoever has waited longest.
    fn free_core(&self, used: Nanos) {
        let ticket = self.current();
        let mut state = self.lock();
        state.cores.used += used;
        *state.cores.used_by.entry(ticket).or_default() += used;
        match state.cores.waiting.pop_front() {
            Some(next) => state.ready.push_back(next),
            None => state.cores.taken -= 1,
        }
    }

    /// Runs `body` on the calling thread as a member of the clock.
    pub fn run<T>(&self, body: impl FnOnce() -> T) -> T {
        let _core = OnOneCore::take();
        let ticket = self.admit();
        self.enter(ticket);
        let _leave = LeaveOnDrop(self);
        body()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Gives the turn to the next runnable thread, letting time pass when there is none.
    fn give(&self, mut state: MutexGuard<'_, State>) {
        let next = state.ready.pop_front().or_else(|| {
            let Reverse((time, _, ticket)) = state.sleepers.pop()?;
            let now = self.now.load(Ordering::Relaxed).max(time);
            self.now.store(now, Ordering::Release);
            Some(ticket)
        });
        state.running = next;
        if let Some(ticket) = next {
            let seat = &state.seats[&ticket];
            seat.is_next.store(true, Ordering::Release);
            let thread = seat.thread.clone();
            drop(state);
            thread.iter().for_each(Thread::unpark);
        } else if !state.seats.is_empty() {
            self.deadlocked.store(true, Ordering::Release);
            let threads = state.seats.values().filter_map(|seat| seat.thread.as_ref());
            threads.for_each(Thread::unpark);
        }
    }

    /// Gives the turn on and blocks until it is `ticket`'s again.
    fn hand_on(&self, state: MutexGuard<'_, State>, ticket: u64) {
        let is_next = state.seats[&ticket].is_next.clone();
        self.give(state);
        self.take_turn(&is_next);
    }

    fn take_turn(&self, is_next: &AtomicBool) {
        let dead = loop {
            if is_next.swap(false, Ordering::Acquire) {
                break false;
            }
            if self.deadlocked.load(Ordering::Acquire) {
                break true;
            }
            std::thread::park();
        };
        assert!(
            !dead || std::thread::panicking(),
            "virtual clock: every thread waits for another"
        );
    }

    fn current(&self) -> u64 {
        TICKET
            .get()
            .expect("only threads spawned on the virtual clock may wait on it")
    }
}

/// How many clocks run on each core.
static CLOCKS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// The calling thread and those that it starts run on one core, the one with fewest clocks: only one of them runs at a
/// time, and a turn is handed on twice as fast within a core.
struct OnOneCore {
    core: usize,
    before: CpuSet,
}

impl OnOneCore {
    fn take() -> Option<OnOneCore> {
        let before = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let mut clocks = CLOCKS.lock().ok()?;
        let cores = (0..CpuSet::count()).filter(|core| before.is_set(*core) == Ok(true));
        let core = cores.min_by_key(|core| clocks.get(core).copied().unwrap_or(0))?;
        let mut one = CpuSet::new();
        one.set(core).ok()?;
        sched_setaffinity(Pid::from_raw(0), &one).ok()?;
        *clocks.entry(core).or_default() += 1;
        Some(OnOneCore { core, before })
    }
}

impl Drop for OnOneCore {
    fn drop(&mut self) {
        sched_setaffinity(Pid::from_raw(0), &self.before).ok();
        if let Ok(mut clocks) = CLOCKS.lock()
            && let Some(count) = clocks.get_mut(&self.core)
        {
            *count -= 1;
        }
    }
}

struct LeaveOnDrop<'a>(&'a VirtualClock);

impl Drop for LeaveOnDrop<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Acquire))
    }

    fn sleep_until(&self, deadline: Nanos) {
        let ticket = self.current();
        let mut state = self.lock();
        state.order += 1;
        let order = state.order;
        state.sleepers.push(Reverse((deadline.0, order, ticket)));
        self.hand_on(state, ticket);
    }

    fn scheduler(&self) -> Option<&dyn Scheduler> {
        Some(self)
    }
}

impl Scheduler for VirtualClock {
    fn admit(&self) -> u64 {
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.seats.insert(ticket, Seat::default());
        state.ready.push_back(ticket);
        ticket
    }

    fn enter(&self, ticket: u64) {
        TICKET.set(Some(ticket));
        let mut state = self.lock();
        let nobody_runs = state.running.is_none();
        let seat = state.seats.get_mut(&ticket).expect("it was admitted");
        seat.thread = Some(std::thread::current());
        let is_next = seat.is_next.clone();
        if nobody_runs {
            self.give(state);
        } else {
            drop(state);
        }
        self.take_turn(&is_next);
    }

    fn leave(&self) {
        let ticket = self.current();
        TICKET.set(None);
        let mut state = self.lock();
        state.seats.remove(&ticket);
        self.give(state);
    }

    fn wait(&self, key: WaitKey) {
        let ticket = self.current();
        let mut state = self.lock();
        state.waiting.entry(key).or_default().push_back(ticket);
        self.hand_on(state, ticket);
    }

    fn cpu_time(&self) -> Option<Nanos> {
        let cores = &self.lock().cores;
        cores.count?;
        Some(
            cores
                .used_by
                .get(&self.current())
                .copied()
                .unwrap_or_default(),
        )
    }

    fn run_delay(&self) -> Nanos {
        let delays = &self.lock().cores.run_delay;
        delays.get(&self.current()).copied().unwrap_or_default()
    }

    fn wake(&self, key: WaitKey) {
        let mut state = self.lock();
        if let Some(woken) = state.waiting.remove(&key) {
            state.ready.extend(woken);
        }
    }

    fn wake_one(&self, key: WaitKey) {
        let mut state = self.lock();
        if let Some(woken) = state.waiting.get_mut(&key).and_then(VecDeque::pop_front) {
            state.ready.push_back(woken);
        }
    }
}

//! Streams: queues, each with a thread that does what it is given in turn; and events.
//!
//! Work begins when the work before it has ended, or when it has reached the device, whichever is later, and ends as
//! planted: times are computed, and what can be seen of the work happens when they have come.

use crate::check::Copied;
use crate::clock::{now, sleep_until};
use crate::cupti;
use crate::order::Past;
use crate::world::{Status, world};
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Kernels may be that far ahead of the clock, so that short ones need no wake-up each.
const AHEAD_NS: u64 = 50_000;

/// A piece of work.
pub struct Work {
    /// When it reaches the device.
    pub at: u64,
    pub correlation: u32,
    pub kind: Kind,
}

pub enum Kind {
    Kernel {
        name: Arc<str>,
        ns: u64,
        stamp: Option<u64>,
    },
    Copy(Copy),
    Set {
        address: u64,
        bytes: u64,
        value: u8,
    },
    Record(Arc<Event>, u64),
    Wait(Arc<Event>, u64),
    Call(unsafe extern "C" fn(*mut libc::c_void), usize),
}

/// A copy of rows, each `width` bytes; one row where memory is contiguous.
pub struct Copy {
    pub from: u64,
    pub to: u64,
    pub width: u64,
    pub rows: u64,
    pub pitch_from: u64,
    pub pitch_to: u64,
    pub direction: Direction,
    pub pinned: bool,
    /// Of the host's bytes when the copy was asked for.
    pub sum: Option<u64>,
    /// Holds the bytes where the call took them along.
    pub staged: Option<Box<[u8]>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToDevice,
    ToHost,
    OnDevice,
}

pub struct Stream {
    pub handle: usize,
    /// Among all there ever were.
    pub number: usize,
    pub context: usize,
    pub device: usize,
    /// Takes its turn with the null stream.
    pub is_blocking: bool,
    queue: Mutex<Queue>,
    changed: Condvar,
    done: Mutex<Done>,
    /// When its last work ends, which may be ahead of the clock.
    free_at: AtomicU64,
}

#[derive(Default)]
struct Queue {
    works: VecDeque<Work>,
    given: u64,
    finished: u64,
    is_closed: bool,
}

/// What it did.
#[derive(Default)]
struct Done {
    busy: Vec<(u64, u64)>,
    kernels: HashMap<Arc<str>, u64>,
}

static KERNELS: AtomicU64 = AtomicU64::new(0);
static COPIES: AtomicU64 = AtomicU64::new(0);
/// When the engines for copies to the device and to the host are free again, by device.
static ENGINES: Mutex<Vec<[u64; 2]>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    fn place(&self) -> cupti::Place {
        cupti::Place {
            device: self.device as u32,
            stream: self.number as u32,
        }
    }

    /// Starts a stream.
    pub fn start(
        handle: usize,
        number: usize,
        (context, device): (usize, usize),
        is_blocking: bool,
    ) -> Arc<Stream> {
        let stream = Arc::new(Stream {
            handle,
            number,
            context,
            device,
            is_blocking,
            queue: Mutex::default(),
            changed: Condvar::new(),
            done: Mutex::default(),
            free_at: AtomicU64::new(0),
        });
        let own = stream.clone();
        let thread = std::thread::Builder::new().name("stand-in-stream".to_owned());
        thread
            .spawn(move || own.run())
            .expect("a thread for a stream");
        stream
    }

    pub fn give(&self, kind: Kind) {
        self.give_at(kind, crate::world::correlation());
    }

    fn give_at(&self, kind: Kind, correlation: u32) {
        let at = now() + world().settings.latency_ns;
        let mut queue = lock(&self.queue);
        queue.works.push_back(Work {
            at,
            correlation,
            kind,
        });
        queue.given += 1;
        drop(queue);
        self.changed.notify_all();
    }

    /// Waits until all that it was given is done.
    pub fn wait(&self) {
        let mut queue = lock(&self.queue);
        let given = queue.given;
        while queue.finished < given {
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(queue);
        sleep_until(self.free_at.load(Ordering::Acquire));
    }

    pub fn is_done(&self) -> bool {
        let queue = lock(&self.queue);
        queue.finished == queue.given && self.free_at.load(Ordering::Acquire) <= now()
    }

    /// Ends the thread once it has done what it was given.
    pub fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.changed.notify_all();
    }

    pub fn busy_since(&self, from: u64) -> Vec<(u64, u64)> {
        let done = lock(&self.done);
        let recent = done.busy.iter().rev().take_while(|span| span.1 > from);
        recent.copied().collect()
    }

    pub fn kernels(&self) -> Vec<(Arc<str>, u64)> {
        lock(&self.done)
            .kernels
            .iter()
            .map(|(name, count)| (name.clone(), *count))
            .collect()
    }

    fn run(&self) {
        let mut free_at = 0;
        loop {
            let mut queue = lock(&self.queue);
            let work = loop {
                match queue.works.pop_front() {
                    Some(work) => break work,
                    None if queue.is_closed => return,
                    None => {
                        queue = self
                            .changed
                            .wait(queue)
                            .unwrap_or_else(PoisonError::into_inner)
                    }
                }
            };
            drop(queue);
            free_at = self.execute(work, free_at);
            self.free_at.store(free_at, Ordering::Release);
            lock(&self.queue).finished += 1;
            self.changed.notify_all();
        }
    }

    /// Does one piece of work, the one before having ended at `free_at`; returns when it ended.
    fn execute(&self, work: Work, free_at: u64) -> u64 {
        let start = free_at.max(work.at);
        match work.kind {
            Kind::Kernel { name, ns, stamp } => {
                let end = start + ns;
                self.fail(
                    world().fault_of_work("kernel", KERNELS.fetch_add(1, Ordering::Relaxed) + 1),
                );
                if end > now() + AHEAD_NS || stamp.is_some() {
                    sleep_until(end);
                }
                if let Some(stamp) = stamp {
                    let words = [start, end, 32_u64];
                    // SAFETY: the address was checked when the kernel was launched.
                    unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), stamp as *mut u64, 3) };
                }
                let mut done = lock(&self.done);
                match done.busy.last_mut().filter(|last| last.1 == start) {
                    Some(last) => last.1 = end,
                    None => done.busy.push((start, end)),
                }
                *done.kernels.entry(name.clone()).or_default() += 1;
                drop(done);
                cupti::kernel(&name, (start, end), self.place(), work.correlation);
                end
            }
            Kind::Copy(copy) => {
                self.fail(
                    world().fault_of_work("copy", COPIES.fetch_add(1, Ordering::Relaxed) + 1),
                );
                self.copy(&copy, start, work.correlation)
            }
            Kind::Set {
                address,
                bytes,
                value,
            } => {
                let end = start + bytes / 1000;
                sleep_until(end);
                // SAFETY: the range was checked when this was asked for.
                unsafe { std::ptr::write_bytes(address as *mut u8, value, bytes as usize) };
                cupti::set(bytes, (start, end), self.place(), work.correlation);
                end
            }
            Kind::Record(event, number) => {
                sleep_until(start);
                event.reach(number, start);
                start
            }
            Kind::Wait(event, number) => start.max(event.wait_for(number)),
            Kind::Call(function, data) => {
                sleep_until(start);
                // SAFETY: the caller of `cuLaunchHostFunc` vouches for both.
                unsafe { function(data as *mut libc::c_void) };
                now()
            }
        }
    }

    fn fail(&self, fault: Option<Status>) {
        match fault {
            None => {}
            Some(0) => loop {
                std::thread::park();
            },
            Some(code) => world().lose(self.context, code),
        }
    }

    fn copy(&self, copy: &Copy, start: u64, correlation: u32) -> u64 {
        let bytes = copy.width * copy.rows;
        let settings = &world().settings;
        let rate = match copy.pinned {
            true => settings.pinned_bytes_per_s,
            false => settings.pageable_bytes_per_s,
        };
        let ns = (u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))) as u64;
        let (start, end) = match copy.direction {
            Direction::OnDevice => (start, start + bytes / 1000),
            direction => {
                let mut engines = lock(&ENGINES);
                if engines.len() <= self.device {
                    engines.resize(self.device + 1, [0, 0]);
                }
                let free_at =
                    &mut engines[self.device][usize::from(direction == Direction::ToHost)];
                let start = start.max(*free_at);
                *free_at = start + ns;
                (start, start + ns)
            }
        };
        sleep_until(end);
        if copy.sum.is_some_and(|sum| sum != copy.sum_of_source()) {
            world().violation(&format!("the host's memory at {:#x} changed while a copy of {bytes} bytes from it was queued", copy.from));
        }
        for row in 0..copy.rows {
            let (from, to) = (
                copy.from + row * copy.pitch_from,
                copy.to + row * copy.pitch_to,
            );
            // SAFETY: both ranges were checked when the copy was asked for; the host's is its caller's to keep.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, copy.width as usize) };
        }
        if copy.direction != Direction::OnDevice {
            let copied = Copied {
                start,
                end,
                bytes,
                pinned: copy.pinned,
            };
            world()
                .state()
                .copied(copy.direction == Direction::ToDevice, copied);
        }
        cupti::copy(copy, bytes, (start, end), self.place(), correlation);
        end
    }
}

impl Copy {
    /// A sum of the bytes that it reads.
    pub fn sum_of_source(&self) -> u64 {
        let mut sum = DefaultHasher::new();
        for row in 0..self.rows {
            let from = (self.from + row * self.pitch_from) as *const u8;
            // SAFETY: as for the copy itself.
            sum.write(unsafe { std::slice::from_raw_parts(from, self.width as usize) });
        }
        sum.finish()
    }
}

/// An event.
pub struct Event {
    pub context: usize,
    state: Mutex<Recorded>,
    changed: Condvar,
}

#[derive(Default)]
struct Recorded {
    /// How often it was recorded, and up to which of those it was reached.
    recorded: u64,
    reached: u64,
    at: u64,
    past: Past,
}

impl Event {
    pub fn new(context: usize) -> Event {
        Event {
            context,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Notes a recording, before which `past` happens; returns its number.
    pub fn record(&self, past: Past) -> u64 {
        let mut state = lock(&self.state);
        state.recorded += 1;
        state.past = past;
        state.recorded
    }

    /// The last recording, and what happens before it; `None` where there was none.
    pub fn recorded(&self) -> Option<(u64, Past)> {
        let state = lock(&self.state);
        (state.recorded > 0).then(|| (state.recorded, state.past.clone()))
    }

    fn reach(&self, number: u64, at: u64) {
        let mut state = lock(&self.state);
        state.reached = state.reached.max(number);
        state.at = at;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for recording `number`; returns when it was reached.
    pub fn wait_for(&self, number: u64) -> u64 {
        let mut state = lock(&self.state);
        while state.reached < number {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.at
    }

    /// When it was reached last, if the last recording was.
    pub fn reached(&self) -> Option<u64> {
        let state = lock(&self.state);
        (state.reached == state.recorded).then_some(state.at)
    }
}

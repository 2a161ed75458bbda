//! The simulation's time: threads that wait, and threads that compute and share the cores.
//!
//! Threads that compute get equal shares of the cores once there are more of them than cores, as the kernel's
//! fair scheduler gives them over a few slices. All get the same share, so what is left to compute only needs
//! one clock that runs slower when cores are scarce: a thread is done when that clock reaches its mark.

/// A thread that will go on at some time.
#[derive(Copy, Clone, Debug)]
struct Pending {
    /// On the clock of its heap.
    at: f64,
    thread: u32,
}

/// A heap of pending threads, the earliest first; of equal ones the one that came first need not be.
#[derive(Clone, Debug, Default)]
struct Heap {
    pending: Vec<Pending>,
}

/// Children of a node of the heap: four lie in one or two cache lines.
const ARITY: usize = 4;

impl Heap {
    #[inline]
    fn first(&self) -> Option<Pending> {
        self.pending.first().copied()
    }

    #[inline]
    fn push(&mut self, at: f64, thread: u32) {
        let mut hole = self.pending.len();
        let new = Pending { at, thread };
        self.pending.push(new);
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if self.pending[parent].at <= at {
                break;
            }
            self.pending[hole] = self.pending[parent];
            hole = parent;
        }
        self.pending[hole] = new;
    }

    #[inline]
    fn pop(&mut self) {
        let Some(last) = self.pending.pop() else {
            return;
        };
        let count = self.pending.len();
        if count == 0 {
            return;
        }
        let mut hole = 0;
        loop {
            let first = ARITY * hole + 1;
            if first >= count {
                break;
            }
            let mut least = first;
            for child in first + 1..count.min(first + ARITY) {
                if self.pending[child].at < self.pending[least].at {
                    least = child;
                }
            }
            if self.pending[least].at >= last.at {
                break;
            }
            self.pending[hole] = self.pending[least];
            hole = least;
        }
        self.pending[hole] = last;
    }
}

/// A core that has idled for so long is cold, in nanoseconds: as measured, 1 ms does nothing and 2 ms all.
const LONG_IDLE: f64 = 1.5e6;
/// The most that short work costs more, as a share of it.
const MOST_COLD: f64 = 0.3;

/// The clock and everybody who waits for it. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct SimClock {
    now: f64,
    /// How far a thread that has computed all along has come.
    computed: f64,
    /// The share of a core that each computing thread has, at most 1.
    rate: f64,
    cores: f64,
    /// Of the cores, as many as other programs leave.
    left: f64,
    computing: f64,
    /// Since when each idle core has had nothing to do, the last one to become idle last: the kernel gives a
    /// thread the core that it had.
    idle_since: Vec<f64>,
    cold_start: f64,
    waiting: Heap,
    working: Heap,
    /// Cores that each thread computes on at a time, at most.
    widths: Vec<f32>,
}

impl SimClock {
    /// A clock at zero, of a machine with so many cores of which others use `others`, for `threads` threads.
    /// Work on a core that has idled costs up to `cold_start` more.
    pub(super) fn new(cores: f64, others: f64, threads: usize, cold_start: f64) -> SimClock {
        // More cores than threads stay idle.
        let idle = (cores.max(0.0) as usize).min(threads);
        SimClock {
            idle_since: vec![0.0; idle],
            cold_start,
            now: 0.0,
            computed: 0.0,
            rate: 1.0,
            cores: cores.max(1e-3),
            left: (cores - others).max(cores / 10.0).max(1e-3),
            computing: 0.0,
            waiting: Heap::default(),
            working: Heap::default(),
            widths: vec![1.0; threads],
        }
    }

    /// `thread` computes on so many cores at a time.
    pub(super) fn widen(&mut self, thread: u32, width: f64) {
        self.widths[thread as usize] = width.max(0.0) as f32;
    }

    #[inline]
    pub(super) fn now(&self) -> f64 {
        self.now
    }

    /// `thread` goes on after `length`.
    #[inline]
    pub(super) fn wait(&mut self, thread: u32, length: f64) {
        self.waiting.push(self.now + length, thread);
    }

    /// `thread` goes on when it has computed for `length`.
    #[inline]
    pub(super) fn compute(&mut self, thread: u32, length: f64) {
        let length = length + self.take_core(length);
        self.working.push(self.computed + length, thread);
        self.computing += f64::from(self.widths[thread as usize]);
        self.share();
    }

    /// Whether there is a core for a thread that is woken now. Whoever wakes it goes on at once on the core that became
    /// idle just now.
    pub(super) fn has_idle_core(&self) -> bool {
        match self.idle_since[..] {
            [] => false,
            [.., last] if last < self.now => true,
            _ => self.idle_since.len() > 1,
        }
    }

    /// Takes a core, an idle one where there is one; returns what work of `length` costs more on it.
    fn take_core(&mut self, length: f64) -> f64 {
        match self.idle_since.pop() {
            Some(since) if self.now - since > LONG_IDLE => self.cold_start.min(MOST_COLD * length),
            _ => 0.0,
        }
    }

    /// Cores that nobody computes on, as far as there are threads for them.
    fn idle_cores(&self) -> usize {
        let most = self.cores.min(self.widths.len() as f64);
        (most - self.computing).max(0.0) as usize
    }

    #[inline]
    fn share(&mut self) {
        self.rate = if self.computing <= self.left {
            1.0
        } else {
            self.left / self.computing
        };
    }

    /// Lets time pass until a thread goes on; `None` where none ever will.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u32> {
        let waiting = self.waiting.first();
        let working = self.working.first();
        let done = working.map(|first| self.now + (first.at - self.computed) / self.rate);
        match (waiting, done) {
            (Some(wakes), Some(done)) if wakes.at <= done => Some(self.wake(wakes)),
            (Some(wakes), None) => Some(self.wake(wakes)),
            (_, Some(done)) => {
                let first = working?;
                self.working.pop();
                self.now = done.max(self.now);
                self.computed = first.at;
                self.computing -= f64::from(self.widths[first.thread as usize]);
                self.share();
                if self.idle_since.len() < self.idle_cores() {
                    self.idle_since.push(self.now);
                }
                Some(first.thread)
            }
            (None, None) => None,
        }
    }

    #[inline]
    fn wake(&mut self, wakes: Pending) -> u32 {
        self.waiting.pop();
        let passed = (wakes.at - self.now).max(0.0);
        self.computed += passed * self.rate;
        self.now += passed;
        wakes.thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_beyond_the_cores_share_them() {
        let mut clock = SimClock::new(2.0, 0.0, 4, 0.0);
        for thread in 0..4 {
            clock.compute(thread, 10.0);
        }
        clock.wait(3, 5.0);
        assert_eq!(clock.next(), Some(3));
        assert_eq!(clock.now(), 5.0);
        for _ in 0..4 {
            clock.next().unwrap();
            assert!((clock.now() - 20.0).abs() < 1e-9);
        }
        assert_eq!(clock.next(), None);
    }

    #[test]
    fn other_programs_take_what_is_left_over_first() {
        let ends = |threads: u32| {
            let mut clock = SimClock::new(2.0, 0.5, 2, 0.0);
            (0..threads).for_each(|thread| clock.compute(thread, 15.0));
            while clock.next().is_some() {}
            clock.now()
        };
        assert_eq!((ends(1), ends(2)), (15.0, 20.0));
    }

    #[test]
    fn who_comes_late_computes_beside_what_is_left() {
        let mut clock = SimClock::new(1.0, 0.0, 2, 0.0);
        clock.compute(0, 10.0);
        clock.wait(1, 4.0);
        assert_eq!(clock.next(), Some(1));
        clock.compute(1, 3.0);
        // 0 has 6 left and gets a half of the core until 1 has had its 3, at 10; then 3 alone.
        assert_eq!(clock.next(), Some(1));
        assert!((clock.now() - 10.0).abs() < 1e-9);
        assert_eq!(clock.next(), Some(0));
        assert!((clock.now() - 13.0).abs() < 1e-9);
    }

    #[test]
    fn a_core_that_has_idled_is_slower_at_first() {
        let mut clock = SimClock::new(1.0, 0.0, 1, 100.0);
        clock.compute(0, 1e6);
        clock.next();
        clock.wait(0, 5e6);
        clock.next();
        clock.compute(0, 1e6);
        clock.next();
        assert_eq!(clock.now(), 7e6 + 100.0);
        clock.compute(0, 1e6);
        clock.next();
        assert_eq!(clock.now(), 8e6 + 100.0);
    }

    #[test]
    fn the_heap_gives_the_earliest() {
        let mut heap = Heap::default();
        let mut times: Vec<u32> = (0..200).map(|n| n * 7919 % 211).collect();
        for (thread, time) in times.iter().enumerate() {
            heap.push(f64::from(*time), thread as u32);
        }
        let mut got = Vec::new();
        while let Some(first) = heap.first() {
            got.push(first.at as u32);
            heap.pop();
        }
        times.sort_unstable();
        assert_eq!(got, times);
    }
}

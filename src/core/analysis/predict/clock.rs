//! The simulation's time: threads that wait, and threads that compute and share the cores.
//!
//! Threads that compute get equal shares of the cores once there are more of them than cores, as the kernel's
//! fair scheduler gives them over a few slices. All get the same share, so what is left to compute only needs
//! one clock that runs slower when cores are scarce: a thread is done when that clock reaches its mark.
//!
//! Whoever comes while no core is idle first waits for the core it had: until who computes there has to wait for
//! something, or has had its slice. Being woken is no reason for Linux (EEVDF) to take a core away from somebody, and
//! a core that idles for microseconds takes nobody over from another. Only threads that have slept for longer than a
//! slice share the cores at once: so 4 to 8 workers that wait for a disk were measured on 2 cores. A thread that
//! computes on several cores at a time has one of them, and shares the others with whoever comes.

use super::heap::Heap;
use std::collections::VecDeque;

/// A thread that has work, and no core.
#[derive(Copy, Clone, Debug)]
struct Queued {
    thread: u32,
    length: f64,
    /// The core that it waits for, and when it gets a share of the cores in any case.
    core: u32,
    latest: f64,
}

/// Linux's slice on one core; with each doubling of the cores up to 8 as much is added
/// (`sysctl_sched_base_slice` and its scaling, kernel/sched/fair.c).
const BASE_SLICE: f64 = 0.7e6;

fn slice_on(cores: f64) -> f64 {
    BASE_SLICE * (1.0 + cores.clamp(1.0, 8.0).log2().floor())
}

/// A core, while idle in a list of those that are, the last one to become idle last.
#[derive(Copy, Clone, Debug)]
struct Core {
    /// Threads that compute on it; since when there are any, or there is none.
    occupants: u32,
    since: f64,
    before: Option<u32>,
    after: Option<u32>,
}

/// What the clock knows of a thread.
#[derive(Copy, Clone, Debug)]
struct Runner {
    /// Cores that it computes on at a time, at most.
    width: f32,
    /// The core that it had last.
    had: u32,
    /// It waits for that core where none is idle.
    patient: bool,
}

/// The clock and everybody who waits for it. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct SimClock {
    now: f64,
    /// How far a thread that has computed all along has come.
    computed: f64,
    /// The share of a core that each computing thread has, at most 1, and how many times as long that makes it.
    rate: f64,
    slowness: f64,
    /// Of the cores, as many as other programs leave.
    left: f64,
    computing: f64,
    by_number: Vec<Core>,
    last_idle: Option<u32>,
    runners: Vec<Runner>,
    queued: VecDeque<Queued>,
    slice: f64,
    /// The thread that was done just now: it keeps its core if it computes on.
    leaving: Option<u32>,
    waiting: Heap,
    working: Heap,
}

impl SimClock {
    /// A clock at zero, of a machine with so many cores of which others use `others`, for `threads` threads.
    /// Threads that are woken wait for a slice where `slices`; without, cores are shared at once.
    pub(super) fn new(cores: f64, others: f64, threads: usize, slices: bool) -> SimClock {
        // More cores than threads stay idle.
        let used = (cores.ceil().max(1.0) as usize).min(threads.max(1)) as u32;
        let core = |number: u32| Core {
            occupants: 0,
            since: 0.0,
            before: number.checked_sub(1),
            after: (number + 1 < used).then_some(number + 1),
        };
        let runner = |thread: u32| Runner {
            width: 1.0,
            had: thread % used,
            patient: slices,
        };
        SimClock {
            by_number: (0..used).map(core).collect(),
            last_idle: used.checked_sub(1),
            runners: (0..threads as u32).map(runner).collect(),
            queued: VecDeque::new(),
            slice: if slices { slice_on(cores) } else { 0.0 },
            leaving: None,
            now: 0.0,
            computed: 0.0,
            rate: 1.0,
            slowness: 1.0,
            left: (cores - others).max(cores / 10.0).max(1e-3),
            computing: 0.0,
            waiting: Heap::default(),
            working: Heap::default(),
        }
    }

    /// `thread` computes on so many cores at a time.
    pub(super) fn widen(&mut self, thread: u32, width: f64) {
        self.runners[thread as usize].width = width.max(0.0) as f32;
    }

    #[inline]
    pub(super) fn now(&self) -> f64 {
        self.now
    }

    /// `thread` goes on after `length`.
    #[inline]
    pub(super) fn wait(&mut self, thread: u32, length: f64) {
        self.has_slept(thread, length);
        self.waiting.push(self.now + length, thread);
    }

    /// `thread` had nothing to do for `length` before it goes on.
    #[inline]
    pub(super) fn has_slept(&mut self, thread: u32, length: f64) {
        self.runners[thread as usize].patient = length < self.slice;
    }

    /// `thread` goes on when it has computed for `length`.
    #[inline]
    pub(super) fn compute(&mut self, thread: u32, length: f64) {
        if self.leaving == Some(thread) {
            self.leaving = None;
            return self.run(thread, length);
        }
        let Runner { had, patient, .. } = self.runners[thread as usize];
        // The one that it had, or else the one that became idle last.
        let core = match self.by_number[had as usize].occupants {
            0 => had,
            _ => self.last_idle.unwrap_or(had),
        };
        if self.by_number[core as usize].occupants == 0 {
            self.take(core);
            self.occupy(thread, core);
            self.run(thread, length);
        } else if !patient {
            self.occupy(thread, had);
            self.run(thread, length);
        } else {
            let latest = (self.by_number[had as usize].since + self.slice).max(self.now);
            self.queue(Queued {
                thread,
                length,
                core: had,
                latest,
            });
        }
    }

    /// `thread` shares in the cores from now on, until it has computed for `length`.
    #[inline]
    fn run(&mut self, thread: u32, length: f64) {
        self.working.push(self.computed + length, thread);
        self.computing += f64::from(self.runners[thread as usize].width);
        self.share();
    }

    #[inline]
    fn occupy(&mut self, thread: u32, core: u32) {
        self.runners[thread as usize].had = core;
        let core = &mut self.by_number[core as usize];
        if core.occupants == 0 {
            core.since = self.now;
        }
        core.occupants += 1;
    }

    /// Takes an idle core out of the list of them.
    #[inline]
    fn take(&mut self, core: u32) {
        let Core { before, after, .. } = self.by_number[core as usize];
        match after {
            Some(after) => self.by_number[after as usize].before = before,
            None => self.last_idle = before,
        }
        if let Some(before) = before {
            self.by_number[before as usize].after = after;
        }
    }

    /// The core of a thread that was done and had nothing more to compute is for who waits for it, or idle.
    #[inline]
    fn leave(&mut self) {
        let Some(thread) = self.leaving.take() else {
            return;
        };
        let number = self.runners[thread as usize].had;
        let core = &mut self.by_number[number as usize];
        core.occupants -= 1;
        if core.occupants > 0 {
            return;
        }
        let next = self.queued.iter().position(|queued| queued.core == number);
        if let Some(next) = next.and_then(|place| self.queued.remove(place)) {
            return self.have_turn(next);
        }
        (core.since, core.before, core.after) = (self.now, self.last_idle, None);
        if let Some(last) = self.last_idle.replace(number) {
            self.by_number[last as usize].after = Some(number);
        }
    }

    /// Who computes on the core of `queued` has had its slice, unless that is another one by now.
    fn end_of_slice(&mut self, queued: Queued) {
        let latest = self.by_number[queued.core as usize].since + self.slice;
        match latest > queued.latest {
            true => self.queue(Queued { latest, ..queued }),
            false => self.have_turn(queued),
        }
    }

    fn queue(&mut self, queued: Queued) {
        let before = |other: &Queued| other.latest <= queued.latest;
        let place = self.queued.partition_point(before);
        self.queued.insert(place, queued);
    }

    fn have_turn(&mut self, queued: Queued) {
        self.occupy(queued.thread, queued.core);
        self.run(queued.thread, queued.length);
    }

    /// Whether there is a core for a thread that is woken now.
    #[inline]
    pub(super) fn has_idle_core(&self) -> bool {
        self.last_idle.is_some()
    }

    #[inline]
    fn share(&mut self) {
        if self.computing <= self.left {
            (self.rate, self.slowness) = (1.0, 1.0);
        } else {
            self.rate = self.left / self.computing;
            self.slowness = 1.0 / self.rate;
        }
    }

    /// When the first thread that waits goes on, the first that computes is done, and the first without a core gets one.
    #[inline]
    fn next_ones(&self) -> [f64; 3] {
        let wakes = self.waiting.first().map_or(f64::INFINITY, |first| first.at);
        let done = self.working.first().map_or(f64::INFINITY, |first| {
            self.now + (first.at - self.computed) * self.slowness
        });
        let turn = self
            .queued
            .front()
            .map_or(f64::INFINITY, |first| first.latest);
        [wakes, done, turn]
    }

    /// When a thread goes on next; infinite where none ever will. Who gets a core until then has it afterwards.
    pub(super) fn next_at(&mut self) -> f64 {
        self.leave();
        loop {
            let [wakes, done, turn] = self.next_ones();
            if turn >= wakes.min(done) {
                return wakes.min(done);
            }
            self.take_turn(turn);
        }
    }

    /// Lets time pass until a thread without a core gets one.
    fn take_turn(&mut self, at: f64) {
        self.pass_until(at);
        if let Some(next) = self.queued.pop_front() {
            self.end_of_slice(next);
        }
    }

    /// Lets time pass until a thread goes on; `None` where none ever will.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u32> {
        self.leave();
        loop {
            let [wakes, done, turn] = self.next_ones();
            if turn < wakes.min(done) {
                self.take_turn(turn);
            } else if wakes <= done {
                let first = self.waiting.first()?;
                self.waiting.pop();
                self.pass_until(wakes);
                return Some(first.thread);
            } else {
                let first = self.working.first()?;
                self.working.pop();
                self.now = done.max(self.now);
                self.computed = first.at;
                self.computing -= f64::from(self.runners[first.thread as usize].width);
                self.share();
                self.leaving = Some(first.thread);
                return Some(first.thread);
            }
        }
    }

    #[inline]
    fn pass_until(&mut self, at: f64) {
        let passed = (at - self.now).max(0.0);
        self.computed += passed * self.rate;
        self.now += passed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: f64 = 1e6;

    /// The threads that go on next, and when.
    fn next<const N: usize>(clock: &mut SimClock) -> [(u32, f64); N] {
        [(); N].map(|()| {
            let thread = clock.next().unwrap();
            (thread, (clock.now() / MS * 1e6).round() / 1e6)
        })
    }

    #[test]
    fn threads_beyond_the_cores_share_them_after_a_slice() {
        let mut clock = SimClock::new(2.0, 0.0, 4, true);
        (0..4).for_each(|thread| clock.compute(thread, 10.0 * MS));
        clock.wait(3, 5.0 * MS);
        assert_eq!(next(&mut clock), [(3, 5.0)]);
        // Two have had 1.4 ms when the others come, and all of them a half of a core from then on.
        assert_eq!(
            next::<4>(&mut clock).map(|(_, at)| at),
            [18.6, 18.6, 20.0, 20.0]
        );
        assert_eq!(clock.next(), None);
    }

    #[test]
    fn other_programs_take_what_is_left_over_first() {
        let ends = |threads: u32| {
            let mut clock = SimClock::new(2.0, 0.5, 2, true);
            (0..threads).for_each(|thread| clock.compute(thread, 15.0));
            while clock.next().is_some() {}
            clock.now()
        };
        assert_eq!((ends(1), ends(2)), (15.0, 20.0));
    }

    #[test]
    fn who_comes_late_waits_for_its_core_but_no_longer_than_a_slice() {
        let ends = |first: f64| {
            let mut clock = SimClock::new(1.0, 0.0, 2, true);
            clock.compute(0, first * MS);
            clock.wait(1, 0.3 * MS);
            assert_eq!(next(&mut clock), [(1, 0.3)]);
            clock.compute(1, 0.1 * MS);
            next(&mut clock)
        };
        assert_eq!(ends(0.5), [(0, 0.5), (1, 0.6)]);
        // From 0.7 ms on both have a half.
        assert_eq!(ends(2.0), [(1, 0.9), (0, 2.1)]);
    }

    #[test]
    fn who_takes_a_core_over_has_a_slice_of_its_own() {
        let mut clock = SimClock::new(1.0, 0.0, 3, true);
        clock.compute(0, 0.6 * MS);
        clock.compute(1, 0.5 * MS);
        clock.compute(2, 0.9 * MS);
        assert_eq!(next(&mut clock), [(0, 0.6), (1, 1.1), (2, 2.0)]);
    }

    #[test]
    fn without_slices_cores_are_shared_at_once() {
        let mut clock = SimClock::new(1.0, 0.0, 2, false);
        clock.compute(0, 0.5 * MS);
        clock.compute(1, 0.1 * MS);
        assert_eq!(next(&mut clock), [(1, 0.2), (0, 0.6)]);
    }

    /// The idle cores by the list of them, from the last one on.
    fn idle(clock: &SimClock) -> Vec<u32> {
        let before = |core: &u32| clock.by_number[*core as usize].before;
        std::iter::successors(clock.last_idle, before).collect()
    }

    proptest! {
        /// Threads that wait and compute in turns, with any lengths.
        #[test]
        fn cores_are_idle_or_have_somebody_and_all_work_is_done(
            cores in 1u32..9,
            lengths in prop::collection::vec((0u32..4_000, 0u32..4_000), 1..200),
            threads in 1u32..12,
            slices: bool,
        ) {
            let mut clock = SimClock::new(f64::from(cores), 0.0, threads as usize, slices);
            (0..threads).for_each(|thread| clock.wait(thread, 0.0));
            let mut computes = vec![false; threads as usize];
            let mut lengths = lengths.into_iter();
            let mut worked = 0.0;
            while let Some(thread) = clock.next() {
                let mut listed = idle(&clock);
                listed.sort_unstable();
                let nobody = |core: &u32| clock.by_number[*core as usize].occupants == 0;
                let expected: Vec<u32> = (0..clock.by_number.len() as u32).filter(nobody).collect();
                prop_assert_eq!(listed, expected);
                prop_assert!(clock.queued.iter().all(|queued| !nobody(&queued.core)));
                let Some((wait, work)) = lengths.next() else {
                    continue;
                };
                let computed = &mut computes[thread as usize];
                *computed = !*computed;
                if *computed {
                    worked += f64::from(work) * 1e3;
                    clock.compute(thread, f64::from(work) * 1e3);
                } else {
                    clock.wait(thread, f64::from(wait) * 1e3);
                }
            }
            prop_assert_eq!(lengths.len(), 0);
            prop_assert_eq!(idle(&clock).len(), clock.by_number.len());
            prop_assert!(clock.now() >= worked / f64::from(cores) - 1.0);
        }
    }

    #[test]
    fn who_has_slept_for_long_shares_at_once() {
        let mut clock = SimClock::new(1.0, 0.0, 2, true);
        clock.wait(0, 0.9 * MS);
        clock.wait(1, 1.0 * MS);
        assert_eq!(next(&mut clock), [(0, 0.9)]);
        clock.compute(0, 0.5 * MS);
        assert_eq!(next(&mut clock), [(1, 1.0)]);
        clock.compute(1, 0.1 * MS);
        assert_eq!(next(&mut clock), [(1, 1.2), (0, 1.5)]);
    }

    #[test]
    fn who_computes_on_keeps_its_core_and_who_leaves_makes_room_on_no_other() {
        let mut clock = SimClock::new(2.0, 0.0, 3, true);
        clock.compute(0, 0.2 * MS);
        clock.compute(1, 0.3 * MS);
        // It had the first core.
        clock.compute(2, 0.1 * MS);
        assert_eq!(next(&mut clock), [(0, 0.2)]);
        clock.compute(0, 0.2 * MS);
        assert!(!clock.has_idle_core());
        assert_eq!(next(&mut clock), [(1, 0.3), (0, 0.4)]);
        assert!(clock.has_idle_core());
        assert_eq!(next(&mut clock), [(2, 0.5)]);
    }
}

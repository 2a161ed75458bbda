//! Who sleeps at one end of a queue, and what waking it costs.

use crate::timeline::{Clock, Nanos, Wakings};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A thread that waits at one end of a queue, on a real clock. Only where there is a single one are figures taken: of
/// several it is not known who is woken.
pub(super) struct Sleeper {
    clock: Arc<dyn Clock>,
    wakings: Option<Arc<Wakings>>,
    count: AtomicUsize,
    /// When the last one came, and when somebody began to wake it; 0 once that is told.
    since: AtomicU64,
    woken: AtomicU64,
}

impl Sleeper {
    /// What is seen goes to `wakings`.
    pub(super) fn new(clock: &Arc<dyn Clock>, wakings: Option<&Arc<Wakings>>) -> Sleeper {
        Sleeper {
            clock: clock.clone(),
            wakings: wakings.cloned(),
            count: AtomicUsize::new(0),
            since: AtomicU64::new(0),
            woken: AtomicU64::new(0),
        }
    }

    /// The caller waits here for as long as `wait` takes.
    pub(super) fn asleep<R>(&self, wait: impl FnOnce() -> R) -> R {
        let Some(wakings) = &self.wakings else {
            return wait();
        };
        let since = self.clock.now();
        self.since.store(since.0.max(1), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
        let result = wait();
        self.count.fetch_sub(1, Ordering::Relaxed);
        let woken = Nanos(self.woken.swap(0, Ordering::Relaxed));
        if woken > since {
            wakings.woken(woken - since, self.clock.now() - woken);
        }
        result
    }

    /// Does `hand_on`, and notes what it takes where it wakes the only one who waits.
    #[inline]
    pub(super) fn timed<R, E>(&self, hand_on: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        match &self.wakings {
            Some(wakings) if self.count.load(Ordering::Acquire) == 1 => {
                self.woken_by(wakings, hand_on)
            }
            _ => hand_on(),
        }
    }

    fn woken_by<R, E>(
        &self,
        wakings: &Wakings,
        hand_on: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        // Until it is back it counts as asleep: the next one to ask is told that there is none.
        let since = Nanos(self.since.swap(0, Ordering::Relaxed));
        if since == Nanos::ZERO {
            return hand_on();
        }
        let began = self.clock.now();
        self.woken.store(began.0, Ordering::Relaxed);
        let result = hand_on();
        if result.is_ok() {
            wakings.woke(began - since, self.clock.now() - began);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that shows what it is set to.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Nanos {
            Nanos(self.0.load(Ordering::Relaxed))
        }

        fn sleep_until(&self, deadline: Nanos) {
            self.0.store(deadline.0, Ordering::Relaxed);
        }
    }

    fn scene() -> (Arc<Hand>, Arc<Wakings>, Sleeper) {
        let (hand, wakings) = (Arc::new(Hand::default()), Arc::default());
        let clock: Arc<dyn Clock> = hand.clone();
        let sleeper = Sleeper::new(&clock, Some(&wakings));
        (hand, wakings, sleeper)
    }

    #[test]
    fn only_who_wakes_somebody_is_timed() {
        let (hand, wakings, sleeper) = scene();
        let hand_on = |until| {
            sleeper.timed(|| {
                hand.sleep_until(Nanos(until));
                Ok::<(), ()>(())
            })
        };
        hand.sleep_until(Nanos(1_000));
        hand_on(1_500).unwrap();
        assert_eq!(wakings.seen(), [], "nobody waits");
        hand.sleep_until(Nanos(2_000));
        sleeper.asleep(|| {
            hand.sleep_until(Nanos(42_000));
            hand_on(51_000).unwrap();
            // It is woken already, and not back yet.
            hand_on(52_000).unwrap();
            hand.sleep_until(Nanos(64_000));
        });
        let seen = wakings.seen();
        let seen = seen
            .iter()
            .map(|kind| (kind.count, kind.waited_ns, kind.cost_ns, kind.latency_ns));
        assert_eq!(seen.collect::<Vec<_>>(), [(1, 40e3, 9e3, 22e3)]);
    }

    #[test]
    fn of_several_nobody_is_timed_and_what_fails_wakes_nobody() {
        let (hand, wakings, sleeper) = scene();
        let hand_on = |result: Result<(), ()>| sleeper.timed(|| result);
        hand.sleep_until(Nanos(1_000));
        sleeper.asleep(|| {
            hand.sleep_until(Nanos(5_000));
            sleeper.asleep(|| {
                hand.sleep_until(Nanos(9_000));
                hand_on(Ok(())).unwrap();
            });
        });
        assert_eq!(wakings.seen(), []);
        sleeper.asleep(|| {
            hand.sleep_until(Nanos(20_000));
            hand_on(Err(())).unwrap_err();
        });
        assert_eq!(wakings.seen(), []);
    }
}

//! What it takes to wake a thread, measured on the machine at hand before a run.

use super::error::StopSignal;
use super::queue::{Envelope, Handoff, queue};
use crate::timeline::{Clock, Nanos, UnitRef, spawn_on};
use std::sync::Arc;

/// Waiting costs more than it is waited for: the medians over a few rounds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct WakingCost {
    /// For the thread that hands an item to one that waits for it.
    pub waking: Nanos,
    /// How late a sleep ends.
    pub oversleep: Nanos,
}

const ROUNDS: u64 = 31;
/// Long enough for the other thread to be asleep.
const PAUSE: Nanos = Nanos::from_micros(150);

impl WakingCost {
    /// Measures both, in about ten milliseconds; nothing where there are no threads to be had.
    pub fn measure(clock: &Arc<dyn Clock>) -> WakingCost {
        let stop = StopSignal::new(clock.clone());
        let (sender, receiver) = queue::<()>(ROUNDS as usize, 1, clock, &stop);
        let waiter = spawn_on(clock, "measure", move || {
            while receiver.recv(UnitRef::NONE).is_ok() {}
        });
        let Ok(waiter) = waiter else {
            return WakingCost::default();
        };
        let rounds = (0..ROUNDS).map(|_| {
            let began = clock.now();
            clock.sleep(PAUSE);
            let slept = clock.now();
            let handoff = Handoff {
                ready_at: slept,
                cause: UnitRef::NONE,
                lineage: UnitRef::NONE,
                admitted: false,
            };
            sender.send(Envelope { handoff, value: () }).ok();
            (slept - began - PAUSE, clock.now() - slept)
        });
        let (oversleeps, wakings): (Vec<Nanos>, Vec<Nanos>) = rounds.unzip();
        drop(sender);
        waiter.join().ok();
        WakingCost {
            waking: median(wakings),
            oversleep: median(oversleeps),
        }
    }
}

fn median(mut lengths: Vec<Nanos>) -> Nanos {
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{MonotonicClock, VirtualClock};

    #[test]
    fn waking_costs_something_and_nothing_on_a_virtual_clock() {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let cost = WakingCost::measure(&clock);
        assert!(cost.waking > Nanos::ZERO, "{cost:?}");
        let clock = VirtualClock::new();
        let shared: Arc<dyn Clock> = clock.clone();
        let cost = clock.run(|| WakingCost::measure(&shared));
        assert_eq!(cost, WakingCost::default());
    }
}

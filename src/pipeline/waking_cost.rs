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
    /// What work takes longer after some milliseconds in which its core had nothing to do: the core's clock was
    /// lowered, and its caches are others'.
    pub cold_start: Nanos,
}

/// Sleeps after which a core is cold, and how often that is tried.
const COLD: Nanos = Nanos::from_millis(4);
const COLD_ROUNDS: usize = 7;
/// Runs of the work after which a core is as fast as ever.
const WARMING: usize = 4;

const ROUNDS: u64 = 31;
/// Long enough for the other thread to be asleep.
const PAUSE: Nanos = Nanos::from_micros(150);

impl WakingCost {
    /// Measures them, in about fifty milliseconds; nothing where there are no threads to be had.
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
            cold_start: cold_start(clock),
            waking: median(wakings),
            oversleep: median(oversleeps),
        }
    }
}

/// How much longer work takes after a sleep than right after other work.
fn cold_start(clock: &Arc<dyn Clock>) -> Nanos {
    let input: Vec<u8> = (0..200_000u32)
        .map(|n| (n.wrapping_mul(0x9E37_79B1) >> 24) as u8)
        .collect();
    let mut output = vec![0u32; 100_000];
    let mut timed = |times: usize| {
        let began = clock.now();
        (0..times).for_each(|_| work(&input, &mut output));
        clock.now() - began
    };
    timed(WARMING);
    let mut cold = Vec::with_capacity(COLD_ROUNDS);
    let mut warm = Vec::with_capacity(COLD_ROUNDS);
    for _ in 0..COLD_ROUNDS {
        clock.sleep(COLD);
        cold.push(timed(WARMING));
        warm.push(timed(WARMING));
    }
    median(cold) - median(warm)
}

/// Some of what decoding and resizing do: a table, a multiplication, and a pass over memory.
fn work(input: &[u8], output: &mut [u32]) {
    const TABLE: usize = 1 << 12;
    let mut sum = 1u32;
    for (place, byte) in input.iter().enumerate() {
        let looked_up = output[(usize::from(*byte) << 4 ^ place) % TABLE];
        sum = sum
            .wrapping_mul(31)
            .wrapping_add(looked_up ^ u32::from(*byte));
        let at = place % output.len();
        output[at] = sum;
    }
    std::hint::black_box(sum);
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

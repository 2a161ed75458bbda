//! What waking a thread takes, measured on the machine at hand before a run.

use super::error::StopSignal;
use super::queue::{Envelope, Handoff, Receiver, queue};
use super::usage::UsageMeter;
use crate::timeline::{Clock, Nanos, UnitRef, spawn_on};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Waiting costs more than it is waited for: means or medians over a few rounds. How much depends on how long it was
/// waited, since a core that idles for longer sleeps more deeply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakingCost {
    /// How long it was waited for the figures below, shortest first.
    pub waited: [Nanos; 4],
    /// From handing an item to a thread that has waited so long until it has it.
    pub latency: [Nanos; 4],
    /// Time of the thread that hands it on.
    pub waking: [Nanos; 4],
    /// CPU time of the thread that waits, for going to sleep and coming back.
    pub switching: Nanos,
}

/// A sleep that is shorter than this is not to be had.
const SHORTEST_SLEEP: Nanos = Nanos::from_micros(10);

/// The thread that hands on keeps its core until the other has one, or for so long.
const PATIENCE: Nanos = Nanos::from_millis(1);

/// One round: how long the other thread had waited, and what handing on took.
struct Round {
    waited: Nanos,
    waking: Nanos,
}

impl WakingCost {
    /// And how often each is tried: it takes the kernel some rounds to settle which thread gets which core. Between two
    /// of the shortest the one that hands on does not sleep.
    const PAUSES: [(Nanos, u64); 4] = [
        (Nanos::from_micros(5), 200),
        (Nanos::from_micros(30), 124),
        (Nanos::from_micros(120), 124),
        (Nanos::from_micros(1_000), 62),
    ];
    /// The place of the pause that is most like the waits between stages.
    pub const MIDDLE: usize = 2;

    /// Measures them, in about 0.1 seconds; nothing where there are no threads to be had.
    pub fn measure(clock: &Arc<dyn Clock>) -> WakingCost {
        let mut cost = WakingCost::default();
        for (place, (pause, count)) in WakingCost::PAUSES.into_iter().enumerate() {
            let Some((rounds, latencies, switching)) = rounds(clock, pause, count) else {
                return WakingCost::default();
            };
            cost.waited[place] = typical(rounds.iter().map(|r| r.waited).collect());
            cost.latency[place] = typical(latencies);
            cost.waking[place] = median(rounds.iter().map(|r| r.waking).collect());
            if place == WakingCost::MIDDLE {
                cost.switching = switching;
            }
        }
        cost
    }
}

/// Hands `count` items to a thread that waits for each about as long as `pause`, and returns the last half of the
/// rounds; also the latencies that the other thread saw, and its CPU time for each.
fn rounds(
    clock: &Arc<dyn Clock>,
    pause: Nanos,
    count: u64,
) -> Option<(Vec<Round>, Vec<Nanos>, Nanos)> {
    let stop = StopSignal::new(clock.clone());
    let (sender, receiver) = queue::<()>(count as usize, 1, clock, &stop, None);
    let (of_waiter, taken) = (clock.clone(), Arc::new(AtomicU64::new(0)));
    let takes = taken.clone();
    let body = move || latencies(&of_waiter, &receiver, &takes);
    let waiter = spawn_on(clock, "measure", body).ok()?;
    let mut idle_since = clock.now();
    let round = |number: u64| {
        // Whoever hands on goes on working, so that the other thread needs a core of its own.
        let real = clock.scheduler().is_none();
        let began = clock.now();
        match pause < SHORTEST_SLEEP && real {
            true => while clock.now() < began + pause {},
            false => clock.sleep(pause),
        }
        let slept = clock.now();
        let handoff = Handoff {
            ready_at: slept,
            cause: UnitRef::NONE,
            lineage: UnitRef::NONE,
            admitted: false,
        };
        sender.send(Envelope { handoff, value: () }).ok();
        let sent = clock.now();
        while real && taken.load(Ordering::Acquire) <= number && clock.now() < sent + PATIENCE {
            std::hint::spin_loop();
        }
        let waited = slept - std::mem::replace(&mut idle_since, clock.now());
        Round {
            waited,
            waking: sent - slept,
        }
    };
    let mut rounds: Vec<Round> = (0..count).map(round).collect();
    drop(sender);
    let (mut latencies, switching) = waiter.join().ok()?;
    let settled = count as usize / 2;
    Some((
        rounds.split_off(settled),
        latencies.split_off(settled.min(latencies.len())),
        switching,
    ))
}

/// Takes items as they come.
fn latencies(
    clock: &Arc<dyn Clock>,
    receiver: &Receiver<()>,
    taken: &AtomicU64,
) -> (Vec<Nanos>, Nanos) {
    let meter = UsageMeter::new(clock.scheduler().is_none());
    let before = meter.cpu_now();
    let mut latencies = Vec::new();
    while let Ok(received) = receiver.recv(UnitRef::NONE) {
        latencies.push(clock.now() - received.envelope.handoff.ready_at);
        taken.fetch_add(1, Ordering::Release);
    }
    let used = meter.cpu_now() - before;
    let count = latencies.len().max(1) as u64;
    (latencies, Nanos(used.0 / count))
}

/// Their mean without the longest tenth, which something else held up.
fn typical(mut lengths: Vec<Nanos>) -> Nanos {
    lengths.sort_unstable();
    lengths.truncate((lengths.len() * 9).div_ceil(10));
    let count = lengths.len().max(1) as u64;
    Nanos(lengths.into_iter().sum::<Nanos>().0 / count)
}

fn median(mut lengths: Vec<Nanos>) -> Nanos {
    lengths.sort_unstable();
    let middle = lengths.len() / 2;
    lengths.get(middle).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{MonotonicClock, VirtualClock};

    #[test]
    fn waking_costs_something_and_nothing_on_a_virtual_clock() {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let cost = WakingCost::measure(&clock);
        let figures = [cost.waited, cost.latency, cost.waking].concat();
        for figure in figures {
            assert!(figure > Nanos::ZERO, "{cost:?}");
        }
        let clock = VirtualClock::new();
        let shared: Arc<dyn Clock> = clock.clone();
        let cost = clock.run(|| WakingCost::measure(&shared));
        assert_eq!(
            (cost.latency, cost.waking),
            ([Nanos::ZERO; 4], [Nanos::ZERO; 4])
        );
    }
}

//! What it takes that threads work together, waking them above all, measured on the machine at hand before a run.

use super::core_transfer::core_transfer;
use super::error::StopSignal;
use super::queue::{Envelope, Handoff, Receiver, queue};
use super::usage::UsageMeter;
use crate::timeline::{Clock, Nanos, UnitRef, spawn_on};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Waiting costs more than it is waited for: means or medians over a few rounds. How much depends on how long it was
/// waited, since a core that idles for longer sleeps more deeply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WakingCost {
    /// How long it was waited for the figures below, shortest first.
    pub waited: [Nanos; 4],
    /// From handing an item to a thread that has waited so long until it has it.
    pub latency: [Nanos; 4],
    /// Time of the thread that hands it on.
    pub waking: [Nanos; 4],
    /// How late sleeps of the lengths [`SLEEPS`](WakingCost::SLEEPS) end.
    pub oversleep: [Nanos; 4],
    /// Single ones of both, for how they vary: after pauses of the middle length.
    pub latencies: Vec<Nanos>,
    pub oversleeps: Vec<Nanos>,
    /// CPU time of the thread that waits, for going to sleep and coming back.
    pub switching: Nanos,
    /// What work takes longer after some milliseconds in which its core had nothing to do: the core's clock was
    /// lowered, its caches are others', and so is what it knew of branches.
    pub cold_start: Nanos,
    /// What a byte that another core wrote costs more, in nanoseconds.
    pub core_transfer: f64,
}

/// A sleep that is shorter than this is not to be had.
const SHORTEST_SLEEP: Nanos = Nanos::from_micros(10);

/// Of the shortest length.
const SHORT_SLEEPS: usize = 100;

/// The thread that hands on keeps its core until the other has one, or for so long.
const PATIENCE: Nanos = Nanos::from_millis(1);

/// Sleeps after which a core is cold, and work after which it is as fast as ever: a host that shares its cores between
/// guests gives one that works a core of its own only after a while.
const COLD: Nanos = Nanos::from_millis(5);
const WARMING: Nanos = Nanos::from_millis(60);
/// Pictures without a pause, before and after those with one; and these. A core that works now and then gets slower for
/// a while: decoding took 5 % longer after the first pauses of 5 ms, 11 % after half a second of them and 15 to 25 % after
/// some seconds, on a virtual machine whose clock stays the same. What comes first is not counted.
const PICTURES: usize = 10;
const RARE: usize = 100;
const SETTLING: usize = 60;

/// One round: how long the other thread had waited, how late the sleep ended, and what handing on took.
struct Round {
    waited: Nanos,
    oversleep: Nanos,
    waking: Nanos,
}

impl WakingCost {
    /// And how often each is tried: it takes the kernel some rounds to settle which thread gets which core.
    const PAUSES: [(Nanos, u64); 4] = [
        (WakingCost::SLEEPS[0], 200),
        (WakingCost::SLEEPS[1], 124),
        (WakingCost::SLEEPS[2], 124),
        (WakingCost::SLEEPS[3], 62),
    ];
    /// Between two of the shortest the one that hands on does not sleep.
    pub const SLEEPS: [Nanos; 4] = [
        Nanos::from_micros(5),
        Nanos::from_micros(30),
        Nanos::from_micros(120),
        Nanos::from_micros(1_000),
    ];

    /// The place of the figures that single ones vary about.
    pub const MIDDLE: usize = 2;

    /// Measures them, in about 0.8 seconds; nothing where there are no threads to be had.
    pub fn measure(clock: &Arc<dyn Clock>) -> WakingCost {
        let mut cost = WakingCost {
            cold_start: cold_start(clock),
            core_transfer: core_transfer(clock),
            ..WakingCost::default()
        };
        for (place, (pause, count)) in WakingCost::PAUSES.into_iter().enumerate() {
            let Some((rounds, latencies, switching)) = rounds(clock, pause, count) else {
                return WakingCost::default();
            };
            let oversleeps: Vec<Nanos> = rounds.iter().map(|r| r.oversleep).collect();
            cost.waited[place] = typical(rounds.iter().map(|r| r.waited).collect());
            cost.latency[place] = typical(latencies.clone());
            cost.oversleep[place] = match place {
                0 => typical(short_sleeps(clock, pause)),
                _ => typical(oversleeps.clone()),
            };
            cost.waking[place] = median(rounds.iter().map(|r| r.waking).collect());
            // Of the pause that is most like the waits between stages.
            if place == WakingCost::MIDDLE {
                cost.switching = switching;
                (cost.latencies, cost.oversleeps) = (latencies, oversleeps);
            }
        }
        cost
    }
}

/// How late sleeps of `length` end, between which their thread does a little.
fn short_sleeps(clock: &Arc<dyn Clock>, length: Nanos) -> Vec<Nanos> {
    let late = |_| {
        let began = clock.now();
        clock.sleep(length);
        let late = clock.now() - began - length;
        let busy_until = clock.now() + length;
        while clock.scheduler().is_none() && clock.now() < busy_until {}
        late
    };
    (0..SHORT_SLEEPS).map(late).collect()
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
            oversleep: slept - began - pause,
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
    let mut meter = UsageMeter::new(clock.scheduler().is_none());
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

/// How much longer work takes on a core that was idle before it than on one that has worked all along: decoding a
/// picture, since what a core has forgotten is more than its caches. Before and after, as the machine itself is faster or
/// slower now and then, and the quicker ones of both, as its neighbours slow single ones down. Nothing on a virtual clock.
fn cold_start(clock: &Arc<dyn Clock>) -> Nanos {
    let Some(picture) = picture().filter(|_| clock.scheduler().is_none()) else {
        return Nanos::ZERO;
    };
    let decode = || {
        let began = clock.now();
        std::hint::black_box(image::load_from_memory(&picture).ok());
        clock.now() - began
    };
    let continuously = || -> Vec<Nanos> {
        let began = clock.now();
        while clock.now() - began < WARMING {
            decode();
        }
        (0..PICTURES).map(|_| decode()).collect()
    };
    let rarely = |_| {
        clock.sleep(COLD);
        decode()
    };
    let mut after_work = continuously();
    let after_rest: Vec<Nanos> = (0..RARE).map(rarely).collect();
    after_work.extend(continuously());
    quartile(after_rest[SETTLING..].to_vec(), 1) - quartile(after_work, 1)
}

/// A JPEG file as large as a photo of ImageNet, which takes about a millisecond to decode: more than a core's own
/// caches hold.
fn picture() -> Option<Vec<u8>> {
    const SIZE: (u32, u32) = (500, 375);
    let pixel = |x: u32, y: u32| {
        let noise = x.wrapping_mul(0x9E37_79B1) ^ y.wrapping_mul(0x85EB_CA6B);
        let noise = (noise.wrapping_mul(0xC2B2_AE35) >> 27) as u8;
        image::Rgb([(x / 2) as u8 + noise, (y / 2) as u8 + noise, 90 + noise])
    };
    let picture = image::RgbImage::from_fn(SIZE.0, SIZE.1, pixel);
    let mut file = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut file, image::ImageFormat::Jpeg).ok()?;
    Some(file.into_inner())
}

/// Their mean without the longest tenth, which something else held up.
fn typical(mut lengths: Vec<Nanos>) -> Nanos {
    lengths.sort_unstable();
    lengths.truncate((lengths.len() * 9).div_ceil(10));
    let count = lengths.len().max(1) as u64;
    Nanos(lengths.into_iter().sum::<Nanos>().0 / count)
}

pub(super) fn median(lengths: Vec<Nanos>) -> Nanos {
    quartile(lengths, 2)
}

/// The one with number `number`, 1 to 3.
fn quartile(mut lengths: Vec<Nanos>, number: usize) -> Nanos {
    lengths.sort_unstable();
    let place = lengths.len() * number / 4;
    lengths.get(place).copied().unwrap_or_default()
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
        for figure in figures.into_iter().chain(cost.oversleep) {
            assert!(figure > Nanos::ZERO, "{cost:?}");
        }
        let clock = VirtualClock::new();
        let shared: Arc<dyn Clock> = clock.clone();
        let cost = clock.run(|| WakingCost::measure(&shared));
        let WakingCost {
            latency,
            waking,
            core_transfer,
            ..
        } = cost;
        assert_eq!((latency, waking), ([Nanos::ZERO; 4], [Nanos::ZERO; 4]));
        assert_eq!(core_transfer, 0.0);
    }
}

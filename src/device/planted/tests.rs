//! Made-up devices and records, and the right answer.

use super::comparison::Observed;
use super::*;
use crate::probe::{CudaVersion, Driver, Piece};
use std::cell::Cell;

/// Where the device's timer stands when the run's clock is at zero.
const TIMER_ORIGIN: u64 = 1_700_000_000_000_000_000;

/// Advances a little with each look, and to the deadline in a sleep, or past it.
#[derive(Default)]
struct LookedAt {
    now: std::sync::atomic::AtomicU64,
    oversleeps: Nanos,
}

impl LookedAt {
    fn pass(&self, length: Nanos) -> Nanos {
        let before = self
            .now
            .fetch_add(length.0, std::sync::atomic::Ordering::Relaxed);
        Nanos(before) + length
    }
}

impl Clock for LookedAt {
    fn now(&self) -> Nanos {
        self.pass(Nanos(40))
    }

    fn sleep_until(&self, deadline: Nanos) {
        let left = deadline - self.now();
        if left > Nanos::ZERO {
            self.pass(left + self.oversleeps);
        }
    }
}

/// A device on `clock` that takes `launch` before a kernel, and `wait` after it.
struct Imitation<'a> {
    clock: &'a LookedAt,
    launch: Nanos,
    wait: Nanos,
    stamps: Vec<Stamp>,
    /// Its timer stands still from this kernel on.
    stands_still: Cell<Option<usize>>,
}

impl<'a> Imitation<'a> {
    fn on(clock: &'a LookedAt) -> Imitation<'a> {
        Imitation {
            clock,
            launch: Nanos::from_micros(6),
            wait: Nanos::from_micros(9),
            stamps: vec![Stamp::default(); WARM_UP + KERNELS],
            stands_still: Cell::new(None),
        }
    }
}

impl Planter for Imitation<'_> {
    fn run(&mut self, slot: usize, length: Nanos) -> Result<(), DriverError> {
        let start = self.clock.pass(self.launch);
        let end = self.clock.pass(length);
        self.clock.pass(self.wait);
        if self.stands_still.get().is_none_or(|first| slot < first) {
            self.stamps[slot] = Stamp {
                start_ns: TIMER_ORIGIN + start.0,
                end_ns: TIMER_ORIGIN + end.0,
                finest_step_ns: 32,
            };
        }
        Ok(())
    }

    fn stamps(&mut self) -> Result<Vec<Stamp>, DriverError> {
        Ok(self.stamps.clone())
    }
}

/// The standard plan carried out, with records that agree with the device's timer.
fn observed() -> Observed {
    let clock = LookedAt::default();
    let done = carry_out(&mut Imitation::on(&clock), &Plan::standard(), &clock).unwrap();
    let record = |stamp: &Stamp| {
        let [start, end] = [stamp.start_ns, stamp.end_ns].map(|time| Nanos(time - TIMER_ORIGIN));
        Interval::new(start, end)
    };
    let records: Vec<Interval> = done.stamps.iter().map(record).collect();
    assert!(records.iter().all(|record| record.start > done.began));
    Observed {
        records,
        records_lost: 0,
        stamps: done.stamps,
        seen_by_host: done.seen_by_host,
    }
}

fn compared(observed: &Observed) -> Comparison {
    Comparison::new(&Plan::standard(), observed)
}

/// Each record as `change` makes it of its start and end.
fn changed(change: impl Fn(u64, u64) -> [u64; 2]) -> Comparison {
    let mut observed = observed();
    for record in &mut observed.records {
        let [start, end] = change(record.start.0, record.end.0);
        *record = Interval::new(Nanos(start), Nanos(end));
    }
    compared(&observed)
}

#[test]
fn every_length_meets_every_gap_three_times() {
    let plan = Plan::standard();
    assert_eq!((plan.kernels.len(), plan.gaps.len()), (60, 59));
    assert_eq!(plan.busy(), Nanos::from_millis(12 * 19));
    assert_eq!(plan.idle(), Nanos::from_micros(15 * 7_500 - 4_000));
    let mut pairs: Vec<_> = plan.kernels.iter().zip(&plan.gaps).collect();
    pairs.sort();
    pairs.dedup();
    assert_eq!(pairs.len(), 20);
}

#[test]
fn a_device_that_does_as_it_is_told_keeps_to_the_plan() {
    let found = compared(&observed());
    assert!(found.pass, "{found:?}");
    assert_eq!(found.device_busy_ns, Nanos::from_millis(228));
    let [busy, idle] = found.device_off_plan();
    assert!(busy == 0.0 && idle < 0.001, "{found:?}");
    assert_eq!([found.busy_error, found.idle_error], [0.0, 0.0]);
    assert_eq!(found.worst_displacement_ns, Some(Nanos::ZERO));
    assert_eq!(found.timer_step_ns, Nanos(32));
}

#[test]
fn waking_up_late_is_made_up_for() {
    let clock = LookedAt {
        oversleeps: LATE_WAKE_UP + Nanos::from_micros(100),
        ..LookedAt::default()
    };
    let done = carry_out(&mut Imitation::on(&clock), &Plan::standard(), &clock).unwrap();
    let found = compared(&Observed {
        stamps: done.stamps,
        seen_by_host: done.seen_by_host,
        ..observed()
    });
    assert!(found.device_off_plan()[1] < 0.001, "{found:?}");
}

#[test]
fn a_host_that_is_held_up_is_told_from_a_timeline_that_is_wrong() {
    let mut held_up = observed();
    let late = Nanos::from_millis(5);
    for index in 30..KERNELS {
        held_up.stamps[index].start_ns += late.0;
        held_up.stamps[index].end_ns += late.0;
        for interval in [
            &mut held_up.records[index],
            &mut held_up.seen_by_host[index],
        ] {
            *interval = Interval::new(interval.start + late, interval.end + late);
        }
    }
    let found = compared(&held_up);
    assert!(found.pass && found.idle_plan_error > 0.04, "{found:?}");
    assert!(found.device_off_plan()[1] > 0.04, "{found:?}");
}

#[test]
fn records_may_come_in_any_order() {
    let mut observed = observed();
    let in_order = compared(&observed);
    observed.records.reverse();
    observed.records.swap(3, 40);
    assert_eq!(compared(&observed), in_order);
}

#[test]
fn a_kernel_that_is_missing_or_there_twice_fails() {
    let mut missing = observed();
    missing.records.remove(20);
    let found = compared(&missing);
    assert!(!found.pass && !found.is_complete(), "{found:?}");
    assert_eq!(found.worst_kernel_error_ns, None);
    let mut twice = observed();
    twice.records.push(twice.records[20]);
    let found = compared(&twice);
    // Busy and idle are right: only the count tells.
    assert_eq!([found.busy_error, found.idle_error], [0.0, 0.0]);
    assert!(!found.pass && found.kernels_recorded == 61, "{found:?}");
    let none = Observed {
        records: Vec::new(),
        ..observed()
    };
    let found = compared(&none);
    assert!(!found.pass && found.busy_error == 1.0, "{found:?}");
}

#[test]
fn a_lost_record_fails() {
    let lost = Observed {
        records_lost: 1,
        ..observed()
    };
    assert!(!compared(&lost).pass);
}

#[test]
fn two_per_cent_off_fail_and_four_in_a_thousand_pass() {
    let longer =
        |per_mille: u64| changed(move |start, end| [start, end + (end - start) * per_mille / 1000]);
    let (within, off) = (longer(4), longer(20));
    assert!(
        within.pass && (within.busy_error - 0.004).abs() < 1e-6,
        "{within:?}"
    );
    assert!(!off.pass && (off.busy_error - 0.02).abs() < 1e-6, "{off:?}");
    assert_eq!(off.worst_kernel_error_ns, Some(Nanos::from_micros(160)));
    // 20 us of each gap are less than 1 % of all busy time and more than 1 % of the idle time.
    let idle = changed(|start, end| [start, end + 20_000]);
    assert!(!idle.pass && idle.busy_error < TOLERANCE, "{idle:?}");
    assert!(idle.idle_error > TOLERANCE, "{idle:?}");
}

#[test]
fn a_timeline_on_another_clock_fails() {
    let shifted = changed(|start, end| [start + 400_000, end + 400_000]);
    assert_eq!([shifted.busy_error, shifted.idle_error], [0.0, 0.0]);
    assert!(!shifted.pass && !shifted.is_placed(), "{shifted:?}");
}

#[test]
fn a_timer_that_stands_still_is_named() {
    let clock = LookedAt::default();
    let mut device = Imitation::on(&clock);
    device.stands_still.set(Some(WARM_UP + 7));
    let error = carry_out(&mut device, &Plan::standard(), &clock)
        .err()
        .unwrap();
    assert!(error.to_string().contains("planted kernel 7"), "{error}");
}

#[test]
fn what_launching_adds_is_the_median_without_the_first() {
    let mut stamps = vec![Stamp::default(); 5];
    let mut now = TIMER_ORIGIN;
    for (stamp, added) in stamps.iter_mut().zip([0, 900_000, 12_000, 14_000, 500_000]) {
        stamp.start_ns = now + added;
        stamp.end_ns = stamp.start_ns + 1;
        now = stamp.end_ns + WARM_UP_GAP.0;
    }
    assert_eq!(gap_overhead(&stamps), Nanos::from_micros(14));
    assert_eq!(gap_overhead(&[]), Nanos::ZERO);
}

#[test]
fn everything_that_is_missing_is_named() {
    let missing = |piece| Missing {
        piece,
        detail: "gone".to_owned(),
        remedy: "get it".to_owned(),
    };
    let piece = || {
        Ok(Piece {
            path: "/x".into(),
            version: None,
        })
    };
    let mut probe = CudaProbe {
        driver: Err(missing("driver")),
        nvml: piece(),
        cupti: Err(missing("CUPTI")),
        cupti_others: Vec::new(),
        nvjpeg: None,
        // Neither is needed: the driver compiles the kernel.
        nvrtc: Err(missing("NVRTC")),
        headers: Err(missing("headers")),
    };
    let text = measure(&probe, 0).unwrap_err().to_string();
    assert!(
        text.contains("driver: gone") && text.contains("CUPTI: gone"),
        "{text}"
    );
    assert!(
        !text.contains("NVRTC") && !text.contains("headers"),
        "{text}"
    );
    probe.driver = Ok(Driver {
        cuda_version: CudaVersion::new(13, 0),
        devices: Vec::new(),
    });
    let pieces = needed(&probe, 3).unwrap_err();
    assert_eq!(pieces.len(), 2);
    assert!(pieces[0].detail.contains("cuda:3"), "{}", pieces[0]);
}

//! What the plan, the device's own timer and the kernel timeline say of the same kernels.
//!
//! Pure. The timeline passes where its busy and its idle time are within [`TOLERANCE`] of the device's timer's,
//! no kernel is missing, none is there twice, no record was lost, and every kernel lies where the host saw it.
//! That the host kept to the plan is no part of it: a host that was held up says nothing of the timeline.
//! May use: `timeline`.

use super::{Plan, Stamp};
use serde::Serialize;
use stallscope_core::timeline::{Interval, IntervalSet, Nanos};

/// How far busy and idle time may be off, as a share.
pub const TOLERANCE: f64 = 0.01;
/// How far a kernel may lie outside the time in which the host launched it and waited for it. Half of the
/// shortest gap: from there on a gap could be taken for its neighbour.
const MOST_DISPLACED: Nanos = Nanos::from_micros(250);

/// What was seen of a plan that was carried out.
pub(super) struct Observed {
    /// The planned kernels' by the timeline, on the run's clock, in any order.
    pub(super) records: Vec<Interval>,
    pub(super) records_lost: u64,
    /// In the order of the plan, as are `seen_by_host`.
    pub(super) stamps: Vec<Stamp>,
    pub(super) seen_by_host: Vec<Interval>,
}

/// What became of planted kernels. Lengths are nanoseconds; errors are shares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub kernels: usize,
    /// Those of which the timeline has a record.
    pub kernels_recorded: usize,
    pub planned_busy_ns: Nanos,
    pub planned_idle_ns: Nanos,
    /// By the device's own timer.
    pub device_busy_ns: Nanos,
    pub device_idle_ns: Nanos,
    /// By the timeline: the union of the kernels, and the rest from the first one's start to the last one's end.
    pub measured_busy_ns: Nanos,
    pub measured_idle_ns: Nanos,
    /// The timeline against the device's timer.
    pub busy_error: f64,
    pub idle_error: f64,
    /// The timeline against the plan.
    pub busy_plan_error: f64,
    pub idle_plan_error: f64,
    /// The most by which one kernel's length is off the device's timer; `None` where the kernels do not match.
    pub worst_kernel_error_ns: Option<Nanos>,
    /// The most by which a kernel starts before its launch or ends after the host knew of its end.
    pub worst_displacement_ns: Option<Nanos>,
    /// The finest step that the device's timer was seen to take.
    pub timer_step_ns: Nanos,
    pub records_lost: u64,
    pub pass: bool,
}

impl Comparison {
    pub(super) fn new(plan: &Plan, observed: &Observed) -> Comparison {
        let mut records = observed.records.clone();
        records.sort_unstable_by_key(|record| record.start);
        let (device_busy_ns, device_idle_ns) = by_device(&observed.stamps);
        let (measured_busy_ns, measured_idle_ns) = by_timeline(&records);
        let steps = observed.stamps.iter().map(|stamp| stamp.finest_step_ns);
        let mut comparison = Comparison {
            kernels: plan.kernels.len(),
            kernels_recorded: records.len(),
            planned_busy_ns: plan.busy(),
            planned_idle_ns: plan.idle(),
            device_busy_ns,
            device_idle_ns,
            measured_busy_ns,
            measured_idle_ns,
            busy_error: error(measured_busy_ns, device_busy_ns),
            idle_error: error(measured_idle_ns, device_idle_ns),
            busy_plan_error: error(measured_busy_ns, plan.busy()),
            idle_plan_error: error(measured_idle_ns, plan.idle()),
            worst_kernel_error_ns: None,
            worst_displacement_ns: None,
            timer_step_ns: Nanos(steps.min().unwrap_or_default()),
            records_lost: observed.records_lost,
            pass: false,
        };
        if comparison.is_complete() {
            comparison.match_kernels(observed, &records);
        }
        comparison.pass = comparison.passes();
        comparison
    }

    /// Kernel by kernel; `records` are in the order of the plan.
    fn match_kernels(&mut self, observed: &Observed, records: &[Interval]) {
        let lengths = observed.stamps.iter().zip(records);
        let off = lengths.map(|(stamp, record)| apart(stamp.length(), record.length()));
        self.worst_kernel_error_ns = off.max();
        let places = observed.seen_by_host.iter().zip(records);
        let displaced = places.map(|(seen, record)| displacement(*seen, *record));
        self.worst_displacement_ns = displaced.max();
    }

    fn passes(&self) -> bool {
        let within = |error: f64| error <= TOLERANCE;
        self.is_complete()
            && self.records_lost == 0
            && self.is_placed()
            && within(self.busy_error)
            && within(self.idle_error)
    }

    /// Whether there is one record of each kernel.
    pub fn is_complete(&self) -> bool {
        self.kernels_recorded == self.kernels
    }

    /// Whether each kernel lies where the host saw it, on the run's clock.
    pub fn is_placed(&self) -> bool {
        self.worst_displacement_ns
            .is_some_and(|worst| worst <= MOST_DISPLACED)
    }

    /// How far the device was off the plan, by its own timer: busy and idle, as shares.
    pub fn device_off_plan(&self) -> [f64; 2] {
        [
            error(self.device_busy_ns, self.planned_busy_ns),
            error(self.device_idle_ns, self.planned_idle_ns),
        ]
    }
}

impl Stamp {
    fn length(self) -> Nanos {
        Nanos(self.end_ns.saturating_sub(self.start_ns))
    }
}

/// Busy and idle time from the first kernel's start to the last one's end.
fn by_device(stamps: &[Stamp]) -> (Nanos, Nanos) {
    let busy = stamps.iter().map(|stamp| stamp.length()).sum();
    let start = stamps.first().map_or(0, |stamp| stamp.start_ns);
    let end = stamps.last().map_or(0, |stamp| stamp.end_ns);
    (busy, Nanos(end.saturating_sub(start)) - busy)
}

/// The same of intervals in order of their starts.
fn by_timeline(records: &[Interval]) -> (Nanos, Nanos) {
    let mut covered = IntervalSet::new();
    for record in records {
        covered.insert(*record);
    }
    let start = covered
        .parts()
        .first()
        .map_or(Nanos::ZERO, |part| part.start);
    let end = covered.parts().last().map_or(Nanos::ZERO, |part| part.end);
    (covered.length(), end - start - covered.length())
}

fn apart(one: Nanos, other: Nanos) -> Nanos {
    Nanos(one.0.abs_diff(other.0))
}

fn displacement(seen: Interval, record: Interval) -> Nanos {
    (seen.start - record.start).max(record.end - seen.end)
}

fn error(measured: Nanos, truth: Nanos) -> f64 {
    apart(measured, truth).0 as f64 / truth.0.max(1) as f64
}

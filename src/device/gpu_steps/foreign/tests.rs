use super::super::GpuStep;
use super::*;
use crate::cupti::synthetic::{Buffer, CUDA_12_9};
use crate::cupti::{Activity, WorkKind};
use stallscope_core::timeline::{ItemId, Stage, StageKind, UnitRecord, UnitRef};

const LANES: GpuLanes = GpuLanes {
    device: 5,
    copy_engine: 6,
};
const TRAINER: u16 = 0;
/// The threads that launch: that of the loop, and autograd's.
const MAIN: u32 = 100;
const AUTOGRAD: u32 = 200;

fn interval(start: u64, end: u64) -> Interval {
    Interval::new(Nanos(start), Nanos(end))
}

/// When step `n` begins on the host, which takes 80 of 100.
fn at(n: u64) -> u64 {
    1000 + 100 * n
}

fn host(n: u64) -> (u16, Record) {
    let times = [at(n), at(n) + 80].map(Nanos);
    let unit = UnitRecord {
        samples: 4,
        ordinal: n,
        item: ItemId { batch: n, slot: 0 },
        ..UnitRecord::of_device(Stage::STEP, n, UnitRef::NONE, true, times[0], times[1])
    };
    (TRAINER, Record::Unit(unit))
}

/// What step `n` does: a copy of its batch, a kernel that has to wait for that, and one that autograd's thread launched.
fn step(buffer: &mut Buffer, n: u64) {
    let (at, id) = (at(n), 10 * n as u32);
    buffer.call(1, [at + 2, at + 3], MAIN, id);
    buffer.copy([1, 2, 3], 1000, [at + 5, at + 25], 7, id);
    buffer.call(307, [at + 6, at + 7], MAIN, id + 1);
    buffer.kernel("forward", [at + 26, at + 50], 7, id + 1);
    buffer.call(307, [at + 10, at + 12], AUTOGRAD, id + 2);
    buffer.kernel("backward", [at + 50, at + 90], 7, id + 2);
}

struct Told {
    steps: GpuSteps,
    records: Vec<(u16, Record)>,
    done: Vec<GpuStep>,
}

impl Told {
    /// Steps `0..count` of the host are known.
    fn of(count: u64) -> Told {
        let mut steps = GpuSteps::foreign(LANES, Nanos::ZERO);
        steps.host(&(0..count).map(host).collect::<Vec<_>>());
        let (records, done) = (Vec::new(), Vec::new());
        Told {
            steps,
            records,
            done,
        }
    }

    fn take(&mut self, buffer: &Buffer, which: impl Fn(&Activity) -> bool) {
        let (activities, _) = buffer.read();
        let wanted = activities.into_iter().filter(which);
        wanted.for_each(|activity| self.steps.take(activity));
    }

    fn settle(&mut self, at_the_end: bool) -> usize {
        let done = self.steps.settle(at_the_end, &mut self.records);
        self.done.extend(done);
        self.done.len()
    }

    fn units(&self, kind: StageKind) -> Vec<UnitRecord> {
        let units = self.records.iter().filter_map(|(_, record)| match record {
            Record::Unit(unit) if unit.stage.kind() == kind => Some(*unit),
            _ => None,
        });
        units.collect()
    }
}

#[test]
fn steps_end_without_a_read_back_once_their_calls_are_known() {
    let mut buffer = Buffer::new(CUDA_12_9);
    (0..6).for_each(|n| step(&mut buffer, n));
    let mut told = Told::of(6);
    let of_autograd =
        |activity: &Activity| matches!(activity, Activity::Call(call) if call.thread == AUTOGRAD);
    told.take(&buffer, |activity| !of_autograd(activity));
    assert_eq!(told.settle(false), 0, "calls of the other thread may come");
    told.take(&buffer, of_autograd);
    assert_eq!(told.settle(false), 0);
    told.steps.calls_known_until(Nanos(at(5)));
    assert_eq!(told.settle(false), 3, "two steps behind each are known");
    assert_eq!(told.settle(true), 6);
    assert_eq!(told.steps.late(), 0);
    for (n, step) in told.done.iter().enumerate() {
        let at = at(n as u64);
        assert_eq!(step.busy.parts(), [interval(at + 26, at + 90)]);
        assert_eq!(step.copying, [interval(at + 5, at + 25)]);
        assert_eq!((step.copied, step.overlapped), (Nanos(20), Nanos::ZERO));
    }
    let device = told.units(StageKind::Device);
    let ends: Vec<_> = device.iter().map(|unit| unit.end.0).collect();
    assert_eq!(ends, (0..6).map(|n| at(n) + 90).collect::<Vec<_>>());
    assert!(device.iter().all(|unit| unit.waited && unit.samples == 4));
    let transfers = told.units(StageKind::Transfer);
    assert_eq!((transfers.len(), transfers[2].bytes_in), (6, 1000));
    assert_eq!(transfers[2].cause, UnitRef::new(TRAINER, 2));
}

#[test]
fn work_that_no_step_launched_is_device_time_at_once() {
    let mut buffer = Buffer::new(CUDA_12_9);
    (0..2).for_each(|n| step(&mut buffer, n));
    // A pass without gradients after the second step.
    let validation = at(2) + 10;
    buffer.call(307, [validation, validation + 1], MAIN, 500);
    buffer.kernel("inference", [validation + 2, validation + 42], 7, 500);
    let mut told = Told::of(2);
    told.take(&buffer, |_| true);
    told.steps.calls_known_until(Nanos(at(3)));
    let busy = |told: &Told, wanted: Interval| {
        let mut records = told.records.iter();
        records.any(|(_, record)| {
            matches!(record, Record::Busy(span) if interval(span.start.0, span.end.0) == wanted)
        })
    };
    told.settle(false);
    let inference = interval(validation + 2, validation + 42);
    assert!(!busy(&told, inference), "a step may yet contain it");
    told.steps.host_known_until(Nanos(at(3)));
    assert_eq!(told.settle(false), 0);
    assert!(busy(&told, inference));
    assert_eq!(told.steps.late(), 0);
}

#[test]
fn steps_of_which_nothing_is_known_do_not_count() {
    let mut buffer = Buffer::new(CUDA_12_9);
    (0..4).for_each(|n| step(&mut buffer, n));
    let killed = |is_cut_off, until| {
        let mut told = Told::of(6);
        told.take(&buffer, |_| true);
        told.steps.calls_known_until(Nanos(until));
        if is_cut_off {
            told.steps.was_cut_off();
        }
        told.settle(true)
    };
    assert_eq!(killed(false, 0), 4);
    assert_eq!(killed(true, at(4)), 3);
    assert_eq!(killed(true, 0), 0);
}

#[test]
fn steps_by_events_are_put_together_as_well() {
    let mut told = Told::of(5);
    for n in 0..5 {
        let (at, correlation) = (at(n), n as u32);
        told.steps.take(Activity::Call(crate::cupti::ApiCall {
            api: crate::cupti::Api::Runtime,
            function: 0,
            interval: interval(at + 4, at + 4),
            thread: MAIN,
            correlation,
        }));
        told.steps.take(Activity::Work(crate::cupti::DeviceWork {
            kind: WorkKind::Timed,
            interval: interval(at + 6, at + 96),
            device: 0,
            stream: 0,
            correlation,
        }));
        told.steps.calls_known_until(Nanos(at + 80));
    }
    assert_eq!(told.settle(false), 2);
    assert_eq!(told.settle(true), 5);
    let busy: Nanos = told.done.iter().map(|step| step.busy.length()).sum();
    assert_eq!(busy, Nanos(5 * 90));
    assert!(told.units(StageKind::Transfer).is_empty());
}

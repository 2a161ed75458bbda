use super::*;
use crate::cupti::synthetic::{Buffer, CUDA_12_9};
use stallscope_core::timeline::ItemId;

const LANES: GpuLanes = GpuLanes {
    device: 5,
    copy_engine: 6,
};
const TRAINER: u16 = 1;
const COPIER: u16 = 2;
/// Threads that call CUDA: the one that launches kernels, and the one that copies.
const LAUNCHER: u32 = 100;
const COPYING: u32 = 200;

fn host_unit(stage: Stage, batch: u64, start: u64, end: u64) -> UnitRecord {
    UnitRecord {
        samples: 4,
        bytes_in: 1000,
        ordinal: batch,
        item: ItemId { batch, slot: 0 },
        ..UnitRecord::of_device(stage, batch, UnitRef::NONE, true, Nanos(start), Nanos(end))
    }
}

/// Steps of two kernels each that follow each other every 100, with gaps that are known.
struct Plan {
    buffer: Buffer,
    records: Vec<(u16, Record)>,
}

impl Plan {
    fn new() -> Plan {
        Plan {
            buffer: Buffer::new(CUDA_12_9),
            records: Vec::new(),
        }
    }

    /// Step `n`, launched from `100 n + 1000` on: a copy beside the step before, kernels at +20 to +50 and +60 to
    /// +90, the second launched at +52 to +56, and the outcome read at +92 to +94.
    fn step(&mut self, n: u64) {
        let (at, id) = (1000 + 100 * n, 10 * n as u32);
        let records = [
            (
                COPIER,
                Record::Unit(host_unit(Stage::COPY, n, at - 60, at - 35)),
            ),
            (
                TRAINER,
                Record::Unit(host_unit(Stage::STEP, n, at, at + 95)),
            ),
        ];
        self.records.extend(records);
        let buffer = &mut self.buffer;
        buffer.call(1, [at - 58, at - 57], COPYING, id);
        buffer.copy([1, 2, 3], 1000, [at - 55, at - 35], 9, id);
        buffer.call(307, [at + 5, at + 8], LAUNCHER, id + 1);
        buffer.kernel("first", [at + 20, at + 50], 7, id + 1);
        buffer.call(307, [at + 52, at + 56], LAUNCHER, id + 2);
        buffer.kernel("second", [at + 60, at + 90], 7, id + 2);
        buffer.call(4, [at + 57, at + 58], LAUNCHER, id + 3);
        buffer.copy([2, 3, 2], 8, [at + 92, at + 94], 7, id + 3);
    }

    /// Tells `steps` what CUPTI recorded.
    fn tell(&self, steps: &mut GpuSteps) {
        let (activities, _) = self.buffer.read();
        for activity in activities {
            steps.take(activity);
        }
    }
}

fn settled(
    steps: &mut GpuSteps,
    plan: &Plan,
    reversed: bool,
) -> (Vec<GpuStep>, Vec<(u16, Record)>) {
    let (mut activities, count) = plan.buffer.read();
    assert_eq!(count.lost(), 0);
    if reversed {
        activities.reverse();
    }
    steps.host(&plan.records);
    activities
        .into_iter()
        .for_each(|activity| steps.take(activity));
    let mut records = Vec::new();
    let mut done = steps.settle(false, &mut records);
    done.extend(steps.settle(true, &mut records));
    (done, records)
}

fn units(records: &[(u16, Record)], lane: u16) -> Vec<UnitRecord> {
    let unit = |(on, record): &(u16, Record)| match record {
        Record::Unit(unit) if *on == lane => Some(*unit),
        _ => None,
    };
    records.iter().filter_map(unit).collect()
}

#[test]
fn steps_are_put_together_in_any_order_of_records() {
    for reversed in [false, true] {
        let mut plan = Plan::new();
        (0..5).for_each(|n| plan.step(n));
        let mut steps = GpuSteps::new(LANES);
        let (done, records) = settled(&mut steps, &plan, reversed);
        assert_eq!(done.len(), 5);
        assert_eq!(steps.late(), 0);
        for (n, step) in done.iter().enumerate() {
            let at = 1000 + 100 * n as u64;
            assert_eq!(step.batch, n as u64);
            let parts = [[at + 20, at + 50], [at + 60, at + 90]];
            let parts = parts.map(|[start, end]| Interval::new(Nanos(start), Nanos(end)));
            assert_eq!(step.busy.parts(), parts);
            // From the end of the first kernel until the second is launched; what is left is the device's.
            assert_eq!(step.late, [Interval::new(Nanos(at + 50), Nanos(at + 56))]);
            assert_eq!(step.copied, Nanos(20));
            // It lies at -55 to -35, the kernels of the step before at -80 to -50 and -40 to -10.
            let beside = if n == 0 { 0 } else { 10 };
            assert_eq!(step.overlapped, Nanos(beside), "step {n}");
        }
        let device = units(&records, LANES.device);
        let ends: Vec<_> = device
            .iter()
            .map(|unit| (unit.start.0, unit.end.0))
            .collect();
        assert_eq!(ends[..2], [(1020, 1094), (1120, 1194)]);
        assert!(device.iter().all(|unit| unit.waited && unit.samples == 4));
        let causes: Vec<_> = device.iter().map(|unit| unit.cause).collect();
        assert_eq!(causes[3], UnitRef::new(TRAINER, 3));
        let ordinals: Vec<_> = device.iter().map(|unit| unit.ordinal).collect();
        assert_eq!(ordinals, [0, 1, 2, 3, 4]);
        let transfers = units(&records, LANES.copy_engine);
        assert_eq!(transfers.len(), 5);
        assert_eq!(transfers[1].cause, UnitRef::new(COPIER, 1));
        assert_eq!(
            (transfers[1].start, transfers[1].end),
            (Nanos(1045), Nanos(1065))
        );
    }
}

#[test]
fn a_step_waits_for_those_behind_it() {
    let mut plan = Plan::new();
    (0..4).for_each(|n| plan.step(n));
    let mut steps = GpuSteps::new(LANES);
    steps.host(&plan.records);
    plan.tell(&mut steps);
    let mut records = Vec::new();
    let done = steps.settle(false, &mut records);
    let batches: Vec<_> = done.iter().map(|step| step.batch).collect();
    assert_eq!(batches, [0, 1]);
    assert_eq!(steps.settle(true, &mut records).len(), 2);
}

#[test]
fn a_queued_step_is_bound_by_the_one_before() {
    let mut plan = Plan::new();
    plan.step(0);
    // Launched while the step before still ran.
    let records = [(TRAINER, Record::Unit(host_unit(Stage::STEP, 1, 1096, 1099)))];
    plan.records.extend(records);
    plan.buffer.call(307, [1097, 1098], LAUNCHER, 50);
    plan.buffer.kernel("queued", [1130, 1140], 7, 50);
    plan.buffer.kernel("of the first", [1094, 1125], 7, 2);
    let mut steps = GpuSteps::new(LANES);
    let (_, records) = settled(&mut steps, &plan, false);
    let device = units(&records, LANES.device);
    assert_eq!(device[0].end, Nanos(1125));
    assert!(!device[1].waited, "{:?}", device[1]);
}

#[test]
fn lost_calls_and_lost_work_cost_no_step() {
    let mut plan = Plan::new();
    plan.step(0);
    let records = [
        (TRAINER, Record::Unit(host_unit(Stage::STEP, 1, 1100, 1195))),
        (TRAINER, Record::Unit(host_unit(Stage::STEP, 2, 1200, 1295))),
    ];
    plan.records.extend(records);
    // Of the second step the call was dropped, of the third everything.
    plan.buffer.kernel("orphan", [1120, 1150], 7, 99);
    let mut steps = GpuSteps::new(LANES);
    let (done, records) = settled(&mut steps, &plan, true);
    assert_eq!(done.len(), 3);
    assert_eq!(done[1].busy.length(), Nanos(30));
    assert!(done[1].late.is_empty());
    let device = units(&records, LANES.device);
    assert_eq!((device[2].start, device[2].end), (Nanos(1295), Nanos(1295)));
}

#[test]
fn small_numbers_that_the_launching_thread_copies_are_part_of_the_step() {
    let mut plan = Plan::new();
    (0..3).for_each(|n| plan.step(n));
    // In the course of the copy of batch 2 (1140 to 1165) as well as of step 1.
    plan.buffer.call(1, [1142, 1143], LAUNCHER, 77);
    plan.buffer.copy([1, 2, 3], 16, [1144, 1145], 7, 77);
    let mut steps = GpuSteps::new(LANES);
    let (done, _) = settled(&mut steps, &plan, false);
    assert_eq!(done[1].works.len(), 4);
    assert_eq!(done[2].copies.len(), 1);
}

/// The model's weights may be copied while the first batches are, before any kernel is launched.
#[test]
fn weights_that_the_launching_thread_copies_are_no_batch() {
    for bytes in [900, 1000, 6 << 20] {
        let mut plan = Plan::new();
        plan.buffer.call(1, [942, 943], LAUNCHER, 7);
        plan.buffer.copy([1, 2, 3], bytes, [942, 944], 7, 7);
        (0..5).for_each(|n| plan.step(n));
        // Told of before the kernels are, which comes later.
        let mut steps = GpuSteps::new(LANES);
        steps.host(&plan.records[..1]);
        let (activities, _) = plan.buffer.read();
        let mut activities = activities.into_iter();
        activities.by_ref().take(2).for_each(|one| steps.take(one));
        let mut records = Vec::new();
        assert!(steps.settle(false, &mut records).is_empty());
        steps.host(&plan.records[1..]);
        activities.for_each(|one| steps.take(one));
        let done = steps.settle(true, &mut records);
        assert_eq!(done.len(), 5);
        for step in &done {
            assert_eq!(step.copied, Nanos(20), "{bytes}: {step:?}");
        }
        assert_eq!(units(&records, LANES.copy_engine).len(), 5);
        assert_eq!(steps.late(), 0);
    }
}

#[test]
fn a_step_whose_end_was_lost_holds_nothing_up() {
    let mut plan = Plan::new();
    plan.step(0);
    let records = [(TRAINER, Record::Unit(host_unit(Stage::STEP, 1, 1100, 1195)))];
    plan.records.extend(records);
    plan.buffer.call(307, [1105, 1108], LAUNCHER, 11);
    plan.buffer.kernel("first", [1120, 1150], 7, 11);
    (2..12).for_each(|n| plan.step(n));
    let mut steps = GpuSteps::new(LANES);
    steps.host(&plan.records);
    plan.tell(&mut steps);
    let mut records = Vec::new();
    let done = steps.settle(false, &mut records);
    let batches: Vec<_> = done.iter().map(|step| step.batch).collect();
    assert_eq!(batches, (0..10).collect::<Vec<_>>());
    assert_eq!(done[1].busy.length(), Nanos(30));
}

#[test]
fn work_whose_call_was_lost_is_told_with_its_step() {
    let mut plan = Plan::new();
    (0..3).for_each(|n| plan.step(n));
    plan.buffer.kernel("orphan", [1051, 1059], 7, 99);
    let mut steps = GpuSteps::new(LANES);
    steps.host(&plan.records);
    plan.tell(&mut steps);
    let done = steps.settle(false, &mut Vec::new());
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].busy.length(), Nanos(68));
    assert_eq!(steps.late(), 0);
}

#[test]
fn one_call_may_launch_many_kernels() {
    for reversed in [false, true] {
        let mut plan = Plan::new();
        (0..3).for_each(|n| plan.step(n));
        plan.buffer.kernel("of a graph", [1150, 1155], 7, 11);
        plan.buffer.kernel("of a graph", [1155, 1158], 7, 11);
        let mut steps = GpuSteps::new(LANES);
        let (done, _) = settled(&mut steps, &plan, reversed);
        assert_eq!(done[1].busy.length(), Nanos(68));
        let called = |launched: &LaunchedWork| launched.call.is_some();
        assert!(done[1].works.iter().all(called));
    }
}

#[test]
fn kernels_launched_between_two_steps_are_busy_time_and_no_part_of_a_step() {
    let mut plan = Plan::new();
    (0..3).for_each(|n| plan.step(n));
    plan.buffer.call(307, [1096, 1097], COPYING, 80);
    plan.buffer.kernel("between", [1097, 1099], 9, 80);
    // Before the first step, and after the last: preparation and evaluation.
    for (at, id) in [(500, 81), (2_000, 82)] {
        plan.buffer.call(307, [at, at + 1], LAUNCHER, id);
        plan.buffer.kernel("elsewhere", [at + 1, at + 9], 7, id);
    }
    let mut steps = GpuSteps::new(LANES);
    let (done, records) = settled(&mut steps, &plan, false);
    let busy: Vec<_> = done.iter().map(|step| step.busy.length().0).collect();
    assert_eq!(busy, [62, 60, 60]);
    let device = units(&records, LANES.device);
    assert_eq!((device[0].end, device[1].start), (Nanos(1094), Nanos(1120)));
    assert_eq!(steps.late(), 0);
}

#[test]
fn a_copy_that_is_told_before_its_batch_is_no_part_of_the_step_beside_it() {
    let mut plan = Plan::new();
    (0..4).for_each(|n| plan.step(n));
    // The copy of batch 2 lies in the course of step 1; its record comes after that step's.
    let is_late = |(_, record): &(u16, Record)| match record {
        Record::Unit(unit) => unit.stage == Stage::COPY && unit.item.batch == 2,
        _ => false,
    };
    let (late, early): (Vec<_>, Vec<_>) = plan.records.iter().copied().partition(is_late);
    let mut steps = GpuSteps::new(LANES);
    steps.host(&early);
    plan.tell(&mut steps);
    // Nothing is put together yet but what lies before.
    let mut done = steps.settle(false, &mut Vec::new());
    assert_eq!(done.len(), 2);
    steps.host(&late);
    done.extend(steps.settle(true, &mut Vec::new()));
    let works: Vec<_> = done.iter().map(|step| step.works.len()).collect();
    assert_eq!(works, [3, 4, 3, 3], "told too late for step 1");

    let mut steps = GpuSteps::new(LANES);
    let (activities, _) = plan.buffer.read();
    let (before, behind): (Vec<_>, Vec<_>) = activities.into_iter().partition(|activity| {
        let (Activity::Work(DeviceWork { correlation, .. })
        | Activity::Call(ApiCall { correlation, .. })) = activity;
        *correlation < 30
    });
    steps.host(&early);
    before.into_iter().for_each(|activity| steps.take(activity));
    let mut done = steps.settle(false, &mut Vec::new());
    assert_eq!(done.len(), 1);
    steps.host(&late);
    behind.into_iter().for_each(|activity| steps.take(activity));
    done.extend(steps.settle(true, &mut Vec::new()));
    let works: Vec<_> = done.iter().map(|step| step.works.len()).collect();
    assert_eq!(works, [3; 4]);
    assert_eq!(done[2].copies.len(), 1);
}

/// Batches that stay on the device are never copied again.
#[test]
fn memory_does_not_grow_where_nothing_is_copied() {
    let mut steps = GpuSteps::new(LANES);
    for n in 0..1_000 {
        let mut plan = Plan::new();
        plan.step(n);
        let is_step = |(lane, _): &(u16, Record)| *lane == TRAINER;
        plan.records.retain(is_step);
        steps.host(&plan.records);
        plan.tell(&mut steps);
        steps.settle(false, &mut Vec::new());
        assert!(steps.recent.parts().len() <= 8);
        assert!(steps.unplaced.len() <= 4);
    }
}

/// A thread of the loader that decodes on the device works beside the steps.
#[test]
fn what_the_loader_launches_is_of_no_step() {
    const DECODING: u32 = 300;
    let settled = |with_loader: bool, host_comes_late: bool| {
        let mut plan = Plan::new();
        if with_loader {
            // Before the first step.
            plan.buffer.call(307, [900, 902], DECODING, 999);
            plan.buffer.kernel("decode", [910, 990], 11, 999);
        }
        for n in 0..8 {
            plan.step(n);
            if with_loader {
                let (at, id) = (1000 + 100 * n, 1000 + n as u32);
                plan.buffer.call(307, [at + 10, at + 12], DECODING, id);
                plan.buffer.kernel("decode", [at + 50, at + 60], 11, id);
            }
        }
        let mut steps = GpuSteps::new(LANES);
        steps.leave_out([DECODING]);
        let mut records = Vec::new();
        if host_comes_late {
            plan.tell(&mut steps);
            steps.settle(false, &mut records);
            steps.host(&plan.records);
        } else {
            steps.host(&plan.records);
            plan.tell(&mut steps);
        }
        let done = steps.settle(true, &mut records);
        let busy: Vec<Nanos> = done.iter().map(|step| step.busy.length()).collect();
        (busy, steps.left_out())
    };
    for late in [false, true] {
        let (busy, left_out) = settled(true, late);
        assert_eq!(settled(false, late), (busy, (0, Nanos::ZERO)));
        assert_eq!(left_out, (8, Nanos(80)));
    }
}

use super::*;
use crate::timeline::{LaneKind, MonotonicClock, Recorder};
use proptest::prelude::*;
use std::time::{Duration, Instant};

/// Batch, begin, end and whether it waited.
type Told = (u64, u64, u64, bool);

struct Rig {
    recorder: Recorder,
    device: DeviceQueues,
}

impl Rig {
    fn new(queues: usize) -> Rig {
        let recorder = Recorder::new();
        let lanes = (0..queues).map(|_| recorder.lane("queue", LaneKind::Device));
        let device = DeviceQueues::new(Arc::new(MonotonicClock::new()), lanes.collect(), true);
        Rig { recorder, device }
    }

    fn submit(&self, batch: u64, at: u64, queue: usize) -> Submitted {
        let host = UnitRef::new(9, batch);
        let work = Work {
            batch,
            samples: 4,
            at: Nanos(at),
            cause: host,
            host,
        };
        self.device.submit(queue, work)
    }

    /// What was recorded since: of each step its batch, begin, end and whether it waited; and of each queue when it
    /// was busy.
    fn taken(&self) -> (Vec<Told>, Vec<(u16, u64, u64)>) {
        let (mut steps, mut busy) = (Vec::new(), Vec::new());
        self.recorder.drain(|lane, record| match record {
            Record::Unit(unit) => {
                assert_eq!((lane, unit.samples), (0, 4));
                assert_eq!(unit.cause, UnitRef::new(9, unit.item.batch));
                steps.push((unit.item.batch, unit.start.0, unit.end.0, unit.waited));
            }
            Record::Busy(span) => busy.push((lane, span.start.0, span.end.0)),
            other => panic!("{other:?}"),
        });
        (steps, busy)
    }
}

fn span(start: u64, end: u64) -> Range<Nanos> {
    Nanos(start)..Nanos(end)
}

#[test]
fn steps_are_recorded_in_order_once_told_and_closed() {
    let rig = Rig::new(1);
    let first = rig.submit(0, 10, 0);
    rig.device.step_closed();
    let second = rig.submit(1, 20, 0);
    second.ran(span(35, 50));
    assert_eq!(rig.taken().0, [], "the first has yet to be told of");
    first.ran(span(12, 30));
    assert_eq!(rig.taken(), (vec![(0, 12, 30, true)], vec![(0, 12, 30)]));
    assert_eq!(rig.taken().0, [], "the second's submission is not recorded");
    rig.device.step_closed();
    assert_eq!(rig.taken(), (vec![(1, 35, 50, false)], vec![(0, 35, 50)]));
    assert_eq!(rig.device.finish(), 0);
}

#[test]
fn a_queue_does_one_thing_after_another() {
    let rig = Rig::new(1);
    let works = [0, 1, 2].map(|batch| rig.submit(batch, 10 * batch, 0));
    let [first, second, third] = works;
    first.ran(span(0, 40));
    // Before it was submitted, and before the first had ended.
    second.ran(span(5, 60));
    // Wholly before the second had ended.
    third.ran(span(30, 50));
    rig.device.step_closed();
    let steps = vec![(0, 0, 40, false), (1, 40, 60, false), (2, 60, 60, false)];
    assert_eq!(rig.taken(), (steps, vec![(0, 0, 40), (0, 40, 60)]));
}

#[test]
fn a_step_of_two_queues_is_over_with_the_last_of_them() {
    let rig = Rig::new(2);
    let (here, there) = (rig.submit(0, 10, 0), rig.submit(0, 12, 1));
    rig.device.step_closed();
    // Another step of one of them only, beside.
    let next = rig.submit(1, 20, 1);
    rig.device.step_closed();
    here.ran(span(15, 25));
    assert_eq!(rig.taken().0, []);
    there.ran(span(18, 30));
    next.ran(span(30, 55));
    let (steps, busy) = rig.taken();
    assert_eq!(steps, [(0, 15, 30, true), (1, 30, 55, false)]);
    assert_eq!(busy, [(0, 15, 25), (1, 18, 30), (1, 30, 55)]);
}

#[test]
fn what_is_never_told_is_left_out_and_counted() {
    let rig = Rig::new(2);
    drop(rig.submit(0, 10, 0));
    rig.device.step_closed();
    rig.submit(1, 20, 0).ran(span(20, 30));
    rig.device.step_closed();
    let (told, forgotten) = (rig.submit(2, 40, 0), rig.submit(2, 40, 1));
    rig.device.step_closed();
    told.ran(span(41, 44));
    assert_eq!(rig.taken().0, [(1, 20, 30, true)]);
    assert_eq!(rig.device.finish(), 2);
    // That the one queue was busy is known all the same.
    assert_eq!(rig.taken(), (vec![], vec![(0, 41, 44)]));
    forgotten.done();
    assert_eq!(rig.taken(), (vec![], vec![]), "too late");
    assert_eq!(rig.device.wait_for_room(0), None);
}

#[test]
fn room_is_waited_for_and_made_by_the_last_step_that_was_over() {
    let rig = Rig::new(1);
    let mut works: VecDeque<Submitted> = (0..3).map(|batch| rig.submit(batch, 0, 0)).collect();
    rig.device.step_closed();
    assert_eq!(rig.device.wait_for_room(3), None, "there is room");
    let began = Instant::now();
    let device = std::thread::spawn(move || {
        for work in works.drain(..2) {
            std::thread::sleep(Duration::from_millis(5));
            work.done();
        }
        works
    });
    let (_, unit) = rig.device.wait_for_room(1).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(10));
    assert_eq!(unit, UnitRef::new(0, 1));
    // One that is dropped blocks nobody.
    drop(device.join().unwrap());
    assert_eq!(rig.device.wait_for_room(0), None);
    assert_eq!(rig.taken().0.len(), 2);
}

proptest! {
    /// The order in which steps are told of, and are closed, changes nothing.
    #[test]
    fn the_order_of_telling_does_not_matter(
        lengths in prop::collection::vec((0u64..50, 0u64..50, 0usize..2), 1..20),
        keys in prop::collection::vec(any::<u32>(), 20),
    ) {
        let record = |sorted: bool| {
            let rig = Rig::new(2);
            let mut at = 0;
            let mut works: Vec<_> = lengths.iter().enumerate().map(|(batch, (gap, length, queue))| {
                at += gap;
                let work = rig.submit(batch as u64, at, *queue);
                if !sorted || batch % 3 == 0 {
                    rig.device.step_closed();
                }
                (keys[batch], span(at + 3, at + 3 + length), work)
            }).collect();
            if sorted {
                works.sort_by_key(|(key, _, _)| *key);
            }
            works.into_iter().for_each(|(_, span, work)| work.ran(span));
            assert_eq!(rig.device.finish(), 0);
            let (steps, mut busy) = rig.taken();
            busy.sort_unstable();
            (steps, busy)
        };
        let (steps, busy) = record(true);
        prop_assert_eq!(steps.len(), lengths.len());
        prop_assert!(steps.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0 && pair[0].2 <= pair[1].1));
        prop_assert!(busy.windows(2).all(|pair| pair[0].0 < pair[1].0 || pair[0].2 <= pair[1].1));
        prop_assert_eq!((steps, busy), record(false));
    }
}

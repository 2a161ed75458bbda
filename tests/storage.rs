//! The emulated disk under the real engine: what it delivers is known to the nanosecond on the virtual
//! clock, and holds on the real one.

mod virtual_clock;
#[path = "attribution/work.rs"]
mod work;

use stallscope::data::stages::storage::{EmulatedStorage, StorageSpec, Stored};
use stallscope::pipeline::sampler::{Batches, Order, Share, epoch_order};
use stallscope::pipeline::{
    Discard, Layout, OnError, Plan, SampleWork, StageKnobs, StopSignal, start,
};
use stallscope::timeline::{Clock, MonotonicClock, Nanos, Recorder, Stage};
use std::sync::Arc;
use std::time::{Duration, Instant};
use virtual_clock::VirtualClock;
use work::{Costs, PlantedWork, wait_on};

const MS: Nanos = Nanos::from_millis(1);
const SEED: u64 = 7;
/// The planted data set's.
const SAMPLES: usize = 997;

/// A disk with a time for each of its figures in milliseconds; that of the last is for each byte.
fn disk(latency: u64, seek: u64, byte: Option<u64>) -> StorageSpec {
    StorageSpec {
        latency: Nanos::from_millis(latency),
        seek: Nanos::from_millis(seek),
        bytes_per_second: byte.map(|ms| 1000 / ms),
    }
}

/// Whose only slow stage is the first.
fn per_stage(read_workers: usize) -> Layout {
    let stage = |workers| StageKnobs {
        workers,
        prefetch: 4,
    };
    Layout::PerStage {
        samples: vec![stage(read_workers), stage(1), stage(1)],
        batch: stage(1),
    }
}

fn whole_batch(num_workers: usize) -> Layout {
    Layout::WholeBatch {
        num_workers,
        prefetch_factor: 2,
    }
}

/// Batches of ten samples of a byte each, read from a disk. Nothing but the read takes time.
#[derive(Clone)]
struct Run {
    storage: Option<StorageSpec>,
    /// What a real read takes.
    read: Nanos,
    layout: Layout,
    claim_size: usize,
    batches: u64,
    order: Order,
    part: Option<Arc<[u32]>>,
}

impl Run {
    fn new(storage: StorageSpec, layout: Layout) -> Run {
        Run {
            storage: Some(storage),
            read: Nanos::ZERO,
            layout,
            claim_size: 1,
            batches: 40,
            order: Order::Random,
            part: None,
        }
    }

    fn plan(&self) -> Plan {
        Plan {
            layout: self.layout.clone(),
            copy: StageKnobs {
                workers: 1,
                prefetch: 1,
            },
            batch_size: 10,
            claim_size: self.claim_size,
            batches: self.batches,
            drop_last: false,
            order: self.order,
            first_epoch: 0,
            first_batch: 0,
            share: Share::WHOLE,
            ordered: true,
            seed: SEED,
            part: self.part.clone(),
            on_error: OnError::Fail,
            keep: None,
        }
    }

    fn work(&self, clock: &Arc<dyn Clock>, stop: &StopSignal) -> Arc<Stored<PlantedWork>> {
        let mut mean = [0; 6];
        mean[Stage::READ.number()] = self.read.0;
        let costs = Costs {
            mean,
            spread: 0.0,
            seed: SEED,
        };
        let work = PlantedWork {
            spend: wait_on(clock),
            read: wait_on(clock),
            costs,
            factor: None,
            clock: clock.clone(),
            rare: None,
        };
        let storage = self
            .storage
            .map(|spec| Arc::new(EmulatedStorage::new(spec)));
        Arc::new(Stored::new(Arc::new(work), storage, clock, stop))
    }

    /// How long it takes until the last batch is there, or until `stop`.
    fn deliver(&self, clock: &Arc<dyn Clock>, stop: &StopSignal) -> Nanos {
        let work = self.work(clock, stop);
        assert_eq!(work.samples(), SAMPLES);
        let recorder = Recorder::off();
        let began = clock.now();
        let mut feed = start(&self.plan(), work, Discard, clock, &recorder, stop).unwrap();
        while feed.next().unwrap().is_some() {}
        let elapsed = clock.now() - began;
        feed.shut_down();
        elapsed
    }

    /// The same on a virtual clock: exact.
    fn exactly(&self) -> Nanos {
        let clock = VirtualClock::new();
        let shared: Arc<dyn Clock> = clock.clone();
        clock.run(|| self.deliver(&shared, &StopSignal::new(shared.clone())))
    }

    /// The same in real time. Other programs may slow a run down and never speed one up: the best of some counts,
    /// and it ends with one within 3 % of `expected`.
    fn really(&self, expected: Nanos) -> Nanos {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let mut best = Nanos(u64::MAX);
        for _ in 0..12 {
            best = best.min(self.deliver(&clock, &StopSignal::new(clock.clone())));
            if 100 * best.0 <= 103 * expected.0 {
                break;
            }
        }
        best
    }

    /// The samples of each batch, as the sampler has them.
    fn order(&self) -> Vec<Vec<u32>> {
        let samples = self.part.as_ref().map_or(SAMPLES, |part| part.len());
        let batches = Batches::new(samples, 10, false).unwrap();
        let batch = |number| {
            let span = batches.span(number);
            let order = epoch_order(samples, SEED, span.epoch, self.order);
            let index = |place: &u32| {
                let part = self.part.as_ref();
                part.map_or(*place, |part| part[*place as usize])
            };
            order[span.positions].iter().map(index).collect()
        };
        (0..self.batches).map(batch).collect()
    }
}

/// Pairs that do not lie one behind the other.
fn breaks(order: &[u32]) -> u64 {
    let pairs = order.windows(2);
    pairs.filter(|pair| pair[1] != pair[0] + 1).count() as u64
}

fn times(length: Nanos, count: u64) -> Nanos {
    Nanos(length.0 * count)
}

fn assert_within(percent: u64, found: Nanos, expected: Nanos) {
    let off = found.0.abs_diff(expected.0);
    assert!(100 * off <= percent * expected.0, "{found}, not {expected}");
}

#[test]
fn latency_of_four_workers_overlaps() {
    let run = Run::new(disk(5, 0, None), per_stage(4));
    assert_eq!(run.exactly(), times(MS, 400 * 5 / 4));
    let alone = Run::new(disk(5, 0, None), per_stage(1));
    assert_eq!(alone.exactly(), times(MS, 400 * 5));
}

/// In one test, since two would disturb each other.
#[test]
fn the_real_clock_agrees() {
    let latency = Run {
        batches: 80,
        ..Run::new(disk(5, 0, None), per_stage(4))
    };
    let expected = times(MS, 800 * 5 / 4);
    assert_within(3, latency.really(expected), expected);
    let bandwidth = Run {
        batches: 80,
        ..Run::new(disk(0, 0, Some(1)), per_stage(4))
    };
    let expected = times(MS, 800);
    assert_within(3, bandwidth.really(expected), expected);
}

#[test]
fn bandwidth_is_shared() {
    for workers in [1, 4] {
        for claim_size in [1, 4] {
            let run = Run {
                claim_size,
                ..Run::new(disk(0, 0, Some(2)), per_stage(workers))
            };
            assert_eq!(run.exactly(), times(MS, 400 * 2), "{workers} workers");
        }
    }
    // Four workers ask early enough that only the first latency shows.
    let run = Run::new(disk(3, 0, Some(1)), per_stage(4));
    assert_eq!(run.exactly(), times(MS, 3 + 400));
}

/// Two epochs, the last batches of which are not full, in every layout and however workers share the samples.
#[test]
fn seeks_follow_the_samplers_order() {
    let layouts = [per_stage(1), per_stage(3), whole_batch(3), whole_batch(0)];
    for layout in layouts {
        for claim_size in [1, 4, 10] {
            let random = Run {
                batches: 200,
                claim_size,
                ..Run::new(disk(0, 1, None), layout.clone())
            };
            let order = random.order().concat();
            assert_eq!(order.len(), 2 * SAMPLES);
            let seeks = 1 + breaks(&order);
            assert!(seeks < order.len() as u64, "some samples follow each other");
            assert_eq!(random.exactly(), times(MS, seeks), "{layout:?}");
            let sequential = Run {
                order: Order::Sequential,
                ..random
            };
            assert_eq!(sequential.exactly(), times(MS, 2), "one an epoch");
        }
    }
}

/// What was held out leaves holes between the samples.
#[test]
fn a_part_of_the_data_set_is_read_with_a_seek_for_each_hole() {
    let part: Arc<[u32]> = (0..40).chain(50..70).chain(71..100).collect();
    let run = Run {
        order: Order::Sequential,
        batches: 9,
        claim_size: 4,
        part: Some(part),
        ..Run::new(disk(0, 1, None), per_stage(2))
    };
    assert_eq!(run.exactly(), times(MS, 3));
}

/// A claim waits for the latency once for each run of samples in it.
#[test]
fn a_claim_is_a_request_for_each_run() {
    for order in [Order::Random, Order::Sequential] {
        let run = Run {
            batches: 100,
            claim_size: 4,
            order,
            ..Run::new(disk(2, 0, None), per_stage(1))
        };
        let samples = run.order();
        let claims = samples.iter().flat_map(|batch| batch.chunks(4));
        let runs: u64 = claims.map(|claim| 1 + breaks(claim)).sum();
        assert_eq!(run.exactly(), times(MS, 2 * runs), "{order:?}");
    }
}

#[test]
fn a_real_read_counts_as_part_of_the_emulated_one() {
    let run = Run {
        read: times(MS, 3),
        ..Run::new(disk(5, 0, None), per_stage(1))
    };
    assert_eq!(run.exactly(), times(MS, 400 * 5));
    let slower = Run {
        read: times(MS, 8),
        ..run
    };
    assert_eq!(slower.exactly(), times(MS, 400 * 8));
    let real = Run {
        storage: None,
        ..slower
    };
    assert_eq!(real.exactly(), times(MS, 400 * 8), "no disk adds nothing");
}

#[test]
fn a_stop_ends_a_long_request() {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
    let stop = StopSignal::new(clock.clone());
    let run = Run::new(disk(3_600_000, 0, None), per_stage(2));
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            stop.stop();
        });
        run.deliver(&clock, &stop);
    });
    assert!(began.elapsed() < Duration::from_secs(20));
}

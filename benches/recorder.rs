//! What a record costs the thread that writes it.

use criterion::{Criterion, criterion_group, criterion_main};
use stallscope::timeline::Clock;
use stallscope::timeline::{
    ItemId, LaneKind, MonotonicClock, Nanos, Recorder, Stage, UnitRecord, UnitRef,
};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn unit(at: Nanos) -> UnitRecord {
    UnitRecord {
        stage: Stage::DECODE,
        split: None,
        ordinal: 0,
        item: ItemId { batch: 7, slot: 3 },
        sample: 11,
        samples: 1,
        waited: false,
        admitted: false,
        skipped: false,
        ready_at: at,
        cause: UnitRef::new(1, 2),
        start: at,
        end: at,
        pushed: at,
        room_from: UnitRef::NONE,
        lineage: UnitRef::new(1, 2),
        wake_run_delay: 0,
        run_delay: 0,
        bytes_in: 100_000,
        bytes_out: 600_000,
        input_depth: 1,
        output_depth: 2,
    }
}

/// Times `iterations` calls of `write` in chunks that fit the ring, drained in between: nothing is dropped.
fn in_chunks(recorder: &Recorder, iterations: u64, mut write: impl FnMut()) -> Duration {
    let mut timed = Duration::ZERO;
    let mut left = iterations;
    while left > 0 {
        let chunk = left.min(CHUNK);
        let began = Instant::now();
        for _ in 0..chunk {
            write();
        }
        timed += began.elapsed();
        left -= chunk;
        let drain = recorder.drain(|_, record| {
            black_box(record);
        });
        assert_eq!(drain.dropped, 0);
    }
    timed
}

const CHUNK: u64 = 2048;

fn record(c: &mut Criterion) {
    let recorder = Recorder::new();
    let mut lane = recorder.lane("decode 0", LaneKind::Worker(Stage::DECODE));
    let clock = MonotonicClock::new();
    let mut group = c.benchmark_group("recorder");
    group.bench_function("record", |b| {
        let record = unit(Nanos(5));
        b.iter_custom(|n| in_chunks(&recorder, n, || lane.unit(black_box(&record))));
    });
    group.bench_function("clock reading and record", |b| {
        b.iter_custom(|n| in_chunks(&recorder, n, || lane.unit(&unit(black_box(clock.now())))));
    });
    group.bench_function("clock reading", |b| b.iter(|| black_box(clock.now())));
    group.finish();
}

criterion_group!(benches, record);
criterion_main!(benches);

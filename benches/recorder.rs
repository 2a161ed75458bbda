//! What a record costs the thread that writes it.

use criterion::{Criterion, criterion_group, criterion_main};
use stallscope::timeline::Clock;
use stallscope::timeline::{
    ItemId, LaneKind, MonotonicClock, Nanos, Recorder, Stage, UnitRecord, UnitRef,
};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn unit(at: Nanos) -> UnitRecord {
    UnitRecord {
        stage: Stage::Decode,
        ordinal: 0,
        item: ItemId { batch: 7, slot: 3 },
        sample: 11,
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

/// Records while another thread drains, as in a run; the ring is large enough that nothing is dropped.
fn record(c: &mut Criterion) {
    let recorder = Recorder::with_capacity(1 << 20);
    let mut lane = recorder.lane("decode 0", LaneKind::Worker(Stage::Decode));
    let stop = Arc::new(AtomicBool::new(false));
    let (drained, stopped) = (recorder.clone(), stop.clone());
    let collector = std::thread::spawn(move || {
        let mut dropped = 0;
        while !stopped.load(Ordering::Relaxed) {
            dropped = drained
                .drain(|_, record| {
                    black_box(record);
                })
                .dropped;
            std::thread::sleep(Duration::from_millis(2));
        }
        dropped
    });
    let clock = MonotonicClock::new();
    let mut group = c.benchmark_group("recorder");
    group.bench_function("record", |b| {
        let record = unit(Nanos(5));
        b.iter(|| lane.unit(black_box(&record)));
    });
    group.bench_function("clock reading and record", |b| {
        b.iter(|| lane.unit(&unit(black_box(clock.now()))));
    });
    group.bench_function("clock reading", |b| b.iter(|| black_box(clock.now())));
    group.finish();
    stop.store(true, Ordering::Relaxed);
    let dropped = collector.join().unwrap_or_default();
    println!("dropped records: {dropped}");
}

criterion_group!(benches, record);
criterion_main!(benches);

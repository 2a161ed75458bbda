//! How fast predictions are simulated: stage events (services of samples, batches, copies and steps) a second,
//! as `Melem/s`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use stallscope::analysis::predict::{
    BatchCosts, BatchSizes, Costs, Device, SampleCosts, Scenario, ServiceCosts, Storage, Waking,
    simulate,
};
use stallscope::timeline::{Layout, Pipeline, StageKnobs};
use std::hint::black_box;
use std::time::Duration;

const BATCH: usize = 32;
const US: f64 = 1e3;

/// As many lengths as a report has for a stage, of mean `mean` nanoseconds: most near it, some twice as long.
fn spread(mean: f64) -> Costs {
    let length = |n: u32| 0.6 + 0.4 * f64::from(n) / 64.0 + if n >= 120 { 0.5 } else { 0.0 };
    let all: f64 = (0..128).map(length).sum::<f64>() / 128.0;
    Costs::any_of((0..128).map(|n| mean * length(n) / all))
}

fn of_a_batch(base: f64, per_sample: f64) -> BatchCosts {
    BatchCosts {
        base,
        per_sample,
        factors: spread(1.0),
    }
}

/// Photographs as the quickstart's, threads woken as on a server, and a device that takes `step` nanoseconds.
fn images(layout: Layout, cores: f64, step: f64) -> Scenario {
    let num_workers = layout.num_workers().unwrap_or(2);
    Scenario {
        pipeline: Pipeline::IMAGES,
        layout,
        copy_ahead: Some(2),
        batches: BatchSizes {
            size: BATCH,
            per_epoch: 38,
            last: BATCH / 2,
        },
        claim: 1,
        ordered: true,
        outstanding: 2 * num_workers + 2,
        warmup: 100,
        steps: 4_000,
        later: u64::MAX,
        cores,
        others: 0.0,
        storage: None,
        costs: ServiceCosts {
            samples: [150.0, 1_400.0, 200.0]
                .map(|mean| SampleCosts::computing(spread(mean * US)))
                .into(),
            batch: of_a_batch(5.0 * US, 0.2 * US),
            copy: of_a_batch(10.0 * US, 0.1 * US),
            host: spread(20.0 * US),
            ..ServiceCosts::default()
        },
        device: Device::Beside {
            step: BatchCosts::fixed(0.0, step / BATCH as f64),
            launch_wait: 0.0,
            run_ahead: 2,
            transfer: BatchCosts::fixed(10.0 * US, US),
            copies_ahead: 2,
        },
        waking: Waking {
            waited: vec![5.0 * US, 30.0 * US, 120.0 * US, 1000.0 * US],
            costs: vec![3.0 * US; 4],
            latencies: vec![15.0 * US; 4],
            ..Waking::default()
        },
    }
}

/// Threads of read, decode, preprocess and batch.
fn per_stage([read, decode, preprocess, batch]: [usize; 4]) -> Layout {
    let samples = |workers| StageKnobs {
        workers,
        prefetch: 32,
    };
    Layout::PerStage {
        samples: [read, decode, preprocess].map(samples).into(),
        batch: StageKnobs {
            workers: batch,
            prefetch: 2,
        },
    }
}

fn scenarios() -> [(&'static str, Scenario); 5] {
    let pool = |num_workers| Layout::WholeBatch {
        num_workers,
        prefetch_factor: 2,
    };
    let many = images(pool(512), 256.0, 0.2e6);
    let on_disk = Scenario {
        storage: Some(Storage {
            in_flight: 1,
            is_beside: false,
            latency: 2_000.0 * US,
            requests_per_sample: 1.0,
            taken_per_sample: US,
        }),
        steps: 8_000,
        ..many.clone()
    };
    let roomy = images(per_stage([4, 8, 2, 1]), 64.0, 5e6);
    let scarce = images(per_stage([4, 2, 2, 1]), 2.0, 5e6);
    [
        ("per-stage, 64 cores", roomy),
        ("per-stage, 2 cores", scarce),
        ("8 whole-batch workers", images(pool(8), 64.0, 5e6)),
        ("512 whole-batch workers, 256 cores", many),
        ("512 whole-batch workers, 256 cores, a disk", on_disk),
    ]
}

fn stage_events(c: &mut Criterion) {
    let mut group = c.benchmark_group("simulation");
    group.measurement_time(Duration::from_secs(3));
    group.sample_size(20);
    for (name, scenario) in scenarios() {
        let simulated = simulate(&scenario, 1);
        assert_eq!(simulated.steps, scenario.steps, "{name} stood still");
        group.throughput(Throughput::Elements(simulated.services));
        group.bench_function(name, |b| b.iter(|| simulate(black_box(&scenario), 1)));
    }
    group.finish();
}

criterion_group!(benches, stage_events);
criterion_main!(benches);

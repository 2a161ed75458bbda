//! Reports of runs that are made up, for tests.

use crate::analysis::{Cause, LengthSummary, StageSummary, WorkerSummary};
use crate::report::{
    CacheReport, DeviceReport, EpochCache, IdleCause, Machine, Report, StorageReport,
};
use crate::timeline::{HostWork, LaneKind, Nanos, Stage, ThreadUsage};

pub fn nanos(ns: f64) -> Nanos {
    Nanos(ns.round() as u64)
}

fn named(stage: &str) -> Stage {
    serde_json::from_value(stage.into()).unwrap()
}

/// Device idle time by the cause that is shown as `words`.
pub fn idle(words: &str, ns: f64) -> IdleCause {
    let kind = match words {
        "copy" => Cause::Capacity(named("copy")),
        "prefetch depth (copy)" => Cause::PrefetchDepth(named("copy")),
        "host: launch" => Cause::Host(HostWork::Launch),
        "wake-up" => Cause::WakeUp,
        "CPU contention" => Cause::CpuContention,
        _ => Cause::Capacity(named(words.strip_suffix(" capacity").unwrap())),
    };
    assert_eq!(kind.to_string(), words);
    IdleCause {
        cause: words.to_owned(),
        kind,
        stage: kind.stage(),
        ns: nanos(ns),
        share: 0.0,
    }
}

pub fn device(name: &str, busy_share: f64) -> Option<DeviceReport> {
    Some(DeviceReport {
        name: name.to_owned(),
        busy_share,
        ..DeviceReport::default()
    })
}

/// A report of `rate` samples/s on a device busy for `busy` of the time and idle by `causes`, of these shares of the
/// time. A step has 32 samples, and the window a second.
pub fn report(rate: f64, busy: f64, causes: &[(&str, f64)]) -> Report {
    let causes = causes.iter();
    Report {
        samples_per_second: rate,
        window_ns: nanos(1e9),
        steps: (rate / 32.0) as u64,
        samples: rate as u64,
        data_wait_share: 1.0 - busy,
        process_cpu_ns: Some(nanos(1e9)),
        device: device("emulated", busy),
        machine: Machine {
            cores: 2.0,
            ..Machine::default()
        },
        idle_causes: causes
            .map(|(words, share)| idle(words, share * 1e9))
            .collect(),
        ..Report::default()
    }
}

/// A stage of a report of `rate` samples/s that takes `milliseconds` for each of `per_item` samples together.
pub fn stage(name: &str, rate: f64, per_item: f64, milliseconds: f64, bytes: f64) -> StageSummary {
    let items = (rate / per_item) as u64;
    let mean = nanos(1e6 * milliseconds);
    StageSummary {
        stage: named(name),
        workers: 1,
        shared_workers: false,
        items,
        skipped: 0,
        service: LengthSummary {
            mean,
            ..LengthSummary::default()
        },
        busy: mean.times(items),
        starved: Nanos::ZERO,
        blocked: Nanos::ZERO,
        run_delay: Nanos::ZERO,
        bytes_in: (bytes * rate) as u64,
        bytes_out: (bytes * rate) as u64,
        input_queue_mean: 0.0,
    }
}

/// The thread of a stage.
pub fn thread(stage: &str, usage: ThreadUsage) -> WorkerSummary {
    WorkerSummary {
        name: format!("{stage} 0"),
        kind: LaneKind::Worker(named(stage)),
        items: 0,
        busy: Nanos::ZERO,
        starved: Nanos::ZERO,
        blocked: Nanos::ZERO,
        usage,
    }
}

/// A page cache that was to be `asked`, and had this share of the data in it.
pub fn cache(asked: &'static str, resident_share: f64) -> Option<CacheReport> {
    Some(CacheReport {
        asked: asked.into(),
        epochs: vec![EpochCache {
            resident_share,
            ..EpochCache::default()
        }],
        ..CacheReport::default()
    })
}

/// A disk that seeks for so many nanoseconds and then gives 171 MB/s.
pub fn hdd(seek_ns: u64) -> Option<StorageReport> {
    Some(StorageReport {
        name: "hdd".into(),
        seek_ns: Nanos(seek_ns),
        bytes_per_second: Some(171_000_000),
        ..StorageReport::default()
    })
}

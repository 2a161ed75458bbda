use super::*;
use crate::analysis::profile::Profile;
use crate::analysis::{LengthSummary, OverTime, StageSummary, Verdict};
use crate::timeline::{Interval, Layout, Pipeline, Place, StageKnobs, ThreadUsage};

const MS: u64 = 1_000_000;
const STEPS: u64 = 100;

/// All steps' time of `ms` a step.
fn all(ms: f64) -> Nanos {
    Nanos((ms * (STEPS * MS) as f64) as u64)
}

fn lengths(ms: f64) -> LengthSummary {
    LengthSummary {
        count: STEPS,
        mean: Nanos((ms * MS as f64) as u64),
        ..LengthSummary::default()
    }
}

/// A stage's workers together: CPU time, waits for a core and waits for a disk, in ms a step.
#[derive(Copy, Clone)]
struct Stint {
    kind: LaneKind,
    threads: usize,
    cpu: f64,
    delay: f64,
    disk: f64,
}

fn stint(kind: LaneKind, threads: usize, cpu: f64, delay: f64) -> Stint {
    Stint {
        kind,
        threads,
        cpu,
        delay,
        disk: 0.0,
    }
}

fn decode(threads: usize, cpu: f64, delay: f64) -> Stint {
    stint(LaneKind::Worker(Stage::DECODE), threads, cpu, delay)
}

/// A run whose trainer has all data and computes 48 ms a step, on two cores.
struct Made {
    /// How long the trainer waits for a core in a step, in ms.
    waits: f64,
    loader: Vec<Stint>,
    /// CPU time of other programs, in ms a step.
    others: Option<f64>,
    data_wait: f64,
    /// Of a device that runs beside; the trainer's 48 ms are then its own code's.
    beside: Option<Vec<(Cause, f64)>>,
    num_workers: Option<usize>,
    cores: f64,
}

/// As measured with a small network on the CPU: 8 decode workers, a few seconds' run.
fn eight() -> Made {
    Made {
        waits: 17.0,
        loader: vec![
            decode(8, 40.0, 124.0),
            stint(LaneKind::Worker(Stage::PREPROCESS), 1, 4.0, 13.0),
        ],
        others: Some(2.0),
        data_wait: 0.0,
        beside: None,
        num_workers: None,
        cores: 2.0,
    }
}

impl Made {
    fn worker(stint: &Stint, name: usize) -> WorkerSummary {
        let part = |ms: f64| all(ms / stint.threads as f64);
        WorkerSummary {
            name: format!("{name}"),
            kind: stint.kind,
            items: STEPS,
            busy: part(stint.cpu + stint.delay + stint.disk),
            starved: Nanos::ZERO,
            blocked: Nanos::ZERO,
            usage: ThreadUsage {
                user: part(stint.cpu),
                run_delay: part(stint.delay),
                ..ThreadUsage::default()
            },
        }
    }

    fn row(stint: &Stint) -> StageSummary {
        let (stage, shared) = match stint.kind {
            LaneKind::Worker(stage) => (stage, false),
            _ => (Stage::DECODE, true),
        };
        let busy = stint.cpu + stint.delay + stint.disk;
        StageSummary {
            stage,
            workers: stint.threads,
            shared_workers: shared,
            items: STEPS,
            skipped: 0,
            service: lengths(busy),
            busy: all(busy),
            starved: Nanos::ZERO,
            blocked: Nanos::ZERO,
            run_delay: all(stint.delay),
            bytes_in: 0,
            bytes_out: 0,
            input_queue_mean: 0.0,
        }
    }

    fn summary(&self) -> Summary {
        let step = 48.0 + self.waits;
        let period = step + self.data_wait;
        let trainer = stint(LaneKind::Trainer, 1, 48.0, self.waits);
        let threads = [trainer].into_iter().chain(self.loader.iter().copied());
        let cpu = threads.clone().map(|stint| stint.cpu).sum();
        let causes = self.beside.clone().unwrap_or_default();
        let idle: f64 = causes.iter().map(|(_, ms)| ms).sum();
        Summary {
            window: Interval::new(Nanos::ZERO, all(period)),
            paused: Nanos::ZERO,
            steps: STEPS,
            samples: STEPS,
            device_busy: all(period - self.data_wait.max(idle)),
            busy_intervals: STEPS,
            compute: all(step),
            utilized_from: Nanos::ZERO,
            causes: causes
                .into_iter()
                .map(|(cause, ms)| (cause, all(ms)))
                .collect(),
            over_time: OverTime::default(),
            data_wait: lengths(self.data_wait),
            data_wait_total: all(self.data_wait),
            step: lengths(step),
            step_run_delay: all(self.waits),
            first_batch: None,
            stages: self.loader.iter().map(Made::row).collect(),
            slowest_samples: Vec::new(),
            profile: Profile::default(),
            workers: threads
                .flat_map(|stint| (0..stint.threads).map(move |name| Made::worker(&stint, name)))
                .collect(),
            process_cpu: Some(all(cpu)),
            others_cpu: self.others.map(all),
            records: 0,
            readings: 0,
            dropped: 0,
            complete: true,
        }
    }

    fn shape(&self) -> LoaderShape {
        let knobs = StageKnobs {
            workers: 1,
            prefetch: 2,
        };
        LoaderShape {
            pipeline: Pipeline::IMAGES,
            layout: match self.num_workers {
                Some(num_workers) => Layout::WholeBatch {
                    num_workers,
                    prefetch_factor: 2,
                },
                None => Layout::PerStage {
                    samples: vec![knobs, knobs, knobs],
                    batch: knobs,
                },
            },
            copy: knobs,
            has_device: true,
            resident: None,
            device_beside: self.beside.is_some(),
            disk: None,
            copy_latency: Nanos::ZERO,
            value_bytes: 4,
            cores: self.cores,
        }
    }

    fn guard(&self) -> Option<Guard> {
        Guard::of(&self.summary(), &self.shape())
    }
}

#[test]
fn decode_workers_that_take_the_trainers_core_are_named_with_their_cost() {
    let guard = eight().guard().unwrap();
    insta::assert_snapshot!(guard.line(), @"the trainer's own thread waited for a core 25 % of its step time: 8 decode workers are too many for 2 cores, 1 is enough; try --set decode.workers=1 (at most 1.33x)");
    let verdict = Verdict::of(&eight().summary(), &eight().shape());
    insta::assert_snapshot!(verdict.line(), @"short of cores: the trainer waits for data 0.0 % of the time, the device is busy 100.0 %; the trainer's own thread waited for a core 25 % of its step time: 8 decode workers are too many for 2 cores, 1 is enough; try --set decode.workers=1 (at most 1.33x)");
}

#[test]
fn so_are_workers_of_whole_batches() {
    let made = Made {
        loader: vec![stint(LaneKind::BatchWorker, 8, 44.0, 137.0)],
        num_workers: Some(8),
        ..eight()
    };
    let guard = made.guard().unwrap();
    assert_eq!((guard.stage, guard.workers), (None, 8));
    assert_eq!(guard.suggestion.sets(), ["num_workers=2"]);
}

/// Workers that are all needed: 8, busy 20 % each, are two; 3, busy 95 %, are three.
#[test]
fn so_many_as_their_work_takes_are_enough() {
    let of = |threads, cpu| Made {
        loader: vec![decode(threads, cpu, 2.0 * cpu)],
        cores: 4.0,
        ..eight()
    };
    assert_eq!(of(8, 0.2 * 8.0 * 48.0).guard().unwrap().enough, 2);
    assert_eq!(of(3, 0.95 * 3.0 * 48.0).guard(), None);
}

#[test]
fn a_single_worker_is_never_too_many() {
    let made = Made {
        waits: 8.0,
        loader: vec![decode(1, 44.0, 6.0)],
        ..eight()
    };
    assert_eq!(made.guard(), None);
}

#[test]
fn waiting_less_than_one_twentieth_is_left_alone() {
    let made = |waits| Made {
        waits,
        loader: vec![decode(8, 36.0, 100.0)],
        ..eight()
    };
    assert!(made(4.0).guard().is_some());
    assert_eq!(made(2.4).guard(), None);
}

#[test]
fn readers_that_wait_for_a_disk_keep_nobody_from_a_core() {
    let readers = Stint {
        disk: 320.0,
        ..stint(LaneKind::Worker(Stage::READ), 32, 2.5, 2.0)
    };
    let mut made = Made {
        waits: 4.0,
        loader: vec![readers, decode(1, 42.0, 5.0)],
        ..eight()
    };
    assert_eq!(made.guard(), None);
    // Nor where they are all there is.
    made.loader = vec![readers];
    assert_eq!(made.guard(), None);
}

#[test]
fn cores_that_are_full_of_necessary_work_are_not_crowded() {
    // 48 ms of steps and 80 of decoding take two cores 64 ms, which they had nearly to themselves.
    let made = Made {
        waits: 20.0,
        loader: vec![decode(8, 80.0, 240.0)],
        others: Some(0.5),
        ..eight()
    };
    assert_eq!(made.guard(), None);
    let line = Verdict::of(&made.summary(), &made.shape()).line();
    assert!(!line.contains("workers="), "{line}");
}

#[test]
fn a_starved_device_is_not_to_get_fewer_workers() {
    // Two workers decode 100 ms of each 72 without a pause, the trainer waits for them.
    let made = Made {
        waits: 6.0,
        loader: vec![decode(2, 100.0, 44.0)],
        data_wait: 18.0,
        cores: 4.0,
        others: Some(100.0),
        ..eight()
    };
    assert_eq!(made.guard(), None);
}

#[test]
fn what_other_programs_took_is_not_the_loaders() {
    let made = |others| Made {
        waits: 30.0,
        loader: vec![decode(2, 5.0, 12.0)],
        others,
        ..eight()
    };
    assert_eq!(made(Some(100.0)).guard(), None);
    assert_eq!(made(None).guard(), None, "nobody knows");
}

#[test]
fn others_are_named_beside_the_loader() {
    let made = Made {
        waits: 30.0,
        others: Some(16.0),
        ..eight()
    };
    let guard = made.guard().unwrap();
    assert!(guard.waited_share > guard.lost_share + 0.05);
    assert!(
        guard.message.contains("for other programs"),
        "{}",
        guard.message
    );
}

#[test]
fn launches_that_come_late_for_want_of_a_core_are_named() {
    let beside = |waits, causes: &[(Cause, f64)]| Made {
        waits,
        beside: Some(causes.to_vec()),
        ..eight()
    };
    let contention = beside(17.0, &[(Cause::CpuContention, 9.0)]);
    insta::assert_snapshot!(contention.guard().unwrap().line(), @"13 % of the time the device was idle since the thread it waited for had no core: 8 decode workers are too many for 2 cores, 1 is enough; try --set decode.workers=1 (at most 1.15x)");
    let launch = Cause::Host(HostWork::Launch);
    let late = beside(17.0, &[(launch, 9.0), (Cause::CpuContention, 2.0)]);
    let lost = |made: &Made| made.guard().unwrap().lost_share;
    assert!((lost(&late) / lost(&contention) - 11.0 / 9.0).abs() < 1e-6);
    // Late for another reason: the thread had its core.
    assert_eq!(beside(1.0, &[(launch, 9.0)]).guard(), None);
    // The thread waits and the device does not notice.
    assert_eq!(beside(17.0, &[]).guard(), None);
}

#[test]
fn without_a_loader_or_a_device_there_is_nothing_to_guard() {
    let made = eight();
    let silent = |shape: LoaderShape| assert_eq!(Guard::of(&made.summary(), &shape), None);
    silent(LoaderShape {
        resident: Some(Place::Device),
        ..made.shape()
    });
    silent(LoaderShape {
        has_device: false,
        ..made.shape()
    });
    silent(LoaderShape {
        layout: Layout::WholeBatch {
            num_workers: 0,
            prefetch_factor: 1,
        },
        ..made.shape()
    });
}

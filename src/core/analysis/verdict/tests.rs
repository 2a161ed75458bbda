use super::*;
use crate::analysis::profile::Profile;
use crate::analysis::{Change, Disk, LengthSummary, OverTime, WorkerSummary};
use crate::timeline::{
    HostWork, Interval, LaneKind, Layout, Pipeline, Stage, StageKnobs, ThreadUsage,
};

const MS: u64 = 1_000_000;

fn lengths(count: u64, mean_ms: u64) -> LengthSummary {
    let mean = Nanos(mean_ms * MS);
    LengthSummary {
        count,
        mean,
        p50: mean,
        p90: mean,
        p99: mean,
        max: mean,
    }
}

fn row(stage: Stage, workers: usize, ms_per_step: u64) -> StageSummary {
    StageSummary {
        stage,
        workers,
        shared_workers: false,
        items: 100,
        skipped: 0,
        service: lengths(100, ms_per_step),
        busy: Nanos(100 * ms_per_step * MS),
        starved: Nanos::ZERO,
        blocked: Nanos::ZERO,
        run_delay: Nanos::ZERO,
        bytes_in: 0,
        bytes_out: 0,
        input_queue_mean: 0.0,
    }
}

/// 100 steps of `period` ms each, of which the trainer works `step` ms; `causes` and `stages` in ms per
/// step; `cpu` is the process's CPU time per step.
fn summary(
    period: u64,
    step: u64,
    causes: &[(Cause, u64)],
    stages: &[(Stage, usize, u64)],
    cpu: u64,
) -> Summary {
    let idle: u64 = causes.iter().map(|(_, ms)| ms).sum();
    Summary {
        window: Interval::new(Nanos::ZERO, Nanos(100 * period * MS)),
        paused: Nanos::ZERO,
        steps: 100,
        samples: 100,
        device_busy: Nanos(100 * (period - idle) * MS),
        busy_intervals: 100,
        compute: Nanos(100 * (period - idle) * MS),
        utilized_from: Nanos::ZERO,
        causes: causes
            .iter()
            .map(|(cause, ms)| (*cause, Nanos(100 * ms * MS)))
            .collect(),
        over_time: OverTime::default(),
        data_wait: lengths(100, period - step),
        data_wait_total: Nanos(100 * (period - step) * MS),
        step: lengths(100, step),
        step_run_delay: Nanos::ZERO,
        first_batch: None,
        stages: stages
            .iter()
            .map(|(stage, workers, ms)| row(*stage, *workers, *ms))
            .collect(),
        slowest_samples: Vec::new(),
        profile: Profile::default(),
        workers: Vec::new(),
        process_cpu: Some(Nanos(100 * cpu * MS)),
        others_cpu: None,
        records: 0,
        readings: 0,
        dropped: 0,
        complete: true,
    }
}

const TWO_AHEAD: StageKnobs = StageKnobs {
    workers: 1,
    prefetch: 2,
};

fn shape(cores: u8) -> LoaderShape {
    LoaderShape {
        pipeline: Pipeline::IMAGES,
        layout: Layout::PerStage {
            samples: vec![TWO_AHEAD, TWO_AHEAD, TWO_AHEAD],
            batch: TWO_AHEAD,
        },
        copy: TWO_AHEAD,
        has_device: true,
        resident: None,
        device_beside: false,
        disk: None,
        copy_latency: Nanos::ZERO,
        value_bytes: 4,
        cores: f64::from(cores),
    }
}

fn whole_batches(num_workers: usize) -> Layout {
    Layout::WholeBatch {
        num_workers,
        prefetch_factor: 2,
    }
}

/// Nothing about the loader is to be changed, whatever is in the way of the device.
#[test]
fn without_the_loader_the_rate_is_the_devices_own() {
    let resident = |causes: &[(Cause, u64)], step| {
        let mut found = summary(20, step, causes, &[], 20);
        found.data_wait_total = Nanos::ZERO;
        let shape = LoaderShape {
            resident: Some(Place::Device),
            device_beside: true,
            ..shape(2)
        };
        Verdict::of(&found, &shape)
    };
    let busy = resident(&[], 20);
    assert_eq!(busy.input_bound, InputBound::Not);
    insta::assert_snapshot!(busy.line(), @"device-only: the loader is out of the way, this is the device's own rate; the trainer waits for data 0.0 % of the time, the device is busy 100.0 %");
    let launch = resident(
        &[(Cause::Host(HostWork::Launch), 5), (Cause::WakeUp, 1)],
        14,
    );
    insta::assert_snapshot!(launch.line(), @"device-only: the loader is out of the way, this is the device's own rate; the trainer waits for data 0.0 % of the time, the device is busy 70.0 %; 83 % of device idle is host: launch");
    let crowded = resident(&[(Cause::CpuContention, 6)], 14);
    assert_eq!(crowded.input_bound, InputBound::Not);
    assert_eq!(crowded.suggestion, None);
    let read_back = resident(&[(Cause::Host(HostWork::LossReadback), 5)], 15);
    insta::assert_snapshot!(read_back.line(), @"device-only: the loader is out of the way, this is the device's own rate; the trainer waits for data 0.0 % of the time, the device is busy 75.0 %; 100 % of device idle is host: loss read-back; try reading the loss back less often (at most 1.33x)");
}

const DECODE: Cause = Cause::Capacity(Stage::DECODE);

#[test]
fn more_workers_gain_what_the_next_floor_allows() {
    // Decode takes 90 ms of 90; the trainer needs 20, preprocess 40.
    let found = summary(
        90,
        20,
        &[(DECODE, 70)],
        &[(Stage::DECODE, 1, 90), (Stage::PREPROCESS, 1, 40)],
        150,
    );
    let verdict = Verdict::of(&found, &shape(16));
    insta::assert_snapshot!(verdict.line(), @"loader-bound: decode has 1 worker, busy 100.0 %; 100 % of device idle is decode capacity; try --set decode.workers=3 (at most 2.25x)");
}

#[test]
fn saturated_cores_get_cheaper_work_instead() {
    let found = summary(
        90,
        20,
        &[(Cause::Capacity(Stage::PREPROCESS), 70)],
        &[(Stage::DECODE, 1, 80), (Stage::PREPROCESS, 1, 88)],
        178,
    );
    let verdict = Verdict::of(&found, &shape(2));
    insta::assert_snapshot!(verdict.line(), @"loader-bound: preprocess has 1 worker, busy 97.8 %; 100 % of device idle is preprocess capacity; of 2 cores 99 % are in use, more workers cannot help; try samples stored preprocessed (at most 4.50x)");
}

/// Three quarters of the pixels are cropped away, whether floats are left of them or bytes.
#[test]
fn the_bound_on_pixels_counts_pixels() {
    let at_most = |value_bytes, bytes_out| {
        let slow = [(Stage::DECODE, 1, 88), (Stage::PREPROCESS, 1, 8)];
        let mut found = summary(90, 20, &[(DECODE, 70)], &slow, 178);
        found.stages[0].bytes_out = 4_000;
        found.stages[1].bytes_out = bytes_out;
        let shape = LoaderShape {
            value_bytes,
            ..shape(2)
        };
        Verdict::of(&found, &shape).suggestion.unwrap().at_most
    };
    let (floats, bytes) = (at_most(4, 4_000), at_most(1, 1_000));
    assert_eq!(floats, bytes);
    assert!(
        (floats - 90.0 / (0.25 * 88.0 + 0.5 * 82.0)).abs() < 2.0,
        "{floats}"
    );
}

#[test]
fn a_loader_that_holds_back_in_many_ways_outweighs_one_long_host_cause() {
    let causes = [
        (Cause::Host(HostWork::LossReadback), 30),
        (DECODE, 25),
        (Cause::CpuContention, 20),
    ];
    let found = summary(100, 45, &causes, &[(Stage::DECODE, 1, 95)], 120);
    assert_eq!(Verdict::of(&found, &shape(16)).title, "loader-bound");
}

#[test]
fn a_busy_device_leaves_nothing_to_try() {
    let found = summary(
        50,
        50,
        &[(Cause::WakeUp, 1)],
        &[(Stage::DECODE, 1, 45)],
        100,
    );
    let verdict = Verdict::of(&found, &shape(16));
    assert_eq!(
        (verdict.title.as_str(), &verdict.suggestion),
        ("device-bound", &None)
    );
}

#[test]
fn idle_without_data_wait_is_the_host() {
    let causes = [(Cause::Host(HostWork::LossReadback), 20)];
    let found = summary(50, 50, &causes, &[(Stage::DECODE, 1, 25)], 60);
    let verdict = Verdict::of(&found, &shape(16));
    insta::assert_snapshot!(verdict.line(), @"host-bound: the trainer waits for data 0.0 % of the time, the device is busy 60.0 %; 100 % of device idle is host: loss read-back; try reading the loss back less often (at most 1.67x)");
}

#[test]
fn a_little_idle_that_the_loader_causes_is_not_the_hosts() {
    let causes = [(DECODE, 7), (Cause::Host(HostWork::Other), 1)];
    let found = summary(100, 96, &causes, &[(Stage::DECODE, 1, 98)], 200);
    let verdict = Verdict::of(&found, &shape(16));
    insta::assert_snapshot!(verdict.line(), @"not input-bound: decode has 1 worker, busy 98.0 %; the trainer waits for data 4.0 % of the time, the device is busy 92.0 %; 88 % of device idle is decode capacity");
}

#[test]
fn saturated_cores_never_get_more_workers() {
    // 92 % of two cores are in use: the floor alone would allow 1.09x.
    let found = summary(100, 20, &[(DECODE, 80)], &[(Stage::DECODE, 1, 100)], 184);
    let suggestion = Verdict::of(&found, &shape(2)).suggestion.unwrap();
    assert_eq!(suggestion.sets(), [""; 0], "{suggestion:?}");
}

/// A worker that waits for a core 90 ms of 100, as more than two may do who are woken together.
fn crowded(cpu: u64, others: Option<u64>) -> Summary {
    let causes = [(Cause::CpuContention, 50), (DECODE, 30)];
    let mut found = summary(100, 20, &causes, &[(Stage::DECODE, 1, 90)], cpu);
    found.others_cpu = others.map(|ms| Nanos(100 * ms * MS));
    found.workers = vec![WorkerSummary {
        name: "decode 0".to_owned(),
        kind: LaneKind::Worker(Stage::DECODE),
        items: 100,
        busy: Nanos(100 * 90 * MS),
        starved: Nanos(100 * 10 * MS),
        blocked: Nanos::ZERO,
        usage: ThreadUsage {
            run_delay: Nanos(100 * 90 * MS),
            ..ThreadUsage::default()
        },
    }];
    found
}

#[test]
fn cores_that_others_have_are_said_to_be_theirs() {
    let verdict = Verdict::of(&crowded(100, Some(90)), &shape(2));
    insta::assert_snapshot!(verdict.line(), @"loader-bound: 62 % of device idle is CPU contention; other programs used 45 % of 2 cores, this process 50 %");
}

/// A worker that waits for its disk needs no core: others that have them are no reason against another.
#[test]
fn workers_that_wait_for_a_disk_are_not_held_up_by_others() {
    let read = (Cause::Capacity(Stage::READ), 80);
    let mut found = summary(100, 20, &[read], &[(Stage::READ, 1, 99)], 4);
    found.others_cpu = Some(Nanos(100 * 196 * MS));
    let suggestion = Verdict::of(&found, &shape(2)).suggestion.unwrap();
    assert_eq!(suggestion.sets(), ["read.workers=5"], "{suggestion:?}");
}

/// Cores that were idle half of the time are nobody's fault.
#[test]
fn nobody_is_blamed_for_cores_that_were_idle() {
    for others in [None, Some(0), Some(10)] {
        let verdict = Verdict::of(&crowded(100, others), &shape(2));
        insta::allow_duplicates! {
            insta::assert_snapshot!(verdict.line(), @"loader-bound: 62 % of device idle is CPU contention; try --set decode.workers=2 (at most 2.00x)");
        }
    }
}

/// The trainer's own late wake-ups, and what nobody knows.
#[test]
fn what_is_no_loaders_cause_is_not_the_loaders() {
    for (cause, title) in [
        (Cause::WakeUp, "late wake-ups"),
        (Cause::Unattributed, "not known"),
    ] {
        let found = summary(50, 35, &[(cause, 15)], &[(Stage::DECODE, 1, 10)], 40);
        for device_beside in [false, true] {
            let shape = LoaderShape {
                device_beside,
                ..shape(16)
            };
            let verdict = Verdict::of(&found, &shape);
            assert_eq!(verdict.title, title, "{}", verdict.line());
            assert_eq!((verdict.suggestion, &verdict.slack[..]), (None, &[][..]));
        }
    }
}

#[test]
fn device_side_wins_where_it_holds_most_of_the_idle() {
    let causes = [(Cause::DeviceSide, 20), (DECODE, 10)];
    let found = summary(50, 50, &causes, &[(Stage::DECODE, 1, 25)], 60);
    let beside = LoaderShape {
        device_beside: true,
        ..shape(16)
    };
    let verdict = Verdict::of(&found, &beside);
    insta::assert_snapshot!(verdict.line(), @"device-bound: the trainer waits for data 0.0 % of the time, the device is busy 40.0 %; 67 % of device idle is device side");
    assert_eq!(verdict.suggestion, None);
}

#[test]
fn workers_free_the_trainers_thread_of_loading_and_copying() {
    // 20 ms a step, 60 ms of loading and 20 ms of copying, all in the trainer's thread.
    let stages = [(Stage::DECODE, 0, 60), (Stage::COPY, 0, 20)];
    let found = summary(
        100,
        20,
        &[(DECODE, 60), (Cause::Capacity(Stage::COPY), 20)],
        &stages,
        100,
    );
    let shape = LoaderShape {
        layout: whole_batches(0),
        ..shape(16)
    };
    insta::assert_snapshot!(Verdict::of(&found, &shape).line(), @"loader-bound: decode takes 60.0 % of the time of the trainer's thread; 75 % of device idle is decode capacity; try --set num_workers=3 (at most 5.00x)");
}

#[test]
fn a_copy_that_lacks_room_gets_room_behind_it() {
    let causes = [(Cause::PrefetchDepth(Stage::COPY), 30)];
    let found = summary(50, 20, &causes, &[(Stage::COPY, 1, 15)], 60);
    let shape = LoaderShape {
        layout: whole_batches(2),
        ..shape(16)
    };
    let suggestion = Verdict::of(&found, &shape).suggestion.unwrap();
    assert_eq!(suggestion.sets(), ["copy.prefetch=4"]);
}

#[test]
fn copying_ahead_leaves_the_copy_itself() {
    // The trainer's thread copies 30 ms and steps 20 ms: ahead, the copy is the floor.
    let causes = [(Cause::Capacity(Stage::COPY), 30)];
    let stages = [(Stage::DECODE, 1, 10), (Stage::COPY, 1, 30)];
    let found = summary(50, 20, &causes, &stages, 60);
    let shape = LoaderShape {
        copy: StageKnobs {
            workers: 0,
            ..TWO_AHEAD
        },
        ..shape(16)
    };
    let suggestion = Verdict::of(&found, &shape).suggestion.unwrap();
    assert_eq!(
        suggestion.text(),
        "try --set copy.workers=1 (at most 1.67x)"
    );
}

#[test]
fn slack_ends_where_something_else_binds() {
    let slack = |cores, step| {
        let found = summary(90, step, &[(DECODE, 70)], &[(Stage::DECODE, 1, 88)], 110);
        let beside = LoaderShape {
            device_beside: true,
            ..shape(cores)
        };
        Verdict::of(&found, &beside).slack[0].to_string()
    };
    assert_eq!(
        slack(16, 5),
        "decode workers 4.40x (next limit: the device)"
    );
    assert_eq!(slack(2, 5), "decode workers 1.60x (next limit: the cores)");
}

/// More workers for one of them alone are no use.
#[test]
fn stages_that_are_as_slow_are_changed_together() {
    let slow = [(Stage::DECODE, 1, 88), (Stage::PREPROCESS, 1, 87)];
    let found = summary(90, 20, &[(DECODE, 70)], &slow, 110);
    let verdict = Verdict::of(&found, &shape(16));
    insta::assert_snapshot!(verdict.line(), @"loader-bound: decode has 1 worker, busy 97.8 %; preprocess has 1 worker, busy 96.7 %; 100 % of device idle is decode capacity; try --set decode.workers=5 --set preprocess.workers=5 (at most 4.50x)");
    let slack: Vec<String> = verdict.slack.iter().map(Slack::to_string).collect();
    assert_eq!(
        slack,
        [
            "decode workers 1.01x (next limit: preprocess workers)",
            "preprocess workers 1.00x (next limit: decode workers)"
        ]
    );
    // Copies of the trainer's thread are as slow as a stage's only worker.
    let copies = [(Stage::DECODE, 1, 88), (Stage::COPY, 0, 68)];
    let found = summary(90, 20, &[(DECODE, 70)], &copies, 110);
    let copying = LoaderShape {
        copy: StageKnobs {
            workers: 0,
            ..TWO_AHEAD
        },
        ..shape(16)
    };
    let suggestion = Verdict::of(&found, &copying).suggestion.unwrap();
    assert_eq!(suggestion.sets(), ["decode.workers=2", "copy.workers=1"]);
}

/// What else is as slow is the device: no workers make that faster.
#[test]
fn more_workers_that_buy_nothing_are_not_proposed() {
    let mut found = summary(90, 20, &[(DECODE, 8)], &[(Stage::DECODE, 1, 88)], 110);
    found.device_busy = Nanos(100 * 86 * MS);
    let beside = LoaderShape {
        device_beside: true,
        ..shape(16)
    };
    let suggestion = Verdict::of(&found, &beside).suggestion;
    assert_eq!(suggestion, None);
}

#[test]
fn without_a_device_the_loader_is_judged_alone() {
    let found = summary(
        40,
        0,
        &[(DECODE, 30), (Cause::Capacity(Stage::READ), 10)],
        &[(Stage::READ, 2, 10), (Stage::DECODE, 2, 60)],
        75,
    );
    let shape = LoaderShape {
        layout: whole_batches(2),
        has_device: false,
        ..shape(16)
    };
    insta::assert_snapshot!(Verdict::of(&found, &shape).line(), @"loader alone: decode has 2 workers, busy 75.0 %; 75 % of the loader's time is decode capacity; try --set num_workers=15 (at most 8.53x)");
}

#[test]
fn a_device_that_hardly_idles_is_what_binds_though_its_trainer_waits() {
    // The trainer waits 8 ms of 20 for data while the device has two more steps to do.
    let found = summary(20, 12, &[], &[(Stage::DECODE, 1, 18)], 20);
    let beside = LoaderShape {
        device_beside: true,
        ..shape(16)
    };
    let verdict = Verdict::of(&found, &beside);
    insta::assert_snapshot!(verdict.line(), @"device-bound: the trainer waits for data 40.0 % of the time, the device is busy 100.0 %");
}

#[test]
fn more_workers_do_not_make_a_disk_seek_faster() {
    // 384 ms of seeks a step; of 4 workers each waits for the other three.
    for workers in [1, 4] {
        let mut found = summary(
            400,
            20,
            &[(Cause::Capacity(Stage::READ), 380)],
            &[(Stage::READ, workers, 400), (Stage::DECODE, 1, 90)],
            150,
        );
        found.stages[0].service = lengths(100, 384 * workers as u64);
        let disk = Disk {
            seek_per_sample: Nanos(384 * MS),
            bytes_per_second: None,
        };
        let seeking = LoaderShape {
            disk: Some(disk),
            ..shape(16)
        };
        let suggestion = Verdict::of(&found, &seeking).suggestion.unwrap();
        assert_eq!(
            suggestion.text(),
            "try reading samples in the order in which they lie on the disk (at most 4.44x)"
        );
    }
}

/// Reads wait for latency; a run that is slower than its bound gains nothing from another order.
#[test]
fn a_disk_that_does_not_seek_is_not_read_in_order() {
    let slow = [(Stage::READ, 2, 140), (Stage::DECODE, 2, 6)];
    let found = summary(90, 20, &[(Cause::Capacity(Stage::READ), 70)], &slow, 144);
    let disk = Disk {
        seek_per_sample: Nanos::ZERO,
        bytes_per_second: Some(10_000_000_000),
    };
    let waiting = LoaderShape {
        layout: whole_batches(2),
        disk: Some(disk),
        ..shape(2)
    };
    let verdict = Verdict::of(&found, &waiting);
    let change = verdict.suggestion.as_ref().map(|found| &found.change);
    assert_ne!(change, Some(&Change::ReadInOrder), "{}", verdict.line());
}

/// Two thirds of what the steps took was ready when the window began: a step needs what it took, not what was served.
#[test]
fn the_bound_is_of_what_steps_take_and_not_of_what_was_served_in_the_window() {
    let mut found = summary(100, 20, &[(DECODE, 80)], &[(Stage::DECODE, 1, 90)], 60);
    let all = Bound::measured(&found, &shape(2)).work(Stage::DECODE);
    found.stages[0].items = 33;
    let third = Bound::measured(&found, &shape(2)).work(Stage::DECODE);
    assert!((third / all - 1.0).abs() < 1e-9, "{third} of {all}");
}

/// Threads that compute have the cores, and it is not known whose: what would help is not either.
#[test]
fn a_trainer_that_waits_for_a_core_is_short_of_them() {
    let causes = [(Cause::CpuContention, 5)];
    let mut found = summary(15, 13, &causes, &[(Stage::DECODE, 8, 9)], 20);
    found.data_wait_total = Nanos::ZERO;
    let beside = LoaderShape {
        device_beside: true,
        ..shape(2)
    };
    let verdict = Verdict::of(&found, &beside);
    insta::assert_snapshot!(verdict.line(), @"short of cores: the trainer waits for data 0.0 % of the time, the device is busy 66.7 %; 100 % of device idle is CPU contention");
    found.others_cpu = Some(Nanos(100 * 9 * MS));
    let line = Verdict::of(&found, &beside).line();
    assert!(
        line.ends_with("; other programs used 30 % of 2 cores, this process 67 %"),
        "{line}"
    );
}
